package admin

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/queuepump/queuepump/pump/prices"
)

var (
	currencyLabel = []string{"currency"}

	dayCost = prometheus.NewDesc("queuepump_day_cost", "Estimate: what the requests of all processes have cost since midnight UTC; from the process that samples.", currencyLabel, nil)
	perDay  = prometheus.NewDesc("queuepump_cost_per_day", "Estimate: what a day costs at the rate of the last minutes; from the process that samples.", currencyLabel, nil)
)

// moneyDescs are what is told of money.
var moneyDescs = []*prometheus.Desc{dayCost, perDay}

func collectMoney(out chan<- prometheus.Metric, d *prices.Day) {
	gauge := func(desc *prometheus.Desc, value *float64) {
		if value != nil {
			out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, *value, d.Currency)
		}
	}
	gauge(dayCost, d.Cost)
	gauge(perDay, d.PerDay)
}
