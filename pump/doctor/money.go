package doctor

import (
	"github.com/queuepump/queuepump/pump/status"
)

// money tells of what is held back to keep to the cap of a day, and of a cap that cannot be kept.
func (c *checkup) money(s *status.Status) {
	m := &s.Money
	if m.CapPerDay == nil {
		return
	}
	most, currency := *m.CapPerDay, m.Prices.Currency
	raise := "raise budget.costPerDay in " + c.o.Config
	switch {
	case m.DayCost != nil && *m.DayCost > most*1.01:
		c.find(CheckDayCost, Warning, "", raise,
			"the day has cost %.4g %s, more than budget.costPerDay, %.4g: "+
				"queues are polled as slowly as they may be", *m.DayCost, currency, most)
	case m.LeastPerDay > most:
		c.find(
			CheckDayCost, Warning, "", raise+", or stop processes",
			"a day of these processes costs %.4g %s at the least, more than budget.costPerDay, %.4g",
			m.LeastPerDay, currency, most,
		)
	case m.HoldBack > 0:
		c.find(
			CheckDayCost, Warning, "", raise,
			"gets are held back by %d of the processors to keep to budget.costPerDay, %.4g %s: tasks wait",
			m.HoldBack, most, currency,
		)
	case m.Slowed > 0:
		c.find(CheckDayCost, Warning, "", raise,
			"empty queues are polled more slowly by %d of the processors to keep to "+
				"budget.costPerDay, %.4g %s", m.Slowed, most, currency)
	}
}
