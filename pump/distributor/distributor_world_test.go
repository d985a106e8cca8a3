package distributor_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/source"
)

func TestOnceEveryTaskIsPutAndTheRunIsSealed(t *testing.T) {
	testworld.In(t, testworld.Plain, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		s := &testworld.ListSource{Print: "a", N: 5000}
		var last distributor.Progress
		calls := 0
		summary, err := testworld.Made(w, distributor.New, "d", s, distributor.Options{Progress: func(p distributor.Progress) { last = p; calls++ }}).Run(t.Context())
		proof.Must(t, err)
		w.Collect().Expect(t, w.Segments(), summary.Run, s, s.N, s.N)
		row := w.RunRow(summary.Run)
		if row.State != workload.RunSealed || row.Tasks != 5000 || sum(row.Sealed) != 5000 || row.Mode != "once" {
			t.Errorf("the run's row: %+v", row)
		}
		if summary.Tasks != 5000 || summary.Envelopes == 0 || summary.BytesIn == 0 || summary.BytesSent == 0 || summary.Resent != 0 || summary.Resumed {
			t.Errorf("summary %+v", summary)
		}
		if puts := summary.Requests["accounta"]["put"] + summary.Requests["accountb"]["put"]; puts != summary.Envelopes {
			t.Errorf("%d puts for %d envelopes", puts, summary.Envelopes)
		}
		if calls == 0 || last.Tasks != 5000 || last.Envelopes != summary.Envelopes || last.Done != 5000 || last.Total != 5000 {
			t.Errorf("the last of %d reports: %+v", calls, last)
		}
	})
}

func TestPackCapsTheTasksOfAnEnvelope(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		s := &testworld.ListSource{Print: "a", N: 100, Key: func(int) string { return "one" }}
		summary, err := testworld.Made(w, distributor.New, "d", s, distributor.Options{Pack: 7}).Run(t.Context())
		if err != nil || summary.Envelopes != 15 {
			t.Errorf("%d envelopes, %v; want 15", summary.Envelopes, err)
		}
		w.Collect().Expect(t, w.Segments(), summary.Run, s, 100, 100)
	})
}

// Window 2: the answer of a put is lost. The message may be there twice, with
// the same identities; none is missing.
func TestLostAnswersMakeDuplicatesAndLoseNothing(t *testing.T) {
	for _, kind := range []azsim.FaultKind{azsim.AnswerLost, azsim.FailBefore, azsim.CutBody, azsim.HangAfter} {
		t.Run(string(kind), func(t *testing.T) {
			testworld.In(t, testworld.Plain, 2, 2, nil, func(t *testing.T, w *testworld.World) {
				s := &testworld.ListSource{Print: "a", N: 3000}
				i := w.Fault(azsim.Rule{Fault: kind, Probability: 0.3, Instance: "d"}, "PutMessage")
				summary, err := testworld.Made(w, distributor.New, "d", s, distributor.Options{Pack: 20}).Run(t.Context())
				proof.Must(t, err)
				got := w.Collect()
				got.Expect(t, w.Segments(), summary.Run, s, s.N, -1)
				if i.Hits() == 0 || summary.Resent != i.Hits() {
					t.Errorf("%d faults, %d puts sent again", i.Hits(), summary.Resent)
				}
				extra := 0
				for _, bodies := range got {
					extra += len(bodies) - 1
				}
				if kind == azsim.FailBefore && extra > 0 || kind != azsim.FailBefore && extra == 0 {
					t.Errorf("%d extra copies after %s", extra, kind)
				}
				if row := w.RunRow(summary.Run); row.Tasks != 3000 {
					t.Errorf("sealed with %d tasks", row.Tasks)
				}
			})
		})
	}
}

func TestThrottlingSlowsDownAndLosesNothing(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 2, func(c *azsim.Config) { c.Limits.Queue = 20 }, func(t *testing.T, w *testworld.World) {
		s := &testworld.ListSource{Print: "a", N: 2000}
		began := time.Now()
		summary, err := testworld.Made(w, distributor.New, "d", s, distributor.Options{Pack: 5}).Run(t.Context())
		proof.Must(t, err)
		// 400 and some envelopes at 40 a second are 10 s; four times as long is too slow.
		if took := time.Since(began); took > 40*time.Second {
			t.Errorf("took %v", took)
		}
		w.Collect().Expect(t, w.Segments(), summary.Run, s, s.N, -1)
		if summary.Throttled == 0 {
			t.Error("nothing was throttled")
		}
	})
}

