package coordination

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/testkit"
	"github.com/queuepump/queuepump/pump/storage"
)

const gateKey = "city.gates/start"

func mustRelease(t *testing.T, g *Gate) {
	t.Helper()
	must(t, g.Release(t.Context(), "operator"))
}

func TestAGateIsClosedUntilItIsReleasedAndHeldAgainForLateComers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := testkit.NewServer()
		server.Offset = -10 * time.Minute
		client := server.Client("me")
		client.Exists = false // the table too is made
		g := NewGate(client, "city", "start")
		if s, err := g.State(t.Context()); err != nil || s != (GateState{Name: "start"}) {
			t.Errorf("before all: %+v, %v", s, err)
		}
		if all, err := Gates(t.Context(), client, "city"); err != nil || len(all) != 0 {
			t.Errorf("before all: %+v, %v", all, err)
		}
		mustRelease(t, g)
		released := time.Now().Add(server.Offset)
		time.Sleep(time.Hour)
		must(t, g.Release(t.Context(), "somebody else"))
		s, err := g.State(t.Context())
		if err != nil || !s.Open || s.By != "operator" || s.Since.Sub(released).Abs() > time.Second {
			t.Errorf("%+v, %v, released at %v", s, err, released)
		}
		proof.Same(t, client.Writes(gateKey), 1, "writes for two releases")
		began := time.Now()
		if err := g.Wait(t.Context(), nil); err != nil || time.Since(began) > 100*time.Millisecond {
			t.Errorf("a late comer: %v after %v", err, time.Since(began))
		}
		must(t, g.Hold(t.Context(), "night shift"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := g.Wait(ctx, nil); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "start") {
			t.Errorf("a later one: %v", err)
		}
		must(t, NewGate(client, "city", "other").Hold(t.Context(), "me"))
		all, err := Gates(t.Context(), client, "city")
		if err != nil || len(all) != 2 || all[0].Name != "other" || all[0].Open || all[1].Name != "start" || all[1].Open || all[1].By != "night shift" {
			t.Errorf("%+v, %v", all, err)
		}
	})
}

// waiting starts n processes at a gate. The result gives when each has passed.
func waiting(t *testing.T, server *testkit.Server, n int, looks []chan struct{}) (passed func() []time.Time) {
	times := make([]time.Time, n)
	var wg sync.WaitGroup
	for i := range n {
		name := fmt.Sprintf("p%03d", i)
		g := NewGate(row.Seeded(server.Client(name), testkit.SeededDraw(3, name)), "city", "start")
		wg.Go(func() {
			proof.Is(t, g.Wait(t.Context(), looks[i]), nil)
			times[i] = time.Now()
		})
	}
	return func() []time.Time { wg.Wait(); return times }
}

func TestFiftyStartWithinAPollOrAtOnceWhenTold(t *testing.T) {
	for name, push := range map[string]bool{"push": true, "push is blocked": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := testkit.NewServer()
				looks := make([]chan struct{}, 50)
				for i := range looks {
					looks[i] = make(chan struct{}, 1)
				}
				passed := waiting(t, server, 50, looks)
				time.Sleep(10*time.Minute + 137*time.Millisecond)
				mustRelease(t, NewGate(server.Client("operator"), "city", "start"))
				released := time.Now()
				if push {
					for _, look := range looks {
						look <- struct{}{}
					}
				}
				most := gatePoll + 20*time.Millisecond // and a round trip
				if push {
					most = 100 * time.Millisecond
				}
				var slowest time.Duration
				for i, at := range passed() {
					if late := at.Sub(released); late > most {
						t.Errorf("process %d started after %v, want at most %v", i, late, most)
					} else {
						slowest = max(slowest, late)
					}
				}
				t.Logf("the slowest of 50 started %v after release", slowest)
			})
		})
	}
}

func TestWaitLooksEveryTwoAndAHalfSecondsWhateverTheTableDoes(t *testing.T) {
	for name, f := range map[string]testkit.Fault{"fine": {}, "lost": testkit.LostRequest, "hanging": {Hang: true}, "throttled": {Fail: true, Code: storage.Throttled}, "being deleted": {Fail: true, Code: storage.Missing}} {
		t.Run(name, func(t *testing.T) {
			testkit.OnServer(t, "me", func(t *testing.T, server *testkit.Server, client *testkit.Client) {
				var log bytes.Buffer
				g := NewGate(client, "city", "start")
				g.Log = slog.New(slog.NewTextHandler(&log, nil))
				began := time.Now()
				last := began
				var longest time.Duration
				client.SetFault(func(c testkit.Call) testkit.Fault {
					longest, last = max(longest, time.Since(last)), time.Now()
					if time.Since(began) < time.Minute {
						return f
					}
					return testkit.Fault{}
				})
				time.AfterFunc(30*time.Second, func() {
					mustRelease(t, NewGate(server.Client("operator"), "city", "start"))
				})
				must(t, g.Wait(t.Context(), nil))
				want := time.Minute
				if f == (testkit.Fault{}) {
					want = 30 * time.Second
				}
				if took := time.Since(began); took < want || took > want+gatePoll+100*time.Millisecond {
					t.Errorf("passed after %v, want %v", took, want)
				}
				if longest > gatePoll+10*time.Millisecond {
					t.Errorf("%v between two looks", longest)
				}
				if looks := len(client.Sent()); looks > 35 {
					t.Errorf("%d looks in a minute", looks)
				}
				if lines := strings.Count(log.String(), "\n"); lines != 1 && f != (testkit.Fault{}) || lines != 0 && f == (testkit.Fault{}) {
					t.Errorf("log:\n%s", log.String())
				}
			})
		})
	}
}

