package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/queuepump/queuepump/pump"
)

// Passage is tasks on their whole way through both binaries: distributed first, then
// taken back by one processor that writes nothing down.
type Passage struct {
	Distribution
	Processor string // path of the processor
}

// PassageResult is what both binaries printed at their ends.
type PassageResult struct {
	Sent    DistributionResult `json:"sent"`
	Handled int64              `json:"handled"`
	// Requests of both binaries, to queues and to the control table.
	Requests int64 `json:"requests"`
	// Seconds of the processor, without the idle time at whose end it leaves.
	Seconds    float64 `json:"seconds"`
	PeakBytes  int64   `json:"peakBytes"`  // of the processor, resident
	CPUSeconds float64 `json:"cpuSeconds"` // of the processor
}

// idle is for how long the processor must have had nothing to do.
const idle = 2 * time.Second

// Run distributes the lines and processes them with default settings.
func (p Passage) Run(ctx context.Context) (r PassageResult, err error) {
	config, stop, err := p.serve(ctx)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if r.Sent, err = p.distribute(ctx, config); err != nil {
		return r, err
	}
	var done struct {
		Handled  int64
		Recorded int64
		Requests map[string]map[string]int64
		Seconds  float64
	}
	s, err := runJSON(ctx, &done, p.Processor, "run", "--config", config, "--out", os.DevNull, "--until-idle", idle.String(), "--json", "--quiet")
	// At least once: on a machine so busy that leases end, some come again.
	if err == nil && (done.Handled < int64(p.Lines) || p.Delivery == string(pump.Once) && done.Recorded != int64(p.Lines)) {
		err = fmt.Errorf("%d tasks were handled %d times, and %d recorded", p.Lines, done.Handled, done.Recorded)
	}
	r.Handled, r.Seconds, r.PeakBytes, r.CPUSeconds = done.Handled, done.Seconds-idle.Seconds(), s.peakBytes, s.cpuSeconds
	r.Requests = r.Sent.TotalRequests() + total(done.Requests)
	return r, err
}
