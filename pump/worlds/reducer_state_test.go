package worlds

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/handlers"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/ledger"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/workload"
)

// records is a ledger of every segment, as a processor with that reducer has it.
func (w *world) records(h pump.Handler) *ledger.Ledger {
	w.T.Helper()
	r := h.(ledger.Reducing)
	table := queues.Open(&w.Cfg).Control
	of, err := workload.Load(w.T.Context(), table, w.Cfg.Workload)
	must(w.T, err)
	if of, err = of.PinReducer(w.T.Context(), r.Pinned()); err != nil {
		w.T.Fatal(err)
	}
	l := ledger.Open(table, of, ledger.Options{Instance: "owner", Record: true, State: r})
	for segments := range slices.Chunk(w.EverySegment(), 64) {
		var holds []cluster.Hold
		for _, s := range segments {
			holds = append(holds, cluster.Hold{Segment: s, Epoch: 1})
		}
		must(w.T, errOf(l.Fence(w.T.Context(), holds)))
	}
	return l
}

// record has the ledger record a task as done, with what it contributes.
func (w *world) record(l *ledger.Ledger, h pump.Handler, t *pump.Task) {
	w.T.Helper()
	value, err := h.(ledger.Reducing).Contribute(w.T.Context(), t)
	must(w.T, err)
	must(w.T, errOf(l.Begin(t.Segment, 1, w.Run, 0, codec.MakeNSet(t.N))))
	e := &ledger.Entry{
		Segment: t.Segment, Epoch: 1, Run: w.Run, Done: codec.MakeNSet(t.N),
		Contributions: []ledger.Contribution{{N: t.N, Value: value}},
	}
	if l.Commit(w.T.Context(), []*ledger.Entry{e}); e.Err != nil {
		w.T.Fatal(e.Err)
	}
}

// readCounts gives what handlers.ReadCounts does, a text for each key.
func (w *world) readCounts() (lines []string, err error) {
	for k, e := range handlers.ReadCounts(w.T.Context(), w.Cfg) {
		if e != nil {
			return lines, e
		}
		lines = append(lines, fmt.Sprintf("%s %d %s", k.Key, k.Count, k.Sum))
	}
	return lines, nil
}

func TestCountsOfOneKeyInManySegmentsAreOneSortedLine(t *testing.T) {
	inWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
		h := handlers.CountBy("city", "people")
		l := w.records(h)
		for n, body := range []string{
			`{"city":"Rome","people":1}`, `{"city":"Oslo","people":0.25}`, `{"city":"Rome","people":-3}`,
			`{"city":"Oslo","people":"0.5"}`, `{"city":"Bern","people":7}`, `{"city":"Oslo","people":1e20}`,
		} {
			w.record(l, h, &pump.Task{Segment: uint32(n) * 13 % 64, N: 0, Body: []byte(body)})
		}
		got, err := w.readCounts()
		if want := []string{"Bern 1 7", "Oslo 3 100000000000000000000.75", "Rome 2 -2"}; err != nil || !slices.Equal(got, want) {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
		for k := range handlers.ReadCounts(t.Context(), w.Cfg) {
			if k.Key != "Bern" {
				t.Errorf("went on to %q", k.Key)
			}
			break
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for _, err := range handlers.ReadCounts(ctx, w.Cfg) {
			if err == nil {
				t.Error("what was not read is given")
			}
		}
	})
}

func TestStatesAreThoseOfTheirSegmentsInOrder(t *testing.T) {
	inWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		r := totalsReducer()
		l := w.records(r.Handler())
		for _, s := range []uint32{60, 3, 3, 41} {
			w.record(l, r.Handler(), &pump.Task{Segment: s, N: w.Ns[s], Key: fmt.Appendf(nil, "key of %d", s)})
			w.Ns[s]++
		}
		var got []string
		for state, err := range r.States(t.Context(), w.Cfg) {
			must(t, err)
			got = append(got, fmt.Sprint(state))
		}
		if want := []string{"{2 map[key of 3:2]}", "{1 map[key of 41:1]}", "{1 map[key of 60:1]}"}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}

		other := totalsReducer()
		other.Name = "totals/2"
		for state, err := range other.States(t.Context(), w.Cfg) {
			if err == nil || !strings.Contains(err.Error(), `"totals/1"`) {
				t.Errorf("of another reducer: %v, %v", state, err)
			}
		}
		if _, err := w.readCounts(); err == nil || !strings.Contains(err.Error(), "does not count") {
			t.Errorf("what does not count was read: %v", err)
		}
	})
}

func TestWithoutAReducerThereIsNoStateAndItSaysSo(t *testing.T) {
	inWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		if _, err := w.readCounts(); err == nil || !strings.Contains(err.Error(), "or with a reducer in Go") {
			t.Error(err)
		}
		w.Cfg.Workload = "other"
		if _, err := w.readCounts(); !errors.Is(err, pump.ErrNoWorkload) {
			t.Error(err)
		}
		_ = w.Sim.Inject(azsim.Rule{Fault: azsim.Answer, Status: 403, Code: "AuthenticationFailed", Service: "table"})
		if _, err := w.readCounts(); err == nil {
			t.Error("a table that refuses holds no counts")
		}
	})
}
