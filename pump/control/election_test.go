package control

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump/storage"
)

const electionKey = "city.election/election"

// candidate stands for election on a table with default times.
func candidate(t storage.Table, instance string) *Election {
	return NewElection(t, "city", ElectionOptions{Instance: instance})
}

// stand looks again and again, as a distributor does, until it leads or ctx ends.
func stand(ctx context.Context, e *Election) *Term {
	for ctx.Err() == nil {
		term, wait, _ := e.Try(ctx)
		if term != nil {
			return term
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
	return nil
}

// standFor is stand with a limit.
func standFor(t *testing.T, e *Election, limit time.Duration) *Term {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	term := stand(ctx, e)
	if term == nil {
		t.Fatalf("%s does not lead after %v", e.options.Instance, limit)
	}
	return term
}

func mustFinish(t *testing.T, term *Term) {
	t.Helper()
	if err := term.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func mustSave(t *testing.T, term *Term, checkpoint string) {
	t.Helper()
	if err := term.Save(t.Context(), []byte(checkpoint)); err != nil {
		t.Fatal(err)
	}
}

// dies makes a machine disappear: its beats reach nobody and it hears nothing.
func (c *fakeClient) dies() { c.setFault(func(call) fault { return fault{hang: true} }) }

func TestTheFirstLeadsAtOnceAndFinishMakesTheNextDueAfterEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newFakeServer()
		a, b := candidate(server.client("a"), "a"), candidate(server.client("b"), "b")
		if s, err := a.Status(t.Context()); err != nil || s != (Status{Phase: Idle}) {
			t.Errorf("before all: %+v, %v", s, err)
		}
		term := standFor(t, a, time.Second)
		if term.Epoch != 1 || term.Resume != nil {
			t.Errorf("epoch %d, resume %v", term.Epoch, term.Resume)
		}
		if err := term.Begin(t.Context(), runID(1)); err != nil {
			t.Fatal(err)
		}
		mustSave(t, term, "half way")
		if s, err := b.Status(t.Context()); err != nil || s.Leader != "a" || s.Phase != Running || s.Run != runID(1) || s.Checkpoint != 8 || !s.NextRun.IsZero() {
			t.Errorf("running: %+v, %v", s, err)
		}
		if other, _, err := b.Try(t.Context()); other != nil || err != nil {
			t.Errorf("a second leader: %v, %v", other, err)
		}
		time.Sleep(time.Hour) // beating by itself
		if err := term.Context().Err(); err != nil {
			t.Fatal(context.Cause(term.Context()))
		}
		mustFinish(t, term)
		finished := time.Now()
		if cause := context.Cause(term.Context()); !errors.Is(cause, ErrTermOver) {
			t.Errorf("the term ended by %v", cause)
		}
		if s, err := b.Status(t.Context()); err != nil || s.Phase != Idle || s.Run != runID(1) || s.Checkpoint != 0 || s.NextRun.Sub(finished).Abs() > time.Minute+time.Second {
			t.Errorf("idle: %+v, %v", s, err)
		}
		next := standFor(t, b, 2*time.Minute)
		if after := time.Since(finished); after < time.Minute-10*time.Millisecond || after > time.Minute+100*time.Millisecond {
			t.Errorf("the next distribution began %v after the last ended, want a minute", after)
		}
		if next.Epoch != 2 || next.Resume != nil {
			t.Errorf("epoch %d, resume %v", next.Epoch, next.Resume)
		}
		mustFinish(t, next)
	})
}

