package testworld

import (
	"context"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/closing"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/ledger"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/internal/workload"
)

// InThree runs a test in a world whose workload "town" is in two of three accounts; the third is
// configured and not used.
func InThree(t *testing.T, test func(t *testing.T, w *World)) {
	In(t, Plain, 3, 2, nil, func(t *testing.T, w *World) {
		w.Cfg.Workload = "town"
		two := w.Cfg
		two.Accounts = two.Accounts[:2]
		row, err := workload.Ensure(t.Context(), w.Table(), setup.SpecOf(&setup.Config{Config: two}))
		proof.Must(t, err)
		for _, s := range row.Map.Shards {
			proof.Must(t, w.Queue(s.Account, s.Queue).Create(t.Context()))
		}
		test(t, w)
	})
}

// opened is what an instance opens at its start.
func (w *World) opened(instance string) (setup.Config, *queues.Set, *workload.Workload) {
	c := w.Config(instance, w.Cfg.Accounts[0].Queues)
	c.Workload = w.Cfg.Workload
	cfg, err := setup.Complete(c)
	proof.Must(w.T, err)
	f := queues.Open(&cfg.Config)
	row, err := workload.Load(w.T.Context(), f.Control, cfg.Workload)
	proof.Must(w.T, err)
	return cfg, f, row
}

// Joined is a member that does nothing but beat.
func (w *World) Joined(
	instance string, role cluster.Role, report cluster.Report,
) *cluster.Presence {
	_, _, row := w.opened(instance)
	p, err := cluster.Join(w.T.Context(), row, cluster.Options{
		Instance: instance, Host: "host-of-" + instance, Version: "v1", Role: role,
		Report: func() cluster.Report { return report },
	})
	proof.Must(w.T, err)
	w.T.Cleanup(func() { p.Leave(context.WithoutCancel(w.T.Context())) })
	return p
}

// Closer ends runs as an instance does; all queues are read to their ends.
func (w *World) Closer(instance string) *closing.Closer {
	cfg, f, row := w.opened(instance)
	c := closing.New(&cfg.Config, f, row)
	c.Far = func(context.Context) (closing.Horizon, error) {
		return closing.Horizon{At: time.Now()}, nil
	}
	return c
}

// MustPass makes one pass of a closer, which must succeed.
func MustPass(t *testing.T, c *closing.Closer) (more bool) {
	more, err := c.Pass(t.Context())
	proof.Must(t, err)
	return more
}

// SealedRun makes the row of a sealed run with so many tasks in each of the first segments.
func (w *World) SealedRun(tasks ...uint64) workload.Run {
	id := w.NewRun()
	counts := make([]uint64, w.Segments())
	copy(counts, tasks)
	proof.Must(w.T, w.AllRuns().Seal(w.T.Context(), id, counts))
	return w.RunRow(id)
}

// Scribe writes a workload's ledger as the owner of all segments would, without any processor, so
// that a test says exactly what is recorded when.
type Scribe struct {
	w      *World
	Ledger *ledger.Ledger
}

// Scribe fences all segments for one.
func (w *World) Scribe() *Scribe {
	_, f, row := w.opened("scribe")
	s := &Scribe{w, ledger.Open(f.Control, row, ledger.Options{Instance: "scribe", Record: true})}
	holds := make([]cluster.Hold, row.Map.Segments)
	for i := range holds {
		holds[i] = cluster.Hold{Segment: uint32(i), Epoch: 1}
	}
	_, err := s.Ledger.Fence(w.T.Context(), holds)
	proof.Must(w.T, err)
	return s
}

// FenceAt makes another the writer of a segment's ledger under an epoch.
func (w *World) FenceAt(segment uint32, epoch uint64) {
	_, f, row := w.opened("another")
	l := ledger.Open(f.Control, row, ledger.Options{Instance: "another", Record: true})
	if _, err := l.Fence(w.T.Context(), []cluster.Hold{{Segment: segment, Epoch: epoch}}); err != nil {
		w.T.Error(err)
	}
}

// Record records tasks of a run by segment, as done or in quarantine.
func (s *Scribe) Record(run pump.RunID, done, quarantined map[uint32]codec.NSet) {
	byPartition := map[int][]*ledger.Entry{}
	for segment := range uint32(s.w.Segments()) {
		e := &ledger.Entry{
			Segment: segment, Epoch: 1, Run: run, Done: done[segment], Quarantined: quarantined[segment],
		}
		if e.Done.Len()+e.Quarantined.Len() > 0 {
			p := s.Ledger.Partition(segment)
			byPartition[p] = append(byPartition[p], e)
		}
	}
	for p := range s.w.Segments() {
		s.Ledger.Commit(s.w.T.Context(), byPartition[p])
		for _, e := range byPartition[p] {
			proof.Must(s.w.T, e.Err)
		}
	}
}

// Below gives the sets of all n below the counts.
func Below(counts []uint64) map[uint32]codec.NSet {
	sets := map[uint32]codec.NSet{}
	for s, n := range counts {
		var set codec.NSet
		set.AddRange(0, n)
		sets[uint32(s)] = set
	}
	return sets
}

// Owner joins the cluster as a processor that owns everything.
func (w *World) Owner(instance string) *cluster.Presence {
	w.T.Helper()
	of, err := workload.Load(w.T.Context(), w.Table(), w.Cfg.Workload)
	proof.Must(w.T, err)
	p, err := cluster.Join(w.T.Context(), of, cluster.Options{
		Instance: instance, Role: cluster.RoleProcessor,
		Report: func() cluster.Report { return cluster.Report{Admin: "here:1"} },
	})
	proof.Must(w.T, err)
	for !p.View().Settled() {
		time.Sleep(time.Second)
	}
	return p
}
