package serve

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

func newPosts() *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "queuepump_posts_total", Help: "Answers to posts of tasks, by their HTTP status.",
	}, []string{"status"})
	c.WithLabelValues("200")
	return c
}

func (s *Server) answered(status int) { s.posts.WithLabelValues(strconv.Itoa(status)).Inc() }

var descHeld = prometheus.NewDesc("queuepump_posts_held_bytes",
	"Bytes of posts that the server holds until the accounts have acknowledged them.", nil, nil)

// Describe is that of a [prometheus.Collector].
func (s *Server) Describe(to chan<- *prometheus.Desc) { prometheus.DescribeByCollect(s, to) }

// Collect is that of a [prometheus.Collector].
func (s *Server) Collect(to chan<- prometheus.Metric) {
	s.posts.Collect(to)
	to <- prometheus.MustNewConstMetric(descHeld, prometheus.GaugeValue, float64(s.held.Load()))
}