func TestExactlyOneOfManyRunsEachDistribution(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newFakeServer()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		var mu sync.Mutex
		var epochs []uint64
		leading := 0
		var wg sync.WaitGroup
		for i := range 6 {
			name := fmt.Sprint("d", i)
			client := server.client(name)
			client.setLatency(func(c call) time.Duration {
				return time.Millisecond + time.Duration(hash(1, c.client+c.op+c.row, c.n)%uint64(40*time.Millisecond))
			})
			e := candidate(client, name)
			wg.Go(func() {
				for {
					term := stand(ctx, e)
					if term == nil {
						return
					}
					mu.Lock()
					if leading++; leading > 1 {
						t.Error("two lead at once")
					}
					epochs = append(epochs, term.Epoch)
					mu.Unlock()
					time.Sleep(30 * time.Second)
					mu.Lock()
					leading--
					mu.Unlock()
					mustFinish(t, term)
				}
			})
		}
		wg.Wait()
		for i, epoch := range epochs {
			if epoch != uint64(i+1) {
				t.Fatalf("epochs %v", epochs)
			}
		}
		// 30 s of running and 60 s of waiting, 40 times an hour.
		if len(epochs) < 39 || len(epochs) > 40 {
			t.Errorf("%d distributions in an hour, want 39 or 40", len(epochs))
		}
	})
}

func TestAWinWhoseAnswerWasLostIsRecognised(t *testing.T) {
	for name, f := range map[string]fault{"answer lost": lostAnswer, "throttled": {fail: true, act: true, code: storage.Throttled}, "no answer": {hang: true, act: true}, "late": landsLate(15 * time.Millisecond)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newFakeServer()
				client := server.client("a")
				client.setFault(only("write", electionKey, 1, f))
				began := time.Now()
				term, _, err := candidate(client, "a").Try(t.Context())
				if err != nil || term == nil || term.Epoch != 1 {
					t.Fatalf("%v, %v", term, err)
				}
				// Trust counts from the first attempt, however long it took to learn.
				if ends := term.trustEnds.Sub(began); ends > 17*time.Second+10*time.Millisecond {
					t.Errorf("trusted for %v", ends)
				}
				mustSave(t, term, "x")
				mustFinish(t, term)
			})
		})
	}
}

func TestALossWhoseAnswerWasLostIsRecognised(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newFakeServer()
		a, b := server.client("a"), server.client("b")
		a.setFault(only("write", electionKey, 1, lostRequest))
		// b is quicker than the second look of a, and a's first attempt is lost.
		b.setLatency(func(call) time.Duration { return time.Millisecond })
		var winner *Term
		time.AfterFunc(12*time.Millisecond, func() { winner, _, _ = candidate(b, "b").Try(context.Background()) })
		term, wait, err := candidate(a, "a").Try(t.Context())
		if term != nil || err != nil || wait <= 0 {
			t.Fatalf("%v, %v, %v", term, wait, err)
		}
		synctest.Wait()
		if winner == nil {
			t.Fatal("nobody won")
		}
		mustFinish(t, winner)
	})
}

func TestAWinThatIsLearnedOfTooLateIsVoidAndClaimedAgainWithAnotherEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newFakeServer()
		client := server.client("a")
		dark := time.Now().Add(18 * time.Second)
		client.setFault(func(c call) fault {
			switch {
			case c.op == "write" && c.n == 1:
				return lostAnswer
			case time.Now().Before(dark) && c.n > 1:
				return lostRequest
			}
			return fault{}
		})
		e := candidate(client, "a")
		term, _, err := e.Try(t.Context())
		if term != nil || !storage.Ambiguous(err) {
			t.Fatalf("%v, %v", term, err)
		}
		term = standFor(t, e, 10*time.Second) // not a lease: the row names this very process
		if term.Epoch != 2 || term.Resume != nil {
			t.Errorf("epoch %d, resume %v", term.Epoch, term.Resume)
		}
		mustFinish(t, term)
	})
}

