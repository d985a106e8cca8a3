package pump

// Nudge is a hint to a process that it should look at something now rather than
// when its next poll is due. It carries no truth: a lost nudge costs
// time, a false one a request.
type Nudge struct {
	Address  string // of the admin port, host:port
	Instance string // the process that the nudge is for; another one at that address ignores it
	Queue    string // "account/queue" to be read; empty: none
	Gate     string // the gate to look at; empty: none
	// messages come without nudges: idle queues are worth a look more often for a while
	Traffic bool
	// Without any of these, the process looks at the cluster's rows.

	// Here: the other process runs on this machine, so its address may be a loopback one.
	Here bool
}
