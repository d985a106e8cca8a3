package election

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/internal/testkit"
	"github.com/queuepump/queuepump/pump/storage"
)

func TestALeaderWhoseTrustEndedWritesNothingMoreEvenIfNobodyTookOver(t *testing.T) {
	testkit.OnServer(t, "a", func(t *testing.T, server *testkit.Server, client *testkit.Client) {
		term := standFor(t, candidate(client, "a"), time.Second)
		// As after a stop: the time is over, and the alarm has not rung yet.
		term.alarm.Stop()
		term.mu.Lock()
		term.trustEnds = time.Now()
		term.mu.Unlock()
		before := client.Writes(electionKey)
		proof.Is(t, term.Save(t.Context(), []byte("x")), ErrTrustEnded, "saved")
		proof.Is(t, context.Cause(term.Context()), ErrTrustEnded, "ended by")
		<-term.done
		proof.Same(t, client.Writes(electionKey)-before, 0, "writes")
	})
}

func TestFinishWithTheTermsOwnContextStillWaitsForTheAnswer(t *testing.T) {
	testkit.OnServer(t, "a", func(t *testing.T, server *testkit.Server, client *testkit.Client) {
		term := standFor(t, candidate(client, "a"), time.Second)
		ctx, cancel := context.WithTimeout(term.Context(), time.Minute)
		defer cancel()
		client.SetFault(func(testkit.Call) testkit.Fault { return testkit.Fault{Fail: true, Code: storage.Auth} })
		for range 20 {
			if err := term.Finish(ctx); !storage.Is(err, storage.Auth) {
				t.Fatalf("finished with %v", err)
			}
		}
		client.SetFault(testkit.FaultOn("write", electionKey, client.Writes(electionKey)+1, testkit.LostAnswer))
		must(t, term.Finish(ctx))
		proof.Same[any](t, server.Rows[electionKey].Properties["Phase"], string(Idle), "phase")
		next := standFor(t, candidate(server.Client("b"), "b"), 2*time.Minute)
		next.Abandon(next.Context())
		proof.Is(t, next.Finish(t.Context()), ErrTermOver, "finished what was abandoned")
		proof.Same[any](t, server.Rows[electionKey].Properties["Leader"], "", "leader")
	})
}

func TestABeatAnsweredAfterTrustEndedDoesNotRestoreIt(t *testing.T) {
	testkit.OnServer(t, "a", func(t *testing.T, server *testkit.Server, client *testkit.Client) {
		e := candidate(client, "a")
		term := standFor(t, e, time.Second)
		must(t, term.Begin(t.Context(), testkit.RunID(3)))
		// Every beat lands, no answer and no reading back comes through.
		client.SetFault(func(testkit.Call) testkit.Fault { return testkit.Fault{Hang: true, Act: true} })
		began := time.Now()
		<-term.Context().Done()
		proof.Is(t, context.Cause(term.Context()), ErrTrustEnded, "ended by")
		if held := time.Since(began); held > 17*time.Second {
			t.Errorf("trusted for %v", held)
		}
		client.SetFault(nil)
		proof.Is(t, term.Save(t.Context(), nil), ErrDeposed, "saved")
		if term.renew(time.Now()) || term.Trusted() {
			t.Error("trust came back")
		}
		// The same process claims its row again at once, with another epoch.
		again := standFor(t, e, time.Second)
		if again.Epoch != 2 || again.Resume == nil || again.Resume.Run != testkit.RunID(3) {
			t.Errorf("epoch %d, resume %v", again.Epoch, again.Resume)
		}
		mustFinish(t, again)
	})
}

func TestAbandonHandsOverAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		begin bool
		fault testkit.Fault
	}{"in mid-run": {true, testkit.Fault{}}, "before a run": {false, testkit.Fault{}}, "answer lost": {true, testkit.LostAnswer}, "request lost": {true, testkit.LostRequest}} {
		t.Run(name, func(t *testing.T) {
			testkit.OnServer(t, "a", func(t *testing.T, server *testkit.Server, client *testkit.Client) {
				term := standFor(t, candidate(client, "a"), time.Second)
				if c.begin {
					must(t, term.Begin(t.Context(), testkit.RunID(1)))
					mustSave(t, term, "so far")
				}
				client.SetFault(testkit.FaultOn("write", electionKey, client.Writes(electionKey)+1, c.fault))
				term.Abandon(t.Context())
				proof.Is(t, context.Cause(term.Context()), ErrTermOver, "ended by")
				proof.Is(t, term.Save(t.Context(), nil), ErrTermOver, "saved after it")
				next, _, err := candidate(server.Client("b"), "b").Try(t.Context())
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
		client := testkit.NewServer().Client("a")
		term := standFor(t, candidate(client, "a"), time.Second)
		client.Dies()
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
	for name, f := range map[string]testkit.Fault{"nothing lost": {}, "answer lost": testkit.LostAnswer, "request lost": testkit.LostRequest, "late": testkit.LandsLate(20 * time.Millisecond)} {
		t.Run(name, func(t *testing.T) {
			testkit.OnServer(t, "a", func(t *testing.T, server *testkit.Server, client *testkit.Client) {
				term := standFor(t, candidate(client, "a"), time.Second)
				client.SetFault(testkit.FaultOn("write", electionKey, 2, f))
				mustFinish(t, term)
				mustFinish(t, term)
				proof.Same[any](t, server.Rows[electionKey].Properties["Phase"], string(Idle), "phase")
				proof.Is(t, term.Begin(t.Context(), testkit.RunID(1)), ErrTermOver, "began after the end")
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		client := testkit.NewServer().Client("a")
		term := standFor(t, candidate(client, "a"), time.Second)
		client.SetFault(func(testkit.Call) testkit.Fault { return testkit.Fault{Fail: true, Code: storage.Auth} })
		if err := term.Finish(t.Context()); !storage.Is(err, storage.Auth) || !errors.Is(context.Cause(term.Context()), ErrTermOver) {
			t.Errorf("%v, and the term ended by %v", err, context.Cause(term.Context()))
		}
		proof.Is(t, term.Save(t.Context(), nil), ErrTermOver, "saved after Finish")
		client.SetFault(nil)
		mustFinish(t, term)
	})
}

func TestACheckpointMayShrinkAndGrowAndMustFit(t *testing.T) {
	testkit.OnServer(t, "a", func(t *testing.T, server *testkit.Server, client *testkit.Client) {
		e := candidate(client, "a")
		term := standFor(t, e, time.Second)
		if err := term.Begin(t.Context(), codec.RunID{}); err == nil {
			t.Error("began a run without id")
		}
		must(t, term.Begin(t.Context(), testkit.RunID(1)))
		r := electionRowOf(client, "city", Options{Lease: time.Second})
		for _, size := range []int{1, checkpointPart, checkpointPart + 1, MaxCheckpoint, 3, 0, 2 * checkpointPart} {
			want := bytes.Repeat([]byte{byte(size), 1}, size/2+1)[:size]
			must(t, term.Save(t.Context(), want))
			clear(want) // Save keeps its own
			v, err := r.Read(t.Context())
			must(t, err)
			if got := v.Value.checkpoint; len(got) != size || size > 0 && got[0] != byte(size) {
				t.Errorf("%d bytes of %d", len(got), size)
			}
		}
		if err := term.Save(t.Context(), make([]byte, MaxCheckpoint+1)); !errors.Is(err, ErrCheckpointTooLarge) || term.Context().Err() != nil {
			t.Errorf("%v, and the term ended by %v", err, context.Cause(term.Context()))
		}
		// A beat sends none of it again.
		time.Sleep(6 * time.Second)
		last := client.Sent()[len(client.Sent())-1].Write
		if last.Mode != storage.Merge || len(last.Entity.Properties) != 3 {
			t.Errorf("a beat writes %v", last.Entity.Properties)
		}
		mustFinish(t, term)
	})
}

func TestASlowBeatDoesNotPutOffTheNext(t *testing.T) {
	testkit.OnServer(t, "a", func(t *testing.T, server *testkit.Server, client *testkit.Client) {
		client.SetLatency(func(testkit.Call) time.Duration { return 4 * time.Second })
		term := standFor(t, candidate(client, "a"), 10*time.Second)
		time.Sleep(time.Minute)
		mustFinish(t, term)
		history := server.Written()
		for i, e := range history[1:] {
			if gap := e.Modified.Sub(history[i].Modified); gap > 5*time.Second {
				t.Errorf("%v between two beats", gap)
			}
		}
	})
}
