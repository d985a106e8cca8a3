package worlds

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/source"
)

// nudges records what is sent.
type nudges struct {
	mu  sync.Mutex
	all []pump.Nudge
}

func (n *nudges) send(_ context.Context, what pump.Nudge) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if what.Queue != "" {
		n.all = append(n.all, what)
	}
	return nil
}

func (n *nudges) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.all)
}

// owner joins the cluster as a processor that owns everything.
func (w *world) owner(instance string) *cluster.Presence {
	w.T.Helper()
	workload, err := workload.Load(w.T.Context(), w.Table(), w.Cfg.Workload)
	must(w.T, err)
	p, err := cluster.Join(w.T.Context(), workload, cluster.Options{
		Instance: instance, Role: cluster.RoleProcessor, Report: func() cluster.Report { return cluster.Report{Admin: "here:1"} },
	})
	must(w.T, err)
	for !p.View().Settled() {
		time.Sleep(time.Second)
	}
	return p
}

// P8.2: the first put into a queue that has been quiet is worth a nudge.
func TestTheOwnerOfAQuietQueueIsNudgedOnceAndNotUnderLoad(t *testing.T) {
	inWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
		p := w.owner("p")
		defer p.Leave(t.Context())
		var n nudges
		cfg := w.Config("d", 1)
		cfg.Nudge = n.send
		say := make(chan int)
		source := source.FromSeq(func(yield func(source.Record, error) bool) {
			for i := range say {
				if !yield(source.Record{Key: []byte{byte(i)}, Body: []byte("x")}, nil) {
					return
				}
			}
		})
		dist, err := distributor.New(cfg, source, distributor.Options{SealAge: 100 * time.Millisecond})
		must(t, err)
		d := w.startDistributor(dist)
		say <- 0
		time.Sleep(time.Second)
		if n.count() != 1 {
			t.Fatalf("%d nudges for the first put into a quiet queue", n.count())
		}
		if got := n.all[0]; got.Queue != "accounta/work-00" || got.Instance != "p" || got.Address != "here:1" {
			t.Errorf("nudged %+v", got)
		}
		for i := range 100 {
			say <- i
			time.Sleep(100 * time.Millisecond)
		}
		if n.count() > 2 { // the first of these may come after a second of quiet
			t.Errorf("%d nudges under load", n.count())
		}
		before := n.count()
		time.Sleep(5 * time.Second)
		say <- 1
		time.Sleep(time.Second)
		if n.count() != before+1 {
			t.Errorf("%d nudges after five quiet seconds, want 1", n.count()-before)
		}
		close(say)
		must(t, d.wait())
	})
}

// A client that is gone after one task still tells the owner of it.
func TestAShortRunNudgesToo(t *testing.T) {
	inWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
		p := w.owner("p")
		defer p.Leave(t.Context())
		var n nudges
		cfg := w.Config("d", 1)
		cfg.Nudge = n.send
		dist, err := distributor.New(cfg, &testworld.ListSource{Print: "a", N: 1}, distributor.Options{})
		must(t, err)
		began := time.Now()
		must(t, errOf(dist.Run(t.Context())))
		if took := time.Since(began); n.count() != 1 || took > time.Second {
			t.Errorf("%d nudges in %v", n.count(), took)
		}
	})
}

// A distributor is a member for the time of Run, a candidate too.
func TestADistributorIsAMemberWhileItRuns(t *testing.T) {
	inWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		s := &testworld.ListSource{Print: "a", N: 1000, Pace: 10 * time.Millisecond}
		leader := w.startDistributor(w.distributor("d1", s, distributor.Options{Every: time.Hour, SealAge: time.Second}))
		time.Sleep(time.Second)
		candidate := w.startDistributor(w.distributor("d2", s, distributor.Options{Every: time.Hour}))
		time.Sleep(8 * time.Second)
		v := w.Look()
		if len(v.Members) != 2 || v.Members[0].Instance != "d1" || v.Members[1].Instance != "d2" {
			t.Fatalf("members %+v", v.Members)
		}
		for i, m := range v.Members {
			if m.Role != cluster.RoleDistributor || i == 0 && (m.Rate < 50 || m.Rate > 200 || m.Tasks == 0) {
				t.Errorf("member %+v", m)
			}
		}
		leader.cancel()
		candidate.cancel()
		if err := leader.wait(); err != nil {
			t.Error(err)
		}
		if err := candidate.wait(); err != nil {
			t.Error(err)
		}
		if v := w.Look(); len(v.Members) != 0 {
			t.Errorf("members after the end: %+v", v.Members)
		}
	})
}

// A distributor that cannot join still distributes.
func TestADistributorThatCannotJoinDistributes(t *testing.T) {
	inWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		taken := w.owner("d") // somebody alive has its name
		defer taken.Leave(t.Context())
		s := &testworld.ListSource{Print: "a", N: 3000}
		began := time.Now()
		summary, err := w.distributor("d", s, distributor.Options{}).Run(t.Context())
		must(t, err)
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("took %v", took)
		}
		w.Collect().Expect(t, w.Segments(), summary.Run, s, s.N, s.N)
	})
}
