package pump

import "time"

// Backlog is the work that waits in the queues of a workload, sampled as pump.Config.Sample says.
// All of it is an estimate: the service's counts are approximate, and the tasks that processes hold
// are known as of their last beats.
type Backlog struct {
	Time     time.Time        `json:"time"`     // when the sample was complete, by the process's clock
	Accounts []WaitingAccount `json:"accounts"` // those that are known, by name
	// Done is how many messages a second are done and deleted by all processes together, lately; null
	// while the control account does not answer: what the others do is not known then.
	Done *float64 `json:"messagesDonePerSecond"`
	// Seconds is how long it takes to do what is visible at that rate. The rate counts as at least a
	// message an hour, so that Seconds is finite. It is null with Done, and while no account could be
	// looked at.
	Seconds *float64 `json:"seconds"`
}

// WaitingAccount is the backlog in one account.
type WaitingAccount struct {
	Name string    `json:"name"`
	Time time.Time `json:"time"` // when the account was last looked at
	// Messages is how many there are in all, as the service counts, Visible those that wait for a
	// processor, InFlight those that live processes hold, and Delayed those that live processes have
	// put back for later.
	Messages int64 `json:"messages"`
	Visible  int64 `json:"visible"`
	InFlight int64 `json:"inFlight"`
	Delayed  int64 `json:"delayed"`
	// Oldest is the age in seconds of the first message that a look at each queue showed; 0 if none
	// is visible.
	Oldest      float64 `json:"oldestSeconds"`
	Quarantined int64   `json:"quarantined"`
	// LimitUsed is what live processes would ask of the account, as a part of its limit; above 1 the
	// limit holds them back.
	LimitUsed float64 `json:"limitUsed"`
}
