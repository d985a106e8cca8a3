package metrics

import "github.com/queuepump/queuepump/pump"

func ofMoney(d *pump.CostOfDay) []group {
	var share, slower, holds *float64
	if d.Cap != nil {
		share, slower, holds = &d.Share, &d.TimesSlower, new(truth(d.HoldsBack))
	}
	return []group{
		labelled("currency", d.Currency,
			known("day_cost", d.Cost,
				"Estimate: what the requests of all processes have cost since midnight UTC; "+
					"from the process that samples."),
			known("cost_per_day", d.PerDay,
				"Estimate: what a day costs at the rate of the last minutes; from the process that samples."),
			known("cost_cap_per_day", d.Cap,
				"What a day may cost (budget.costPerDay); only with a cap."),
			known("cost_share_per_day", share,
				"What this process would spend a day at what it may spend now; only with a cap.")),
		{samples: []sample{
			known("cost_times_slower", slower,
				"How many times as long as otherwise this process leaves empty queues alone "+
					"to keep to the cap; only with a cap."),
			known("cost_holds_back", holds,
				"1 while gets of full queues wait too, to keep to the cap; only with a cap."),
		}},
	}
}
