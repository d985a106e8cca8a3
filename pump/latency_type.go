package pump

// Latency is how long tasks took from when their message was ready to be put until their
// handler was started, in seconds: what the distributor's budget, the put, the queue, the
// wait for the next get, the fetched messages before it and the opening of its own took
// together. The times are read off a histogram with steps of one per cent, not below a
// millisecond, so a percentile is at most so much above the truth.
//
// Two machines' clocks are in it. Where the sender's is ahead of the service's, a time is not
// reported shorter than the service's own whole seconds allow.
type Latency struct {
	Tasks int64   `json:"tasks"` // that were measured; the others are zero if none was
	Mean  float64 `json:"mean"`
	P50   float64 `json:"p50"`
	P90   float64 `json:"p90"`
	P99   float64 `json:"p99"`
	P999  float64 `json:"p999"`
	Max   float64 `json:"max"`
}