func TestDarkQueuesHoldTheRunUpAndLoseNothing(t *testing.T) {
	testworld.In(t, testworld.Plain, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		s := &testworld.ListSource{Print: "a", N: 2000, Pace: 10 * time.Millisecond}
		time.AfterFunc(3*time.Second, func() {
			dark := w.Sim.Inject(azsim.Rule{Service: "queue", Instance: "d", Fault: azsim.FailBefore})
			time.AfterFunc(5*time.Minute, dark.Remove)
		})
		began := time.Now()
		summary, err := testworld.Made(w, distributor.New, "d", s, distributor.Options{SealAge: time.Second}).Run(t.Context())
		proof.Must(t, err)
		if took := time.Since(began); took < 5*time.Minute || took > 6*time.Minute {
			t.Errorf("took %v", took)
		}
		w.Collect().Expect(t, w.Segments(), summary.Run, s, s.N, s.N)
		if w.Logged("a queue does not take messages") == 0 || w.Logged("the queue takes messages again") == 0 {
			t.Error("the log does not tell of the dark queues")
		}
	})
}

// Window 38 and 33: a queue that has taken messages and then refuses the credential or is gone
// pauses.
func TestAQueueThatStopsTakingMessagesIsWaitedFor(t *testing.T) {
	for name, rule := range map[string]azsim.Rule{
		"refused credential": {Fault: azsim.Answer, Status: 403, Code: "AuthenticationFailed", Skip: 5, First: 40},
		"missing queue":      {Fault: azsim.Answer, Status: 404, Code: "QueueNotFound", Skip: 5, First: 40},
	} {
		t.Run(name, func(t *testing.T) {
			testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
				s := &testworld.ListSource{Print: "a", N: 1000, Pace: 10 * time.Millisecond}
				rule.Instance = "d"
				i := w.Fault(rule, "PutMessage")
				summary, err := testworld.Made(w, distributor.New, "d", s, distributor.Options{Pack: 10, SealAge: time.Second}).Run(t.Context())
				if err != nil || i.Hits() != 40 {
					t.Fatalf("%d faults, %v", i.Hits(), err)
				}
				w.Collect().Expect(t, w.Segments(), summary.Run, s, s.N, s.N)
			})
		})
	}
}

func TestARequestThatCanNeverSucceedIsAnError(t *testing.T) {
	for name, c := range map[string]struct {
		rule      azsim.Rule
		operation string
		broken    bool // the run had begun
	}{
		"invalid queue":   {azsim.Rule{Account: "accountb", Fault: azsim.Answer, Status: 400, Code: "InvalidInput"}, "CreateQueue", false},
		"invalid message": {azsim.Rule{Account: "accountb", Fault: azsim.Answer, Status: 400, Code: "InvalidXmlDocument"}, "PutMessage", true},
	} {
		t.Run(name, func(t *testing.T) {
			testworld.In(t, testworld.Plain, 2, 2, nil, func(t *testing.T, w *testworld.World) {
				c.rule.Instance = "d"
				w.Fault(c.rule, c.operation)
				summary, err := testworld.Made(w, distributor.New, "d", &testworld.ListSource{Print: "a", N: 1000}, distributor.Options{}).Run(t.Context())
				if err == nil || !strings.Contains(err.Error(), "accountb") {
					t.Fatalf("got %v, want an error that names the account", err)
				}
				if c.broken {
					if row := w.RunRow(summary.Run); row.State != workload.RunBroken || !strings.Contains(row.Note, "accountb") {
						t.Errorf("the run's row: %+v", row)
					}
				} else if !summary.Run.IsZero() || w.Left() > 0 {
					t.Errorf("a run was begun: %+v", summary)
				}
			})
		})
	}
}

