package pump

// A mistake can be planted in a program built with the tag "planted", to see that the
// tests of the whole pump find it (package control has its own). In every other
// build planted is a constant and the planted code is not there.
type mistake string

const (
	deleteBeforeEffect  mistake = "a message is deleted before its tasks are handled"                            // P3.3
	deleteBeforeLedger  mistake = "a message is deleted before what was done is recorded"                        // P3.3
	deleteBeforePoison  mistake = "a message is deleted before its tasks are in quarantine"                      // P4.3
	renewalRacesDelete  mistake = "a message is settled while a renewal of it is under way"                      // window 15
	checkpointBeforeAck mistake = "a checkpoint is saved before what it covers is acknowledged"                  // P2.1
	dequeueCountTrusted mistake = "a message that was delivered too often is quarantined"                        // P4.2
	completeByCount     mistake = "a run is complete when the queues are said to hold nothing"                   // P4.5
	cursorNotResumed    mistake = "a new leader reads the source from its start, with the counters it took over" // P2.1
	unknownRunIsNew     mistake = "a run without a row is taken for a new one"                                   // P1.3
	closedRunIsOpen     mistake = "that a run is closed is not looked at"                                        // P1.3
	copiesRunBesides    mistake = "what is in hand already is begun again"                                       // P3.4
)

// endEarly deletes a message in hand before its time.
func (r *processing) endEarly(d *delivery) {
	receipt, err := r.keeper.take(r.wire, d)
	if err != nil {
		return
	}
	_ = d.shard.delete(r.wire, receipt)
	r.keeper.giveBack(d, true)
}
