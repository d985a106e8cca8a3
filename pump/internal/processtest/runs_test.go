package processtest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/source"
	"github.com/queuepump/queuepump/pump/status"
)

var (
	runsMany = flag.Int("runs.many", 100, "how many runs of one task with one key the binaries send")
	runsFor  = flag.Duration("runs.for", 0, "for how long a real processor is measured under 100 runs a second; 0: not at all")
	runsRate = flag.Int("runs.rate", 100, "runs a second that it is measured under")
)

// TestRunsOfOneTaskWithOneKeyAreAllHandledAsFastAsTheyCome, sent by real binaries, eight at a time
// (A1). How long it takes is judged in make play WHAT=runs only.
func TestRunsOfOneTaskWithOneKeyAreAllHandledAsFastAsTheyCome(t *testing.T) {
	proof.Only(t)
	t.Parallel()
	w := newWorld(t, 2, 2)
	w.once()
	out := w.path("done.jsonl")
	p := start(t, "processor", "run", "--config", w.config, "--out", out)
	writeText(t, w.path("task.jsonl"), `{"city":"Oslo"}`+"\n")
	began := time.Now()
	var g errgroup.Group
	g.SetLimit(8)
	for range *runsMany {
		g.Go(func() error {
			text, err := exec.Command(filepath.Join(bin, "distributor"), "run", "--config", w.config, "--input", w.path("task.jsonl"), "--key", "city", "--quiet").CombinedOutput()
			if err != nil {
				return fmt.Errorf("%w: %s", err, text)
			}
			return nil
		})
	}
	must(t, g.Wait())
	sent := time.Now()
	handled := func() int { text, _ := os.ReadFile(out); return strings.Count(string(text), "\n") }
	atOnce := handled()
	p.until("all are handled", func() bool { return handled() >= *runsMany })
	took := time.Since(sent)
	t.Logf("%d runs sent in %.1f s (%.0f/s); %d of them handled by then, and all %.1f s after the last", *runsMany,
		sent.Sub(began).Seconds(), rate(*runsMany, sent.Sub(began)), atOnce, took.Seconds())
	if *runsFor > 0 && took > runsWithin { // make play WHAT=runs, on a machine that does nothing else
		t.Errorf("all were handled %v after the last, which may take %v", took, runsWithin)
	}
	rows := workload.NewRuns(w.account("account1").Table(row.TableName), "test")
	p.until("all are closed", func() bool {
		live, err := rows.Live(t.Context())
		return err == nil && len(live) == 0
	})
	t.Logf("all closed and forgotten %.1f s after the last", time.Since(sent).Seconds())
	stop(p)
	runs := map[string]int{}
	for _, d := range readDone(t, out) {
		runs[d.Run]++
	}
	if len(runs) != *runsMany || handled() != *runsMany {
		t.Errorf("%d tasks of %d runs are handled, want %d of each", handled(), len(runs), *runsMany)
	}
}

