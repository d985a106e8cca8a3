package settings

import (
	"fmt"

	"github.com/queuepump/queuepump/pump"
)

// NeedOnce refuses what only the ledger can answer.
func NeedOnce(delivery, field, what string) error {
	if delivery == string(pump.Once) {
		return nil
	}
	return pump.Invalid(field,
		fmt.Sprintf("%s needs delivery mode %s; in %s no process records which tasks are done",
			what, pump.Once, pump.AtLeastOnce),
		fmt.Sprintf("make another workload with delivery: %s, or see how many messages are left with: "+
			"distributor status", pump.Once))
}
