package pump

// Budget bounds what all processes of a workload together ask of the accounts. Zero fields take the
// published limits (azure/storage/queues/scalability-targets).
type Budget struct {
	// Account is messages a second for one account's queue service. Default 20,000.
	Account float64
	// Queue is messages a second for one queue. Default 2,000.
	Queue float64
	// GetCostsMessages says what a Get costs: true charges each message it
	// returns, false one for the request. The published page counts
	// "messages", without saying what a batch get is. Default, the careful reading: true.
	GetCostsMessages *bool
	// CostPerDay caps what the requests of all processes may cost in a UTC day, in the currency of
	// Config.Prices; 0: no cap. Polling of empty queues is slowed first, then gets: tasks wait.
	// Requests that settle messages, keep leases or record are never held back, and neither are puts,
	// so a day may cost more if those alone do. A cap below the least cost of a day is refused. It
	// needs the sum of all, so Config.Sample is a minute if it is not set.
	CostPerDay float64
}
