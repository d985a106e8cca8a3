package processor_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/coordination"
	"github.com/queuepump/queuepump/pump/gates"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/processor"
)

// waiters starts n processors at the gate "go" that can be nudged. It returns
// when all of them wait.
func waiters(w *testworld.World, n int, push *switchboard) (ps []*processor.Processor, at []*started) {
	w.T.Helper()
	for range n {
		cfg := w.Config(fmt.Sprintf("waiter%02d", len(push.by)), w.Cfg.Accounts[0].Queues)
		p := push.join(w, cfg, &testworld.Seen{}, processor.Options{Gate: "go"})
		ps, at = append(ps, p), append(at, testworld.Start(w.T, p))
	}
	return ps, at
}

// beyond waits until a processor is beyond the gate and gives how long that took
// since a moment, to a millisecond.
func beyond(p *processor.Processor, since time.Time) time.Duration {
	for {
		if s := p.State(); s.Phase == "working" {
			return time.Since(since)
		}
		time.Sleep(time.Millisecond)
	}
}

func release(w *testworld.World) {
	w.T.Helper()
	proof.Must(w.T, coordination.NewGate(queues.Open(&w.Cfg).Control, "work", "go").Release(w.T.Context(), "test"))
}

// TestAllWhoWaitAtAGateStartTogether: 50 processors within 100 ms of the release
// by push (origins T4), within the polling interval when push is blocked (T3), and one
// that comes later at once.
func TestAllWhoWaitAtAGateStartTogether(t *testing.T) {
	proof.Only(t)
	const n = 50
	for _, blocked := range []bool{false, true} {
		t.Run(fmt.Sprintf("push blocked %v", blocked), func(t *testing.T) {
			testworld.In(t, testworld.Plain, 2, 4, nil, func(t *testing.T, w *testworld.World) {
				push := &switchboard{}
				ps, at := waiters(w, n, push)
				time.Sleep(time.Minute)
				v, err := cluster.LoadView(t.Context(), queues.Open(&w.Cfg).Control, "work")
				proof.Must(t, err)
				for _, m := range v.Members {
					if m.Waiting != "go" || m.Holds.Len() != 0 {
						t.Errorf("%s waits at %q and holds %d segments", m.Instance, m.Waiting, m.Holds.Len())
					}
				}
				proof.Same(t, len(v.Members), n, "members")
				for _, p := range ps {
					if s := p.State(); s.Phase != "waiting" || s.Ready || s.Gate != "go" || s.Done.Waiting != "go" {
						t.Fatalf("before the release: %+v", s)
					}
				}
				proof.Same(t, w.Requests("GetMessages"), 0, "gets while waiting")

				push.blocked.Store(blocked)
				cfg := w.Cfg
				cfg.Nudge = push.carry
				released := make(chan struct{})
				go func() {
					defer close(released)
					change, err := gates.Open(t.Context(), cfg, "go", "test")
					// One that looked by itself since the row was written does not wait any more.
					if err != nil || change.Waiting < n-3 || !blocked && change.Nudged != change.Waiting || blocked && change.Nudged != 0 {
						t.Errorf("%+v, %v", change, err)
					}
				}()
				began := time.Now()
				var last time.Duration
				for _, p := range ps {
					last = max(last, beyond(p, began))
				}
				<-released
				t.Logf("push blocked %v: all of %d are beyond the gate %v after ReleaseGate was called", blocked, n, last)
				// Before the push go a read of the workload, an entry in its log (a write and a read),
				// a read and a write of the gate and a read of the cluster.
				limit := 100*time.Millisecond + 6*10*time.Millisecond
				if blocked {
					limit = 2500*time.Millisecond + limit
				}
				if last > limit {
					t.Errorf("the last started after %v, limit %v", last, limit)
				}

				late, lateAt := waiters(w, 1, push)
				if took := beyond(late[0], time.Now()); took > 200*time.Millisecond {
					t.Errorf("one that came later started after %v", took)
				}
				for _, s := range append(at, lateAt...) {
					s.Stop()
				}
				for _, s := range append(at, lateAt...) {
					s.End()
				}
			})
		})
	}
}

