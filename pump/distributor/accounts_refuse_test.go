package distributor_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/status"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/shardmap"
)

// These are figures of the code under test, which no caller can name.
const (
	authPatience = 15 * time.Minute
	createSlow   = 2 * time.Second
	lastWords    = 5 * time.Second
	liveSealAge  = time.Second
	neverBegun   = "no later leader learned of it, so its own was probably lost before it began; no beat says that anything of it was sent"
)

// refusals are the ways in which an account refuses what a distributor puts.
var refusals = map[string]azsim.Rule{
	"wrong key":      {Fault: azsim.Answer, Status: 403, Code: "AuthenticationFailed"},
	"right missing":  {Fault: azsim.Answer, Status: 403, Code: "AuthorizationPermissionMismatch"},
	"disabled":       {Fault: azsim.Answer, Status: 403, Code: "AccountIsDisabled"},
	"deleted queues": {Fault: azsim.Answer, Status: 404, Code: "QueueNotFound", Operations: []string{"PutMessage"}},
}

// refuse lets accounts refuse the distributors.
func refuse(w *testworld.World, rule azsim.Rule, accounts ...string) (rules []*azsim.Injection) {
	for _, name := range accounts {
		rule.Account, rule.Service, rule.Instance = name, "queue", "d"
		rules = append(rules, w.Sim.Inject(rule))
	}
	return rules
}

// refusalRate is what a queue takes each second in the worlds of four accounts of two queues.
const refusalRate = 20

// offered is a distributor that is offered 90 % of what four accounts take, for so long.
func offered(w *testworld.World, d time.Duration, o distributor.Options) (*distributor.Distributor, *testworld.ListSource) {
	w.T.Helper()
	cfg := w.Config("d", w.Cfg.Accounts[0].Queues)
	cfg.Budget.Queue = refusalRate
	pace := time.Second * 10 / (4 * 2 * refusalRate * 9)
	s := &testworld.ListSource{Print: "a", N: int(d / pace), Pace: pace}
	o.Pack = 1
	dist, err := distributor.New(cfg, s, o)
	proof.Must(w.T, err)
	return dist, s
}

// One account of four refuses. Ten seconds later the others take what they can take, and the run
// ends with each task sent.
func TestAnAccountThatRefusesIsGoneRound(t *testing.T) {
	for name, rule := range refusals {
		for when, begins := range map[string]time.Duration{"at the start": 0, "in the middle": 20 * time.Second} {
			t.Run(name+" "+when, func(t *testing.T) {
				testworld.In(t, testworld.Plain, 4, 2, nil, func(t *testing.T, w *testworld.World) {
					refuse := func() { refuse(w, rule, "accountb") }
					if begins == 0 {
						refuse()
					}
					dist, s := offered(w, 100*time.Second, distributor.Options{})
					d := testworld.Start(w.T, dist)
					time.Sleep(begins)
					if begins > 0 {
						refuse()
					}
					time.Sleep(10 * time.Second)
					three := func() int { return w.In("accounta") + w.In("accountc") + w.In("accountd") }
					before := three()
					const watched = 40
					time.Sleep(watched * time.Second)
					if n, can := three()-before, watched*3*2*refusalRate; n < can*95/100 {
						t.Fatalf("three accounts took %d of the %d messages that they can take", n, can)
					}
					if trouble := dist.State().Trouble; trouble == "" {
						t.Error("its state does not say so")
					}
					proof.Must(t, d.Wait())
					if w.Logged("accountb") == 0 || w.Logged("fix=") == 0 {
						t.Error("the log does not say what to do")
					}
					for _, q := range []string{"work-00", "work-01"} {
						alarm := regexp.MustCompile(`; its tasks wait" .*queue=accountb/` + q)
						if n := len(alarm.FindAllIndex(w.Log.Bytes(), -1)); n < 1 || n > 4 {
							t.Errorf("the alarm of a queue was logged %d times", n)
						}
					}
					w.Collect().Expect(t, w.Segments(), d.Summary.Run, s, s.N, -1)
				})
			})
		}
	}
}

// When the account takes messages again they come home.
func TestAnAccountThatRefusedGetsItsMessagesAgain(t *testing.T) {
	testworld.In(t, testworld.Plain, 4, 2, nil, func(t *testing.T, w *testworld.World) {
		dist, s := offered(w, 3*time.Minute, distributor.Options{})
		d := testworld.Start(w.T, dist)
		time.Sleep(10 * time.Second)
		rules := refuse(w, refusals["wrong key"], "accountb")
		time.Sleep(time.Minute)
		for _, r := range rules {
			r.Remove()
		}
		time.Sleep(15 * time.Second)
		before := w.In("accountb")
		time.Sleep(20 * time.Second)
		if n, share := w.In("accountb")-before, 20*2*refusalRate*9/10; n < share*8/10 {
			t.Errorf("it took %d messages in 20 s, want some %d", n, share)
		}
		proof.Must(t, d.Wait())
		w.Collect().Expect(t, w.Segments(), d.Summary.Run, s, s.N, -1)
	})
}

