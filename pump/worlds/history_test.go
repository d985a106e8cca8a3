package worlds

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
)

// history is what a simulated service had to do, as its log tells: one line for each
// request, with when it was over, when it came, whose it was, what of, and what became of it.
type history struct {
	mu     sync.Mutex
	events []string
}

// log is for azsim.Config.Log.
func (h *history) log() *slog.Logger { return slog.New(h) }

func (h *history) Enabled(context.Context, slog.Level) bool { return true }

func (h *history) WithAttrs([]slog.Attr) slog.Handler { return h }

func (h *history) WithGroup(string) slog.Handler { return h }

func (h *history) Handle(_ context.Context, r slog.Record) error {
	said := map[string]string{}
	r.Attrs(func(a slog.Attr) bool {
		if a.Value.Kind() == slog.KindTime {
			said[a.Key] = fmt.Sprint(a.Value.Time().UnixNano())
		} else {
			said[a.Key] = a.Value.String()
		}
		return true
	})
	if said["instance"] == "putter" { // who sets the world up
		return nil
	}
	h.note(r.Time, "%s %s %s %s%s %s %s %s, %s", said["came"], said["instance"], said["operation"], said["account"], said["path"],
		said["status"], said["code"], said["request"], said["delivery"])
	return nil
}

// note adds a line that is no request.
func (h *history) note(at time.Time, format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, fmt.Sprintf("%019d ", at.UnixNano())+fmt.Sprintf(format, args...))
}

// lines are the history in an order that no process chooses. Only what commutes shares a
// nanosecond: requests that are given up when their common context ends, tasks of one message.
func (h *history) lines() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Sorted(slices.Values(h.events))
}

// requireSameHistory fails at the first line in which two histories differ.
func requireSameHistory(t *testing.T, seed uint64, one, two []string) {
	t.Helper()
	for i := range max(len(one), len(two)) {
		if i < len(one) && i < len(two) && one[i] == two[i] {
			continue
		}
		show := func(h []string) string {
			return strings.Join(h[min(max(0, i-2), len(h)):min(i+4, len(h))], "\n\t")
		}
		t.Fatalf("seed %d: the histories, of %d and %d events, differ from event %d on:\n\t%s\nand\n\t%s", seed, len(one), len(two), i, show(one), show(two))
	}
}

var (
	histSeeds = flag.Int("history.seeds", 0, "of how many seeds of each kind two histories of the whole pump are compared; 0: two, or one under the race detector")
	histFrom  = flag.Uint64("history.from", 0, "the first of them")
)

// historyKind is a kind of world.
type historyKind struct {
	name     string
	shared   bool          // no segment has an owner
	delivery pump.Delivery // default: at-least-once
	flat     bool          // the source gives all it has at once
}

