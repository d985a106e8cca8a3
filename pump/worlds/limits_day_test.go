package worlds

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/closing"
	"github.com/queuepump/queuepump/pump/internal/ledger"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/storage"
)

var (
	dayFor  = flag.Duration("day.for", 150*time.Minute, "virtual time for which runs are made")
	dayRate = flag.Float64("day.rate", 0.1, "runs a second")
	dayKept = flag.Duration("day.retention", 10*time.Minute, "how long runs are kept that are done with")
	dayPage = flag.String("day.write", "", "where to write the figures (Markdown)")
)

// Kinds of runs, in the first byte of their ids.
const (
	dayGood = iota + 1
	dayBroken
	dayGone     // its client dies
	dayPoisoned // its task is rejected
)

// day is many runs of one task each, as fast as they are due.
type day struct {
	w       *testworld.World
	runs    *workload.Runs
	homes   []func(text []byte)
	handled atomic.Int64
	made    atomic.Int64
}

func (d *day) Handle(_ context.Context, t *pump.Task) error {
	d.handled.Add(1)
	if t.Run[0] == dayPoisoned {
		return pump.Reject(testworld.ErrFlop)
	}
	return nil
}

// kindOf makes one run in a hundred broken or abandoned, and one in a hundred with a task in
// quarantine.
func kindOf(i int) byte {
	switch i % 200 {
	case 0:
		return dayBroken
	case 100:
		return dayGone
	case 50, 150:
		return dayPoisoned
	}
	return dayGood
}

// one makes a run, puts its task, and ends it as its kind has it.
func (d *day) one(ctx context.Context, i int) error {
	r := rand.New(rand.NewPCG(1, uint64(i)))
	id := pump.RunID{0: kindOf(i)}
	for k := 1; k < len(id); k++ {
		id[k] = byte(r.Uint32())
	}
	segment := r.Uint32N(uint32(len(d.homes)))
	if err := d.runs.Create(ctx, workload.Run{ID: id, Mode: "client", Beat: 15 * time.Second}); err != nil {
		return err
	}
	d.homes[segment](d.w.Text(segment, func(h *codec.Header) { h.Run = id }, 0))
	d.made.Add(1)
	switch id[0] {
	case dayGone:
		return nil
	case dayBroken:
		return d.runs.Break(ctx, id, "its source cannot be read")
	}
	counts := make([]uint64, len(d.homes))
	counts[segment] = 1
	return d.runs.Seal(ctx, id, counts)
}

// daySample is what is stored at a moment.
type daySample struct {
	hours                              float64
	made                               int64
	ledgerRows, ledgerBytes            int
	runRows, runBytes, live, tallyRows int
	heads, rests                       int // runs that the heads count, and of which they keep what is in quarantine
}

// sample reads all that is stored of the workload's ledger and runs.
func (d *day) sample(began time.Time) daySample {
	w := d.w
	w.T.Helper()
	s := daySample{hours: time.Since(began).Hours(), made: d.made.Load()}
	all := func(partition string, each func(e storage.Entity, size int)) {
		for e, err := range w.Table().Query(w.T.Context(), storage.Query{Partition: partition}) {
			must(w.T, err)
			each(e, sizeOf(e))
		}
	}
	for p := range (w.Segments() + 63) / 64 {
		all(fmt.Sprintf("%s.ledger.%02d", w.Cfg.Workload, p), func(_ storage.Entity, size int) {
			s.ledgerRows++
			s.ledgerBytes += size
		})
	}
	all(w.Cfg.Workload+".runs", func(e storage.Entity, size int) {
		s.runRows++
		s.runBytes += size
		if strings.HasPrefix(e.Row, "live.") {
			s.live++
		}
	})
	all(w.Cfg.Workload+".progress", func(storage.Entity, int) { s.tallyRows++ })
	for r, err := range ledger.ReadRecord(w.T.Context(), w.Table(), w.Cfg.Workload, w.Segments()) {
		must(w.T, err)
		s.heads += len(r.Runs())
		s.rests += len(r.Rests())
	}
	return s
}

// sizeOf is what an entity's keys and values take.
func sizeOf(e storage.Entity) int {
	size := len(e.Partition) + len(e.Row)
	for name, v := range e.Properties {
		size += len(name) + 8
		switch v := v.(type) {
		case string:
			size += len(v)
		case []byte:
			size += len(v)
		}
	}
	return size
}