func TestADeadLeadersRunAndCheckpointAreHandedToTheNext(t *testing.T) {
	for name, c := range map[string]struct {
		begin      bool
		checkpoint string
		resume     *Resume
	}{
		"before it began a run":    {false, "", nil},
		"before its first save":    {true, "", &Resume{Run: runID(7)}},
		"after it saved":           {true, "line 4711", &Resume{Run: runID(7), Checkpoint: []byte("line 4711")}},
		"after it saved very much": {true, strings.Repeat("0123456789", 20_000), &Resume{Run: runID(7), Checkpoint: bytes.Repeat([]byte("0123456789"), 20_000)}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newFakeServer()
				dying := server.client("a")
				b := candidate(server.client("b"), "b")
				term := standFor(t, candidate(dying, "a"), time.Second)
				if c.begin {
					if err := term.Begin(t.Context(), runID(7)); err != nil {
						t.Fatal(err)
					}
				}
				if c.checkpoint != "" {
					mustSave(t, term, "line 1")
					mustSave(t, term, c.checkpoint)
				}
				time.Sleep(time.Minute)
				dying.dies()
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
				if next.Epoch != 2 {
					t.Errorf("epoch %d", next.Epoch)
				}
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
			synctest.Test(t, func(t *testing.T) {
				server := newFakeServer()
				sleeper := server.client("a")
				zombie := standFor(t, candidate(sleeper, "a"), time.Second)
				if err := zombie.Begin(t.Context(), runID(1)); err != nil {
					t.Fatal(err)
				}
				mustSave(t, zombie, "mine")
				// Its beats do not go out while it sleeps, and its alarm does not ring.
				thaw := make(chan struct{})
				sleeper.setLatency(func(call) time.Duration {
					<-thaw
					return 10 * time.Millisecond
				})
				zombie.alarm.Stop()
				next := standFor(t, candidate(server.client("b"), "b"), time.Minute)
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
				if err := <-saved; !errors.Is(err, ErrDeposed) {
					t.Errorf("saved: %v", err)
				}
				if cause := context.Cause(zombie.Context()); !errors.Is(cause, ErrDeposed) {
					t.Errorf("the term ended by %v", cause)
				}
				if err := zombie.Finish(t.Context()); !errors.Is(err, ErrDeposed) {
					t.Errorf("finished: %v", err)
				}
				zombie.Abandon(t.Context())
				if s, err := candidate(server.client("c"), "c").Status(t.Context()); err != nil || s.Leader != "b" || s.Epoch != 2 || s.Phase != Running || s.Checkpoint != len("theirs") {
					t.Errorf("%+v, %v", s, err)
				}
				mustFinish(t, next)
			})
		})
	}
}

func TestALeaderWhoseTrustEndedWritesNothingMoreEvenIfNobodyTookOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newFakeServer()
		client := server.client("a")
		term := standFor(t, candidate(client, "a"), time.Second)
		// As after a stop: the time is over, and the alarm has not rung yet.
		term.alarm.Stop()
		term.mu.Lock()
		term.trustEnds = time.Now()
		term.mu.Unlock()
		before := client.writes(electionKey)
		if err := term.Save(t.Context(), []byte("x")); !errors.Is(err, ErrTrustEnded) {
			t.Errorf("saved: %v", err)
		}
		if cause := context.Cause(term.Context()); !errors.Is(cause, ErrTrustEnded) {
			t.Errorf("ended by %v", cause)
		}
		<-term.done
		if n := client.writes(electionKey) - before; n != 0 {
			t.Errorf("%d writes", n)
		}
	})
}

func TestABeatAnsweredAfterTrustEndedDoesNotRestoreIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newFakeServer()
		client := server.client("a")
		e := candidate(client, "a")
		term := standFor(t, e, time.Second)
		if err := term.Begin(t.Context(), runID(3)); err != nil {
			t.Fatal(err)
		}
		// Every beat lands, no answer and no reading back comes through.
		client.setFault(func(call) fault { return fault{hang: true, act: true} })
		began := time.Now()
		<-term.Context().Done()
		if cause := context.Cause(term.Context()); !errors.Is(cause, ErrTrustEnded) {
			t.Errorf("ended by %v", cause)
		}
		if held := time.Since(began); held > 17*time.Second {
			t.Errorf("trusted for %v", held)
		}
		client.setFault(nil)
		if err := term.Save(t.Context(), nil); !errors.Is(err, ErrDeposed) {
			t.Errorf("saved: %v", err)
		}
		if term.renew(time.Now()) || term.trusted() {
			t.Error("trust came back")
		}
		// The same process claims its row again at once, with another epoch.
		again := standFor(t, e, time.Second)
		if again.Epoch != 2 || again.Resume == nil || again.Resume.Run != runID(3) {
			t.Errorf("epoch %d, resume %v", again.Epoch, again.Resume)
		}
		mustFinish(t, again)
	})
}

