package reduce_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/handlers"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/ledger"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/reduce"
)

// totals is a state that is stored as JSON.
type totals struct {
	Tasks int            `json:"tasks"`
	By    map[string]int `json:"by"`
}

func totalsReducer() *reduce.Reducer[totals, string] {
	return &reduce.Reducer[totals, string]{
		Name: "totals/1",
		Map:  func(_ context.Context, t *pump.Task) (string, error) { return string(t.Key), nil },
		Fold: func(s *totals, key string) {
			if s.By == nil {
				s.By = map[string]int{}
			}
			s.Tasks++
			s.By[key]++
		},
	}
}

func TestAStateIsLoadedAsItWasStored(t *testing.T) {
	s := totalsReducer().Handler().(ledger.Reducing)
	state, err := s.Load(nil)
	proof.Must(t, err)
	for _, key := range []string{"a", "b", "a"} {
		c, err := s.Contribute(t.Context(), &pump.Task{Key: []byte(key)})
		proof.Must(t, err)
		s.Fold(state, c)
	}
	b, err := s.Store(state)
	proof.Must(t, err)
	again, err := s.Load(b)
	proof.Must(t, err)
	if got := again.(*totals); got.Tasks != 3 || !maps.Equal(got.By, map[string]int{"a": 2, "b": 1}) {
		t.Errorf("%+v", got)
	}
	// Further folds leave the stored state alone: it may be loaded again.
	s.Fold(again, "c")
	if same, err := s.Load(b); err != nil || same.(*totals).Tasks != 3 {
		t.Errorf("%+v, %v", same, err)
	}
}

func TestAnEmptyContributionIsFolded(t *testing.T) {
	r := (&reduce.Reducer[int, error]{
		Name: "failures/1",
		Map:  func(context.Context, *pump.Task) (error, error) { return nil, nil },
		Fold: func(n *int, err error) {
			if err == nil {
				*n++
			}
		},
	}).Handler().(ledger.Reducing)
	c, err := r.Contribute(t.Context(), &pump.Task{})
	proof.Must(t, err)
	n := 0
	r.Fold(&n, c)
	proof.Same(t, n, 1, "folded")
}

func TestAStateOfAnotherReducerOrADamagedOneIsRefused(t *testing.T) {
	r := totalsReducer().Handler().(ledger.Reducing)
	b, err := r.Store(&totals{Tasks: 7})
	proof.Must(t, err)
	other := totalsReducer()
	other.Name = "totals/2"
	_, err = other.Handler().(ledger.Reducing).Load(b)
	if ce, is := errors.AsType[*pump.ConfigError](err); !is || !strings.Contains(ce.Problem, "totals/1") {
		t.Errorf("it is totals/2: %v", err)
	}
	for n := 1; n < len(b); n++ {
		proof.Same(t, proof.ErrOf(r.Load(b[:n])) == nil, false, n, "bytes are a state of", len(b))
	}
	b[0]++
	proof.Same(t, proof.ErrOf(r.Load(b)) == nil, false, "a newer layout is a state")
}

func TestAReducerThatCannotWorkIsRefusedBeforeAnythingIsDone(t *testing.T) {
	cfg := pump.Config{Workload: "reduce", Accounts: []pump.Account{{Name: "one", ConnectionString: "UseDevelopmentStorage=true"}}}
	ok := func(*reduce.Reducer[totals, string]) {}
	for _, c := range []struct {
		name, says string
		change     func(*reduce.Reducer[totals, string])
		o          processor.Options
		segments   int
	}{
		{name: "a good one", change: ok},
		{name: "no name", says: "name", change: func(r *reduce.Reducer[totals, string]) { r.Name = "" }},
		{name: "a name of two lines", says: "name", change: func(r *reduce.Reducer[totals, string]) { r.Name = "a\nb" }},
		{name: "a long name", says: "name", change: func(r *reduce.Reducer[totals, string]) { r.Name = strings.Repeat("x", 201) }},
		{name: "no Map", says: "no Map", change: func(r *reduce.Reducer[totals, string]) { r.Map = nil }},
		{name: "no Fold", says: "no Fold", change: func(r *reduce.Reducer[totals, string]) { r.Fold = nil }},
		{name: "half a codec", says: "only one of", change: func(r *reduce.Reducer[totals, string]) {
			r.Encode = func(*totals) ([]byte, error) { return nil, nil }
		}},
		{name: "a codec that fails", says: "zero state", change: func(r *reduce.Reducer[totals, string]) {
			r.Encode = func(*totals) ([]byte, error) { return nil, nil }
			r.Decode = func([]byte) (totals, error) { return totals{}, errors.New("empty") }
		}},
		{name: "segments without owners", says: "segments", change: ok, segments: pump.Shared},
		{name: "min-interval", says: "min-interval", change: ok, o: processor.Options{MinInterval: time.Hour}},
		{name: "discard", says: "discard", change: ok, o: processor.Options{Discard: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := totalsReducer()
			c.change(r)
			cfg.Segments = c.segments
			_, err := processor.New(cfg, r.Handler(), c.o)
			if c.says == "" {
				proof.Must(t, err)
				return
			}
			if ce, is := errors.AsType[*pump.ConfigError](err); !is || ce.Field != "reducer" || !strings.Contains(ce.Error(), c.says) {
				t.Errorf("%v; want it to say %q", err, c.says)
			}
		})
	}
	type unstorable struct{ C chan int }
	_, err := processor.New(cfg, (&reduce.Reducer[unstorable, int]{
		Name: "channels", Map: func(context.Context, *pump.Task) (int, error) { return 0, nil }, Fold: func(*unstorable, int) {},
	}).Handler(), processor.Options{})
	proof.Says(t, err, "zero state", "a channel as JSON")
	if err := totalsReducer().Handler().Handle(t.Context(), &pump.Task{}); err == nil {
		t.Error("a reducer behind another handler drops what tasks contribute, and says nothing")
	}
}