func TestHostileHintsMakeFewRequestsAndDoNotHinderARelease(t *testing.T) {
	testkit.OnServer(t, "me", func(t *testing.T, server *testkit.Server, client *testkit.Client) {
		look := make(chan struct{}, 1)
		ctx, stop := context.WithCancel(t.Context())
		var hostile sync.WaitGroup
		hostile.Go(func() {
			for ctx.Err() == nil {
				select {
				case look <- struct{}{}:
				default:
				}
				time.Sleep(time.Millisecond)
			}
		})
		passed := make(chan time.Time)
		go func() {
			proof.Is(t, NewGate(client, "city", "start").Wait(t.Context(), look), nil)
			passed <- time.Now()
		}()
		time.Sleep(time.Minute)
		if n := len(client.Sent()); n > 150 {
			t.Errorf("%d looks in a minute by 60,000 hints", n)
		}
		mustRelease(t, NewGate(server.Client("operator"), "city", "start"))
		released := time.Now()
		if late := (<-passed).Sub(released); late > time.Second {
			t.Errorf("passed %v after release", late)
		}
		stop()
		hostile.Wait()
	})
}

func TestAClosedChannelOfHintsIsNoHint(t *testing.T) {
	testkit.OnServer(t, "me", func(t *testing.T, server *testkit.Server, client *testkit.Client) {
		look := make(chan struct{})
		close(look)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		proof.Is(t, NewGate(client, "city", "start").Wait(ctx, look), context.DeadlineExceeded)
		if n := len(client.Sent()); n > 35 {
			t.Errorf("%d looks in a minute", n)
		}
	})
}

func TestWhatNobodyWouldWaitForIsReported(t *testing.T) {
	testkit.OnServer(t, "me", func(t *testing.T, server *testkit.Server, client *testkit.Client) {
		g := NewGate(client, "city", "start")
		client.SetFault(testkit.FaultOn("read", gateKey, 1, testkit.Fault{Fail: true, Code: storage.Auth}))
		if err := g.Wait(t.Context(), nil); !storage.Is(err, storage.Auth) {
			t.Errorf("%v", err)
		}
		for name, props := range map[string]map[string]any{"no flag": {"By": "me"}, "no truth": {"Open": "yes"}, "numbers": {"Open": true, "By": int64(5)}} {
			putRow(t, server, "city.gates", "start", props)
			before := len(server.Written())
			_, state := g.State(t.Context())
			for op, err := range map[string]error{"wait": g.Wait(t.Context(), nil), "release": g.Release(t.Context(), "me"), "hold": g.Hold(t.Context(), "me"), "state": state} {
				if !errors.Is(err, row.ErrCorrupt) || !strings.Contains(err.Error(), gateKey) {
					t.Errorf("%s: %s: %v", name, op, err)
				}
			}
			proof.Same(t, len(server.Written()), before, name, "it was overwritten")
		}
		mustRelease(t, NewGate(client, "city", "good"))
		all, err := Gates(t.Context(), client, "city")
		if len(all) != 1 || all[0].Name != "good" || !errors.Is(err, row.ErrCorrupt) || !strings.Contains(err.Error(), gateKey) {
			t.Errorf("%+v, %v", all, err)
		}
	})
}

func TestReleaseAndHoldAreDoneOnceWhateverAnswerIsLost(t *testing.T) {
	for _, rule := range []azsim.Rule{
		{Fault: azsim.AnswerLost, First: 1},
		{Fault: azsim.FailBefore, First: 2},
		{Fault: azsim.HangAfter, First: 1},
		{Fault: azsim.AnswerAfter, First: 1},
		{Fault: azsim.Answer, First: 3},
		{Operations: []string{"GetEntity"}, Fault: azsim.CutBody, First: 2},
	} {
		t.Run(rule.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sim := testkit.Simulated()
				table := testkit.OverTheWire(t, sim, "operator")
				g := NewGate(table, "city", "start")
				for i, open := range []bool{true, false, true} {
					rule.Service = "table"
					injected := sim.Inject(rule)
					must(t, map[bool]func(context.Context, string) error{true: g.Release, false: g.Hold}[open](t.Context(), "me"))
					injected.Remove()
					if s, err := g.State(t.Context()); err != nil || s.Open != open || s.Since.IsZero() {
						t.Errorf("step %d: %+v, %v", i, s, err)
					}
				}
			})
		})
	}
}

// A gate's row that is gone, or comes back as it was, is what there is: who waits waits on and says
// no error, a look tells so, and a release opens it again, for those who wait too.
func TestAGateWhoseRowVanishesOrRollsBackIsReleasedAgain(t *testing.T) {
	for name, back := range map[string]bool{"vanishes": false, "rolls back": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := testkit.NewServer()
				g := NewGate(server.Client("operator"), "city", "start")
				must(t, g.Hold(t.Context(), "night shift"))
				before := server.Rows[gateKey]
				mustRelease(t, g)
				if delete(server.Rows, gateKey); back {
					server.Rows[gateKey] = before
				}
				passed := make(chan error, 1)
				go func() { passed <- NewGate(server.Client("late"), "city", "start").Wait(t.Context(), nil) }()
				time.Sleep(time.Minute)
				if s, err := g.State(t.Context()); err != nil || s.Open || (s.By == "night shift") != back {
					t.Errorf("%+v, %v", s, err)
				}
				if len(passed) > 0 {
					t.Fatalf("a late comer has passed: %v", <-passed)
				}
				mustRelease(t, g)
				released := time.Now()
				if err := <-passed; err != nil || time.Since(released) > gatePoll+20*time.Millisecond {
					t.Errorf("%v, %v after it was released again", err, time.Since(released))
				}
			})
		})
	}
}