func TestACredentialThatMayOnlyAddIsEnough(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		w.Fault(azsim.Rule{Fault: azsim.Answer, Status: 403, Code: "AuthorizationPermissionMismatch", Instance: "d"}, "CreateQueue")
		s := &testworld.ListSource{Print: "a", N: 100}
		summary, err := testworld.Made(w, distributor.New, "d", s, distributor.Options{}).Run(t.Context())
		proof.Must(t, err)
		w.Collect().Expect(t, w.Segments(), summary.Run, s, 100, 100)
	})
}

func TestAQueueStillBeingDeletedIsGoneRoundAndThenMade(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		proof.Must(t, w.Queue("accounta", "work-01").Drop(t.Context()))
		s := &testworld.ListSource{Print: "a", N: 100, Pace: time.Second}
		summary, err := testworld.Made(w, distributor.New, "d", s, distributor.Options{}).Run(t.Context())
		proof.Must(t, err)
		w.Collect().Expect(t, w.Segments(), summary.Run, s, 100, 100)
	})
}

// A source that is silent for long does not keep the tasks before it waiting.
func TestTasksOfALiveSourceDoNotWait(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		more := make(chan struct{})
		source := source.FromSeq(func(yield func(source.Record, error) bool) {
			_ = yield(source.Record{Key: []byte("k"), Body: []byte("first")}, nil)
			<-more
		})
		s := testworld.Begun(w, distributor.New, "d", source, distributor.Options{})
		time.Sleep(liveSealAge + 500*time.Millisecond)
		proof.Same(t, w.Left(), 1, "messages while the source is silent")
		close(more)
		proof.Must(t, s.Wait())
	})
}

// When the queues are the bottleneck, envelopes of a live source fill up: small
// ones would only make the bottleneck narrower.
func TestALiveSourceFasterThanTheQueuesFillsItsEnvelopes(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 2, func(c *azsim.Config) { c.Limits.Queue = 10 }, func(t *testing.T, w *testworld.World) {
		text := testworld.Incompressible(512 << 10)
		const n = 12_000
		source := source.FromSeq(func(yield func(source.Record, error) bool) {
			for i := range n {
				if !yield(source.Record{Key: fmt.Append(nil, i), Body: text[i*7919%(500<<10):][:1500]}, nil) {
					return
				}
			}
		})
		summary, err := testworld.Made(w, distributor.New, "d", source, distributor.Options{}).Run(t.Context())
		if err != nil || summary.Tasks != n {
			t.Fatalf("%+v, %v", summary, err)
		}
		if summary.Seconds < 2 {
			t.Fatalf("%v s: the queues were no bottleneck", summary.Seconds)
		}
		if packed := summary.Tasks / summary.Envelopes; packed < 26 {
			t.Errorf("%d tasks in an envelope, though 35 fit and no more than 64 are sealed at the end", packed)
		}
	})
}

func TestOnceToldToStopSendsWhatItReadAndBreaksTheRun(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		source := &testworld.ListSource{Print: "a", N: 10_000, Pace: 10 * time.Millisecond}
		s := testworld.Begun(w, distributor.New, "d", source, distributor.Options{})
		time.Sleep(5 * time.Second)
		s.Stop()
		proof.Says(t, s.Wait(), "stopped")
		read := int(s.Summary.Tasks)
		if read < 400 || read > 510 {
			t.Errorf("read %d tasks in 5 s", read)
		}
		w.Collect().Expect(t, w.Segments(), s.Summary.Run, source, read, read)
		note := fmt.Sprintf("read %d tasks, acknowledged %[1]d of them (%d envelopes", read, s.Summary.Envelopes)
		if row := w.RunRow(s.Summary.Run); row.State != workload.RunBroken || !strings.Contains(row.Note, note) {
			t.Errorf("the run's row: %+v", row)
		}
	})
}

