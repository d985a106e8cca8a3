package metrics

import (
	"time"

	"github.com/queuepump/queuepump/pump"
)

func sketchOfBacklog() *pump.Backlog {
	return &pump.Backlog{Accounts: make([]pump.WaitingAccount, 1)}
}

// ofBacklog are what waits. Only the process that samples has them, so that a sum or a maximum over
// all processes is right.
func ofBacklog(b *pump.Backlog, now time.Time) []group {
	groups := []group{{samples: []sample{
		known("backlog_seconds", b.Seconds,
			"Estimate: how long it takes to do what waits at the rate of "+
				"queuepump_messages_done_per_second, which counts as one an hour at least."),
		known("messages_done_per_second", b.Done,
			"Estimate: messages that all processors do a second, by the deletes in their beats; "+
				"it rises at once and falls within a minute or two while something waits."),
	}}}
	for _, a := range b.Accounts {
		groups = append(groups, labelled("account", a.Name,
			gauge("backlog_messages", a.Visible,
				"Estimate: messages that wait for a processor. "+
					"The service's approximate count, less what live members said in their last beats "+
					"to hold and to have put back for later; exact where a queue holds 32 or fewer."),
			gauge("backlog_in_flight_messages", a.InFlight,
				"Estimate: messages in the hands of live processors, as of their last beats."),
			gauge("backlog_delayed_messages", a.Delayed,
				"Estimate: messages that live members have put back for later, as of their last beats; "+
					"what a member that has ended put back counts as waiting."),
			gauge("backlog_oldest_seconds", a.Oldest,
				"Estimate: age of the first message that a peek shows, the oldest of all queues, "+
					"by the process's clock; 0: nothing is visible. "+
					"A message that was put back is as old as when it was put."),
			gauge("quarantine_messages", a.Quarantined,
				"Estimate: messages in the poison queue, as the service counts."),
			gauge("account_limit_used_ratio", a.LimitUsed,
				"Estimate: messages a second that all live members would ask of the account, "+
					"divided by its limit; above 1 the limit holds them back."),
			gauge("backlog_sample_age_seconds", now.Sub(a.Time).Seconds(),
				"How old the numbers of the account are; after 5 minutes there are none.")))
	}
	return groups
}
