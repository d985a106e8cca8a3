package azsim

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// recorder is a log whose records, in the order of virtual time, are the
// history of a world.
type recorder struct {
	mu    sync.Mutex
	lines []string
}

func (r *recorder) Enabled(context.Context, slog.Level) bool { return true }
func (r *recorder) WithAttrs([]slog.Attr) slog.Handler       { return r }
func (r *recorder) WithGroup(string) slog.Handler            { return r }
func (r *recorder) Handle(_ context.Context, rec slog.Record) error {
	var b strings.Builder
	fmt.Fprint(&b, rec.Time.UnixNano())
	rec.Attrs(func(a slog.Attr) bool {
		if a.Key != "request" { // numbered as they arrive: a name, not a choice
			fmt.Fprint(&b, " ", a.Value)
		}
		return true
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, b.String())
	return nil
}

// world runs producers and workers with leases, throttling and faults for
// half a virtual minute and returns its history. If it is ordered they all move in
// step, so that nothing but Ordered can tell who is first.
func world(t *testing.T, seed uint64, ordered bool) (history []string) {
	apart, latency := 1, 5*time.Millisecond
	if ordered {
		apart, latency = 0, 0
	}
	synctest.Test(t, func(t *testing.T) {
		rec := &recorder{}
		w, s := newRaw(t, Config{
			Seed: seed, Latency: latency, Limits: Limits{Queue: 50}, Log: slog.New(rec), Ordered: ordered,
			Accounts: []Account{{Name: "acct"}, {Name: "other"}},
		})
		for _, queue := range []string{"one", "two"} {
			w.create(queue)
		}
		for _, k := range []FaultKind{AnswerLost, FailBefore, AnswerAfter, Answer, CutBody, DeliverTwice, ReappearEarly, Reorder} {
			s.Inject(Rule{Fault: k, Probability: 0.05})
		}
		s.Inject(Rule{Fault: DelayAfter, Delay: time.Second, Probability: 0.05})
		if ordered {
			s.Inject(Rule{Fault: AnswerLost, Skip: 100, First: 100, Every: 3})
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		var wg sync.WaitGroup
		for i := range 10 {
			c := w
			c.tr = s.Transport().As(fmt.Sprint("client-", i))
			queue := []string{"one", "two"}[i%2]
			wg.Go(func() {
				time.Sleep(time.Duration(i*apart) * 7919 * time.Nanosecond)
				for n := 0; ctx.Err() == nil; n++ {
					if i < 4 {
						_, _ = c.within(ctx, "POST", "/"+queue+"/messages", text(fmt.Sprint(i, "-", n)))
						orderSleep(ctx, time.Duration(100+i*apart)*time.Millisecond)
						continue
					}
					a, err := c.within(ctx, "GET", "/"+queue+"/messages?visibilitytimeout=2&numofmessages=4", "")
					if err != nil || a.status != 200 {
						orderSleep(ctx, time.Duration(50+i*apart)*time.Millisecond)
						continue
					}
					for _, m := range a.messages(t) {
						_, _ = c.within(ctx, "DELETE", m.target(queue, ""), "")
					}
				}
			})
		}
		wg.Wait()
		history = rec.lines
		slices.Sort(history) // what was given up in one instant, when the context ended
	})
	return history
}

// P9 (docs/protocols.md): same seed, same history, to the nanosecond, whatever the
// scheduler does.
func TestTheSameSeedGivesTheSameHistory(t *testing.T) {
	for _, ordered := range []bool{false, true} {
		t.Run(fmt.Sprintf("ordered=%v", ordered), func(t *testing.T) {
			const seed = 20261121
			one := world(t, seed, ordered)
			if len(one) < 2000 {
				t.Fatalf("a world of %d events shows nothing", len(one))
			}
			for range 3 {
				if d := cmp.Diff(one, world(t, seed, ordered)); d != "" {
					t.Fatalf("seed %d: another history:\n%s", seed, d)
				}
			}
			if other := world(t, seed+1, ordered); strings.Join(one, "\n") == strings.Join(other, "\n") {
				t.Error("another seed gave the same history")
			}
		})
	}
}
