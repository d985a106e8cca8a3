package azsim

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
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
// half a virtual minute and returns its history.
func world(t *testing.T, seed uint64) (history []string) {
	synctest.Test(t, func(t *testing.T) {
		rec := &recorder{}
		w, s := newRaw(t, Config{
			Seed: seed, Latency: 5 * time.Millisecond, Limits: Limits{Queue: 50}, Log: slog.New(rec),
			Accounts: []Account{{Name: "acct"}, {Name: "other"}},
		})
		for _, queue := range []string{"one", "two"} {
			w.create(queue)
		}
		for _, k := range []FaultKind{AnswerLost, FailBefore, AnswerAfter, Answer, CutBody, DeliverTwice, ReappearEarly, Reorder} {
			s.Inject(Rule{Fault: k, Probability: 0.05})
		}
		s.Inject(Rule{Fault: DelayAfter, Delay: time.Second, Probability: 0.05})
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		var wg sync.WaitGroup
		for i := range 10 {
			c := w
			c.tr = s.Transport().As(fmt.Sprint("client-", i))
			queue := []string{"one", "two"}[i%2]
			wg.Go(func() {
				time.Sleep(time.Duration(i) * 7919 * time.Nanosecond)
				for n := 0; ctx.Err() == nil; n++ {
					if i < 4 {
						_, _ = c.within(ctx, "POST", "/"+queue+"/messages", text(fmt.Sprint(i, "-", n)))
						sleep(ctx, time.Duration(100+i)*time.Millisecond)
						continue
					}
					a, err := c.within(ctx, "GET", "/"+queue+"/messages?visibilitytimeout=2&numofmessages=4", "")
					if err != nil || a.status != 200 {
						sleep(ctx, time.Duration(50+i)*time.Millisecond)
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
	})
	return history
}

// P9 (pump/DESIGN.md): same seed, same history, to the nanosecond, whatever the
// scheduler does.
func TestTheSameSeedGivesTheSameHistory(t *testing.T) {
	const seed = 20261121
	one, two := world(t, seed), world(t, seed)
	if len(one) < 2000 {
		t.Fatalf("a world of %d events shows nothing", len(one))
	}
	for i := range min(len(one), len(two)) {
		if one[i] != two[i] {
			t.Fatalf("seed %d: event %d of %d differs:\n%s\n%s", seed, i, len(one), one[i], two[i])
		}
	}
	if len(one) != len(two) {
		t.Errorf("seed %d: %d events, then %d", seed, len(one), len(two))
	}
	if three := world(t, seed+1); strings.Join(one, "\n") == strings.Join(three, "\n") {
		t.Error("another seed gave the same history")
	}
}
