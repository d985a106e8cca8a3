package worlds

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/pump/storage/azure"
)

// unknownHost answers for an account that does not exist as a resolver does.
type unknownHost struct{}

func (unknownHost) Do(r *http.Request) (*http.Response, error) {
	return nil, &net.DNSError{Err: "no such host", Name: r.URL.Host, IsNotFound: true}
}

// misspelt is a configuration with one account that does not exist.
func (w *world) misspelt(which int) pump.Config {
	w.Cfg.Workload = "town" // the world's own is there
	c := w.Operator()
	name := w.Sim.Accounts()[which]
	st, err := azure.Open(azure.Options{ConnectionString: w.Sim.ConnectionString(name), Transport: unknownHost{}})
	must(w.T, err)
	c.Accounts[which].Storage = st
	return c
}

// C4: what is sent once, and a processor that leaves when there is nothing to do, end within three
// seconds with the account, the cause and a fix; nothing is made.
func TestAnAccountThatIsNotThereEndsWhatIsStartedOnce(t *testing.T) {
	for name, which := range map[string]int{"control": 0, "another": 2} {
		inWorld(t, 3, 2, nil, func(t *testing.T, w *world) {
			starts := map[string]func(pump.Config) error{"once": func(c pump.Config) error {
				d, err := distributor.New(c, &testworld.ListSource{Print: "a", N: 10}, distributor.Options{})
				must(t, err)
				return proof.ErrOf(d.Run(t.Context()))
			}}
			if which == 0 {
				starts["until idle"] = func(c pump.Config) error {
					p, err := processor.New(c, &testworld.Seen{}, processor.Options{UntilIdle: time.Minute})
					must(t, err)
					return proof.ErrOf(p.Run(t.Context()))
				}
			}
			for how, start := range starts {
				began := time.Now()
				err := start(w.misspelt(which))
				if took := time.Since(began); took > 3*time.Second {
					t.Errorf("%s, %s: ended after %v", name, how, took)
				}
				if err == nil || !strings.Contains(err.Error(), "account "+w.Sim.Accounts()[which]+" cannot be reached") ||
					!strings.Contains(err.Error(), "no such host") || !strings.Contains(storage.Fix(err), "name") {
					t.Errorf("%s, %s: %v", name, how, err)
				}
			}
			if w.HasRow(0) || w.HasRow(1) {
				t.Error("the workload was made")
			}
		})
	}
}

// What a start waits for is said with its cause, whatever the account says instead of answering.
func TestAStartThatWaitsSaysWhatTheControlAccountSays(t *testing.T) {
	for _, code := range []string{"ServerBusy", "AccountIsDisabled"} {
		inWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
			cfg := w.Config("p", 1)
			cfg.Workload = "late"
			w.Fault(azsim.Rule{Service: "table", Fault: azsim.Answer, Status: 503, Code: code})
			pr, err := processor.New(cfg, &testworld.Seen{}, processor.Options{})
			must(t, err)
			p := w.start(pr)
			time.Sleep(time.Minute)
			p.Stop()
			<-p.Done
			if n := w.Logged("503 " + code); n < 2 {
				t.Errorf("said %d times that it waits because of %s", n, code)
			}
		})
	}
}

