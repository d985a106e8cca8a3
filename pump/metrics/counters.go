package metrics

import (
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/bodies"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/storage"
)

// Counters count what a process's hooks tell: requests, their failures and cost, tasks' ages.
// They are a [prometheus.Collector]. None carries a queue: a hundred accounts with eight queues
// each, nine operations and eleven buckets are 80,000 series a process.
type Counters struct {
	requests    *prometheus.CounterVec   // account, operation
	throttles   *prometheus.CounterVec   // account, operation
	failures    *prometheus.CounterVec   // account, operation, code
	latency     *prometheus.HistogramVec // account, operation
	quarantined *prometheus.CounterVec   // account, reason
	bodies      *prometheus.CounterVec   // operation
	bodyBytes   *prometheus.CounterVec   // operation
	age         prometheus.Histogram
	took        prometheus.Histogram
	price       atomic.Pointer[pump.Prices]
	spent       *prometheus.CounterVec // account, operation, currency
}

// latencies are the buckets of one request: 5 ms is a quick answer, 10 s the deadline of a request.
var latencies = []float64{.005, .01, .02, .04, .08, .15, .3, .6, 1.2, 2.5, 5, 10}

// ages are the buckets of how old a task is when it is started: from "at once" to a week,
// fine where a nudged and a polled task of an idle queue differ.
var ages = []float64{
	.01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 20, 60, 300, 1200, 3600, 6 * 3600, 24 * 3600,
	7 * 24 * 3600,
}

// durations are the buckets of a handler: a lookup takes a millisecond, a child its time limit of
// hours.
var durations = []float64{
	.001, .005, .02, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 4 * 3600,
}

// NewCounters makes counters with the prices of list. A price that list lacks is as published, or 0
// if list has another currency.
func NewCounters(list pump.Prices) *Counters {
	m := &Counters{}
	request := []string{"account", "operation"}
	m.requests = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "queuepump_requests_total", Help: "Storage requests sent.",
	}, request)
	m.throttles = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "queuepump_throttles_total", Help: "Storage requests that were refused as too many.",
	}, request)
	m.failures = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "queuepump_request_failures_total",
		Help: "Storage requests that did not succeed, by what their answer says; " +
			"maybe-done is not a usable answer.",
	}, append(request, "code"))
	m.latency = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "queuepump_request_duration_seconds",
		Help: "Time from sending a storage request to its answer or deadline.", Buckets: latencies,
	}, []string{"operation"}) // a series a bucket for each account would be thousands
	m.quarantined = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "queuepump_tasks_quarantined_total",
		Help: "Tasks put into a poison queue; a message that could not be read counts as one.",
	}, []string{"account", "reason"})
	m.bodies = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "queuepump_body_requests_total",
		Help: "Requests for bodies of large tasks that succeeded; delete-blob is the sweep.",
	}, request[1:])
	m.bodyBytes = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "queuepump_body_bytes_total",
		Help: "Bytes of bodies of large tasks that were put into blobs and read from them.",
	}, request[1:])
	m.age = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "queuepump_task_age_seconds",
		Help: "Age of tasks when their handling starts, since their message was ready to be put; " +
			"of messages that do not say when, by the service's whole seconds.",
		Buckets: ages,
	})
	m.took = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "queuepump_handler_duration_seconds",
		Help: "Time that a handler took for a task, or for a batch if it takes " +
			"batches, however it ended.",
		Buckets: durations,
	})
	m.Reprice(list)
	m.spent = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "queuepump_requests_cost_total",
		Help: "Estimate: what the storage requests sent cost, at the prices in force. " +
			"A query of several pages counts as one.",
	}, append(request, "currency"))
	return m
}

// Reprice has requests counted with other prices from now on; requests that list lacks cost as
// published.
func (m *Counters) Reprice(list pump.Prices) {
	list = list.OrPublished()
	m.price.Store(&list)
}

func (m *Counters) all() []prometheus.Collector {
	return []prometheus.Collector{
		m.requests, m.throttles, m.failures, m.latency, m.quarantined, m.bodies, m.bodyBytes, m.age,
		m.took, m.spent,
	}
}

// Describe implements [prometheus.Collector].
func (m *Counters) Describe(out chan<- *prometheus.Desc) {
	for _, c := range m.all() {
		c.Describe(out)
	}
}

// Collect implements [prometheus.Collector].
func (m *Counters) Collect(out chan<- prometheus.Metric) {
	for _, c := range m.all() {
		c.Collect(out)
	}
}

// Hooks are h with the counters added. They go into the configuration of the process.
func (m *Counters) Hooks(h pump.Hooks) pump.Hooks {
	was := h
	h.Request = func(account, object, operation string, took time.Duration, err error) {
		m.request(account, object, operation, took, err)
		queues.HookRequest(&was, account, object, operation, took, err)
	}
	h.Quarantine = func(account, reason string, tasks int) {
		m.quarantined.WithLabelValues(account, reason).Add(float64(tasks))
		queues.HookQuarantine(&was, account, reason, tasks)
	}
	h.Started = func(tasks int, age time.Duration) {
		for range tasks {
			m.age.Observe(age.Seconds())
		}
		queues.HookStarted(&was, tasks, age)
	}
	h.Body = func(operation string, bytes int) {
		m.bodyBytes.WithLabelValues(operation).Add(float64(bytes))
		if was.Body != nil {
			was.Body(operation, bytes)
		}
	}
	h.Priced = func(list pump.Prices) {
		m.Reprice(list)
		if was.Priced != nil {
			was.Priced(list)
		}
	}
	h.Ended = func(tasks int, took time.Duration) {
		m.took.Observe(took.Seconds())
		queues.HookEnded(&was, tasks, took)
	}
	return h
}

func (m *Counters) request(account, object, operation string, took time.Duration, err error) {
	if err != nil && storage.Is(err, storage.Canceled) {
		return // it was never sent
	}
	m.requests.WithLabelValues(account, operation).Inc()
	m.latency.WithLabelValues(operation).Observe(took.Seconds())
	price := m.price.Load()
	m.spent.WithLabelValues(account, operation, price.Currency).Add(price.Of(operation))
	if err == nil {
		if strings.HasSuffix(object, bodies.Container("")) {
			m.bodies.WithLabelValues(operation).Inc()
		}
		return
	}
	code := storage.CodeOf(err)
	m.failures.WithLabelValues(account, operation, code.String()).Inc()
	if code == storage.Throttled {
		m.throttles.WithLabelValues(account, operation).Inc()
	}
}
