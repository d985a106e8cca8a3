package worlds

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/source"
)

func (w *world) distributor(instance string, s source.Source, o distributor.Options) *distributor.Distributor {
	w.T.Helper()
	d, err := distributor.New(w.Config(instance, w.Cfg.Accounts[0].Queues), s, o)
	must(w.T, err)
	return d
}

func TestOnceEveryTaskIsPutAndTheRunIsSealed(t *testing.T) {
	inWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
		s := &testworld.ListSource{Print: "a", N: 5000}
		var last distributor.Progress
		calls := 0
		summary, err := w.distributor("d", s, distributor.Options{Progress: func(p distributor.Progress) { last = p; calls++ }}).Run(t.Context())
		must(t, err)
		w.Collect().Expect(t, w.Segments(), summary.Run, s, s.N, s.N)
		row := w.RunRow(summary.Run)
		if row.State != workload.RunSealed || row.Tasks != 5000 || testworld.Sum(row.Sealed) != 5000 || row.Mode != "once" {
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
	inWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		s := &testworld.ListSource{Print: "a", N: 100, Key: func(int) string { return "one" }}
		summary, err := w.distributor("d", s, distributor.Options{Pack: 7}).Run(t.Context())
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
			inWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
				s := &testworld.ListSource{Print: "a", N: 3000}
				i := w.Fault(azsim.Rule{Fault: kind, Probability: 0.3, Instance: "d"}, "PutMessage")
				summary, err := w.distributor("d", s, distributor.Options{Pack: 20}).Run(t.Context())
				must(t, err)
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
	inWorld(t, 1, 2, func(c *azsim.Config) { c.Limits.Queue = 20 }, func(t *testing.T, w *world) {
		s := &testworld.ListSource{Print: "a", N: 2000}
		began := time.Now()
		summary, err := w.distributor("d", s, distributor.Options{Pack: 5}).Run(t.Context())
		must(t, err)
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
	inWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
		s := &testworld.ListSource{Print: "a", N: 2000, Pace: 10 * time.Millisecond}
		time.AfterFunc(3*time.Second, func() {
			dark := w.Sim.Inject(azsim.Rule{Service: "queue", Instance: "d", Fault: azsim.FailBefore})
			time.AfterFunc(5*time.Minute, dark.Remove)
		})
		began := time.Now()
		summary, err := w.distributor("d", s, distributor.Options{SealAge: time.Second}).Run(t.Context())
		must(t, err)
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
			inWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
				s := &testworld.ListSource{Print: "a", N: 1000, Pace: 10 * time.Millisecond}
				rule.Instance = "d"
				i := w.Fault(rule, "PutMessage")
				summary, err := w.distributor("d", s, distributor.Options{Pack: 10, SealAge: time.Second}).Run(t.Context())
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
			inWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
				c.rule.Instance = "d"
				w.Fault(c.rule, c.operation)
				summary, err := w.distributor("d", &testworld.ListSource{Print: "a", N: 1000}, distributor.Options{}).Run(t.Context())
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
	inWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		w.Fault(azsim.Rule{Fault: azsim.Answer, Status: 403, Code: "AuthorizationPermissionMismatch", Instance: "d"}, "CreateQueue")
		s := &testworld.ListSource{Print: "a", N: 100}
		summary, err := w.distributor("d", s, distributor.Options{}).Run(t.Context())
		must(t, err)
		w.Collect().Expect(t, w.Segments(), summary.Run, s, 100, 100)
	})
}

func TestAQueueStillBeingDeletedIsGoneRoundAndThenMade(t *testing.T) {
	inWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		must(t, w.Queue("accounta", "work-01").Drop(t.Context()))
		s := &testworld.ListSource{Print: "a", N: 100, Pace: time.Second}
		summary, err := w.distributor("d", s, distributor.Options{}).Run(t.Context())
		must(t, err)
		w.Collect().Expect(t, w.Segments(), summary.Run, s, 100, 100)
	})
}

// A source that is silent for long does not keep the tasks before it waiting.
func TestTasksOfALiveSourceDoNotWait(t *testing.T) {
	inWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		more := make(chan struct{})
		source := source.FromSeq(func(yield func(source.Record, error) bool) {
			_ = yield(source.Record{Key: []byte("k"), Body: []byte("first")}, nil)
			<-more
		})
		s := w.startDistributor(w.distributor("d", source, distributor.Options{}))
		time.Sleep(liveSealAge + 500*time.Millisecond)
		if n := w.Left(); n != 1 {
			t.Errorf("%d messages while the source is silent", n)
		}
		close(more)
		if err := s.wait(); err != nil {
			t.Error(err)
		}
	})
}