func TestTheGraceOfAStopIsBounded(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		s := testworld.Begun(w, distributor.New, "d", &testworld.ListSource{Print: "a", N: 10_000, Pace: 10 * time.Millisecond}, distributor.Options{Grace: 7 * time.Second, Pack: 2})
		time.Sleep(2500 * time.Millisecond)
		w.Fault(azsim.Rule{Fault: azsim.HangBefore, Instance: "d"}, "PutMessage")
		began := time.Now()
		s.Stop()
		if err := s.Wait(); err == nil {
			t.Error("no error")
		}
		if took := time.Since(began); took < 6*time.Second || took > 9*time.Second {
			t.Errorf("stopping took %v", took)
		}
		sent := len(w.Collect())
		note := fmt.Sprintf("read %d tasks, acknowledged %d of them", s.Summary.Tasks, sent)
		if row := w.RunRow(s.Summary.Run); sent == 0 || sent == int(s.Summary.Tasks) || !strings.Contains(row.Note, note) {
			t.Errorf("want %q; the run's row: %+v", note, row)
		}
	})
}

// The control account may be what is broken when somebody stops everything.
func TestAStopDoesNotWaitForADarkControlAccount(t *testing.T) {
	for name, every := range map[string]time.Duration{"once": 0, "elected": time.Hour} {
		t.Run(name, func(t *testing.T) {
			testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
				s := testworld.Begun(w, distributor.New, "d", &testworld.ListSource{Print: "a", N: 10_000, Pace: 10 * time.Millisecond}, distributor.Options{Every: every})
				time.Sleep(2 * time.Second)
				w.Sim.Inject(azsim.Rule{Instance: "d", Service: "table", Fault: azsim.HangBefore})
				began := time.Now()
				s.Stop()
				_ = s.Wait()
				// The tasks that were read are sent in less than a second. Then the rows are tried:
				// the run's, or the checkpoint and the election's; a save may be under way.
				if took := time.Since(began); took > waits.RequestTimeout+2*lastWords+time.Second {
					t.Errorf("stopping took %v", took)
				}
				w.Collect().Expect(t, w.Segments(), s.Summary.Run, &testworld.ListSource{N: 10_000}, int(s.Summary.Tasks), int(s.Summary.Tasks))
			})
		})
	}
}

// What does not end while the control account is dark is told at once, then more and more seldom,
// and when it is over.
func TestADarkControlAccountIsToldMoreAndMoreSeldom(t *testing.T) {
	for line, tt := range map[string]struct {
		over string
		o    distributor.Options
	}{
		"the election row could not be read or written": {"the election row can be read and written again", distributor.Options{Every: time.Hour}},
		"it is not known who sends the run":             {"it is known again who sends the run", distributor.Options{Name: "x", Wait: &pump.WaitOptions{}}},
	} {
		t.Run(line, func(t *testing.T) {
			testworld.In(t, testworld.Once, 2, 2, nil, func(t *testing.T, w *testworld.World) {
				var ds []*testworld.Started[*distributor.Distributor, distributor.Summary]
				for _, instance := range []string{"d", "e"} {
					ds = append(ds, testworld.Begun(w, distributor.New, instance, &testworld.ListSource{Print: "a", N: 10_000, Pace: time.Second}, tt.o))
					time.Sleep(10 * time.Second)
				}
				w.Sim.Blackout("accounta", true)
				time.Sleep(10 * time.Minute)
				w.Sim.Blackout("accounta", false)
				time.Sleep(2 * time.Minute)
				for _, d := range ds {
					d.Stop()
					_ = d.Wait()
				}
				// At 0, 1, 2, 4 and 8 minutes in both.
				if n, over := w.Logged(line), w.Logged(tt.over); n < 5 || n > 10 || over < 1 || over > 2 {
					t.Errorf("told %d times, and %d times that it was over", n, over)
				}
				for _, short := range []string{"beat failed", "the checkpoint could not be saved"} { // until trust ends
					if n := w.Logged(short); n > 2 {
						t.Errorf("%q is told %d times", short, n)
					}
				}
			})
		})
	}
}

// nudges records what is sent.
type nudges struct {
	mu  sync.Mutex
	all []pump.Nudge
}

func (n *nudges) send(_ context.Context, what pump.Nudge) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if what.Queue != "" {
		n.all = append(n.all, what)
	}
	return nil
}

func (n *nudges) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.all)
}