// An elected distributor lives on, whatever refuses, and does its next distributions.
func TestAnElectedDistributorGoesRoundWhatRefuses(t *testing.T) {
	for name, rule := range refusals {
		t.Run(name, func(t *testing.T) {
			testworld.In(t, testworld.Plain, 4, 1, nil, func(t *testing.T, w *testworld.World) {
				refuse(w, rule, "accountb")
				var e ended
				d := testworld.Begun(w, distributor.New, "d", &testworld.ListSource{Print: "a", N: 500},
					distributor.Options{Every: time.Minute, OnRun: e.by("d")})
				time.Sleep(5 * time.Minute)
				e.mu.Lock()
				n := len(e.runs)
				for _, r := range e.runs {
					if r.err != nil {
						t.Errorf("a distribution failed: %v", r.err)
					}
				}
				e.mu.Unlock()
				if n < 4 {
					t.Errorf("%d distributions in five minutes", n)
				}
				select {
				case <-d.Done:
					t.Errorf("it has ended: %v", d.Err)
				default:
				}
				d.Stop()
				_ = d.Wait()
			})
		})
	}
}

// The first start of all makes the workload though a data account refuses, is disabled or is not
// there, where `control:` says which account has it. Where it does not, that one may have the
// workload: a service waits for it.
func TestAWorkloadIsMadeWhileADataAccountRefuses(t *testing.T) {
	for name, rule := range map[string]azsim.Rule{"wrong key": refusals["wrong key"], "disabled": refusals["disabled"], "not there": {}} {
		t.Run(name, func(t *testing.T) {
			testworld.In(t, testworld.Plain, 3, 1, nil, func(t *testing.T, w *testworld.World) {
				cfg := misspelt(w, 2)
				if name != "not there" {
					cfg, rule.Account = w.Operator(), "accountc"
					defer w.Sim.Inject(rule).Remove()
				}
				run := func(every time.Duration) *testworld.Started[*distributor.Distributor, distributor.Summary] {
					d, err := distributor.New(cfg, &testworld.ListSource{Print: "a", N: 50}, distributor.Options{Every: every})
					proof.Must(t, err)
					return testworld.Start(w.T, d)
				}
				elected := run(time.Hour)
				time.Sleep(5 * time.Minute)
				select {
				case <-elected.Done:
					t.Errorf("a service has ended: %v", elected.Err)
				default:
				}
				elected.Stop()
				_ = elected.Wait()
				cfg.Control = "accounta"
				if d := run(0); d.Wait() != nil || d.Summary.Tasks != 50 {
					t.Errorf("sent %d tasks: %v", d.Summary.Tasks, d.Err)
				}
			})
		})
	}
}

// Final is only a start at which all accounts refuse the key: no run is begun.
func TestAStartAtWhichAllAccountsRefuseTheKeyIsFinal(t *testing.T) {
	for name, every := range map[string]time.Duration{"once": 0, "elected": time.Hour} {
		t.Run(name, func(t *testing.T) {
			testworld.In(t, testworld.Plain, 3, 2, nil, func(t *testing.T, w *testworld.World) {
				refuse(w, refusals["wrong key"], "accounta", "accountb", "accountc")
				began := time.Now()
				d := testworld.Begun(w, distributor.New, "d", &testworld.ListSource{Print: "a", N: 100},
					distributor.Options{Every: every})
				err := d.Wait()
				if e, ok := errors.AsType[*storage.Error](err); !ok || e.Code != storage.Auth {
					t.Errorf("got %v", err)
				}
				if took := time.Since(began); took > 10*time.Second {
					t.Errorf("it took %v", took)
				}
				if !d.Summary.Run.IsZero() {
					t.Error("a run was begun")
				}
			})
		})
	}
}

