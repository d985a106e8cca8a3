package bench

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/source"
	"github.com/queuepump/queuepump/pump/storage/azure"
)

// The pump as a Go program uses it: a distributor that reads the file of lines, then
// a processor with a handler that counts. Everything else is the default.

// quiet is how long the processor must have had nothing to do before it leaves. What it costs, a few
// polls, is the pump's.
const quiet = time.Second

// runPump distributes the lines and processes them, at accounts that are served or
// at a simulator in this process.
func runPump(ctx context.Context, j job) (m Measurement, err error) {
	cfg := pump.Config{Workload: "bench"}
	for _, a := range j.Accounts {
		cfg.Accounts = append(cfg.Accounts, pump.Account{ConnectionString: a})
	}
	if j.Over == InProcess {
		sim := azsim.New(azsim.Config{Accounts: simulatedAccounts(pumpAccounts), Limits: azsim.NoLimits()})
		for _, name := range sim.Accounts() {
			a, err := azure.Open(azure.Options{ConnectionString: sim.ConnectionString(name), Transport: simulatorApart{sim.Transport()}})
			if err != nil {
				return m, err
			}
			cfg.Accounts = append(cfg.Accounts, pump.Account{Storage: a})
		}
		defer func() { m.Requests = operations(sim.Stats()) }()
	}
	if m.Put, err = j.phase("put", func() error { return distribute(ctx, cfg, j, &m) }); err != nil {
		return m, err
	}
	m.Take, err = j.phase("take", func() error { return process(ctx, cfg, j, &m) })
	m.Take.Seconds -= quiet.Seconds()
	return m, err
}

func distribute(ctx context.Context, cfg pump.Config, j job, m *Measurement) error {
	d, err := distributor.New(cfg, source.JSONLines(j.Input, "city"), distributor.Options{Pack: j.Pack})
	if err != nil {
		return err
	}
	s, err := d.Run(ctx)
	if err == nil && s.Tasks != int64(j.Tasks) {
		err = fmt.Errorf("%d lines became %d tasks", j.Tasks, s.Tasks)
	}
	m.Tasks, m.Messages = s.Tasks, s.Envelopes
	return err
}

// counting is a handler that does next to nothing, in the form that most have. It counts by segment, in words
// that stand alone in their cache lines: one that all slots write to would take a tenth of what the pump takes
// for a task.
type counting struct{ segments [256]counted }

// counted is how many tasks there were, in the upper bits, and how many bytes.
type counted struct {
	sum atomic.Uint64
	_   [56]byte
}

const countedTask = 1 << 40

func (c *counting) of(t *pump.Task) *counted { return &c.segments[t.Segment%uint32(len(c.segments))] }

func (c *counting) Handle(_ context.Context, t *pump.Task) error {
	c.of(t).sum.Add(countedTask + uint64(len(t.Body)))
	return nil
}

func (c *counting) all() (tasks, bytes int64) {
	for i := range c.segments {
		sum := c.segments[i].sum.Load()
		tasks += int64(sum / countedTask)
		bytes += int64(sum % countedTask)
	}
	return tasks, bytes
}

// countingBatches takes the tasks of a message at once, which are of one segment.
type countingBatches struct{ *counting }

func (c countingBatches) HandleBatch(_ context.Context, tasks []*pump.Task) []error {
	bytes := 0
	for _, t := range tasks {
		bytes += len(t.Body)
	}
	c.of(tasks[0]).sum.Add(uint64(len(tasks))*countedTask + uint64(bytes))
	return nil
}

func process(ctx context.Context, cfg pump.Config, j job, m *Measurement) error {
	c := &counting{}
	var h pump.Handler = c
	if j.Batch {
		h = countingBatches{c}
	}
	p, err := processor.New(cfg, h, processor.Options{UntilIdle: quiet})
	if err != nil {
		return err
	}
	s, err := p.Run(ctx)
	m.Repeated = s.Handled - m.Tasks
	tasks, bytes := c.all()
	// At least once: on a machine so busy that leases end, some come again.
	if err == nil && (m.Repeated < 0 || tasks < s.Handled) {
		err = fmt.Errorf("%d tasks were handled %d times, %d of them recorded as done", m.Tasks, tasks, s.Handled)
	}
	if err == nil && bytes < m.Tasks*LineBytes/2 {
		err = errors.New("the tasks came back without their bodies")
	}
	return err
}

// operations are the requests that a simulator has had, by operation.
func operations(s azsim.Stats) map[string]int64 {
	n := map[string]int64{}
	for _, r := range s.Requests {
		n[r.Operation] += r.Count
	}
	return n
}
