package distributor_test

import (
	"context"
	"fmt"
	"log/slog"
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
)

// C4: what is sent once, and a processor that leaves when there is nothing to do, end within three
// seconds with the account, the cause and a fix; nothing is made.
func TestAnAccountThatIsNotThereEndsWhatIsStartedOnce(t *testing.T) {
	for name, which := range map[string]int{"control": 0, "another": 2} {
		testworld.In(t, testworld.Plain, 3, 2, nil, func(t *testing.T, w *testworld.World) {
			starts := map[string]func(pump.Config) error{"once": func(c pump.Config) error {
				d, err := distributor.New(c, &testworld.ListSource{Print: "a", N: 10}, distributor.Options{})
				proof.Must(t, err)
				return proof.ErrOf(d.Run(t.Context()))
			}}
			if which == 0 {
				starts["until idle"] = func(c pump.Config) error {
					p, err := processor.New(c, &testworld.Seen{}, processor.Options{UntilIdle: time.Minute})
					proof.Must(t, err)
					return proof.ErrOf(p.Run(t.Context()))
				}
			}
			for how, start := range starts {
				began := time.Now()
				err := start(misspelt(w, which))
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
		testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
			cfg := w.Config("p", 1)
			cfg.Workload = "late"
			w.Fault(azsim.Rule{Service: "table", Fault: azsim.Answer, Status: 503, Code: code})
			pr, err := processor.New(cfg, &testworld.Seen{}, processor.Options{})
			proof.Must(t, err)
			p := testworld.Start(w.T, pr)
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
		testworld.In(t, testworld.Plain, 3, 2, nil, func(t *testing.T, w *testworld.World) {
			const line = `msg="waiting for the control account to answer"`
			const fix = `fix="check the account's name`
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Second)
			defer cancel()
			ended := make(chan error, 1)
			go func() { ended <- start(ctx, misspelt(w, 0)) }()
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
			testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
				refused := w.Fault(azsim.Rule{
					Instance: "d", Service: "table", Fault: azsim.Answer, Status: 403, Code: "AccountIsDisabled",
					Skip: answered,
				})
				d := testworld.Begun(w, distributor.New, "d", &testworld.ListSource{Print: "a", N: 10},
					distributor.Options{Every: time.Hour})
				time.Sleep(3 * time.Minute)
				refused.Remove()
				time.Sleep(time.Minute)
				v, err := cluster.LoadView(t.Context(), w.Table(), "work")
				proof.Must(t, err)
				proof.Same(t, len(v.Members), 1, "the members", v.Members, "the distributor")
				d.Stop()
				proof.Must(t, d.Wait())
			})
		})
	}
}

// TestADistributorWhoseMachineEndsLeavesInTime: it does not use its whole grace to send what it
// read.
func TestADistributorWhoseMachineEndsLeavesInTime(t *testing.T) {
	for _, tt := range []struct {
		name      string
		after, by time.Duration // of the stop
	}{
		{"with the stop", 0, 5 * time.Second},
		{"in the midst of the stop", 4 * time.Second, 9 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
				source := &testworld.ListSource{Print: "a", N: 10_000, Pace: 10 * time.Millisecond}
				d := testworld.Made(w, distributor.New, "d", source, distributor.Options{Pack: 2})
				s := testworld.Start(w.T, d)
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

// TestADistributorsLoopsGoRoundWhateverHappens: who supervises it ends a distributor whose loops
// stand still, and must not end one whose accounts do.
func TestADistributorsLoopsGoRoundWhateverHappens(t *testing.T) {
	testworld.In(t, testworld.Plain, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		source := &testworld.ListSource{Print: "p", N: 20_000, Pace: 100 * time.Millisecond}
		d := testworld.Made(w, distributor.New, "d", source, distributor.Options{Every: time.Second})
		run := testworld.Start(w.T, d)
		watch := func(when string, during time.Duration) {
			if names := testworld.Stuck(d, during); len(names) > 0 {
				t.Errorf("%s: %q are stuck", when, names)
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
			if !slices.ContainsFunc(d.Loops(), func(l pump.LoopState) bool { return l.Name == name && l.Rounds > 0 }) {
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
	testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		goOn := make(chan struct{})
		cfg := w.Config("d", 2)
		cfg.Log = slog.New(&stopsAt{cfg.Log.Handler(), "leading", goOn})
		d, err := distributor.New(cfg, &testworld.ListSource{Print: "p", N: 10}, distributor.Options{Every: time.Minute})
		proof.Must(t, err)
		run := testworld.Start(w.T, d)
		proof.Alike(t, testworld.Stuck(d, 10*time.Minute), []string{"election"}, "are stuck")
		close(goOn)
		time.Sleep(time.Minute)
		if names := testworld.Stuck(d, 10*time.Minute); len(names) > 0 {
			t.Errorf("then %q are stuck", names)
		}
		run.Stop()
		<-run.Done
	})
}