// C4: what is there to go on says within three seconds what it waits for, why, and what mends it,
// and again every 30 s.
func TestAnAccountThatIsNotThereIsSaidWhileAServiceWaits(t *testing.T) {
	for name, start := range map[string]func(context.Context, pump.Config) error{
		"distributor": func(ctx context.Context, c pump.Config) error {
			d, err := distributor.New(c, &testworld.ListSource{Print: "a", N: 10}, distributor.Options{Every: time.Hour})
			if err != nil {
				return err
			}
			return proof.ErrOf(d.Run(ctx))
		},
		"processor": func(ctx context.Context, c pump.Config) error {
			p, err := processor.New(c, &testworld.Seen{}, processor.Options{})
			if err != nil {
				return err
			}
			return proof.ErrOf(p.Run(ctx))
		},
	} {
		inWorld(t, 3, 2, nil, func(t *testing.T, w *world) {
			const line = `msg="waiting for the control account to answer"`
			const fix = `fix="check the account's name`
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Second)
			defer cancel()
			ended := make(chan error, 1)
			go func() { ended <- start(ctx, w.misspelt(0)) }()
			time.Sleep(3 * time.Second)
			if w.Logged(line) != 1 || w.Logged(fix) != 1 || w.Logged("no such host") == 0 {
				t.Errorf("%s: after 3 s: %d lines, %d fixes", name, w.Logged(line), w.Logged(fix))
			}
			time.Sleep(32 * time.Second)
			if w.Logged(line) != 2 || w.Logged(fix) != 2 {
				t.Errorf("%s: after 35 s: %d lines, %d fixes", name, w.Logged(line), w.Logged(fix))
			}
			if err := <-ended; err != nil && ctx.Err() == nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}

// An elected distributor becomes a member when the control account is there again, at whichever
// request of its start that was disabled for three minutes, and has its share of the budget.
func TestADistributorJoinsWheneverItsControlIsBack(t *testing.T) {
	for answered := range 30 {
		t.Run(fmt.Sprintf("after %d requests", answered), func(t *testing.T) {
			inWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
				refused := w.Fault(azsim.Rule{
					Instance: "d", Service: "table", Fault: azsim.Answer, Status: 403, Code: "AccountIsDisabled",
					Skip: answered,
				})
				d := w.startDistributor(w.distributor("d", &testworld.ListSource{Print: "a", N: 10},
					distributor.Options{Every: time.Hour}))
				time.Sleep(3 * time.Minute)
				refused.Remove()
				time.Sleep(time.Minute)
				v, err := cluster.LoadView(t.Context(), w.Table(), "work")
				must(t, err)
				if len(v.Members) != 1 {
					t.Errorf("the members are %v, want the distributor", v.Members)
				}
				d.Stop()
				if err := d.Wait(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A processor that is there to wait for work waits, at whichever request of its start the control
// account is disabled or lacks a right; and works when that is over.
func TestAProcessorWaitsWhereverItsStartIsRefused(t *testing.T) {
	for _, code := range []string{"AccountIsDisabled", "AuthorizationPermissionMismatch"} {
		for answered := range 12 {
			t.Run(fmt.Sprintf("%s after %d requests", code, answered), func(t *testing.T) {
				inWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
					w.Put("accounta", "work-00", 2, 3)
					refused := w.Fault(azsim.Rule{
						Service: "table", Fault: azsim.Answer, Status: 403, Code: code, Skip: answered,
					})
					h := &testworld.Seen{}
					p := w.start(w.processor(h, processor.Options{}))
					time.Sleep(5 * time.Minute)
					refused.Remove()
					time.Sleep(2 * time.Minute)
					p.End()
					h.Expect(t, 6, 6)
				})
			})
		}
	}
}

// hurries are machines that end: before the stop or in the midst of it, and when it is over then.
var hurries = []struct {
	name      string
	after, by time.Duration // of the stop
}{
	{"with the stop", 0, 5 * time.Second},
	{"in the midst of the stop", 4 * time.Second, 9 * time.Second},
}

// TestADistributorWhoseMachineEndsLeavesInTime: it does not use its whole grace to send what it
// read.
func TestADistributorWhoseMachineEndsLeavesInTime(t *testing.T) {
	for _, tt := range hurries {
		t.Run(tt.name, func(t *testing.T) {
			inWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
				source := &testworld.ListSource{Print: "a", N: 10_000, Pace: 10 * time.Millisecond}
				d := w.distributor("d", source, distributor.Options{Pack: 2})
				s := w.startDistributor(d)
				time.Sleep(2500 * time.Millisecond)
				w.Fault(azsim.Rule{Fault: azsim.HangBefore, Instance: "d"}, "PutMessage")
				began := time.Now()
				if tt.after == 0 {
					d.Hurry(5 * time.Second)
				}
				s.Stop()
				if tt.after > 0 {
					time.Sleep(tt.after)
					d.Hurry(5 * time.Second)
				}
				if err := s.Wait(); err == nil {
					t.Error("no error")
				}
				if took := time.Since(began); took < tt.by || took > tt.by+time.Second {
					t.Errorf("stopping took %v, want %v", took, tt.by)
				}
				if row := w.RunRow(s.Summary.Run); row.State != workload.RunBroken {
					t.Errorf("the run's row: %+v", row)
				}
			})
		})
	}
}

// TestAProcessorWhoseMachineEndsLeavesInTime: its tasks do not get its whole grace.
func TestAProcessorWhoseMachineEndsLeavesInTime(t *testing.T) {
	for _, tt := range hurries {
		t.Run(tt.name, func(t *testing.T) {
			inWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
				w.Put("accounta", "work-00", 1, 3)
				h := &testworld.Seen{Work: func(ctx context.Context, _ *pump.Task) error { return testworld.Pause(ctx, time.Hour) }}
				of := w.processor(h, processor.Options{Grace: time.Minute})
				p := w.start(of)
				time.Sleep(30 * time.Second)
				began := time.Now()
				if tt.after == 0 {
					of.Hurry(5 * time.Second)
				}
				p.Stop()
				if tt.after > 0 {
					time.Sleep(tt.after)
					of.Hurry(5 * time.Second)
				}
				s := p.End()
				if took := time.Since(began); took < tt.by || took > tt.by+time.Second {
					t.Errorf("stopping took %v, want %v", took, tt.by)
				}
				if s.Handled != 0 || s.Released != 3 || w.Visible("accounta", "work-00") != 1 {
					t.Errorf("%d visible, %+v", w.Visible("accounta", "work-00"), s)
				}
			})
		})
	}
}

// stuckLoops watches the loops of a process as a service manager's watchdog does.
type stuckLoops struct {
	of    interface{ Loops() []pump.LoopState }
	last  map[string]roundsSeen
	moved map[string]bool
}

type roundsSeen struct {
	rounds uint64
	at     time.Time
}

func watchLoops(d interface{ Loops() []pump.LoopState }) *stuckLoops {
	return &stuckLoops{d, map[string]roundsSeen{}, map[string]bool{}}
}

// during names the loops that stand still for too long while so much time passes.
func (w *stuckLoops) during(d time.Duration) (stuck []string) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Second) {
		for _, l := range w.of.Loops() {
			s := w.last[l.Name]
			if s.rounds != l.Rounds || l.Most == 0 || s.at.IsZero() {
				w.moved[l.Name] = w.moved[l.Name] || s.rounds < l.Rounds
				w.last[l.Name] = roundsSeen{l.Rounds, time.Now()}
			} else if time.Since(s.at) > l.Most && !slices.Contains(stuck, l.Name) {
				stuck = append(stuck, l.Name)
			}
		}
	}
	return stuck
}