// A processor that starts while the workload's row cannot be written for minutes waits, and does
// not end.
func TestAReducerIsPinnedWhenTheRowCanBeWrittenAgain(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		dark := w.Fault(azsim.Rule{Service: "table", Fault: azsim.FailBefore}, "UpdateEntity", "MergeEntity")
		p := testworld.Begun(w, processor.New, "p", totalsReducer().Handler(), processor.Options{})
		time.Sleep(5 * time.Minute)
		select {
		case <-p.Done:
			t.Fatalf("it ended: %v", p.Err)
		default:
		}
		if dark.Hits() == 0 {
			t.Fatal("no write was tried")
		}
		dark.Remove()
		tasks := w.Spread(1, 3)
		time.Sleep(2 * time.Minute)
		s := p.End()
		proof.Same(t, s.Handled, int64(tasks), "tasks", s)
	})
}

// records is a ledger of every segment, as a processor with that reducer has it.
func records(w *testworld.World, h pump.Handler) *ledger.Ledger {
	w.T.Helper()
	r := h.(ledger.Reducing)
	table := queues.Open(&w.Cfg).Control
	of, err := workload.Load(w.T.Context(), table, w.Cfg.Workload)
	proof.Must(w.T, err)
	of, err = of.PinReducer(w.T.Context(), r.Pinned())
	proof.Must(w.T, err)
	l := ledger.Open(table, of, ledger.Options{Instance: "owner", Record: true, State: r})
	for segments := range slices.Chunk(w.EverySegment(), 64) {
		var holds []cluster.Hold
		for _, s := range segments {
			holds = append(holds, cluster.Hold{Segment: s, Epoch: 1})
		}
		proof.Must(w.T, proof.ErrOf(l.Fence(w.T.Context(), holds)))
	}
	return l
}

// record has the ledger record a task as done, with what it contributes.
func record(w *testworld.World, l *ledger.Ledger, h pump.Handler, t *pump.Task) {
	w.T.Helper()
	value, err := h.(ledger.Reducing).Contribute(w.T.Context(), t)
	proof.Must(w.T, err)
	proof.Must(w.T, proof.ErrOf(l.Begin(t.Segment, 1, w.Run, 0, codec.MakeNSet(t.N))))
	e := &ledger.Entry{
		Segment: t.Segment, Epoch: 1, Run: w.Run, Done: codec.MakeNSet(t.N),
		Contributions: []ledger.Contribution{{N: t.N, Value: value}},
	}
	l.Commit(w.T.Context(), []*ledger.Entry{e})
	proof.Must(w.T, e.Err)
}

// readCounts gives what handlers.ReadCounts does, a text for each key.
func readCounts(w *testworld.World) (lines []string, err error) {
	for k, e := range handlers.ReadCounts(w.T.Context(), w.Cfg) {
		if e != nil {
			return lines, e
		}
		lines = append(lines, fmt.Sprintf("%s %d %s", k.Key, k.Count, k.Sum))
	}
	return lines, nil
}