// P8.2: the first put into a queue that has been quiet is worth a nudge.
func TestTheOwnerOfAQuietQueueIsNudgedOnceAndNotUnderLoad(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		p := w.Owner("p")
		defer p.Leave(t.Context())
		var n nudges
		cfg := w.Config("d", 1)
		cfg.Nudge = n.send
		say := make(chan int)
		source := source.FromSeq(func(yield func(source.Record, error) bool) {
			for i := range say {
				if !yield(source.Record{Key: []byte{byte(i)}, Body: []byte("x")}, nil) {
					return
				}
			}
		})
		dist, err := distributor.New(cfg, source, distributor.Options{SealAge: 100 * time.Millisecond})
		proof.Must(t, err)
		d := testworld.Start(w.T, dist)
		say <- 0
		time.Sleep(time.Second)
		if n.count() != 1 {
			t.Fatalf("%d nudges for the first put into a quiet queue", n.count())
		}
		if got := n.all[0]; got.Queue != "accounta/work-00" || got.Instance != "p" || got.Address != "here:1" {
			t.Errorf("nudged %+v", got)
		}
		for i := range 100 {
			say <- i
			time.Sleep(100 * time.Millisecond)
		}
		if n.count() > 2 { // the first of these may come after a second of quiet
			t.Errorf("%d nudges under load", n.count())
		}
		before := n.count()
		time.Sleep(5 * time.Second)
		say <- 1
		time.Sleep(time.Second)
		if n.count() != before+1 {
			t.Errorf("%d nudges after five quiet seconds, want 1", n.count()-before)
		}
		close(say)
		proof.Must(t, d.Wait())
	})
}

// A client that is gone after one task still tells the owner of it.
func TestAShortRunNudgesToo(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		p := w.Owner("p")
		defer p.Leave(t.Context())
		var n nudges
		cfg := w.Config("d", 1)
		cfg.Nudge = n.send
		dist, err := distributor.New(cfg, &testworld.ListSource{Print: "a", N: 1}, distributor.Options{})
		proof.Must(t, err)
		began := time.Now()
		proof.Must(t, proof.ErrOf(dist.Run(t.Context())))
		if took := time.Since(began); n.count() != 1 || took > time.Second {
			t.Errorf("%d nudges in %v", n.count(), took)
		}
	})
}

// A distributor is a member for the time of Run, a candidate too.
func TestADistributorIsAMemberWhileItRuns(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		s := &testworld.ListSource{Print: "a", N: 1000, Pace: 10 * time.Millisecond}
		leader := testworld.Begun(w, distributor.New, "d1", s, distributor.Options{Every: time.Hour, SealAge: time.Second})
		time.Sleep(time.Second)
		candidate := testworld.Begun(w, distributor.New, "d2", s, distributor.Options{Every: time.Hour})
		time.Sleep(8 * time.Second)
		v := w.View()
		if len(v.Members) != 2 || v.Members[0].Instance != "d1" || v.Members[1].Instance != "d2" {
			t.Fatalf("members %+v", v.Members)
		}
		for i, m := range v.Members {
			if m.Role != cluster.RoleDistributor || i == 0 && (m.Rate < 50 || m.Rate > 200 || m.Tasks == 0) {
				t.Errorf("member %+v", m)
			}
		}
		leader.Stop()
		candidate.Stop()
		proof.Must(t, leader.Wait())
		proof.Must(t, candidate.Wait())
		if v := w.View(); len(v.Members) != 0 {
			t.Errorf("members after the end: %+v", v.Members)
		}
	})
}

// A distributor that cannot join still distributes.
func TestADistributorThatCannotJoinDistributes(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		taken := w.Owner("d") // somebody alive has its name
		defer taken.Leave(t.Context())
		s := &testworld.ListSource{Print: "a", N: 3000}
		began := time.Now()
		summary, err := testworld.Made(w, distributor.New, "d", s, distributor.Options{}).Run(t.Context())
		proof.Must(t, err)
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("took %v", took)
		}
		w.Collect().Expect(t, w.Segments(), summary.Run, s, s.N, s.N)
	})
}

// sum adds up.
func sum(counts []uint64) (n uint64) {
	for _, c := range counts {
		n += c
	}
	return n
}
