package serve

import (
	"strconv"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are those of a server.
type metrics struct {
	held     atomic.Int64
	statuses [600]atomic.Int64
}

var (
	descPosts = prometheus.NewDesc("queuepump_posts_total",
		"Answers to posts of tasks, by their HTTP status.", []string{"status"}, nil)
	descHeld = prometheus.NewDesc("queuepump_posts_held_bytes",
		"Bytes of posts that the server holds until the accounts have acknowledged them.", nil, nil)
)

func (m *metrics) answered(status int) { m.statuses[status].Add(1) }

// counts are the answers by status.
func (m *metrics) counts() map[string]int64 {
	counts := map[string]int64{"200": m.statuses[200].Load()}
	for status := range m.statuses {
		if n := m.statuses[status].Load(); n > 0 {
			counts[strconv.Itoa(status)] = n
		}
	}
	return counts
}

// Describe is that of a [prometheus.Collector].
func (s *Server) Describe(to chan<- *prometheus.Desc) {
	to <- descPosts
	to <- descHeld
}

// Collect is that of a [prometheus.Collector].
func (s *Server) Collect(to chan<- prometheus.Metric) {
	for status, n := range s.metrics.counts() {
		to <- prometheus.MustNewConstMetric(descPosts, prometheus.CounterValue, float64(n), status)
	}
	to <- prometheus.MustNewConstMetric(descHeld, prometheus.GaugeValue,
		float64(s.metrics.held.Load()))
}