func TestCountsOfOneKeyInManySegmentsAreOneSortedLine(t *testing.T) {
	testworld.In(t, testworld.Plain, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		h := handlers.CountBy("city", "people")
		l := records(w, h)
		for n, body := range []string{
			`{"city":"Rome","people":1}`, `{"city":"Oslo","people":0.25}`, `{"city":"Rome","people":-3}`,
			`{"city":"Oslo","people":"0.5"}`, `{"city":"Bern","people":7}`, `{"city":"Oslo","people":1e20}`,
		} {
			record(w, l, h, &pump.Task{Segment: uint32(n) * 13 % 64, N: 0, Body: []byte(body)})
		}
		got, err := readCounts(w)
		if want := []string{"Bern 1 7", "Oslo 3 100000000000000000000.75", "Rome 2 -2"}; err != nil || !slices.Equal(got, want) {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
		for k := range handlers.ReadCounts(t.Context(), w.Cfg) {
			proof.Same(t, k.Key, "Bern", "went on to")
			break
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for _, err := range handlers.ReadCounts(ctx, w.Cfg) {
			proof.Same(t, err == nil, false, "what was not read is given")
		}
	})
}

func TestStatesAreThoseOfTheirSegmentsInOrder(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		r := totalsReducer()
		l := records(w, r.Handler())
		for _, s := range []uint32{60, 3, 3, 41} {
			record(w, l, r.Handler(), &pump.Task{Segment: s, N: w.Ns[s], Key: fmt.Appendf(nil, "key of %d", s)})
			w.Ns[s]++
		}
		var got []string
		for state, err := range r.States(t.Context(), w.Cfg) {
			proof.Must(t, err)
			got = append(got, fmt.Sprint(state))
		}
		want := []string{"{2 map[key of 3:2]}", "{1 map[key of 41:1]}", "{1 map[key of 60:1]}"}
		proof.Alike(t, got, want)

		other := totalsReducer()
		other.Name = "totals/2"
		for state, err := range other.States(t.Context(), w.Cfg) {
			proof.Says(t, err, `"totals/1"`, "of another reducer", state)
		}
		proof.Says(t, proof.ErrOf(readCounts(w)), "does not count", "what does not count was read")
	})
}

func TestWithoutAReducerThereIsNoStateAndItSaysSo(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		proof.Says(t, proof.ErrOf(readCounts(w)), "or with a reducer in Go")
		w.Cfg.Workload = "other"
		proof.Is(t, proof.ErrOf(readCounts(w)), pump.ErrNoWorkload)
		_ = w.Sim.Inject(azsim.Rule{Fault: azsim.Answer, Status: 403, Code: "AuthenticationFailed", Service: "table"})
		proof.Same(t, proof.ErrOf(readCounts(w)) == nil, false, "a table that refuses holds no counts")
	})
}

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
			testworld.In(t, testworld.Once, 2, 4, func(c *azsim.Config) { c.Seed = seed }, func(t *testing.T, w *testworld.World) {
				r := slowly(seed)
				want := twiceForHalf(w)
				duplicates, lost := underFaults(w, t, r.Handler(), seed)

				got := sevenths{}
				for state, err := range r.States(t.Context(), w.Cfg) {
					proof.Must(t, err)
					for k, part := range state {
						got[k] = seventh{got[k].Tasks + part.Tasks, got[k].Sum + part.Sum}
					}
				}
				if !maps.Equal(got, want) {
					t.Errorf("the states come to %v, want %v", got, want)
				}
				proof.Same(t, w.Left(), 0, "messages are left")
				for _, a := range w.Cfg.Accounts {
					proof.Same(t, len(w.Poisoned(a.Name)), 0, "messages are in quarantine")
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
func twiceForHalf(w *testworld.World) sevenths {
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
func underFaults(w *testworld.World, t *testing.T, h pump.Handler, seed uint64) (duplicates int64, hits int64) {
	t.Helper()
	var faults []*azsim.Injection
	inject := func(r azsim.Rule) *azsim.Injection {
		i := w.Sim.Inject(r)
		faults = append(faults, i)
		return i
	}
	all := map[string]*testworld.Started[*processor.Processor, processor.Summary]{}
	names := []string{"p1", "p2", "p3", "p4"}
	for _, name := range names {
		for _, fault := range []azsim.FaultKind{azsim.AnswerLost, azsim.FailBefore, azsim.AnswerAfter} {
			inject(azsim.Rule{Instance: name, Fault: fault, Probability: 0.01})
		}
		inject(azsim.Rule{Instance: name, Fault: azsim.DeliverTwice, Operations: []string{"GetMessages"}, Probability: 0.05})
		all[name] = testworld.Begun(w, processor.New, name, h, processor.Options{Concurrency: 16})
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
