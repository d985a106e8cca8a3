package admin

import "github.com/prometheus/client_golang/prometheus"

// Also adds metrics of another part of the process.
func (s *Server) Also(c prometheus.Collector) {
	if s != nil {
		s.metrics.register(c)
	}
}
