package metrics_test

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/metrics"
	"github.com/queuepump/queuepump/pump/processor"
)

// A program shows a processor's metrics in a registry of its own.
func Example() {
	registry := prometheus.NewRegistry()
	ours := prometheus.WrapRegistererWith(prometheus.Labels{"workload": "orders"}, registry)

	counters := metrics.NewCounters(pump.Prices{})
	hooks := counters.Hooks(pump.Hooks{}) // cfg.Hooks, given to processor.New or distributor.NewSender
	state := func() processor.State {     // p.State of a processor p
		var s processor.State
		s.Done.Handled = 3
		return s
	}
	ours.MustRegister(counters, metrics.Processor(state))

	hooks.Request("accounta", "orders-00", "get", time.Millisecond, nil) // the processor calls it
	families, err := registry.Gather()
	if err != nil {
		panic(err)
	}
	for _, f := range families {
		switch f.GetName() {
		case "queuepump_requests_total", "queuepump_tasks_handled_total":
			fmt.Println(f.GetName(), f.Metric[0].Counter.GetValue())
		}
	}
	// Output:
	// queuepump_requests_total 1
	// queuepump_tasks_handled_total 3
}
