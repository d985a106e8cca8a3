package worlds

import (
	"strings"
	"testing"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/status"
	"github.com/queuepump/queuepump/pump/storage"
)

// exactOf is what the status says exactly of a run.
func exactOf(t *testing.T, s *status.Status, run pump.RunID) *pump.RunProgress {
	t.Helper()
	for _, r := range s.Runs {
		if r.ID == run.String() {
			return r.Exact
		}
	}
	t.Fatalf("run %s is not shown", run)
	return nil
}

func TestTheStatusShowsExactlyHowFarRunsAreInModeOnce(t *testing.T) {
	inOnceWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		s := w.scribe()
		half, closed := w.sealedRun(10, 10), w.sealedRun(3)
		s.record(w.Run, below([]uint64{4}), nil) // open
		s.record(half.ID, below([]uint64{9, 5}), map[uint32]codec.NSet{1: codec.MakeNSet(7)})
		s.record(closed.ID, below([]uint64{3}), nil)
		mustPass(t, w.closer("c"))
		must(t, s.ledger.Prune(t.Context(), []pump.RunID{closed.ID}))
		status, err := status.Read(t.Context(), w.Config("look", 2), status.Options{})
		if err != nil || len(status.Problems) > 0 {
			t.Fatalf("%v, %q", err, status.Problems)
		}
		if p := exactOf(t, status, half.ID); *p.Total != 20 || p.Done != 14 || p.Quarantined != 1 || *p.Remaining != 5 || *p.Percent != 75 {
			t.Errorf("a run half done: %+v", p)
		}
		if p := exactOf(t, status, closed.ID); *p.Total != 3 || p.Done != 3 || *p.Remaining != 0 || *p.Percent != 100 {
			t.Errorf("a run that is closed and forgotten: %+v", p)
		}
		if p := exactOf(t, status, w.Run); p.Total != nil || p.Done != 4 || p.Remaining != nil || p.Percent != nil {
			t.Errorf("an open run: %+v", p)
		}
	})
	inWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		if p := exactOf(t, w.status(status.Options{}), w.Run); p != nil {
			t.Errorf("at-least-once: %+v", p)
		}
	})
}

// A row that is damaged hides what is done of its segment, so no run is known exactly.
func TestADamagedLedgerIsNamedAndNothingExactIsShown(t *testing.T) {
	inOnceWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		s := w.scribe()
		s.record(w.Run, below([]uint64{4, 4}), nil)
		w.damageHead("head.0001")
		status := w.status(status.Options{})
		if p := exactOf(t, status, w.Run); p != nil {
			t.Errorf("%+v", p)
		}
		if len(status.Problems) != 1 || !strings.Contains(status.Problems[0], "head.0001") {
			t.Errorf("problems %q", status.Problems)
		}
	})
}

// damageHead writes a row of the first ledger partition over that makes no sense.
func (w *world) damageHead(head string) {
	w.T.Helper()
	f := queues.Open(&w.Cfg)
	_, err := f.Control.Write(w.T.Context(), storage.Write{Mode: storage.Upsert, Entity: storage.Entity{
		Partition: "work.ledger.00", Row: head, Properties: map[string]any{"Format": int64(1), "Counts": []byte{1, 2, 3}, "Records": []byte{9, 9}},
	}})
	must(w.T, err)
}
