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

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/quarantine"
	"github.com/queuepump/queuepump/pump/source"
	"github.com/queuepump/queuepump/pump/storage/azure"
)

// Handling is what became of a task in one call of the handler.
type Handling struct {
	Key, ID string
	Attempt int
	Outcome pump.Outcome
	Err     error         // what the handler returned
	After   time.Duration // from New to the end of the call
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

// New makes a world and starts its processor, as [processor.New] makes it; the end of the test
// stops it. In the configuration a simulated account stands in the place of the Accounts. Unless it
// says otherwise, the workload is "test", and errors are logged to the test's output. New panics
// outside of a bubble of virtual time (synctest.Test).
func New(t *testing.T, cfg pump.Config, h pump.Handler, o processor.Options) *World {
	t.Helper()
	synctest.Wait() // panics
	w := &World{t: t, began: time.Now()}
	sim := azsim.New(azsim.Config{Latency: 10 * time.Millisecond})
	account, err := azure.Open(azure.Options{
		ConnectionString: sim.ConnectionString(sim.Accounts()[0]), Transport: sim.Transport(),
	})
	w.must(err)
	cfg.Workload, cfg.Segments = cmp.Or(cfg.Workload, "test"), cmp.Or(cfg.Segments, 64)
	level := &slog.HandlerOptions{Level: slog.LevelError} // story has what failed
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.NewTextHandler(t.Output(), level)))
	cfg.Accounts = []pump.Account{{Storage: account, Queues: 1}}
	cfg.Instance = "sender"
	w.cfg = cfg
	w.sender, err = distributor.NewSender(cfg, distributor.SenderOptions{})
	w.must(err)
	cfg.Instance, o.Make = "processor", true
	o.Use = append([]processor.Middleware{w.note}, o.Use...)
	if o.Beat == 0 && o.Lease == 0 {
		o.Beat = 20 * time.Second // hours of beats would take longer than those of tasks
	}
	w.proc, err = processor.New(cfg, h, o)
	w.must(err)
	stopped := make(chan error, 1)
	go func() {
		_, err := w.proc.Run(t.Context())
		stopped <- err
	}()
	t.Cleanup(func() {
		_, err := w.sender.Close(context.Background())
		w.must(errors.Join(err, <-stopped))
	})
	return w
}

func (w *World) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

var errPanicked = errors.New("the handler panicked, or ended its goroutine")

// note is the outermost middleware.
func (w *World) note(
	ctx context.Context, tasks []*pump.Task, next processor.Next,
) []error {
	errs := slices.Repeat([]error{errPanicked}, len(tasks)) // unless next returns
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		for i, t := range tasks {
			is, _ := pump.OutcomeOf(errs[i])
			w.all = append(w.all, Handling{
				string(t.Key), strings.Clone(t.ID), t.Attempt, is, errs[i], time.Since(w.began),
			})
		}
	}()
	errs = next(ctx, tasks)
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
				w.must(err)
			}
			r = source.Record{Key: body, Body: body}
		}
		records[i] = r
	}
	w.must(w.sender.Send(w.t.Context(), records...))
	w.sent += len(tasks)
}

// Advance lets time pass, and what is due in it happen.
func (w *World) Advance(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
	w.steps = len(w.Handlings())
}

// Step lets time pass, a second at least, up to the next outcome of a task, and gives it. The test
// fails if there is none within a day.
func (w *World) Step() Handling {
	w.t.Helper()
	for range 24 * 60 * 60 {
		time.Sleep(time.Second)
		if all := w.Handlings(); w.steps < len(all) {
			w.steps++
			return all[w.steps-1]
		}
	}
	w.t.Fatal("no task was handled within a day; " + w.story())
	panic("not reached")
}

// Handlings are the outcomes of all calls of the handler so far, in their order.
func (w *World) Handlings() []Handling {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.all)
}

// Done expects that so many tasks are done. As Retried and Quarantined do, it lets a second pass
// first, in which the pump settles what handlers have returned.
func (w *World) Done(want int) {
	w.t.Helper()
	w.expect(w.settled().Handled, want, "done")
}

// Retried expects that tasks have been put back for another attempt so many times.
func (w *World) Retried(want int) {
	w.t.Helper()
	w.expect(w.settled().Retried, want, "retried")
}

// Quarantined expects that so many tasks are in quarantine whose cause has this text in it.
func (w *World) Quarantined(want int, cause string) {
	w.t.Helper()
	w.settled()
	q, err := quarantine.Open(w.t.Context(), w.cfg)
	w.must(err)
	got, all := 0, quarantine.Filter{}
	w.must(q.List(w.t.Context(), all, func(m *quarantine.Message) bool {
		if strings.Contains(m.Reason+": "+m.Detail, cause) {
			got += m.Tasks
		}
		return true
	}))
	w.expect(int64(got), want, fmt.Sprintf("in quarantine with %q in the cause", cause))
}

func (w *World) settled() processor.Summary {
	time.Sleep(time.Second)
	synctest.Wait()
	return w.proc.State().Done
}

func (w *World) expect(got int64, want int, what string) {
	w.t.Helper()
	if got != int64(want) {
		w.t.Errorf("%d tasks are %s, want %d; %s", got, what, want, w.story())
	}
}

// story has the last outcome of each key or id.
func (w *World) story() string {
	all, last := w.Handlings(), map[string]bool{}
	text := fmt.Sprintf("%d tasks were sent, and %d handled", w.sent, len(all))
	for _, h := range slices.Backward(all) {
		name := cmp.Or(h.ID, h.Key)
		if !last[name] && len(last) < 20 {
			text += fmt.Sprintf("\n%v: %.80s is %s at attempt %d: %v", h.After, name, h.Outcome, h.Attempt,
				h.Err)
		}
		last[name] = true
	}
	return text
}
