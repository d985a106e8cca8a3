package scenario

import (
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
)

// reading makes a source of loads that has begun, and its reader.
func reading(t *testing.T, o Options, put func() int64, loads ...load) (*taskSource, *reader) {
	t.Helper()
	info, err := find("soak")
	must(t, err)
	must(t, o.fill(info))
	p := &plan{}
	for _, l := range loads {
		p.phases = append(p.phases, phase{load: l})
	}
	r := newRecorder("0123abcd")
	s := newSource("0123abcd", p, &o, r, put)
	opened, err := s.Open(t.Context(), nil)
	must(t, err)
	close(s.begin)
	return s, opened.(*reader)
}

func TestLatencyFromScheduleCountsTheTimeInWhichNobodyTookTheTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Ten tasks are due a second, and one is taken in a second, for ten seconds.
		s, r := reading(t, Options{}, nil, load{until: 10 * time.Second, rate: 10})
		for i := range 10 {
			rec, err := r.Next(t.Context())
			must(t, err)
			got, ok := readTask(rec.Body, "0123abcd")
			due, sent := time.Duration(i)*100*time.Millisecond, time.Duration(i)*time.Second
			if !ok || got.n != uint64(i) || got.at != due || got.sent != sent {
				t.Errorf("task %d: %+v, want it to be due at %v and sent at %v", i, got, due, sent)
			}
			s.record.begins(rec.Body)
			time.Sleep(time.Second)
		}
		proof.Is(t, proof.ErrOf(r.Next(t.Context())), io.EOF, "got … after the end")
		proof.Same(t, s.unsent, 90, "were not sent")
		proof.Same(t, s.record.sent.Load(), 10, "were sent")
		schedule, send := latency(s.record.phase.schedule), latency(s.record.phase.send)
		if schedule.Count != 10 || *schedule.Max < 8.09 || *schedule.Max > 8.11 || *send.Max > 1e-5 {
			t.Errorf("from schedule %v s at most, from send %v s", *schedule.Max, *send.Max)
		}
	})
}

func TestAsManyAsAreTakenKeepsToItsWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		put := int64(0)
		s, r := reading(t, Options{}, func() int64 { return put },
			load{until: time.Second, rate: asTaken, window: 3},
			load{until: 2 * time.Second},
			load{until: 3 * time.Second, rate: asTaken, window: 5, unhandled: true})
		var at []time.Duration
		var bodies [][]byte
		for {
			rec, err := r.Next(t.Context())
			if errors.Is(err, io.EOF) {
				break
			}
			must(t, err)
			got, _ := readTask(rec.Body, "0123abcd")
			proof.Same(t, got.at, noSchedule, "task", got.n, "said to be due at")
			at = append(at, got.sent)
			bodies = append(bodies, append([]byte(nil), rec.Body...))
			switch len(at) {
			case 3: // the window is full; half a second later one of them is handled
				go func() {
					time.Sleep(500 * time.Millisecond)
					s.record.begins(bodies[0])
				}()
			case 4: // and now nothing is until the load is over; then two are known to be put
				put = 2
			}
		}
		if len(at) != 7 || at[2] != 0 || at[3] != 500*time.Millisecond || at[4] != 2*time.Second || at[6] != 2*time.Second {
			t.Errorf("sent at %v", at)
		}
		proof.Same(t, s.unsent, 0, "said not to be sent, where there is no schedule")
	})
}