// historyWorld plays a whole pump: two distributors of which one leads, and is stopped in the
// middle; three processors, of which one is stopped and comes again; two
// accounts, of which one goes dark; throttles, lost answers, broken connections.
func historyWorld(t *testing.T, kind historyKind, seed uint64) []string {
	h := &history{}
	ts := newTurns(seed)
	change := func(c *azsim.Config) {
		c.Seed, c.Ordered, c.Log = seed, true, h.log()
		c.Limits.Queue = 60
	}
	spec := workload.Spec{Shared: kind.shared, Delivery: string(kind.delivery)}
	testworld.In(t, spec, 2, 3, change, func(t *testing.T, w *testworld.World) {
		w.Seeding, w.Engine.BarrierAge, w.Engine.Lanes = ts.Of, 3*time.Second, 2
		for _, k := range []azsim.FaultKind{azsim.AnswerLost, azsim.FailBefore, azsim.AnswerAfter, azsim.CutBody, azsim.DeliverTwice, azsim.ReappearEarly, azsim.Reorder} {
			w.Sim.Inject(azsim.Rule{Fault: k, Probability: 0.02})
		}
		w.Sim.Inject(azsim.Rule{Fault: azsim.HangAfter, Probability: 0.003})
		w.Sim.Inject(azsim.Rule{Fault: azsim.Answer, Skip: 50, Every: 40})
		w.Sim.Inject(azsim.Rule{Fault: azsim.DelayAfter, Delay: 700 * time.Millisecond, Probability: 0.02})

		roll := func(n uint64, what, about string) time.Duration {
			return time.Duration(testworld.SimHash(seed, what, about, 0) % n)
		}
		handler := func(name string) pump.Handler {
			turn := ts.Of(name).Turn
			return pump.HandlerFunc(func(ctx context.Context, task *pump.Task) error {
				id := testworld.Identity(task)
				err := testworld.Pause(ctx, roll(uint64(50*time.Millisecond), "work", id))
				turn("handled", id)
				if err != nil {
					return err
				}
				h.note(time.Now(), "%s handled %s, attempt %d", name, id, task.Attempt)
				if task.Attempt < 3 && roll(100, "fails", id) < 5 {
					return testworld.ErrFlop
				}
				return nil
			})
		}
		at := func(d time.Duration, what string) { time.Sleep(d + roll(uint64(time.Millisecond), "apart", what)) }
		start := func(name string) *started {
			at(100*time.Millisecond, name)
			return testworld.Begun(w, processor.New, name, handler(name), processor.Options{Concurrency: 4, Visibility: 20 * time.Second})
		}

		ps := []*started{start("p1"), start("p2"), start("p3")}
		source := &testworld.ListSource{Print: "a", N: 1500, Pace: 13*time.Millisecond + 137}
		if kind.flat {
			source.Pace = 0
		}
		var ds []*working
		for _, name := range []string{"d1", "d2"} {
			at(100*time.Millisecond, name)
			ds = append(ds, testworld.Begun(w, distributor.New, name, source, distributor.Options{Every: time.Minute, Pack: 8}))
		}
		at(8*time.Second, "stop")
		ps[0].End()
		at(2*time.Second, "dark")
		w.Sim.Blackout("accountb", true)
		ds[0].Stop()
		at(9*time.Second, "lit")
		w.Sim.Blackout("accountb", false)
		at(time.Second, "again")
		ps[0] = start("p1-again")
		at(40*time.Second, "end")
		for _, d := range ds {
			d.Stop()
			_ = d.Wait()
		}
		for i, p := range ps {
			at(time.Second, fmt.Sprint("end ", i))
			s := p.End()
			h.note(time.Now(), "p%d: %+v", i+1, s)
		}
	})
	return h.lines()
}

// P9: the history of the whole pump is a function of the seed, to the nanosecond, whatever
// the scheduler does and on any number of processors.
func TestTheSameSeedGivesTheWholePumpTheSameHistory(t *testing.T) {
	seeds := *histSeeds
	if seeds == 0 {
		seeds = 2
		if testing.Short() { // a world takes four seconds, and ten under the race detector
			seeds = 1
		}
	}
	kinds := []historyKind{
		{name: "once", delivery: pump.Once},
		{name: "all at once", flat: true},
		{name: "shared", shared: true},
		{name: "owned"},
	}
	if proof.Less(t) {
		kinds = kinds[:2]
	}
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			for seed := *histFrom; seed < *histFrom+uint64(seeds); seed++ {
				t.Run(fmt.Sprint(seed), func(t *testing.T) {
					one := historyWorld(t, kind, seed)
					if len(one) < 2500 {
						t.Fatalf("a history of %d events shows nothing", len(one))
					}
					requireSameHistory(t, seed, one, historyWorld(t, kind, seed))
				})
			}
		})
	}
	one, other := historyWorld(t, historyKind{}, 0), historyWorld(t, historyKind{}, 1)
	if slices.Equal(one, other) {
		t.Error("another seed gave the same history")
	}
}
