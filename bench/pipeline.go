package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/source"
	"github.com/queuepump/queuepump/pump/storage/azure"
)

// The pump as a Go program uses it: a distributor that reads the file of lines, then
// a processor with a handler that reads each task. Everything else is the default.

// quiet is how long the processor must have had nothing to do before it leaves. The pump bears
// its cost, a few polls.
const quiet = time.Second

// runPump distributes the lines and processes them, at accounts that are served or
// at a simulator in this process.
func runPump(ctx context.Context, j job) (m Measurement, err error) {
	cfg := pump.Config{Workload: "bench"}
	for _, a := range j.Accounts {
		cfg.Accounts = append(cfg.Accounts, pump.Account{ConnectionString: a})
	}
	if j.Over == InProcess {
		sim := azsim.New(azsim.Config{
			Accounts: simulatedAccounts(pumpAccounts), Limits: azsim.NoLimits(),
		})
		for _, name := range sim.Accounts() {
			a, err := azure.Open(azure.Options{
				ConnectionString: sim.ConnectionString(name), Transport: isolatedSimulator{sim.Transport()},
			})
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
	var h reading
	m.Take, err = j.phase("take", func() error { return process(ctx, cfg, &h, &m) })
	m.Take.Seconds -= quiet.Seconds()
	if err == nil {
		err = h.check(j, m)
	}
	return m, err
}

func distribute(ctx context.Context, cfg pump.Config, j job, m *Measurement) error {
	d, err := distributor.New(cfg, source.JSONLines(j.Input, "city"),
		distributor.Options{Pack: j.Pack})
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

func process(ctx context.Context, cfg pump.Config, h pump.Handler, m *Measurement) error {
	p, err := processor.New(cfg, h, processor.Options{UntilIdle: quiet})
	if err != nil {
		return err
	}
	s, err := p.Run(ctx)
	m.Repeated = s.Handled - m.Tasks
	return err
}

// reading is a handler that reads every byte of each task and keeps the sum.
type reading struct {
	tasks atomic.Int64
	sum   atomic.Uint64
}

func (r *reading) Handle(_ context.Context, t *pump.Task) error {
	r.sum.Add(xxhash.Sum64(t.Body))
	r.tasks.Add(1)
	return nil
}

// check compares what was read with the input. It is at least once: on a machine so busy that
// leases end, some tasks come again, and then only their number is known.
func (r *reading) check(j job, m Measurement) error {
	read := r.tasks.Load()
	if m.Repeated < 0 || read < m.Tasks {
		return fmt.Errorf("%d tasks were handled %d times, recorded as done %d times", m.Tasks, read,
			m.Tasks+m.Repeated)
	}
	if read > m.Tasks {
		return nil
	}
	text, err := os.ReadFile(j.Input)
	if err != nil {
		return err
	}
	want := uint64(0)
	for line := range bytes.Lines(text) {
		want += xxhash.Sum64(bytes.TrimSuffix(line, []byte("\n")))
	}
	if r.sum.Load() != want {
		return errors.New("the bodies of the tasks are not the lines")
	}
	return nil
}

// operations are the requests that a simulator has had, by operation.
func operations(s azsim.Stats) map[string]int64 {
	n := map[string]int64{}
	for _, r := range s.Requests {
		n[r.Operation] += r.Count
	}
	return n
}
