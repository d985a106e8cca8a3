package testworld

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/source"
)

// half is a half of the pump that only knows what it was made of.
type half struct {
	instance string
	of       pump.Handler
}

func (h *half) Run(ctx context.Context) (string, error) {
	err := h.of.Handle(ctx, &pump.Task{Segment: 3, N: 4})
	return h.instance, err
}

func newHalf(c pump.Config, of pump.Handler, _ int) (*half, error) {
	return &half{c.Instance, of}, nil
}

func TestHalvesAreMadeStartedAndEnded(t *testing.T) {
	In(t, Plain, 1, 1, nil, func(t *testing.T, w *World) {
		h := &Seen{}
		proof.Same(t, Ran(w, newHalf, "a", h, 0), "a")
		h.Work = func(ctx context.Context, _ *pump.Task) error { return Pause(ctx, time.Hour) }
		s := Begun(w, newHalf, "b", h, 0)
		time.Sleep(time.Minute)
		StopAll([]*Started[*half, string]{s})
		if err := s.Wait(); !errors.Is(err, context.Canceled) || s.Summary != "b" || h.AtOnce() != 1 {
			t.Error(err, s.Summary)
		}
		h.Expect(t, 1, 2)
		handlings := &Handlings{}
		proof.Must(t, handlings.Handler("a", time.Second).Handle(t.Context(), &pump.Task{Epoch: 1}))
		if handlings.Check(t); handlings.Tasks() != 1 || handlings.Get()[0].End.Sub(handlings.Get()[0].Began) != time.Second {
			t.Error(handlings.Get())
		}
	})
}

func TestWhatIsPutIntoAWorldIsFoundThere(t *testing.T) {
	In(t, Once, 2, 2, nil, func(t *testing.T, w *World) {
		segments := w.EverySegment()
		if n := w.PutHome(segments[:3], 2) + w.Spread(1, 5); n != 26 || w.Left() != 7 || w.In("accounta")+w.In("accountb") != 7 {
			t.Error(n, w.Left())
		}
		w.PassAround("accounta", "work-00", 1)
		if n := w.Visible("accounta", "work-00"); n != w.Count("accounta", "work-00") || n == 0 {
			t.Error(n)
		}
		w.Empty()
		w.ExpectEmpty()
		account, queue := w.Home(5)
		w.PutText(account, queue, w.Sealed(codec.Header{Workload: "work", Run: w.Run, Segment: 5}, codec.Task{Body: []byte("a")}))
		w.PutSuspects(5, 1, 1)
		if n := w.Count(account, queue); n != 2 || w.Requests("PutMessage") == 0 || len(w.Poisoned("accounta"))+len(w.Condemned()) > 0 {
			t.Error(n)
		}
		m := w.ShardMap()
		if SegmentOf(m, m.Home(5)) > 5 || len(Incompressible(9)) != 9 {
			t.Error("a text or a segment is another's")
		}
		w.DrainAccount("accountb")
		if w.Without("accountb"); len(w.ShardMap().Shards) != 2 {
			t.Error(w.ShardMap().Shards)
		}
	})
}

func TestARecordOfAScribeIsInTheBookAndARunClosesByIt(t *testing.T) {
	In(t, Once, 1, 2, nil, func(t *testing.T, w *World) {
		run, s := w.SealedRun(3, 2), w.Scribe()
		s.Record(run.ID, Below(run.Sealed), nil)
		s.Record(w.Run, nil, map[uint32]codec.NSet{1: codec.MakeNSet(7)})
		w.ExpectBook(0, 1)
		w.OneTask(SomeSegment)
		w.Lonely(1, Greeted)
		c := w.Closer("c")
		if w.ClosesFor(c, time.Minute); w.RunRow(run.ID).State != "closed" || !w.HasRow(0) {
			t.Errorf("%+v", w.RunRow(run.ID))
		}
		w.Joined("p", cluster.RoleProcessor, cluster.Report{})
		if v := w.View(); len(v.Processors()) != 1 || len(Owns(v, "q")) > 0 {
			t.Error(v.Processors())
		}
	})
}

// A list is read from its cursor, and what is bad in it is said.
func TestAListIsReadOnFromItsCursor(t *testing.T) {
	s := &ListSource{Print: "a", N: 4, Bad: map[int]bool{2: true}}
	r, err := s.Open(t.Context(), []byte("1"))
	proof.Must(t, err)
	var ids []string
	for {
		record, err := r.Next(t.Context())
		if bad, is := errors.AsType[*source.BadInput](err); is {
			ids = append(ids, bad.Where)
		} else if err != nil {
			break
		} else {
			ids = append(ids, record.ID)
		}
	}
	if !slices.Equal(ids, []string{"1", "list:3", "3"}) || string(r.AppendCursor(nil)) != "4" {
		t.Errorf("%q", ids)
	}
}