func TestADarkControlPlaneMakesNobodyDeclareTheLeaderDead(t *testing.T) {
	for _, dark := range []time.Duration{8 * time.Second, 12 * time.Second, time.Minute, time.Hour} {
		t.Run(dark.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newFakeServer()
				from := time.Now().Add(20 * time.Second)
				blackout := func(call) fault {
					since := time.Since(from)
					return map[bool]fault{true: lostRequest}[since >= 0 && since < dark]
				}
				ctx, cancel := context.WithCancel(t.Context())
				leader := server.client("a")
				leader.setFault(blackout)
				a := candidate(leader, "a")
				term := standFor(t, a, time.Second)
				if err := term.Begin(t.Context(), runID(1)); err != nil {
					t.Fatal(err)
				}
				var wg sync.WaitGroup
				for _, name := range []string{"b", "c", "d"} {
					observer := server.client(name)
					observer.setFault(blackout)
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
					if term.Resume == nil || term.Resume.Run != runID(1) {
						t.Errorf("resume %v", term.Resume)
					}
				}
				time.Sleep(time.Minute)
				if term.Context().Err() != nil {
					t.Error(context.Cause(term.Context()))
				}
				cancel()
				wg.Wait()
				mustFinish(t, term)
			})
		})
	}
}

func TestTimeWithoutReadsDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, err := ElectionOptions{Instance: "x"}.withDefaults()
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		at := func(etag storage.ETag, seconds float64) version[electionRow] {
			sent := begin.Add(time.Duration(seconds * float64(time.Second)))
			return version[electionRow]{etag: etag, sent: sent, received: sent.Add(10 * time.Millisecond)}
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
			var w watch
			alive := true
			for _, s := range reads.times {
				alive = w.look(at("v1", s), o)
			}
			if alive != reads.alive {
				t.Errorf("%s: alive %v", name, alive)
			}
			if !w.look(at("v2", reads.times[len(reads.times)-1]+1), o) {
				t.Errorf("%s: dead right after a beat", name)
			}
		}
	})
}

func TestAnObserverWithShorterTimesGivesTheLeaderItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newFakeServer()
		slow := NewElection(server.client("a"), "city", ElectionOptions{Instance: "a", Beat: 20 * time.Second})
		term := standFor(t, slow, time.Second)
		quick := NewElection(server.client("b"), "city", ElectionOptions{Instance: "b", Beat: time.Second})
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
	synctest.Test(t, func(t *testing.T) {
		server := newFakeServer()
		killed := server.client("a")
		old := standFor(t, candidate(killed, "a"), time.Second)
		killed.dies()
		began := time.Now()
		again := standFor(t, candidate(server.client("a again"), "a"), time.Minute)
		if waited := time.Since(began); waited < 23*time.Second {
			t.Errorf("took the row after %v", waited)
		}
		<-old.Context().Done()
		mustFinish(t, again)
		<-old.done
	})
}

func TestAbandonHandsOverAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		begin bool
		fault fault
	}{"in mid-run": {true, fault{}}, "before a run": {false, fault{}}, "answer lost": {true, lostAnswer}, "request lost": {true, lostRequest}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newFakeServer()
				client := server.client("a")
				term := standFor(t, candidate(client, "a"), time.Second)
				if c.begin {
					if err := term.Begin(t.Context(), runID(1)); err != nil {
						t.Fatal(err)
					}
					mustSave(t, term, "so far")
				}
				client.setFault(only("write", electionKey, client.writes(electionKey)+1, c.fault))
				term.Abandon(t.Context())
				if cause := context.Cause(term.Context()); !errors.Is(cause, ErrTermOver) {
					t.Errorf("ended by %v", cause)
				}
				if err := term.Save(t.Context(), nil); !errors.Is(err, ErrTermOver) {
					t.Errorf("saved after it: %v", err)
				}
				next, _, err := candidate(server.client("b"), "b").Try(t.Context())
				if err != nil || next == nil {
					t.Fatalf("not at once: %v", err)
				}
				if next.Epoch != 2 || (next.Resume != nil) != c.begin || c.begin && string(next.Resume.Checkpoint) != "so far" {
					t.Errorf("epoch %d, resume %+v", next.Epoch, next.Resume)
				}
				mustFinish(t, next)
			})
		})
	}
}

func TestAbandonThatCannotBeWrittenEndsTheTermWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := newFakeServer().client("a")
		term := standFor(t, candidate(client, "a"), time.Second)
		client.dies()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		began := time.Now()
		term.Abandon(ctx)
		if took := time.Since(began); took != 3*time.Second || term.Context().Err() == nil {
			t.Errorf("after %v: %v", took, context.Cause(term.Context()))
		}
	})
}

func TestFinishIsAmbiguousSafeAndMayBeCalledAgain(t *testing.T) {
	for name, f := range map[string]fault{"nothing lost": {}, "answer lost": lostAnswer, "request lost": lostRequest, "late": landsLate(20 * time.Millisecond)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newFakeServer()
				client := server.client("a")
				term := standFor(t, candidate(client, "a"), time.Second)
				client.setFault(only("write", electionKey, 2, f))
				mustFinish(t, term)
				mustFinish(t, term)
				if got := server.rows[electionKey].Properties["Phase"]; got != string(Idle) {
					t.Errorf("phase %v", got)
				}
				if err := term.Begin(t.Context(), runID(1)); !errors.Is(err, ErrTermOver) {
					t.Errorf("began after the end: %v", err)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		client := newFakeServer().client("a")
		term := standFor(t, candidate(client, "a"), time.Second)
		client.setFault(func(call) fault { return fault{fail: true, code: storage.Auth} })
		if err := term.Finish(t.Context()); !storage.Is(err, storage.Auth) || !errors.Is(context.Cause(term.Context()), ErrTermOver) {
			t.Errorf("%v, and the term ended by %v", err, context.Cause(term.Context()))
		}
		if err := term.Save(t.Context(), nil); !errors.Is(err, ErrTermOver) {
			t.Errorf("saved after Finish: %v", err)
		}
		client.setFault(nil)
		mustFinish(t, term)
	})
}

func TestClocksTenMinutesOffChangeNothing(t *testing.T) {
	// The schedule of a server and three machines, none of whose clocks agree,
	// is that of right clocks.
	schedule := func(server, a, b, c time.Duration) (starts []time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			s := newFakeServer()
			s.offset = server
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
			defer cancel()
			var wg sync.WaitGroup
			var mu sync.Mutex
			for i, off := range []time.Duration{a, b, c} {
				name := fmt.Sprint("m", i)
				table := Seeded(skewed{s.client(name), off}, seededDraw(5, name))
				e := NewElection(table, "city", ElectionOptions{Instance: name, Every: 3 * time.Minute})
				wg.Go(func() {
					for {
						term := stand(ctx, e)
						if term == nil {
							return
						}
						mu.Lock()
						starts = append(starts, time.Since(began))
						mu.Unlock()
						time.Sleep(20 * time.Second)
						mustFinish(t, term)
					}
				})
			}
			wg.Wait()
		})
		return starts
	}
	right := schedule(0, 0, 0, 0)
	if len(right) != 9 { // 200 s each
		t.Fatalf("%d distributions in half an hour: %v", len(right), right)
	}
	const off = 10 * time.Minute
	for _, o := range [][4]time.Duration{{off, 0, 0, 0}, {-off, 0, 0, 0}, {0, off, -off, 0}, {0, -off, off, off}, {off, off, off, -off}} {
		got := schedule(o[0], o[1], o[2], o[3])
		if !slices.EqualFunc(got, right, func(x, y time.Duration) bool { return (x - y).Abs() < time.Second }) {
			t.Errorf("with offsets %v the distributions begin at %v, with right clocks at %v", o, got, right)
		}
	}
}