// When the queues are the bottleneck, envelopes of a live source fill up: small
// ones would only make the bottleneck narrower.
func TestALiveSourceFasterThanTheQueuesFillsItsEnvelopes(t *testing.T) {
	inWorld(t, 1, 2, func(c *azsim.Config) { c.Limits.Queue = 10 }, func(t *testing.T, w *world) {
		text := testworld.Incompressible(512 << 10)
		const n = 12_000
		source := source.FromSeq(func(yield func(source.Record, error) bool) {
			for i := range n {
				if !yield(source.Record{Key: fmt.Append(nil, i), Body: text[i*7919%(500<<10):][:1500]}, nil) {
					return
				}
			}
		})
		summary, err := w.distributor("d", source, distributor.Options{}).Run(t.Context())
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
	inWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		source := &testworld.ListSource{Print: "a", N: 10_000, Pace: 10 * time.Millisecond}
		s := w.startDistributor(w.distributor("d", source, distributor.Options{}))
		time.Sleep(5 * time.Second)
		s.cancel()
		if err := s.wait(); err == nil || !strings.Contains(err.Error(), "stopped") {
			t.Errorf("got %v", err)
		}
		read := int(s.summary.Tasks)
		if read < 400 || read > 510 {
			t.Errorf("read %d tasks in 5 s", read)
		}
		w.Collect().Expect(t, w.Segments(), s.summary.Run, source, read, read)
		note := fmt.Sprintf("read %d tasks, acknowledged %[1]d of them (%d envelopes", read, s.summary.Envelopes)
		if row := w.RunRow(s.summary.Run); row.State != workload.RunBroken || !strings.Contains(row.Note, note) {
			t.Errorf("the run's row: %+v", row)
		}
	})
}

func TestTheGraceOfAStopIsBounded(t *testing.T) {
	inWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		s := w.startDistributor(w.distributor("d", &testworld.ListSource{Print: "a", N: 10_000, Pace: 10 * time.Millisecond}, distributor.Options{Grace: 7 * time.Second, Pack: 2}))
		time.Sleep(2500 * time.Millisecond)
		w.Fault(azsim.Rule{Fault: azsim.HangBefore, Instance: "d"}, "PutMessage")
		began := time.Now()
		s.cancel()
		if err := s.wait(); err == nil {
			t.Error("no error")
		}
		if took := time.Since(began); took < 6*time.Second || took > 9*time.Second {
			t.Errorf("stopping took %v", took)
		}
		sent := len(w.Collect())
		note := fmt.Sprintf("read %d tasks, acknowledged %d of them", s.summary.Tasks, sent)
		if row := w.RunRow(s.summary.Run); sent == 0 || sent == int(s.summary.Tasks) || !strings.Contains(row.Note, note) {
			t.Errorf("want %q; the run's row: %+v", note, row)
		}
	})
}

// The control account may be what is broken when somebody stops everything.
func TestAStopDoesNotWaitForADarkControlAccount(t *testing.T) {
	for name, every := range map[string]time.Duration{"once": 0, "elected": time.Hour} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
				s := w.startDistributor(w.distributor("d", &testworld.ListSource{Print: "a", N: 10_000, Pace: 10 * time.Millisecond}, distributor.Options{Every: every}))
				time.Sleep(2 * time.Second)
				w.Sim.Inject(azsim.Rule{Instance: "d", Service: "table", Fault: azsim.HangBefore})
				began := time.Now()
				s.cancel()
				_ = s.wait()
				// The tasks that were read are sent in less than a second. Then the rows are tried:
				// the run's, or the checkpoint and the election's; a save may be under way.
				if took := time.Since(began); took > waits.RequestTimeout+2*lastWords+time.Second {
					t.Errorf("stopping took %v", took)
				}
				w.Collect().Expect(t, w.Segments(), s.summary.Run, &testworld.ListSource{N: 10_000}, int(s.summary.Tasks), int(s.summary.Tasks))
			})
		})
	}
}

// working is a distributor at work.
type working struct {
	cancel  context.CancelFunc
	done    chan struct{}
	summary distributor.Summary
	err     error
}

func (w *world) startDistributor(d *distributor.Distributor) *working {
	ctx, cancel := context.WithCancel(w.T.Context())
	s := &working{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		s.summary, s.err = d.Run(ctx)
	}()
	return s
}

func (s *working) wait() error {
	<-s.done
	return s.err
}
