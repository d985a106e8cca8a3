package worlds

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/quarantine"
	"github.com/queuepump/queuepump/pump/storage"
)

// suspected: a task is in quarantine because its processes ended, or so it seemed (P4.2): they were
// killed, were stopped, or lost the message again and again. Without anything of that kind no task
// is suspected.
func (w *simWorld) suspected(poison []string) bool {
	if len(poison) == 0 || slices.ContainsFunc(poison, func(reason string) bool { return reason != codec.ReasonEndsProcess }) {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts["tasks in quarantine as if they had ended their processes"]++
	return w.troubleLocked() >= simAttempts
}

// troubleLocked is how much has gone wrong in all.
func (w *simWorld) troubleLocked() (n int) {
	for _, f := range w.faults {
		n += int(f.Hits())
	}
	s := w.sim.Stats()
	n += int(s.Throttled) + simAnswered(s, "AccountIsDisabled") + simAnswered(s, "QueueNotFound")
	for _, dark := range s.Blackouts {
		n += int(dark)
	}
	for what, times := range w.counts {
		if strings.HasPrefix(what, "crash ") || what == "pause" || what == "clock jump" || what == "stop" || strings.HasPrefix(what, "suspended ") || strings.HasPrefix(what, "operate ") {
			n += times
		}
	}
	return n + max(0, w.counts["start"]-1) // who comes later is given what others have in hand
}

// poison takes everything out of the poison queues: of each task the reasons for which it
// is there, and how often each bad record is.
func (w *simWorld) poison(ctx context.Context) (tasks map[simKey][]string, bad map[string]int, err error) {
	tasks, bad = maps.Clone(w.poisonLost), map[string]int{}
	if len(w.touched) > 0 {
		waits.Wait(ctx, quarantine.Lease) // an operator who died has hidden some
	}
	waits.Wait(ctx, w.judge.back) // what was put before the service's clock was put back is not visible yet
	for _, name := range w.sim.Accounts() {
		q := w.account(name).Queue(workload.PoisonQueue("work"))
		if w.lost[name] != nil {
			q = w.sure(name).Queue(workload.PoisonQueue("work"))
		}
		for {
			ms, err := q.Get(ctx, storage.MaxGet, time.Hour)
			if storage.Is(err, storage.Throttled) {
				time.Sleep(time.Second)
				continue
			}
			if storage.Is(err, storage.Missing) || err == nil && len(ms) == 0 {
				break
			}
			if err != nil {
				return nil, nil, err
			}
			w.leftInQuarantine[name] += len(ms)
			for _, m := range ms {
				if err := w.takePoison(m, tasks, bad); err != nil {
					return nil, nil, err
				}
			}
		}
	}
	return tasks, bad, nil
}

func (w *simWorld) takePoison(m storage.Message, tasks map[simKey][]string, bad map[string]int) error {
	e, err := codec.Open(m.Text, codec.Limits{})
	if err != nil {
		return err
	}
	defer e.Release()
	h := e.Header
	if h.Cause == nil {
		return fmt.Errorf("%v/%d/%v has no cause", h.Run, h.Segment, h.Tasks)
	}
	if h.Cause.Reason == codec.ReasonBadLine {
		bad[string(e.Tasks[0].ID)]++
		return nil
	}
	for n := range h.Tasks.All() {
		key := simKey{h.Run, h.Segment, n}
		tasks[key] = append(tasks[key], h.Cause.Reason)
	}
	return nil
}