// TestAProcessorOfRankZeroIsFlatUnderManyRuns measures, every tenth of the time, what a real
// processor that closes runs keeps in memory and how long `status` takes, while a program makes
// runs of one task. Neither grows with the runs that were: make play WHAT=runs.
func TestAProcessorOfRankZeroIsFlatUnderManyRuns(t *testing.T) {
	if *runsFor == 0 {
		t.Skip("it measures, for minutes: make play WHAT=runs")
	}
	w := newWorld(t, 2, 2)
	w.once()
	p := start(t, "processor", "run", "--config", w.config, "--discard", "--admin", "127.0.0.1:0")
	admin := p.admin()
	cfg := pump.Config{Workload: "test", Delivery: pump.Once, Control: "account1", Log: slog.New(slog.DiscardHandler)}
	for _, name := range w.names {
		cfg.Accounts = append(cfg.Accounts, pump.Account{Storage: w.account(name), Queues: 2})
	}
	ctx, cancel := context.WithTimeout(t.Context(), *runsFor)
	defer cancel()
	var made atomic.Int64
	var makers errgroup.Group
	makers.Go(func() error { return makeRuns(ctx, cfg, &made) })
	began := time.Now()
	table := workload.NewRuns(w.account("account1").Table(row.TableName), "test")
	var heaps, times []float64
	for i := range 10 {
		select {
		case <-time.After(time.Until(began.Add(*runsFor * time.Duration(i+1) / 10))):
		case <-p.done:
			t.Fatal("the processor ended")
		}
		asked := time.Now()
		s, err := status.Read(t.Context(), cfg, status.Options{})
		must(t, err)
		took := time.Since(asked)
		live, err := table.Live(t.Context())
		must(t, err)
		_, _ = ask(t, admin, "/debug/pprof/heap?gc=1")
		heap := metric(t, admin, "go_memstats_heap_alloc_bytes")
		t.Logf("%4.0f s: %6d runs made, %6.0f tasks recorded, %4d runs live, %4d in the fullest segment; heap in use %.1f MiB; status: %d requests, %.0f ms",
			time.Since(began).Seconds(), made.Load(), metric(t, admin, "queuepump_tasks_recorded_total"), len(live), s.Ledger.Runs,
			heap/(1<<20), s.Requests, 1000*took.Seconds())
		heaps, times = append(heaps, heap/(1<<20)), append(times, 1000*took.Seconds())
	}
	for _, problem := range []string{
		grows("the heap, in MiB", heaps, heapFloor), grows("the time of status, in ms", times, statusFloor),
	} {
		proof.Same(t, problem, "")
	}
	must(t, makers.Wait())
	stop(p)
}

// What make play WHAT=runs asks for. The floors are what one look differs from another by: a collection that
// has just begun, and a request that waits for the other core.
const (
	runsWithin  = time.Minute
	heapFloor   = 4   // MiB
	statusFloor = 100 // ms
)

// grows says whether the last third of what was measured is on average above one and a half times
// the first third, and a floor.
func grows(what string, measured []float64, floor float64) string {
	third := len(measured) / 3
	mean := func(of []float64) (sum float64) {
		for _, v := range of {
			sum += v / float64(len(of))
		}
		return sum
	}
	first, last := mean(measured[:third]), mean(measured[len(measured)-third:])
	if last <= 1.5*first+floor {
		return ""
	}
	return fmt.Sprintf("%s grows: %.1f in the first third, %.1f in the last", what, first, last)
}

func TestWhatGrowsIsSeen(t *testing.T) {
	for want, measured := range map[bool][]float64{
		false: {10, 14, 9, 12, 30, 12, 11, 16, 14, 15},
		true:  {10, 14, 9, 12, 30, 12, 11, 20, 24, 28},
	} {
		if got := grows("it", measured, 4); (got != "") != want {
			t.Errorf("%v: %q", measured, got)
		}
	}
}

// makeRuns makes runs of one task until ctx ends, as programs with a sender do that live for one
// task.
func makeRuns(ctx context.Context, cfg pump.Config, made *atomic.Int64) error {
	tick := time.NewTicker(time.Second / time.Duration(*runsRate))
	defer tick.Stop()
	var g errgroup.Group
	g.SetLimit(64)
	for n := 0; ctx.Err() == nil; n++ {
		<-tick.C
		g.Go(func() error {
			s, err := distributor.NewSender(cfg, distributor.SenderOptions{Linger: time.Millisecond})
			if err != nil {
				return err
			}
			err = s.Send(context.Background(), source.Record{Key: fmt.Appendf(nil, "key %d", n), Body: []byte("{}")})
			_, closeErr := s.Close(context.Background())
			made.Add(1)
			return errors.Join(err, closeErr)
		})
	}
	return g.Wait()
}

// metric reads the value of a metric without labels other than the workload.
func metric(t *testing.T, address, name string) float64 {
	t.Helper()
	_, text := ask(t, address, "/metrics")
	for line := range strings.Lines(text) {
		if rest, is := strings.CutPrefix(line, name); is && (rest[0] == ' ' || rest[0] == '{') {
			fields := strings.Fields(line)
			v, err := strconv.ParseFloat(fields[len(fields)-1], 64)
			must(t, err)
			return v
		}
	}
	t.Errorf("there is no metric %s", name)
	return 0
}