// All disabled, or all without their queues, is waited for; so is a key that stops being good while
// the process works.
func TestWhatAllAccountsRefuseForAWhileIsWaitedFor(t *testing.T) {
	for name, c := range map[string]struct {
		rule  azsim.Rule
		after time.Duration
	}{
		"all disabled at the start":  {refusals["disabled"], 0},
		"all without queues":         {refusals["deleted queues"], 0},
		"a right missing everywhere": {refusals["right missing"], 0},
		"all keys wrong in mid-run":  {refusals["wrong key"], 5 * time.Second},
		"all rights gone in mid-run": {refusals["right missing"], 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			testworld.In(t, testworld.Plain, 3, 1, nil, func(t *testing.T, w *testworld.World) {
				var rules []*azsim.Injection
				refuse := func() { rules = refuse(w, c.rule, "accounta", "accountb", "accountc") }
				if c.after == 0 {
					refuse()
				}
				s := &testworld.ListSource{Print: "a", N: 1000, Pace: 10 * time.Millisecond}
				dist := testworld.Made(w, distributor.New, "d", s, distributor.Options{SealAge: time.Second})
				d := testworld.Start(w.T, dist)
				time.Sleep(c.after)
				if c.after > 0 {
					refuse()
				}
				patience := 10 * time.Minute
				if c.after > 0 {
					patience = time.Hour
				}
				time.Sleep(patience)
				select {
				case <-d.Done:
					t.Fatalf("it has ended: %v", d.Err)
				default:
				}
				if w.Logged("take nothing") == 0 {
					t.Error("the log does not say that all choices of segments are out")
				}
				if trouble := dist.State().Trouble; trouble == "" {
					t.Error("its state does not say so")
				}
				for _, r := range rules {
					r.Remove()
				}
				proof.Must(t, d.Wait())
				w.Collect().Expect(t, w.Segments(), d.Summary.Run, s, s.N, -1)
			})
		})
	}
}

// A command that may put nowhere ends when the right does not come.
func TestACommandThatMayPutNowhereEndsAfterItsPatience(t *testing.T) {
	testworld.In(t, testworld.Plain, 3, 2, nil, func(t *testing.T, w *testworld.World) {
		refuse(w, refusals["right missing"], "accounta", "accountb", "accountc")
		began := time.Now()
		s, err := testworld.Made(w, distributor.New, "d", &testworld.ListSource{Print: "a", N: 1000}, distributor.Options{}).Run(t.Context())
		if took := time.Since(began); took < authPatience || took > authPatience+2*time.Minute {
			t.Errorf("it took %v", took)
		}
		if e, ok := errors.AsType[*storage.Error](err); !ok || e.Code != storage.Auth {
			t.Errorf("got %v", err)
		}
		if run := w.RunRow(s.Run); run.State != workload.RunBroken {
			t.Errorf("the run is %s", run.State)
		}
	})
}

// An account that only this process has no credentials for is dark to this process.
func TestAnAccountWithoutCredentialsIsGoneRound(t *testing.T) {
	testworld.InThree(t, func(t *testing.T, w *testworld.World) {
		cfg := w.Operator()
		cfg.Instance, cfg.Accounts = "d", cfg.Accounts[:2]
		s, err := distributor.NewSender(cfg, distributor.SenderOptions{})
		proof.Must(t, err)
		proof.Must(t, s.Send(t.Context(), newTask("first")))
		w.ChangeMap(func(old []shardmap.Shard) []shardmap.Shard { return setup.Shards(w.Cfg) })
		time.Sleep(time.Minute)
		for i := range 40 {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			if err := s.Send(ctx, newTask(fmt.Sprint("task ", i))); err != nil {
				t.Fatalf("task %d: %v", i, err)
			}
			cancel()
		}
		proof.Must(t, proof.ErrOf(s.Close(t.Context())))
	})
}

// What waits in an account that cannot be read stands in status as it was last seen.
func TestStatusSaysWhatAnAccountThatRefusesHeldLast(t *testing.T) {
	testworld.In(t, testworld.Plain, 2, 1, nil, func(t *testing.T, w *testworld.World) {
		w.Put("accountb", "work-00", 7, 1)
		cfg := w.Config("d", 1)
		cfg.Sample = 15 * time.Second
		dist, err := distributor.New(cfg, &testworld.ListSource{Print: "a", N: 1, Key: func(int) string { return "one" }},
			distributor.Options{Every: time.Hour})
		proof.Must(t, err)
		d := testworld.Start(w.T, dist)
		time.Sleep(3 * time.Minute)
		before := uint64(w.Count("accountb", "work-00"))
		refused := refusals["wrong key"]
		refused.Account, refused.Service = "accountb", "queue"
		w.Sim.Inject(refused)
		at := time.Now()
		time.Sleep(20 * time.Minute)
		s, err := status.Read(t.Context(), w.Operator(), status.Options{})
		proof.Must(t, err)
		a := s.Accounts[1]
		if a.Name != "accountb" || a.Dark == "" || a.Last == nil {
			t.Fatalf("%+v", a)
		}
		if age := at.Sub(a.Last.Time); a.Last.Messages != before || age < -10*time.Minute || age > 2*time.Minute {
			t.Errorf("last %d messages at %v before it refused; there were %d", a.Last.Messages, age, before)
		}
		if well := s.Accounts[0]; well.Dark != "" || well.Last != nil {
			t.Errorf("%+v", well)
		}
		d.Stop()
		_ = d.Wait()
	})
}