func TestACandidateThatStartsAnewKnowsHowMuchOfThePeriodIsLeft(t *testing.T) {
	for name, c := range map[string]struct {
		started time.Duration // after the last distribution ended
		every   time.Duration // of the new one; the old one's is a day
		due     time.Duration // after it started
	}{
		"in the middle":      {20 * time.Hour, 24 * time.Hour, 4 * time.Hour},
		"at the end":         {24 * time.Hour, 24 * time.Hour, 0},
		"long after":         {100 * time.Hour, 24 * time.Hour, 0},
		"with a shorter one": {time.Minute, time.Hour, 59 * time.Minute},
		"with a longer one":  {20 * time.Hour, 48 * time.Hour, 4 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newFakeServer()
				server.offset = -7 * time.Minute
				old := NewElection(server.client("a"), "city", ElectionOptions{Instance: "a", Every: 24 * time.Hour})
				mustFinish(t, standFor(t, old, time.Second))
				time.Sleep(c.started)
				began := time.Now()
				e := NewElection(server.client("b"), "city", ElectionOptions{Instance: "b", Every: c.every})
				mustFinish(t, standFor(t, e, 25*time.Hour))
				if waited := time.Since(began); (waited - c.due).Abs() > time.Second {
					t.Errorf("began after %v, want %v", waited, c.due)
				}
			})
		})
	}
}

func TestTheServersClockIsOnlyLearnedFromAnAcknowledgedWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newFakeServer()
		client := server.client("a")
		e := candidate(client, "a")
		mustFinish(t, standFor(t, e, time.Second))
		// The clock row exists from an hour ago. A lost write must not let it speak.
		if _, _, err := e.clock.read(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		client.setFault(func(c call) fault {
			return map[bool]fault{true: lostRequest}[c.op == "write" && strings.HasSuffix(c.row, "/clock")]
		})
		if term, wait, err := e.Try(t.Context()); term != nil || !storage.Ambiguous(err) || wait > 5*time.Second {
			t.Errorf("%v, %v, %v", term, wait, err)
		}
		client.setFault(nil)
		mustFinish(t, standFor(t, e, time.Second))
	})
}

func TestACheckpointMayShrinkAndGrowAndMustFit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newFakeServer()
		client := server.client("a")
		e := candidate(client, "a")
		term := standFor(t, e, time.Second)
		if err := term.Begin(t.Context(), codec.RunID{}); err == nil {
			t.Error("began a run without id")
		}
		if err := term.Begin(t.Context(), runID(1)); err != nil {
			t.Fatal(err)
		}
		r := electionRowOf(client, "city", time.Second)
		for _, size := range []int{1, checkpointPart, checkpointPart + 1, MaxCheckpoint, 3, 0, 2 * checkpointPart} {
			want := bytes.Repeat([]byte{byte(size), 1}, size/2+1)[:size]
			if err := term.Save(t.Context(), want); err != nil {
				t.Fatal(err)
			}
			clear(want) // Save keeps its own
			v, err := r.read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if got := v.value.checkpoint; len(got) != size || size > 0 && got[0] != byte(size) {
				t.Errorf("%d bytes of %d", len(got), size)
			}
		}
		if err := term.Save(t.Context(), make([]byte, MaxCheckpoint+1)); !errors.Is(err, ErrCheckpointTooLarge) || term.Context().Err() != nil {
			t.Errorf("%v, and the term ended by %v", err, context.Cause(term.Context()))
		}
		// A beat sends none of it again.
		time.Sleep(6 * time.Second)
		last := client.sent()[len(client.sent())-1].write
		if last.Mode != storage.Merge || len(last.Entity.Properties) != 3 {
			t.Errorf("a beat writes %v", last.Entity.Properties)
		}
		mustFinish(t, term)
	})
}

