package pumptest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/testkit"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/quarantine"
	"github.com/queuepump/queuepump/pump/source"
	"github.com/queuepump/queuepump/pump/storage/azure"
)

// Options are what a test says of the pump besides its handler. The zero value works.
type Options struct {
	// Config is that of the workload, for example its Delivery. Accounts stays empty: the world makes
	// one. Default of Workload: "test"; of Log: the test's output.
	Config pump.Config
	// Processor is how the processor works, for example its Retry, or middleware.
	Processor processor.Options
}

// Handling is what became of a task in one call of the handler.
type Handling struct {
	Key, ID string
	Attempt int
	Outcome pump.Outcome
	Err     error         // what the handler returned
	After   time.Duration // from New to the end of the call
	task    string
}

// World is a workload with a sender and a processor at work.
type World struct {
	t      *testing.T
	cfg    pump.Config
	sender *distributor.Sender
	proc   *processor.Processor
	began  time.Time
	sent   int

	steps int // so many handlings are behind Step

	mu  sync.Mutex // guards all
	all []Handling
}

// New makes a world and starts its processor, which the end of the test stops. It panics outside of
// a bubble of virtual time (synctest.Test).
func New(t *testing.T, h pump.Handler, o Options) *World {
	t.Helper()
	synctest.Wait() // panics
	if len(o.Config.Accounts) > 0 {
		t.Fatal("Options.Config.Accounts: they are not used; leave them out, the world makes its own")
	}
	sim := testkit.Simulated()
	account, err := azure.Open(azure.Options{
		ConnectionString: sim.ConnectionString("north"), Transport: sim.Transport(),
	})
	proof.Must(t, err)
	w := &World{t: t, cfg: o.Config, began: time.Now()}
	w.cfg.Workload, w.cfg.Segments = cmp.Or(w.cfg.Workload, "test"), cmp.Or(w.cfg.Segments, 64)
	w.cfg.Accounts = []pump.Account{{Storage: account, Queues: 1}}
	if w.cfg.Log == nil {
		w.cfg.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	cfg := w.cfg
	cfg.Instance = "sender"
	w.sender, err = distributor.NewSender(cfg, distributor.SenderOptions{})
	proof.Must(t, err)
	cfg.Instance, o.Processor.Make = "processor", true
	if o.Processor.Beat == 0 && o.Processor.Lease == 0 {
		o.Processor.Beat = 20 * time.Second // hours of beats would take longer than those of tasks
	}
	o.Processor.Use = append([]processor.Middleware{w.note}, o.Processor.Use...)
	w.proc, err = processor.New(cfg, h, o.Processor)
	proof.Must(t, err)
	stopped := make(chan error, 1)
	go func() { stopped <- proof.ErrOf(w.proc.Run(t.Context())) }()
	t.Cleanup(func() {
		proof.Must(t, errors.Join(proof.ErrOf(w.sender.Close(context.Background())), <-stopped))
	})
	return w
}

var errPanicked = errors.New("the handler panicked, or ended its goroutine")

// note is the outermost middleware.
func (w *World) note(
	ctx context.Context, tasks []*pump.Task, next func(context.Context) []error,
) []error {
	errs := slices.Repeat([]error{errPanicked}, len(tasks)) // unless next returns
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		for i, t := range tasks {
			is, _ := pump.OutcomeOf(errs[i])
			w.all = append(w.all, Handling{
				string(t.Key), strings.Clone(t.ID), t.Attempt, is, errs[i], time.Since(w.began),
				fmt.Sprint(t.Run, t.Segment, t.N),
			})
		}
	}()
	errs = next(ctx)
	return errs
}

// Send sends tasks, and returns when all are in queues. A [source.Record] is a task with a key and
// an id. A []byte is the body of a task, and any other value becomes one as JSON; the body is the
// key, too.
func (w *World) Send(tasks ...any) {
	w.t.Helper()
	records := make([]source.Record, len(tasks))
	for i, task := range tasks {
		r, is := task.(source.Record)
		if body, raw := task.([]byte); !is {
			if !raw {
				var err error
				body, err = json.Marshal(task)
				proof.Must(w.t, err)
			}
			r = source.Record{Key: body, Body: body}
		}
		records[i] = r
	}
	proof.Must(w.t, w.sender.Send(w.t.Context(), records...))
	w.sent += len(tasks)
}

// Advance lets time pass, and what is due in it happen.
func (w *World) Advance(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
	w.steps = len(w.Handlings())
}

// Step lets time pass, a second at least, up to the next outcome of a task, and gives it. The test
// fails if there is none within a week.
func (w *World) Step() Handling {
	w.t.Helper()
	for range 7 * 24 * 60 * 60 {
		time.Sleep(time.Second)
		if all := w.Handlings(); w.steps < len(all) {
			w.steps++
			return all[w.steps-1]
		}
	}
	w.t.Fatal("no task was handled within a week; " + w.tasks())
	panic("not reached")
}

// Handlings are the outcomes of all calls of the handler so far, in their order.
func (w *World) Handlings() []Handling {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.all)
}

// Done expects that so many of the tasks that were sent are done.
func (w *World) Done(want int) {
	w.t.Helper()
	done := 0
	for _, h := range w.last() {
		if h.Outcome == pump.OutcomeDone {
			done++
		}
	}
	w.expect(done, want, "done")
}

// Retried expects that tasks have been put back for another attempt so many times. A second passes
// first, in which that is done.
func (w *World) Retried(want int) {
	w.t.Helper()
	time.Sleep(time.Second)
	w.expect(int(w.proc.State().Done.Retried), want, "retried")
}

// Quarantined expects that so many tasks are in quarantine whose cause has this text in it. A second
// passes first, in which they come there.
func (w *World) Quarantined(want int, cause string) {
	w.t.Helper()
	time.Sleep(time.Second)
	q, err := quarantine.Open(w.t.Context(), w.cfg)
	proof.Must(w.t, err)
	got, all := 0, quarantine.Filter{}
	proof.Must(w.t, q.List(w.t.Context(), all, func(m *quarantine.Message) bool {
		if strings.Contains(m.Reason+": "+m.Detail, cause) {
			got += m.Tasks
		}
		return true
	}))
	w.expect(got, want, fmt.Sprintf("in quarantine with %q in the cause", cause))
}

func (w *World) expect(got, want int, what string) {
	w.t.Helper()
	if got != want {
		w.t.Errorf("%d tasks are %s, want %d; %s", got, what, want, w.tasks())
	}
}

// last is the last outcome of each task.
func (w *World) last() map[string]Handling {
	last := map[string]Handling{}
	for _, h := range w.Handlings() {
		last[h.task] = h
	}
	return last
}

// tasks says what became of the tasks so far.
func (w *World) tasks() string {
	const most = 20
	var lines []string
	for _, h := range w.last() {
		lines = append(lines, fmt.Sprintf("\n%.80s: %s at attempt %d, %v after the start: %v",
			cmp.Or(h.ID, h.Key), h.Outcome, h.Attempt, h.After, cmp.Or(h.Err, errors.New("no error"))))
	}
	slices.Sort(lines)
	return fmt.Sprintf("%v after the start %d of %d tasks have been handled:%s", time.Since(w.began),
		len(lines), w.sent, strings.Join(lines[:min(most, len(lines))], ""))
}
