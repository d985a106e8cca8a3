package election

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/testkit"
	"github.com/queuepump/queuepump/pump/storage"
)

// must ends a test with an error.
var must = proof.Must

const electionKey = "city.election/election"

// candidate stands for election on a table with default times.
func candidate(t storage.Table, instance string) *Election {
	return New(t, "city", Options{Instance: instance})
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
	must(t, term.Finish(t.Context()))
}

func mustSave(t *testing.T, term *Term, checkpoint string) {
	t.Helper()
	must(t, term.Save(t.Context(), []byte(checkpoint)))
}

func TestTheFirstLeadsAtOnceAndFinishMakesTheNextDueAfterEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := testkit.NewServer()
		a, b := candidate(server.Client("a"), "a"), candidate(server.Client("b"), "b")
		if s, err := a.Status(t.Context()); err != nil || s != (Status{Phase: Idle}) {
			t.Errorf("before all: %+v, %v", s, err)
		}
		term := standFor(t, a, time.Second)
		if term.Epoch != 1 || term.Resume != nil {
			t.Errorf("epoch %d, resume %v", term.Epoch, term.Resume)
		}
		must(t, term.Begin(t.Context(), testkit.RunID(1)))
		mustSave(t, term, "half way")
		if s, err := b.Status(t.Context()); err != nil || s.Leader != "a" || s.Phase != Running || s.Run != testkit.RunID(1) || s.Checkpoint != 8 || !s.NextRun.IsZero() {
			t.Errorf("running: %+v, %v", s, err)
		}
		if other, _, err := b.Try(t.Context()); other != nil || err != nil {
			t.Errorf("a second leader: %v, %v", other, err)
		}
		time.Sleep(time.Hour) // beating by itself
		must(t, context.Cause(term.Context()))
		mustFinish(t, term)
		finished := time.Now()
		proof.Is(t, context.Cause(term.Context()), ErrTermOver, "the term ended by")
		if s, err := b.Status(t.Context()); err != nil || s.Phase != Idle || s.Run != testkit.RunID(1) || s.Checkpoint != 0 || s.NextRun.Sub(finished).Abs() > time.Minute+time.Second {
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
		server := testkit.NewServer()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		var mu sync.Mutex
		var epochs []uint64
		leading := 0
		var wg sync.WaitGroup
		for i := range 6 {
			name := fmt.Sprint("d", i)
			client := server.Client(name)
			client.SetLatency(func(c testkit.Call) time.Duration {
				return time.Millisecond + time.Duration(testkit.Hash(1, c.Client+c.Op+c.Row, c.N)%uint64(40*time.Millisecond))
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
			proof.Same(t, epoch, uint64(i+1), epochs)
		}
		// 30 s of running and 60 s of waiting, 40 times an hour.
		if len(epochs) < 39 || len(epochs) > 40 {
			t.Errorf("%d distributions in an hour, want 39 or 40", len(epochs))
		}
	})
}

