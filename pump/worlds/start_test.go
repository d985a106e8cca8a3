package worlds

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/testworld"
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
				return second(d.Run(t.Context()))
			}}
			if which == 0 {
				starts["until idle"] = func(c pump.Config) error {
					p, err := processor.New(c, &testworld.Seen{}, processor.Options{UntilIdle: time.Minute})
					must(t, err)
					return second(p.Run(t.Context()))
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
			if w.hasRow(0) || w.hasRow(1) {
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
			return second(d.Run(ctx))
		},
		"processor": func(ctx context.Context, c pump.Config) error {
			p, err := processor.New(c, &testworld.Seen{}, processor.Options{})
			if err != nil {
				return err
			}
			return second(p.Run(ctx))
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
				d.cancel()
				if err := d.wait(); err != nil {
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
