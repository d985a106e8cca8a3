package runs_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/runs"
	"github.com/queuepump/queuepump/pump/storage"
)

func TestAnOperatorListsShowsAndEndsRunsByTheBeginningOfTheirIDs(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		s, cfg := w.Scribe(), w.Config("operator", 2)
		sealed := w.SealedRun(3)
		s.Record(sealed.ID, testworld.Below([]uint64{2}), nil)
		many := w.ManyRun()
		list, err := runs.List(t.Context(), cfg, "sealed", 10)
		if err != nil || len(list) != 1 || list[0].ID != sealed.ID.String() || *list[0].Tasks != 3 {
			t.Errorf("%+v, %v", list, err)
		}
		if all, err := runs.List(t.Context(), cfg, "", 10); err != nil || len(all) != 3 {
			t.Errorf("%+v, %v", all, err)
		}
		proof.Says(t, proof.ErrOf(runs.List(t.Context(), cfg, "finished", 10)), "is not a state")
		if i, err := runs.Show(t.Context(), cfg, sealed.ID.String()); err != nil || *i.Done != 2 || i.State != "sealed" {
			t.Errorf("%+v, %v", i, err)
		}
		ids := map[string]string{
			"ab12": "no such run", "xyzw": "0-9 and a-f", "": "4 digits or more", "eE0": "4 digits or more",
			strings.Repeat("0", 32): "is not the id", strings.Repeat("a", 33): "0-9 and a-f",
		}
		for id, want := range ids {
			proof.Says(t, proof.ErrOf(runs.Show(t.Context(), cfg, id)), want, id)
		}
		i, err := runs.End(t.Context(), cfg, " EE00", true, "ended by me")
		if err != nil || i.State != "ended" || !i.Drop || i.ID != many.String() || i.Note != "ended by me" {
			t.Errorf("%+v, %v", i, err)
		}
	})
}

// A table that does not answer does not make a name wrong: that would be a mistake of use.
func TestANameThatCannotBeLookedUpIsNotCalledWrong(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		w.Fault(azsim.Rule{Instance: "operator", Partition: workload.RunsPartition("work"), Fault: azsim.FailBefore})
		_, err := runs.Find(t.Context(), w.Config("operator", 2), "nightly")
		if _, wrong := errors.AsType[*pump.ConfigError](err); wrong || !storage.Ambiguous(err) {
			t.Errorf("%v", err)
		}
	})
}

// C12: an id that several runs begin with is refused, and they are named.
func TestABeginningThatSeveralRunsShareNamesThem(t *testing.T) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		cfg := w.Config("operator", 2)
		var ids []pump.RunID
		const named = 8
		for range named + 1 {
			ids = append(ids, w.ManyRun())
		}
		_, err := runs.Find(t.Context(), cfg, "ee00")
		ce, ok := errors.AsType[*pump.ConfigError](err)
		if !ok || ce.Field != "run" || !strings.Contains(ce.Problem, ids[0].String()+", "+ids[1].String()) || !strings.Contains(ce.Problem, "and others") {
			t.Errorf("%v", err)
		}
		if strings.Contains(err.Error(), ids[named].String()) {
			t.Errorf("more than %d are named: %v", named, err)
		}
		for _, digits := range []string{ids[3].String(), strings.ToUpper(ids[3].String()) + " "} {
			if id, err := runs.Find(t.Context(), cfg, digits); err != nil || id != ids[3] {
				t.Errorf("%v, %v", id, err)
			}
		}
	})
}