func TestAWinWhoseAnswerWasLostIsRecognised(t *testing.T) {
	for name, f := range map[string]testkit.Fault{"answer lost": testkit.LostAnswer, "throttled": {Fail: true, Act: true, Code: storage.Throttled}, "no answer": {Hang: true, Act: true}, "late": testkit.LandsLate(15 * time.Millisecond)} {
		t.Run(name, func(t *testing.T) {
			testkit.OnServer(t, "a", func(t *testing.T, server *testkit.Server, client *testkit.Client) {
				client.SetFault(testkit.FaultOn("write", electionKey, 1, f))
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
		server := testkit.NewServer()
		a, b := server.Client("a"), server.Client("b")
		a.SetFault(testkit.FaultOn("write", electionKey, 1, testkit.LostRequest))
		// b is quicker than the second look of a, and a's first attempt is lost.
		b.SetLatency(func(testkit.Call) time.Duration { return time.Millisecond })
		var winner *Term
		time.AfterFunc(12*time.Millisecond, func() { winner, _, _ = candidate(b, "b").Try(context.Background()) })
		term, wait, err := candidate(a, "a").Try(t.Context())
		if term != nil || err != nil || wait <= 0 {
			t.Fatalf("%v, %v, %v", term, wait, err)
		}
		synctest.Wait()
		if winner == nil {
			t.Fatal("no instance won")
		}
		mustFinish(t, winner)
	})
}

func TestAWinThatIsLearnedOfTooLateIsVoidAndClaimedAgainWithAnotherEpoch(t *testing.T) {
	testkit.OnServer(t, "a", func(t *testing.T, server *testkit.Server, client *testkit.Client) {
		dark := time.Now().Add(18 * time.Second)
		client.SetFault(func(c testkit.Call) testkit.Fault {
			switch {
			case c.Op == "write" && c.N == 1:
				return testkit.LostAnswer
			case time.Now().Before(dark) && c.N > 1:
				return testkit.LostRequest
			}
			return testkit.Fault{}
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

func TestOptionsThatCannotWorkAreReported(t *testing.T) {
	for name, o := range map[string]Options{
		"no instance":           {},
		"negative period":       {Instance: "a", Every: -1},
		"lease too short":       {Instance: "a", Beat: time.Second, Lease: 2 * time.Second},
		"margin eats the lease": {Instance: "a", Margin: 15 * time.Second},
		"negative margin":       {Instance: "a", Margin: -1},
	} {
		if _, _, err := New(testkit.NewServer().Client("a"), "city", o).Try(t.Context()); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, _, err := New(testkit.NewServer().Client("a"), "a.b", Options{Instance: "a"}).Try(t.Context()); err == nil {
		t.Error("a workload name with a dot: accepted")
	}
	o, err := Options{Instance: "a"}.withDefaults()
	if err != nil || o.Every != time.Minute || o.Beat != 5*time.Second || o.Lease != 20*time.Second || o.Margin != 3*time.Second || o.trust() != 17*time.Second || o.times().Dead() != 23*time.Second {
		t.Errorf("defaults %+v, %v", o, err)
	}
}

func TestADamagedElectionRowElectsNobody(t *testing.T) {
	testkit.OnServer(t, "a", func(t *testing.T, server *testkit.Server, client *testkit.Client) {
		e := candidate(client, "a")
		mustFinish(t, standFor(t, e, time.Second))
		for property, value := range map[string]any{"Phase": "resting", "Run": "run 7", "Epoch": int64(-1), "Lease": "long", row.FormatProperty: int64(9)} {
			good := server.Rows[electionKey].Properties[property]
			server.Rows[electionKey].Properties[property] = value
			if term, _, err := e.Try(t.Context()); term != nil || !errors.Is(err, row.ErrCorrupt) {
				t.Errorf("%s: %v, %v", property, term, err)
			}
			proof.Is(t, proof.ErrOf(e.Status(t.Context())), row.ErrCorrupt, "status", property)
			server.Rows[electionKey].Properties[property] = good
		}
	})
}

func TestNobodyIsElectedBeyondTheLastEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := testkit.NewServer()
		e := candidate(server.Client("a"), "a")
		mustFinish(t, standFor(t, e, time.Second))
		time.Sleep(time.Hour)
		for _, epoch := range []int64{row.MaxEpoch, row.MaxEpoch + 1, math.MaxInt64} {
			server.Rows[electionKey].Properties["Epoch"] = epoch
			if term, _, err := e.Try(t.Context()); term != nil || !errors.Is(err, row.ErrCorrupt) || server.Rows[electionKey].Properties["Epoch"] != epoch {
				t.Errorf("epoch %d: %v, %v", epoch, term, err)
			}
		}
		server.Rows[electionKey].Properties["Epoch"] = int64(row.MaxEpoch - 1)
		term := standFor(t, e, time.Second)
		proof.Same(t, term.Epoch, row.MaxEpoch, "epoch")
		mustFinish(t, term)
	})
}

func TestTryWhileLeadingIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := candidate(testkit.NewServer().Client("a"), "a")
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
		e := candidate(&stopped{testkit.NewServer().Client("a"), 17 * time.Second}, "a")
		if term, wait, err := e.Try(t.Context()); term != nil || err != nil || wait > 5*time.Second {
			t.Fatalf("%v, %v, %v", term, wait, err)
		}
		term := standFor(t, e, 5*time.Second)
		proof.Same(t, term.Epoch, 2, "epoch")
		mustFinish(t, term)
	})
}
