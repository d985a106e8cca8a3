package worlds

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"strconv"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/reduce"
)

// sevenths is a state: of each remainder of n by seven how many tasks and what their n come to.
type sevenths map[uint64]seventh

type seventh struct{ Tasks, Sum uint64 }

func (s sevenths) add(n uint64) {
	k := s[n%7]
	s[n%7] = seventh{k.Tasks + 1, k.Sum + n}
}

// slowly is a reducer whose Map takes up to three seconds, and fails at first for some tasks.
func slowly(seed uint64) *reduce.Reducer[sevenths, uint64] {
	return &reduce.Reducer[sevenths, uint64]{
		Name: "sevenths/1",
		Map: func(ctx context.Context, t *pump.Task) (uint64, error) {
			_, text, _ := bytes.Cut(t.Body, []byte("/"))
			n, err := strconv.ParseUint(string(text), 10, 64)
			if err != nil || n != t.N {
				return 0, pump.Reject(fmt.Errorf("%q is not the body of %d", t.Body, t.N))
			}
			roll := testworld.SimHash(seed, "map", string(t.Body), 0)
			if err := testworld.Pause(ctx, time.Duration(roll%3000)*time.Millisecond); err != nil {
				return 0, err
			}
			if t.Attempt == 1 && roll%11 == 0 {
				return 0, testworld.ErrFlop
			}
			return n, nil
		},
		Fold: func(s *sevenths, n uint64) {
			if *s == nil {
				*s = sevenths{}
			}
			s.add(n)
		},
	}
}

// TestW4EachTaskIsInTheStateOnceWhoeverDiesOrIsCutOff: three thousand tasks, half of them put
// twice, while a processor dies, others are cut off for longer than their leases and
// go on afterwards, the control account is dark for a while, and answers are lost.
func TestW4EachTaskIsInTheStateOnceWhoeverDiesOrIsCutOff(t *testing.T) {
	proof.Only(t)
	for seed := range uint64(4) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			inOnceWorld(t, 2, 4, func(c *azsim.Config) { c.Seed = seed }, func(t *testing.T, w *world) {
				r := slowly(seed)
				want := w.twiceForHalf()
				duplicates, lost := w.underFaults(t, r.Handler(), seed)

				got := sevenths{}
				for state, err := range r.States(t.Context(), w.Cfg) {
					must(t, err)
					for k, part := range state {
						got[k] = seventh{got[k].Tasks + part.Tasks, got[k].Sum + part.Sum}
					}
				}
				if !maps.Equal(got, want) {
					t.Errorf("the states come to %v, want %v", got, want)
				}
				if n := w.Left(); n != 0 {
					t.Errorf("%d messages are left", n)
				}
				for _, a := range w.Cfg.Accounts {
					if n := len(w.Poisoned(a.Name)); n != 0 {
						t.Errorf("%d messages are in quarantine", n)
					}
				}
				if duplicates == 0 || lost == 0 {
					t.Errorf("%d duplicates were recognised and %d requests were hit: nothing was tried", duplicates, lost)
				}
			})
		})
	}
}

// twiceForHalf puts twelve tasks of each segment, every second message twice, and
// says what the states are to come to.
func (w *world) twiceForHalf() sevenths {
	w.T.Helper()
	want := sevenths{}
	m := w.ShardMap()
	for i := range 3 {
		for _, s := range w.EverySegment() {
			for n := w.Ns[s]; n < w.Ns[s]+4; n++ {
				want.add(n)
			}
			home, text := m.Shards[m.Home(s)], w.Envelope(s, 4)
			for range 1 + (int(s)+i)%2 {
				w.PutText(home.Account, home.Queue, text)
			}
		}
	}
	return want
}

// underFaults runs processors until all is done. It says how many tasks they recognised as done,
// and how many requests met a fault.
func (w *world) underFaults(t *testing.T, h pump.Handler, seed uint64) (duplicates int64, hits int64) {
	t.Helper()
	var faults []*azsim.Injection
	inject := func(r azsim.Rule) *azsim.Injection {
		i := w.Sim.Inject(r)
		faults = append(faults, i)
		return i
	}
	all := map[string]*started{}
	names := []string{"p1", "p2", "p3", "p4"}
	for _, name := range names {
		for _, fault := range []azsim.FaultKind{azsim.AnswerLost, azsim.FailBefore, azsim.AnswerAfter} {
			inject(azsim.Rule{Instance: name, Fault: fault, Probability: 0.01})
		}
		inject(azsim.Rule{Instance: name, Fault: azsim.DeliverTwice, Operations: []string{"GetMessages"}, Probability: 0.05})
		all[name] = w.join(name, h, processor.Options{Concurrency: 16})
	}
	// A beat is 5 s, a lease 20 s: some cuts end before others take over, most after.
	for i, name := range []string{"p2", "p3", "p2", "p4", "p3"} {
		time.Sleep(time.Duration(testworld.SimHash(seed, "calm", name, i)%15_000) * time.Millisecond)
		cut := inject(azsim.Rule{Instance: name, Fault: azsim.FailBefore})
		time.Sleep(time.Duration(10_000+testworld.SimHash(seed, "cut", name, i)%50_000) * time.Millisecond)
		cut.Remove()
		if i == 1 { // p1 is never heard of again
			inject(azsim.Rule{Instance: "p1", Fault: azsim.FailBefore})
			all["p1"].Stop()
		}
		if i == 2 {
			dark := inject(azsim.Rule{Service: "table", Fault: azsim.FailBefore})
			time.Sleep(40 * time.Second)
			dark.Remove()
		}
	}
	for i := 0; w.Left() > 0; i++ {
		if i == 60 {
			t.Fatalf("%d messages are left an hour after the last fault", w.Left())
		}
		time.Sleep(time.Minute)
	}
	for _, name := range names {
		p := all[name]
		p.Stop()
		<-p.Done
		if name != "p1" && p.Err != nil {
			t.Errorf("%s: %v", name, p.Err)
		}
		duplicates += p.Summary.Duplicates
	}
	for _, i := range faults {
		hits += i.Hits()
	}
	return duplicates, hits
}
