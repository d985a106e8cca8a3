package admin

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/queuepump/queuepump/pump"
	public "github.com/queuepump/queuepump/pump/metrics"
)

// metrics are the metrics of one process, in a registry of their own. All of ours are named
// queuepump_ and carry the workload.
type metrics struct {
	registry *prometheus.Registry
	ours     prometheus.Registerer
	counters *public.Counters
}

func newMetrics(o Options) *metrics {
	m := &metrics{registry: prometheus.NewRegistry(), counters: public.NewCounters(o.Prices)}
	m.ours = prometheus.WrapRegistererWith(prometheus.Labels{"workload": o.Workload}, m.registry)
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "queuepump_build_info", Help: "Always 1; the labels say what runs.",
		ConstLabels: prometheus.Labels{"version": o.Version, "role": o.Role},
	})
	build.Set(1)
	m.ours.MustRegister(m.counters, build)
	m.registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewBuildInfoCollector())
	return m
}

// register adds what is read from the process when it is asked for.
func (m *metrics) register(c prometheus.Collector) { m.ours.MustRegister(c) }

func (m *metrics) page() http.Handler {
	return promhttp.InstrumentMetricHandler(m.registry,
		promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
			MaxRequestsInFlight: 4, Timeout: 10 * time.Second,
		}))
}

func (m *metrics) hooks(h pump.Hooks) pump.Hooks { return m.counters.Hooks(h) }
