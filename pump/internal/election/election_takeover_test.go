package election

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/testkit"
	"github.com/queuepump/queuepump/pump/storage"
)

func TestADeadLeadersRunAndCheckpointAreHandedToTheNext(t *testing.T) {
	for name, c := range map[string]struct {
		begin      bool
		checkpoint string
		resume     *Resume
	}{
		"before it began a run":    {false, "", nil},
		"before its first save":    {true, "", &Resume{Run: testkit.RunID(7)}},
		"after it saved":           {true, "line 4711", &Resume{Run: testkit.RunID(7), Checkpoint: []byte("line 4711")}},
		"after it saved very much": {true, strings.Repeat("0123456789", 20_000), &Resume{Run: testkit.RunID(7), Checkpoint: bytes.Repeat([]byte("0123456789"), 20_000)}},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.OnServer(t, "a", func(t *testing.T, server *testkit.Server, dying *testkit.Client) {
				b := candidate(server.Client("b"), "b")
				term := standFor(t, candidate(dying, "a"), time.Second)
				if c.begin {
					must(t, term.Begin(t.Context(), testkit.RunID(7)))
				}
				if c.checkpoint != "" {
					mustSave(t, term, "line 1")
					mustSave(t, term, c.checkpoint)
				}
				time.Sleep(time.Minute)
				dying.Dies()
				died := time.Now()
				next := standFor(t, b, time.Minute)
				// The last beat was up to 5 s before; then lease + margin; then
				// the next look, up to 5 s later, and a first look as much later.
				if after := time.Since(died); after < 18*time.Second || after > 33*time.Second {
					t.Errorf("taken over after %v", after)
				}
				if term.Context().Err() == nil {
					t.Error("the old leader still trusts")
				}
				proof.Same(t, next.Epoch, 2, "epoch")
				switch {
				case (next.Resume == nil) != (c.resume == nil):
					t.Errorf("resume %v, want %v", next.Resume, c.resume)
				case c.resume != nil && (next.Resume.Run != c.resume.Run || !bytes.Equal(next.Resume.Checkpoint, c.resume.Checkpoint)):
					t.Errorf("run %s and %d bytes, want %s and %d", next.Resume.Run, len(next.Resume.Checkpoint), c.resume.Run, len(c.resume.Checkpoint))
				}
				mustFinish(t, next)
				<-term.done
			})
		})
	}
}

func TestAZombieCannotSaveAndKnowsIt(t *testing.T) {
	for name, clockStoodStill := range map[string]bool{
		// A stopped process: on waking, its code may run before its timers do.
		"stopped beyond its lease": false,
		// A suspended machine: it does not know that time has passed; the row does.
		"suspended with its clock": true,
	} {
		t.Run(name, func(t *testing.T) {
			testkit.OnServer(t, "a", func(t *testing.T, server *testkit.Server, sleeper *testkit.Client) {
				zombie := standFor(t, candidate(sleeper, "a"), time.Second)
				must(t, zombie.Begin(t.Context(), testkit.RunID(1)))
				mustSave(t, zombie, "mine")
				// Its beats do not go out while it sleeps, and its alarm does not ring.
				thaw := make(chan struct{})
				sleeper.SetLatency(func(testkit.Call) time.Duration {
					<-thaw
					return 10 * time.Millisecond
				})
				zombie.alarm.Stop()
				next := standFor(t, candidate(server.Client("b"), "b"), time.Minute)
				if next.Resume == nil || string(next.Resume.Checkpoint) != "mine" {
					t.Fatalf("resume %+v", next.Resume)
				}
				mustSave(t, next, "theirs")
				if clockStoodStill {
					zombie.mu.Lock()
					zombie.trustEnds = time.Now().Add(10 * time.Second)
					zombie.mu.Unlock()
				}
				saved := make(chan error)
				go func() { saved <- zombie.Save(t.Context(), []byte("mine again")) }()
				close(thaw)
				proof.Is(t, <-saved, ErrDeposed, "saved")
				proof.Is(t, context.Cause(zombie.Context()), ErrDeposed, "the term ended by")
				proof.Is(t, zombie.Finish(t.Context()), ErrDeposed, "finished")
				zombie.Abandon(t.Context())
				if s, err := candidate(server.Client("c"), "c").Status(t.Context()); err != nil || s.Leader != "b" || s.Epoch != 2 || s.Phase != Running || s.Checkpoint != len("theirs") {
					t.Errorf("%+v, %v", s, err)
				}
				mustFinish(t, next)
			})
		})
	}
}

func TestADarkControlPlaneMakesNobodyDeclareTheLeaderDead(t *testing.T) {
	for _, dark := range []time.Duration{8 * time.Second, 12 * time.Second, time.Minute, time.Hour} {
		t.Run(dark.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := testkit.NewServer()
				from := time.Now().Add(20 * time.Second)
				blackout := func(testkit.Call) testkit.Fault {
					since := time.Since(from)
					return map[bool]testkit.Fault{true: testkit.LostRequest}[since >= 0 && since < dark]
				}
				ctx, cancel := context.WithCancel(t.Context())
				leader := server.Client("a")
				leader.SetFault(blackout)
				a := candidate(leader, "a")
				term := standFor(t, a, time.Second)
				must(t, term.Begin(t.Context(), testkit.RunID(1)))
				var wg sync.WaitGroup
				for _, name := range []string{"b", "c", "d"} {
					observer := server.Client(name)
					observer.SetFault(blackout)
					wg.Go(func() {
						if won := stand(ctx, candidate(observer, name)); won != nil {
							t.Errorf("%s took over with epoch %d", name, won.Epoch)
							won.Abandon(t.Context())
						}
					})
				}
				time.Sleep(time.Until(from)) // they watch for most of a lease already
				time.Sleep(dark)
				if survives := dark < 10*time.Second; survives != (term.Context().Err() == nil) && dark != 12*time.Second {
					t.Errorf("after %v of darkness the term ended by %v", dark, context.Cause(term.Context()))
				}
				if term.Context().Err() != nil {
					// The leader looks again, as a distributor does, once a beat.
					term = standFor(t, a, 10*time.Second)
					if term.Resume == nil || term.Resume.Run != testkit.RunID(1) {
						t.Errorf("resume %v", term.Resume)
					}
				}
				time.Sleep(time.Minute)
				proof.Is(t, context.Cause(term.Context()), nil)
				cancel()
				wg.Wait()
				mustFinish(t, term)
			})
		})
	}
}

func TestTimeWithoutReadsDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, err := Options{Instance: "x"}.withDefaults()
		must(t, err)
		begin := time.Now()
		at := func(etag storage.ETag, seconds float64) row.Version[electionRow] {
			sent := begin.Add(time.Duration(seconds * float64(time.Second)))
			return row.Version[electionRow]{ETag: etag, Sent: sent, Received: sent.Add(10 * time.Millisecond)}
		}
		for name, reads := range map[string]struct {
			times []float64
			alive bool
		}{
			"looked at every beat for lease + margin": {[]float64{0, 5, 10, 15, 20, 23.01}, false},
			"the last look was sent before that":      {[]float64{0, 5, 10, 15, 20, 22.99}, true},
			"as far apart as two beats":               {[]float64{0, 9.99, 19.98, 29.97}, false},
			"one gap of more":                         {[]float64{0, 5, 10, 20.1, 25}, true},
			"the gap was long ago":                    {[]float64{0, 10.1, 15, 20, 25, 30, 33.2}, false},
			"two looks only":                          {[]float64{0, 3600}, true},
		} {
			var w row.Watch
			alive := true
			for _, s := range reads.times {
				v := at("v1", s)
				alive = w.Look(v.ETag, v.Sent, v.Received, o.times())
			}
			proof.Same(t, alive, reads.alive, name, "alive")
			if v := at("v2", reads.times[len(reads.times)-1]+1); !w.Look(v.ETag, v.Sent, v.Received, o.times()) {
				t.Errorf("%s: dead right after a beat", name)
			}
		}
	})
}

func TestAnObserverWithShorterTimesGivesTheLeaderItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := testkit.NewServer()
		slow := New(server.Client("a"), "city", Options{Instance: "a", Beat: 20 * time.Second})
		term := standFor(t, slow, time.Second)
		quick := New(server.Client("b"), "city", Options{Instance: "b", Beat: time.Second})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		if won := stand(ctx, quick); won != nil {
			t.Errorf("deposed a leader that beats every 20 s")
			won.Abandon(t.Context())
		}
		mustFinish(t, term)
	})
}

func TestAnEarlierProcessOfTheSameNameIsNotTakenForOneself(t *testing.T) {
	testkit.OnServer(t, "a", func(t *testing.T, server *testkit.Server, killed *testkit.Client) {
		old := standFor(t, candidate(killed, "a"), time.Second)
		killed.Dies()
		began := time.Now()
		again := standFor(t, candidate(server.Client("a again"), "a"), time.Minute)
		if waited := time.Since(began); waited < 23*time.Second {
			t.Errorf("took the row after %v", waited)
		}
		<-old.Context().Done()
		mustFinish(t, again)
		<-old.done
	})
}

// A row that is gone, or came back as it was, does not make a term of an epoch that was there
// before; who led last goes on at once, and the others wait until it must be dead.
func TestARowThatIsNoMoreGivesNoEpochTwice(t *testing.T) {
	for name, back := range map[string]bool{"gone": false, "back": true} {
		for _, lives := range []bool{true, false} {
			t.Run(fmt.Sprint(name, " lives ", lives), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					server := testkit.NewServer()
					first := candidate(server.Client("a"), "a")
					mustFinish(t, standFor(t, first, time.Second))
					server.Mu.Lock()
					was := server.Rows[electionKey]
					server.Mu.Unlock()
					time.Sleep(time.Hour)
					term := standFor(t, first, time.Second)
					run := testkit.RunID(7)
					must(t, term.Begin(t.Context(), run))
					left := Left{Epoch: term.Epoch, Run: run, RunEpoch: term.Epoch}
					o := Options{Instance: "b", Every: time.Minute, Beat: time.Second, Left: func(context.Context, uint64) (Left, error) { return left, nil }}
					late := New(server.Client("b"), "city", o)
					server.Mu.Lock()
					delete(server.Rows, electionKey)
					if back {
						was.ETag = "back"
						server.Rows[electionKey] = was
					}
					server.Mu.Unlock()
					vanished := time.Now()
					if lives {
						<-term.Context().Done()
						first.options.Left = func(context.Context, uint64) (Left, error) {
							l := left
							l.Held, l.Checkpoint = true, []byte("so far")
							return l, nil
						}
						next := standFor(t, first, 2*time.Second)
						if next.Epoch != 3 || next.Resume == nil || next.Resume.Run != run || string(next.Resume.Checkpoint) != "so far" {
							t.Errorf("%+v", next)
						}
						mustFinish(t, next)
						return
					}
					term.end(errAbandoned) // as if it were dead
					next := standFor(t, late, time.Minute)
					if waited := time.Since(vanished); next.Epoch != 3 || next.Resume == nil || next.Resume.Run != run || waited < o.Beat*4 {
						t.Errorf("%+v after %v", next, waited)
					}
					mustFinish(t, next)
				})
			})
		}
	}
}
