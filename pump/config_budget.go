package pump

import (
	"fmt"
	"math"
)

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
}

func (b Budget) withDefaults() (Budget, error) {
	if b.Account == 0 {
		b.Account = 20_000
	}
	if b.Queue == 0 {
		b.Queue = 2_000
	}
	if b.GetCostsMessages == nil {
		b.GetCostsMessages = new(true)
	}
	for _, f := range []struct {
		name string
		rate float64
	}{{"budget.account", b.Account}, {"budget.queue", b.Queue}} {
		if !(f.rate >= 1 && f.rate <= 1e9) {
			return b, &ConfigError{Field: f.name, Problem: fmt.Sprintf("%v is out of range", f.rate), Fix: "use 1 to 1e9 messages a second"}
		}
	}
	return b, nil
}

// checkMaxRate is for either half of the pump.
func checkMaxRate(rate float64) error {
	if rate == 0 || rate >= 0.001 && rate <= 1e9 && !math.IsNaN(rate) {
		return nil
	}
	return &ConfigError{Field: "max-rate", Problem: fmt.Sprintf("%v is out of range", rate), Fix: "use 0.001 to 1e9 tasks a second, or leave it out for no limit"}
}