// TestADistributorsLoopsGoRoundWhateverHappens: who supervises it ends a distributor whose loops
// stand still, and must not end one whose accounts do.
func TestADistributorsLoopsGoRoundWhateverHappens(t *testing.T) {
	inWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
		source := &testworld.ListSource{Print: "p", N: 20_000, Pace: 100 * time.Millisecond}
		d := w.distributor("d", source, distributor.Options{Every: time.Second})
		run := w.startDistributor(d)
		loops := watchLoops(d)
		watch := func(when string, during time.Duration) {
			if stuck := loops.during(during); len(stuck) > 0 {
				t.Errorf("%s: %q are stuck", when, stuck)
			}
		}
		watch("at work", 3*time.Minute)
		for _, f := range []azsim.Rule{
			{Service: "queue", Fault: azsim.HangBefore},
			{Service: "queue", Fault: azsim.Answer, Status: 403, Code: "AuthenticationFailed"},
			{Service: "table", Fault: azsim.HangBefore},
			{Fault: azsim.FailBefore},
		} {
			f := w.Fault(f)
			watch(w.Sim.Faults(), 15*time.Minute)
			f.Remove()
		}
		for _, name := range []string{"sinks", "map", "member", "puts", "election"} {
			if !loops.moved[name] {
				t.Errorf("%s never went round: %v", name, d.Loops())
			}
		}
		run.Stop()
		<-run.Done
	})
}

// stopsAt is a log whose reader stands still once a line is written.
type stopsAt struct {
	slog.Handler
	message string
	goOn    chan struct{}
}

func (h *stopsAt) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == h.message {
		<-h.goOn
	}
	return h.Handler.Handle(ctx, r)
}

func (h *stopsAt) WithAttrs(attrs []slog.Attr) slog.Handler {
	next := *h
	next.Handler = h.Handler.WithAttrs(attrs)
	return &next
}

// TestADistributorThatCannotBeElectedAnyMoreIsSeen: alone, nothing would be distributed again.
func TestADistributorThatCannotBeElectedAnyMoreIsSeen(t *testing.T) {
	inWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		goOn := make(chan struct{})
		cfg := w.Config("d", 2)
		cfg.Log = slog.New(&stopsAt{cfg.Log.Handler(), "leading", goOn})
		d, err := distributor.New(cfg, &testworld.ListSource{Print: "p", N: 10}, distributor.Options{Every: time.Minute})
		must(t, err)
		run := w.startDistributor(d)
		loops := watchLoops(d)
		if stuck := loops.during(10 * time.Minute); !slices.Equal(stuck, []string{"election"}) {
			t.Errorf("%q are stuck, want the election", stuck)
		}
		close(goOn)
		time.Sleep(time.Minute)
		if stuck := loops.during(10 * time.Minute); len(stuck) > 0 {
			t.Errorf("then %q are stuck", stuck)
		}
		run.Stop()
		<-run.Done
	})
}