// TestNothingIsTakenBeforeTheGateOpens, and everything then: the wait is no idle
// time and no part of the rate.
func TestNothingIsTakenBeforeTheGateOpens(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		tasks := w.Spread(2, 10)
		h := &testworld.Seen{}
		var waiting atomic.Int64
		o := processor.Options{Gate: "go", UntilIdle: 20 * time.Second, Progress: func(s processor.Summary) {
			if s.Waiting == "go" && s.Handled == 0 {
				waiting.Add(1)
			}
		}}
		p := testworld.Begun(w, processor.New, "p", h, o)
		time.Sleep(10 * time.Minute)
		if n := h.Deliveries(); n != 0 || w.Requests("GetMessages") != 0 {
			t.Errorf("%d deliveries, %d gets before the gate is open", n, w.Requests("GetMessages"))
		}
		if waiting.Load() < 1000 {
			t.Errorf("progress said %d times that it waits", waiting.Load())
		}
		release(w)
		<-p.Done
		if p.Err != nil || p.Summary.Handled != int64(tasks) || p.Summary.Waiting != "" || p.Summary.Seconds < 20 || p.Summary.Seconds > 60 {
			t.Errorf("%+v, %v", p.Summary, p.Err)
		}
	})
}

// TestWhoIsStoppedAtTheGateLeaves: no error, nothing held, no row left behind.
func TestWhoIsStoppedAtTheGateLeaves(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		p := testworld.Begun(w, processor.New, "p", &testworld.Seen{}, processor.Options{Gate: "go"})
		time.Sleep(time.Minute)
		began := time.Now()
		s := p.End()
		if took := time.Since(began); took > 2*time.Second || s.Handled != 0 {
			t.Errorf("the end took %v: %+v", took, s)
		}
		v, err := cluster.LoadView(t.Context(), queues.Open(&w.Cfg).Control, "work")
		if err != nil || len(v.Members) != 0 {
			t.Errorf("%d members are left, %v", len(v.Members), err)
		}
	})
}

// TestAGateIsWaitedAtThroughAnOutage: what cannot be read is not open, and not the end either.
func TestAGateIsWaitedAtThroughAnOutage(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		tasks := w.Spread(1, 10)
		h := &testworld.Seen{}
		p := testworld.Begun(w, processor.New, "p", h, processor.Options{Gate: "go"})
		time.Sleep(30 * time.Second)
		dark := w.Fault(azsim.Rule{Service: "table", Fault: azsim.HangBefore})
		time.Sleep(30 * time.Second)
		release(w) // by a process that can reach the account
		time.Sleep(5 * time.Minute)
		proof.Same(t, h.Deliveries(), 0, "deliveries without having seen the gate open")
		dark.Remove()
		time.Sleep(2 * time.Minute)
		if s := p.End(); s.Handled != int64(tasks) {
			t.Errorf("%+v", s)
		}
	})
}

func TestANameThatNoGateCanHaveIsAMistakeOfUse(t *testing.T) {
	for _, name := range []string{"a b", "a/b", "ä", string(make([]byte, 64))} {
		_, err := processor.New(twoAccounts(), &testworld.Seen{}, processor.Options{Gate: name})
		if e, ok := errors.AsType[*pump.ConfigError](err); !ok || e.Field != "gate" {
			t.Errorf("%q: %v", name, err)
		}
	}
	proof.Must(t, proof.ErrOf(processor.New(twoAccounts(), &testworld.Seen{}, processor.Options{Gate: "morning-1.x_y~z"})))
}

const (
	aKey  = "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0"
	aConn = "DefaultEndpointsProtocol=https;AccountName=accounta;AccountKey=" + aKey + ";EndpointSuffix=core.windows.net"
	bConn = "DefaultEndpointsProtocol=https;AccountName=accountb;AccountKey=" + aKey + ";EndpointSuffix=core.windows.net"
)

func twoAccounts() pump.Config {
	return pump.Config{Workload: "cities", Accounts: []pump.Account{{ConnectionString: aConn}, {ConnectionString: bConn, Queues: 2, Weight: 3}}}
}
