package worlds

import (
	"strings"
	"testing"
)

// windowRows are all windows. Of a step of a plan that crashes a process the point must be
// reached before the restart that follows.
var windowRows = []windowRow{
	{
		number: "1", window: "a Put is lost on its way", done: "the same bytes are put again; it cannot be told from 2",
		plan: `2s fault 20s fail-before PutMessage first=10`,
	},
	{
		number: "2", window: "the answer of a Put is lost", done: "the same bytes are put again; the copy is recognised by the identity of its tasks",
		plan:  "2s fault 20s answer-lost PutMessage first=8\n4s fault 20s hang-after PutMessage first=2",
		tests: []string{"distributor.TestLostAnswersMakeDuplicatesAndLoseNothing"},
	},
	{
		number: "3", window: "a Get is lost on its way", done: "polled again",
		plan:  `2s fault 20s fail-before GetMessages first=10`,
		tests: []string{"worlds.TestWindow3AGetThatIsLostIsMadeAgain"},
	},
	{
		number: "4", window: "the answer of a Get is lost, cut, or cannot be decoded", done: "never read as empty; the hidden messages come back when their visibility ends, without an attempt",
		plan:  "2s fault 20s answer-lost GetMessages first=4\n5s fault 20s cut-body GetMessages first=4",
		tests: []string{"worlds.TestWindow4AnAnswerToAGetThatIsLostOrCutIsNotEmptiness", "azure.FuzzScanMessages"},
	},
	{
		open: true, number: "5", window: "a crash after a Get, before the work", done: "the visibility ends; delivered again",
		plan:  "3s crash p1 after get 2\n9s restart p1",
		hits:  []string{"crash after get"},
		tests: []string{"worlds.TestWindow5AMessageThatWasTakenByAProcessThatDiedComesBack"},
	},
	{
		open: true, number: "6", window: "a crash in the handler, or between effect and ledger", done: "delivered again; a reducer's effect is in the same entity as the ledger",
		plan:  "3s crash p1 before effect 4\n9s restart p1",
		hits:  []string{"crash before effect"},
		tests: []string{"record.TestWindow6ACrashBetweenEffectAndLedgerIsRepairedByRedelivery", "worlds.TestWindow6And11AHandlerEndsBeforeAnotherProcessCanGetItsTask"},
	},
	{
		open: true, number: "7", window: "a crash after the effect, before the Delete", done: "effect, ledger, delete, always in this order; what is recorded is only deleted",
		plan:  "3s crash p1 before delete 4\n9s restart p1",
		hits:  []string{"crash before delete"},
		tests: []string{"worlds.TestWindow7WhatWasDoneAndNotDeletedIsDeliveredAgain", "record.TestWindow7ACrashBetweenLedgerAndDeleteIsRecognised"},
	},
	{
		number: "8", window: "a Delete is lost on its way", done: "made again with the same receipt",
		plan:  `2s fault 20s fail-before DeleteMessage first=10`,
		tests: []string{"worlds.TestWindows8And9ADeleteThatIsLostEitherWayIsMadeAgain"},
	},
	{
		number: "9", window: "the answer of a Delete is lost", done: "\"gone\" after one's own effect is success",
		plan: "receipts 400\n2s fault 20s answer-lost DeleteMessage first=8\n4s fault 20s answer-after DeleteMessage first=4",
	},
	{
		number: "10", window: "a lease ends while its handler works, and no other process takes the message", done: "the receipt is still good: deleted with it",
		plan:  "work 5s\n5s pause p1 18s",
		hits:  []string{simPausedWithTasks},
		tests: []string{"worlds.TestWindow10AReceiptIsGoodAfterItsLeaseWhileNobodyElseGetsTheMessage"},
	},
	{
		open: true, number: "11", window: "a lease ends while its handler works, and another takes the message", done: "the deadline runs on the local monotonic clock from when the Get was sent; the ledger's fence drops the older result",
		plan:  "work 5s\n0.3s start p2\n5s pause p1 50s",
		hits:  []string{simPausedWithTasks},
		tests: []string{"worlds.TestWindow6And11AHandlerEndsBeforeAnotherProcessCanGetItsTask"},
	},
	{
		number: "12", window: "a message is back early", done: "as 11; nothing rests on the lease alone",
		plan:  "work 5s\n2s fault 20s reappear-early GetMessages first=6\n3s fault 20s deliver-twice GetMessages first=4",
		tests: []string{"worlds.TestWindow12AMessageThatIsBackEarlyLosesNothing"},
	},
	{
		number: "13", window: "a renewal is lost on its way", done: "made again until the margin; begun after a third of the lease",
		plan:  "work 20s\nhandlers 16\n2s fault 60s fail-before UpdateMessage first=6",
		tests: []string{"worlds.TestWindow13ARenewalThatIsLostIsMadeAgain"},
	},
	{
		number: "14", window: "the answer of a renewal is lost", done: "the receipt is unknown: the lease counts as lost, nothing is deleted, and it comes back",
		plan:  "work 20s\nhandlers 16\n2s fault 60s answer-lost UpdateMessage first=4",
		tests: []string{"worlds.TestWindow14AfterALostAnswerToARenewalTheMessageIsNotDeletedAndComesBack", "worlds.TestWindow14HandlersEndAtTheOldDeadlineAfterALostAnswerToARenewal"},
	},
	{
		number: "15", window: "a renewal races with the delete", done: "one goroutine at a time owns a message's receipt",
		plan:  "work 20s\nhandlers 16\n2s fault 60s delay-after UpdateMessage delay=2s first=20",
		tests: []string{"worlds.TestWindow15RenewalAndDeleteOfAMessageNeverCross"},
	},
	{
		number: "16", window: "a message expires in the queue or in hand", done: "nothing is ever put with an expiry, not into quarantine either",
		play: []func(*testing.T){TestWindow16NothingThatIsPutBackOrQuarantinedExpires},
	},
	{
		open: true, number: "17", window: "a crash between the copy in the poison queue and the delete", done: "put, (ledger,) then delete; the copy has its identity",
		plan:  "trouble 60\n3s crash p1 after poison 1\n25s restart p1",
		hits:  []string{"crash after poison"},
		tests: []string{"worlds.TestWindow17ATaskIsQuarantinedBeforeItsMessageIsDeleted", "worlds.TestWindow17AMessageWhosePoisonQueueIsMissingAndMayNotBeMadeIsKept", "quarantine.TestP44ACrashOrALostRequestBetweenTheStepsLosesNothing"},
	},
	{
		number: "18", window: "a task ends its process", done: "blame by splitting; an attempt is written down before a suspect is opened; the dequeue count alone condemns no task",
		play:  []func(*testing.T){TestWindow18ADequeueCountAloneNeverQuarantines},
		many:  true,
		tests: []string{"trial.TestP42TheOneTaskThatKillsItsProcessIsFoundBySplitting", "trial.TestP42OfSeveralGuiltyTasksEachIsFoundAndNobodyElse"},
	},
	{
		number: "19", window: "a decompression bomb", done: "opened within hard limits; the excess is quarantine, not retry",
		play:  []func(*testing.T){TestABombIsQuarantinedAndNotUnpacked},
		tests: []string{"codec.TestABombIsRefused", "codec.TestADeclaredSizeIsNotTrustedWithMemory", "codec.FuzzCodec"},
	},
	{
		number: "20", window: "one's own write looks like a lost race", done: "every row carries the nonce of its write and is read back",
		plan: "2s fault 60s answer-lost MergeEntity first=6\n3s fault 60s answer-lost UpdateEntity first=3",
		tests: []string{
			"row.TestTryWriteIsWonOrLostOrUnknown", "election.TestOverTheWireNothingIsDoneTwiceOrForgottenWhateverAnswerIsLost",
			"ledger.TestALostAnswerOfACommitIsLearnedByTheNonce",
		},
	},
	{
		number: "20b", window: "a ledger's transaction looks like a lost race", done: "as 20; unchanged and ambiguous: the same bytes go again under the same ETag",
		plan: "2s fault 60s answer-lost Batch first=4\n4s fault 60s hang-after Batch first=2", onlyOnce: true,
		tests: []string{"ledger.TestP35AfterAnAmbiguousAnswerTheSameBytesGoAgain", "ledger.TestP35AValueComputedBeforeIsNeverWrittenOverTheNewETag"},
	},
	{
		number: "21", window: "any 5xx or timeout", done: "\"maybe done\"",
		plan: `2s fault 20s answer-after any service=queue first=60`,
	},
	{
		number: "22", window: "a distributor dies in the middle of its run", done: "the checkpoint is a barrier; the next one continues there, and the rest is recognised",
		plan:  "2.1s start d2\n3s crash d1 after put 8\n40s restart d1",
		hits:  []string{"crash after put", simTakenOver},
		tests: []string{"distributor.TestADeadLeadersRunIsContinuedFromItsCheckpoint"},
	},
	{
		number: "23", window: "two distributors: the old leader was only paused", done: "the election row's epoch and ETag stop its writes; its late Puts are recognised copies",
		plan:  "2.1s start d2\n4s pause d1 60s",
		hits:  []string{simLongPause, simTakenOver},
		tests: []string{"distributor.TestAZombieAddsNothingButDuplicates", "election.TestAZombieCannotSaveAndKnowsIt"},
	},
	{
		open: true, number: "24", window: "a pause between a check and the act", done: "the write itself is conditional",
		plan: "work 5s\n0.3s start p2\n5.05s pause p1 50s\n9s pause d1 45s",
		hits: []string{simSentLate}, many: true,
		tests: []string{"ledger.TestP35ACommitGivenUpThatLandsLateIsAdopted"},
	},
	{
		number: "25", window: "clocks of machines differ, and jump", done: "no decision compares two machines' clocks",
		plan:  "3s clock -40s\n5s clock +65s\n7s clock +600s",
		hits:  []string{"clock jump"},
		tests: []string{"election.TestOverTheWireADeadLeaderIsReplacedAndTheServersClockMayBeOff", "cluster.TestClusterScripts"},
	},
	{
		number: "26", window: "throttling", done: "each throttle lowers the budget of queue and account; the others go on",
		plan:  `2s fault 20s answer any service=queue first=80`,
		tests: []string{"settle.TestWindow26AThrottledServerIsNotAskedMoreThanItGives"},
	},
	{
		number: "27", window: "renewals and deletes are throttled", done: "settling and renewing go first; Gets stop before leases run out",
		plan:  "2s fault 20s answer DeleteMessage first=40\n2s fault 60s answer UpdateMessage first=10\nwork 20s\nhandlers 16",
		tests: []string{"settle.TestWindow27GetsStopBeforeLeasesRunOutForWantOfDeletes"},
	},
	{
		number: "28", window: "an empty page with a continuation token", done: "read to the end",
		plan:  "seed 4",
		hits:  []string{"worlds with empty pages"},
		tests: []string{"azure.TestQueryFollowsContinuationsToTheEnd"},
	},
	{
		number: "29", window: "the approximate count is taken for emptiness", done: "done means that the sealed count is recorded; a count is only believed when it is zero and no process writes there any more",
		play:  []func(*testing.T){TestAnAccountIsNotRemovedWhileAnythingMayBeInItsQueues},
		tests: []string{"closing.TestARunIsNotStuckWhileAnythingIsRecordedOrAQueueMayHoldSomething"},
	},
	{
		number: "30", window: "a copy arrives when the ledger has forgotten its run", done: "entries go when the run is closed, and tasks of closed runs are duplicates",
		plan: "work 3s\n4s copy accounta\n5s copy accountb\n6s copy accounta", onlyOnce: true,
		hits: []string{"copy of a closed run's message"}, many: true,
		tests: []string{"processor.TestP13AClosedRunIsADuplicateAndDeleted", "ledger.TestP37AClosedRunIsPrunedAndItsCountsGo"},
	},
	{
		number: "31", window: "keys collide, or all fall on one partition of the ledger", done: "identity is (run, segment, n), never the key's hash; commits are grouped",
		plan: "keys 1\n2s fault 20s answer Batch first=2", onlyOnce: true,
		tests: []string{"ledger.TestP36SixtyFourSegmentsAreOneTransactionAndNoRead", "ledger.TestTheTableIsThrottledAndSlowAndEverythingIsRecordedAllTheSame"},
	},
	{
		number: "32", window: "text is altered or cut on the way", done: "base64, length and checksum; quarantine with its cause",
		play:  []func(*testing.T){TestWhatCannotBeReadIsQuarantinedWithItsCause},
		tests: []string{"codec.TestAFlippedBitIsFoundOrHarmless", "codec.TestATruncatedEnvelopeIsTruncatedWhereverItEnds"},
	},
	{
		number: "33", window: "a queue is missing, or being deleted", done: "the shard stops with an alarm; distributors make queues, late ones as soon as the account answers, and a drain those that get its segments",
		play:  []func(*testing.T){TestWindow33AMissingQueueStopsItsShardWithAnAlarmAndIsNotMade},
		tests: []string{"distributor.TestAQueueThatStopsTakingMessagesIsWaitedFor", "distributor.TestAQueueStillBeingDeletedIsGoneRoundAndThenMade", "distributor.TestQueuesThatWereLateAreMadeWithoutAPut", "distributor.TestADrainMakesTheQueuesThatGetSegments"},
	},
	{
		number: "34", window: "the shard map changes with messages in flight", done: "queues that drain are read until they are empty; a map is used for Puts only while it is young",
		play:  []func(*testing.T){TestATaskStuckAtAQueueThatDrainsMovesToTheNewHome},
		tests: []string{"distributor.TestADrainingAccountGetsNothingMore", "distributor.TestPutsStopWhenTheMapIsTooOld", "distributor.TestAnAccountAddedInMidRunTakesItsShare"},
	},
	{
		number: "34b", window: "a run or a key is paused, or resumed, while messages are in flight",
		done:  "what is in hand and not begun goes back, and goes back again whenever it is met; what a crash leaves of a put beside its message is a copy (7). The mark is one write, and by a view of before the last one known holds. A mark that is lost is a resume: `status` shows it no more",
		play:  []func(*testing.T){TestARunIsPausedAgainWhileItsMessagesAreHidden, TestAPauseHoldsWhileTheControlAccountIsDark},
		tests: []string{"processor.TestARunThatIsPausedWaitsOutOfTheWay", "processor.TestAKeyThatIsPausedWaitsOutOfTheWay"},
	},
	{
		number: "35", window: "a graceful stop", done: "no Get any more; what runs is finished, the rest made visible again",
		plan:  "work 3s\n0.3s start p2\n5s stop p1",
		hits:  []string{"stop"},
		tests: []string{"processor.TestWindow35AGracefulStopFinishesWhatRunsAndReturnsWhatWasNotStarted", "processor.TestWindow35AHardStopEndsHandlersAndReturnsTheirTasksWithoutAnAttempt", "processor.TestWindow35AGetUnderWayAtTheStopIsWaitedForAndItsMessagesReleased"},
	},
	{
		number: "36", window: "an account comes back without its last writes, or with old messages", done: "old messages are copies (30); `distributor runs repair` puts again what is not recorded; a message of another program that comes back after its delete was acknowledged is done again, as `once` cannot promise",
		play: []func(*testing.T){TestRepairPutsWhatIsMissingUnderItsIdentityAndNothingElse},
	},
	{
		number: "36b", window: "the control account comes back without its last rows, or owner rows are gone",
		done: "fenced again above every epoch that was, by idle owners within two minutes, loudly; what was recorded since is forgotten, so `once` cannot promise that it is not done again, nor that a reducer's state has it",
		play: []func(*testing.T){TestP32LostOwnerRowsAndALedgerPartitionOfAMinuteAgoHealThemselvesLoudly},
	},
	{
		number: "36c", window: "the rows of a run come back as they were before it, or are gone",
		done:  "its distributor makes them again, loudly; without it the next leader makes the run again as broken, and begins another. What processors met meanwhile is in quarantine as that of an unknown run, to be redriven. A run that is open again, and whose distributor is gone, is abandoned: `distributor runs repair` seals it. One that was closed and forgotten and is sealed again ends after a quiet hour, with a warning",
		play:  []func(*testing.T){TestTheRowsOfARunThatAreGoneAreMadeAgainLoudly},
		tests: []string{"distributor.TestARunWhoseRowIsGoneWhenItsLeaderDiesIsBrokenAndAnotherBegins", "distributor.TestARunThatIsOpenAgainIsSealedAndClosedAgain", "closing.TestAClosedRunThatIsSealedAgainEndsByItselfLoudly"},
	},
	{
		number: "36d", window: "the workload's row comes back with an older map",
		done: "a process that has read the newer one puts it back under a version that none had, loudly; a change by an operator in between is undone. Without such a process the queues that only the newer map had are not read until their account is added again",
		play: []func(*testing.T){TestAMapThatWentBackIsPutBackLoudlyByWhoKnowsTheNewer},
	},
	{
		number: "37", window: "messages come out of order", done: "no order is relied upon",
		plan: `2s fault 20s reorder GetMessages first=12`,
	},
	{
		number: "38", window: "a credential expires", done: "a pause and an alarm; no attempt is burnt, nothing is quarantined",
		plan:  `3s fault 20s answer any service=queue status=403 code=AuthenticationFailed first=12 instance=p1`,
		tests: []string{"worlds.TestWindow38ARefusedCredentialPausesAndBurnsNoAttempt", "azure.TestRejectedTokenIsAuthAndIsReplaced"},
	},
	{
		number: "39", window: "a server that hangs", done: "every request has a deadline, within the lease's margin",
		plan: "2s fault 20s hang-before any service=queue first=6\n4s fault 20s hang-after any service=table first=4",
	},
	{number: "A", window: "W1, message A: the Get is lost", done: "as 3", plan: `2s fault 20s fail-before GetMessages first=12 instance=p1`},
	{number: "B", window: "W1, message B: the Get's answer is lost", done: "as 4", plan: `2s fault 20s answer-lost GetMessages first=6 instance=p1`},
	{number: "C", window: "W1, message C: the Delete is lost", done: "as 8", plan: `2s fault 20s fail-before DeleteMessage first=12 instance=p1`},
	{number: "D", window: "W1, message D: the Delete's answer is lost", done: "as 9", plan: `2s fault 20s answer-lost DeleteMessage first=12 instance=p1`},

	crashRow("distributor-1", "a distributor dies when it has read, before it puts", "d1", "before put 8", "12s", "the next one reads again from the checkpoint"),
	crashRow("distributor-2", "it dies when it has put, before it is acknowledged", "d1", "after put 8", "12s", "put again: copies, recognised"),
	crashRow("distributor-3", "it dies when all is acknowledged, before the checkpoint", "d1", "before checkpoint 3", "12s", "put again from the checkpoint before: copies, recognised"),
	crashRow("distributor-4", "it dies when the checkpoint is written, before it knows", "d1", "after checkpoint 3", "12s", "the next one continues at the new one"),
	crashRow("distributor-5", "it dies before the run is sealed", "d1", "before seal 1", "40s", "the next one reads on from the checkpoint and seals"),
	crashRow("distributor-6", "it dies when the run is sealed, before it knows", "d1", "after seal 1", "40s", "the next leader finds the run at its end"),
	crashRow("processor-1", "a processor dies before its Get is sent", "p1", "before get 3", "12s", "its segments are claimed"),
	crashRow("processor-2", "it dies when the Get has acted", "p1", "after get 3", "12s", "as 5"),
	crashRow("processor-3", "it dies when a message is open, before the effect", "p1", "before effect 6", "12s", "as 6"),
	crashRow("processor-4", "it dies after the effect, before anything says so", "p1", "after effect 6", "12s", "as 6: this window stays open for effects outside; a reducer's effect is in the ledger's row"),
	crashRow("processor-5", "it dies before the poison copy is put", "p1", "before poison 1", "30s", "the task is handled again"),
	crashRow("processor-6", "it dies when the poison copy is put", "p1", "after poison 1", "30s", "as 17"),
	onlyOnce(crashRow("processor-7", "it dies before the ledger's commit", "p1", "before commit 3", "12s", "as 6")),
	onlyOnce(crashRow("processor-8", "it dies when the commit has acted", "p1", "after commit 3", "12s", "the next owner knows the tasks as done")),
	crashRow("processor-9", "it dies before the Delete", "p1", "before delete 6", "12s", "as 7"),
	crashRow("processor-10", "it dies when the Delete has acted", "p1", "after delete 6", "12s", "nothing is left to do"),
	crashRow("processor-11", "it dies before a message is rewritten", "p1", "before replace 2", "30s", "the whole message comes back; what is recorded is not done again"),
	crashRow("processor-12", "it dies when the rewrite has acted", "p1", "after replace 2", "30s", "the rest comes back with its attempt"),
	keepsRow("results-1", "a processor that keeps results dies before an object is put", "before object 2", "as 6"),
	keepsRow("results-2", "it dies when the object is put", "after object 2", "nothing leads to the object; the tasks are done again, and their results are others"),
	onlyOnce(keepsRow("results-3", "it dies before the commit that names the object", "before commit 3", "as results-2")),
	onlyOnce(keepsRow("results-4", "it dies when the commit has acted", "after commit 3", "the object is the last one of its chain; the next owner's follow it")),
	onlyPlain(keepsRow("results-5", "it dies before the row that leads to the object", "before note 2", "as results-2")),
	onlyPlain(keepsRow("results-6", "it dies when the row is written", "after note 2", "the results are kept; the tasks are done again, and have two")),
	keepsRow("results-7", "it dies before the Delete of a message whose results are kept", "before delete 6", "as 7"),
	keepsRow("results-8", "it dies when that Delete has acted", "after delete 6", "nothing is left to do"),
}

// keepsRow is such a crash of a processor that keeps results. Each task must have its result then.
func keepsRow(number, window, point, done string) windowRow {
	row := crashRow(number, window, "p1", point, "12s", done)
	row.plan = "results yes\n" + row.plan
	return row
}

// crashRow is a crash between two steps, after which the process is started again.
func crashRow(number, window, who, point, restart, done string) windowRow {
	plan := "2s crash " + who + " " + point + "\n" + restart + " restart " + who
	if restart == "30s" { // something must fail first
		plan = "trouble 60\n" + plan
	}
	at := strings.Fields(point)
	return windowRow{number: number, window: window, done: done, plan: plan, open: who == "p1", hits: []string{"crash " + at[0] + " " + at[1]}}
}

func onlyOnce(r windowRow) windowRow {
	r.onlyOnce = true
	return r
}

func onlyPlain(r windowRow) windowRow {
	r.onlyPlain = true
	return r
}