func TestOptionsThatCannotWorkAreReported(t *testing.T) {
	for name, o := range map[string]ElectionOptions{
		"no instance":           {},
		"negative period":       {Instance: "a", Every: -1},
		"lease too short":       {Instance: "a", Beat: time.Second, Lease: 2 * time.Second},
		"margin eats the lease": {Instance: "a", Margin: 15 * time.Second},
		"negative margin":       {Instance: "a", Margin: -1},
	} {
		if _, _, err := NewElection(newFakeServer().client("a"), "city", o).Try(t.Context()); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, _, err := NewElection(newFakeServer().client("a"), "a.b", ElectionOptions{Instance: "a"}).Try(t.Context()); err == nil {
		t.Error("a workload name with a dot: accepted")
	}
	o, err := ElectionOptions{Instance: "a"}.withDefaults()
	if err != nil || o.Every != time.Minute || o.Beat != 5*time.Second || o.Lease != 20*time.Second || o.Margin != 3*time.Second || o.trust() != 17*time.Second || o.dead() != 23*time.Second {
		t.Errorf("defaults %+v, %v", o, err)
	}
}

func TestADamagedElectionRowElectsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newFakeServer()
		client := server.client("a")
		e := candidate(client, "a")
		mustFinish(t, standFor(t, e, time.Second))
		for property, value := range map[string]any{"Phase": "resting", "Run": "run 7", "Epoch": int64(-1), "Lease": "long", formatProperty: int64(9)} {
			good := server.rows[electionKey].Properties[property]
			server.rows[electionKey].Properties[property] = value
			if term, _, err := e.Try(t.Context()); term != nil || !errors.Is(err, ErrCorrupt) {
				t.Errorf("%s: %v, %v", property, term, err)
			}
			if _, err := e.Status(t.Context()); !errors.Is(err, ErrCorrupt) {
				t.Errorf("status with %s: %v", property, err)
			}
			server.rows[electionKey].Properties[property] = good
		}
	})
}

func TestTryWhileLeadingIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := candidate(newFakeServer().client("a"), "a")
		term := standFor(t, e, time.Second)
		if second, _, err := e.Try(t.Context()); second != nil || err == nil {
			t.Errorf("%v, %v", second, err)
		}
		mustFinish(t, term)
	})
}

// stopped is a table whose writes keep a stopped process: it does not even
// notice that its context has ended.
type stopped struct {
	storage.Table
	length time.Duration
}

func (s *stopped) Write(_ context.Context, w storage.Write) (storage.ETag, error) {
	etag, err := s.Table.Write(context.Background(), w)
	time.Sleep(s.length)
	s.length = 0
	return etag, err
}

func TestAWinWhoseAnswerIsSeenAfterItsTrustEndedIsVoid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := candidate(&stopped{newFakeServer().client("a"), 17 * time.Second}, "a")
		if term, wait, err := e.Try(t.Context()); term != nil || err != nil || wait > 5*time.Second {
			t.Fatalf("%v, %v, %v", term, wait, err)
		}
		term := standFor(t, e, 5*time.Second)
		if term.Epoch != 2 {
			t.Errorf("epoch %d", term.Epoch)
		}
		mustFinish(t, term)
	})
}

func TestASlowBeatDoesNotPutOffTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newFakeServer()
		client := server.client("a")
		client.setLatency(func(call) time.Duration { return 4 * time.Second })
		term := standFor(t, candidate(client, "a"), 10*time.Second)
		time.Sleep(time.Minute)
		mustFinish(t, term)
		for i, e := range server.history[1:] {
			if gap := e.Modified.Sub(server.history[i].Modified); gap > 5*time.Second {
				t.Errorf("%v between two beats", gap)
			}
		}
	})
}
