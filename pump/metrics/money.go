package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/queuepump/queuepump/pump"
)

var (
	dayCost = newDesc("day_cost",
		"Estimate: what the requests of all processes have cost since midnight UTC; "+
			"from the process that samples.", "currency")
	perDay = newDesc("cost_per_day",
		"Estimate: what a day costs at the rate of the last minutes; from the process that samples.",
		"currency")

	costCap = newDesc("cost_cap_per_day",
		"What a day may cost (budget.costPerDay); only with a cap.", "currency")
	costShare = newDesc("cost_share_per_day",
		"What this process would spend a day at what it may spend now; only with a cap.", "currency")
	costSlower = newDesc("cost_times_slower",
		"How many times as long as otherwise this process leaves empty queues alone "+
			"to keep to the cap; only with a cap.")
	costHolds = newDesc("cost_holds_back",
		"1 while gets of full queues wait too, to keep to the cap; only with a cap.")
)

// moneyDescs describe the metrics of money.
var moneyDescs = []*prometheus.Desc{dayCost, perDay, costCap, costShare, costSlower, costHolds}

func collectMoney(out chan<- prometheus.Metric, d *pump.CostOfDay) {
	gauge := func(desc *prometheus.Desc, value *float64) {
		if value != nil {
			out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, *value, d.Currency)
		}
	}
	gauge(dayCost, d.Cost)
	gauge(perDay, d.PerDay)
	if d.Cap == nil {
		return
	}
	gauge(costCap, d.Cap)
	gauge(costShare, &d.Share)
	out <- prometheus.MustNewConstMetric(costSlower, prometheus.GaugeValue, d.TimesSlower)
	out <- prometheus.MustNewConstMetric(costHolds, prometheus.GaugeValue, truth(d.HoldsBack))
}