// The retention bounds what is stored of runs, however long runs are made, broken, abandoned, and
// left with tasks in quarantine (A1). In its full size: make play WHAT=day.
func TestWhatIsStoredOfRunsStopsGrowingAfterTheRetention(t *testing.T) {
	proof.Only(t)
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		w.Cfg.Retention = *dayKept
		d := &day{w: w, runs: w.AllRuns()}
		m := w.ShardMap()
		for s := range m.Segments {
			shard := m.Shards[m.Home(uint32(s))]
			q := w.Queue(shard.Account, shard.Queue)
			d.homes = append(d.homes, func(text []byte) {
				proof.Is(t, proof.ErrOf(q.Put(t.Context(), text, 0)), nil)
			})
		}
		cfg := w.Config("p", w.Cfg.Accounts[0].Queues)
		cfg.Log = slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelError}))
		processor, err := processor.New(cfg, d, processor.Options{})
		must(t, err)
		p := testworld.Start(w.T, processor)
		samples := d.make(t)
		p.End()
		d.judge(t, samples)
		if *dayPage != "" {
			d.write(t, samples)
		}
	})
}

// make makes runs for as long as is meant, and looks what is stored, forty times or so.
func (d *day) make(t *testing.T) (samples []daySample) {
	began := time.Now()
	pause := time.Duration(float64(time.Second) / *dayRate)
	every := max(*dayFor/40, time.Minute)
	errs := make(chan error, 1)
	for i := 0; time.Since(began) < *dayFor; i++ {
		go func() {
			if err := d.one(t.Context(), i); err != nil {
				select {
				case errs <- err:
				default:
				}
			}
		}()
		if time.Since(began) >= time.Duration(len(samples)+1)*every {
			s := d.sample(began)
			samples = append(samples, s)
			if *dayPage != "" {
				fmt.Fprintf(os.Stderr, "%.2f h: %+v\n", s.hours, s)
			}
		}
		time.Sleep(time.Until(began.Add(time.Duration(i+1) * pause)))
	}
	time.Sleep(time.Minute)
	select {
	case err := <-errs:
		t.Error(err)
	default:
	}
	return samples
}

// judge compares the first half of what is flat with the second.
func (d *day) judge(t *testing.T, samples []daySample) {
	if made, handled := d.made.Load(), d.handled.Load(); handled < made {
		t.Errorf("%d runs were made and %d tasks handled", made, handled)
	}
	// Until then rows have gone as fast as they came: those that no process continues end last.
	flat := (closing.AbandonAfter + closing.OverAfter + *dayKept + *dayKept/4 + 10*time.Minute).Hours()
	var late []daySample
	for _, s := range samples {
		if s.hours > flat {
			late = append(late, s)
		}
	}
	if len(late) < 4 {
		t.Fatalf("%d samples of what should be flat", len(late))
	}
	for what, of := range map[string]func(daySample) int{
		"rows of the ledger":  func(s daySample) int { return s.ledgerRows },
		"bytes of the ledger": func(s daySample) int { return s.ledgerBytes },
		"rows of runs":        func(s daySample) int { return s.runRows },
		"bytes of runs":       func(s daySample) int { return s.runBytes },
		"rows of tallies":     func(s daySample) int { return s.tallyRows },
	} {
		most := func(samples []daySample) (n int) {
			for _, s := range samples {
				n = max(n, of(s))
			}
			return n
		}
		// The simulated world is random: the bound is a tenth, and for small numbers some rows of a few
		// hundred bytes.
		slack := 30
		if strings.HasPrefix(what, "bytes") {
			slack = 5_000
		}
		first, second := most(late[:len(late)/2]), most(late[len(late)/2:])
		if second > first*110/100+slack {
			t.Errorf("%s grow: at most %d, and later %d", what, first, second)
		}
	}
}

// write writes the figures.
func (d *day) write(t *testing.T, samples []daySample) {
	var b strings.Builder
	fmt.Fprintf(&b, "# What is stored of runs\n\nWritten by `make play WHAT=day HOURS=%v RATE=%v KEEP=%v`: so much virtual time, so\nmany runs a second, and so long a retention. Each run is one task in one of %d segments.\nOf %s.\n\n",
		*dayFor, *dayRate, *dayKept, len(d.homes), runtime.Version()+", commit "+simCommit())
	fmt.Fprintf(&b, "One run in 200 breaks, one in 200 is left open by its client, and of one in 100 the task is in\nquarantine. A run that no process continues ends %v after its last beat and %v without\nnews. Made: %d runs; handled: %d tasks.\n\n",
		closing.AbandonAfter, closing.OverAfter, d.made.Load(), d.handled.Load())
	b.WriteString("| hours | runs made | ledger rows | ledger bytes | runs in heads | of them rests | run rows | run bytes | runs that live | tallies |\n|---|---|---|---|---|---|---|---|---|---|\n")
	for _, s := range samples {
		fmt.Fprintf(&b, "| %.2f | %d | %d | %d | %d | %d | %d | %d | %d | %d |\n", s.hours, s.made, s.ledgerRows, s.ledgerBytes, s.heads, s.rests, s.runRows, s.runBytes, s.live, s.tallyRows)
	}
	must(t, os.WriteFile(*dayPage, []byte(b.String()), 0o644)) //nolint:gosec // it is read by all
}
