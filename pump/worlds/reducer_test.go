package worlds

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/ledger"
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
	must(t, err)
	for _, key := range []string{"a", "b", "a"} {
		c, err := s.Contribute(t.Context(), &pump.Task{Key: []byte(key)})
		must(t, err)
		s.Fold(state, c)
	}
	b, err := s.Store(state)
	must(t, err)
	again, err := s.Load(b)
	must(t, err)
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
	must(t, err)
	n := 0
	r.Fold(&n, c)
	if n != 1 {
		t.Errorf("folded %d", n)
	}
}

func TestAStateOfAnotherReducerOrADamagedOneIsRefused(t *testing.T) {
	r := totalsReducer().Handler().(ledger.Reducing)
	b, err := r.Store(&totals{Tasks: 7})
	must(t, err)
	other := totalsReducer()
	other.Name = "totals/2"
	_, err = other.Handler().(ledger.Reducing).Load(b)
	if ce, is := errors.AsType[*pump.ConfigError](err); !is || !strings.Contains(ce.Problem, "totals/1") {
		t.Errorf("it is totals/2: %v", err)
	}
	for n := 1; n < len(b); n++ {
		if _, err := r.Load(b[:n]); err == nil {
			t.Errorf("the first %d of %d bytes are a state", n, len(b))
		}
	}
	b[0]++
	if _, err := r.Load(b); err == nil {
		t.Error("a newer layout is a state")
	}
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
				if err != nil {
					t.Error(err)
				}
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
	if err == nil || !strings.Contains(err.Error(), "zero state") {
		t.Errorf("a channel as JSON: %v", err)
	}
	if err := totalsReducer().Handler().Handle(t.Context(), &pump.Task{}); err == nil {
		t.Error("a reducer behind another handler drops what tasks contribute, and says nothing")
	}
}

// A processor that starts while the workload's row cannot be written for minutes waits, and does
// not end.
func TestAReducerIsPinnedWhenTheRowCanBeWrittenAgain(t *testing.T) {
	inOnceWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		dark := w.Fault(azsim.Rule{Service: "table", Fault: azsim.FailBefore}, "UpdateEntity", "MergeEntity")
		p := w.start(w.processor(totalsReducer().Handler(), processor.Options{}))
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
		if s := p.End(); s.Handled != int64(tasks) {
			t.Errorf("%d of %d tasks: %+v", s.Handled, tasks, s)
		}
	})
}
