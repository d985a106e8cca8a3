package worlds

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
)

// undone is how many tasks queues have taken that no handler has done.
func (w *simWorld) undone() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key := range w.put {
		if task := w.tasks[key]; task == nil || task.effects == 0 {
			n++
		}
	}
	return n
}

// unfinished says what is still to be done, "" if nothing is. It only counts messages: a peek is
// charged to the queue as a get is, and one of 32 messages every second or two takes half of what a
// queue with a limit of 40 a second lets through.
func (w *simWorld) unfinished(ctx context.Context) string {
	runs, err := w.runs(ctx)
	if err != nil {
		return err.Error()
	}
	sealed := slices.ContainsFunc(w.withGone(runs), func(r workload.Run) bool {
		if w.plan.changes() && r.Ended.Before(w.began.Add(w.calmed)) {
			return false // it says nothing about who can read the files now
		}
		r = w.asSealed(r)
		return r.Mode == "every" && r.State != workload.RunOpen && r.State != workload.RunBroken
	})
	if !sealed {
		return "the elected distributors have not sealed a run"
	}
	w.mu.Lock()
	all := slices.Clone(w.all)
	w.mu.Unlock()
	for _, p := range all {
		switch {
		case p.name[0] == 'd' && !p.over():
			p.stop()
			return p.String() + " has not ended"
		case strings.ContainsRune("osx", rune(p.name[0])) && !p.over(), p.stopping && !p.over():
			return p.String() + " has not ended"
		}
	}
	waiting := w.waiting()
	used, err := w.usedAccounts(ctx)
	if err != nil {
		return err.Error()
	}
	for _, q := range w.queues() {
		n, err := q.Count(ctx)
		if err != nil && !used[q.account] && w.lost[q.account] != nil {
			continue // it is gone for good, and removed
		}
		if n > 0 && !used[q.account] {
			// Put there late by a process that stood still: it knows by the answer's time that the
			// account may be gone, and put a copy elsewhere (P6.5). That is judged in the end.
			w.count("copies in a queue of a removed account")
			continue
		}
		if storage.Is(err, storage.Missing) {
			continue // nothing has ever been put there, or its distributor would have made it
		}
		if err != nil {
			return err.Error()
		}
		if waiting -= n; waiting < 0 {
			return fmt.Sprintf("%d messages are in %v", n, q)
		}
	}
	return cmp.Or(w.namedIsLeft(runs, all), w.stillPaused(ctx))
}

// usedAccounts are those that the workload's map has.
func (w *simWorld) usedAccounts(ctx context.Context) (map[string]bool, error) {
	work, err := workload.Load(ctx, w.openTable(), "work")
	if err != nil {
		return nil, err
	}
	used := map[string]bool{}
	for _, s := range work.Map.Shards {
		used[s.Account] = true
	}
	return used, nil
}

// within says something of the messages that can be seen.
func (w *simWorld) within(ctx context.Context) string {
	list := []string{}
	for _, q := range w.queues() {
		ms, err := q.Peek(ctx, storage.MaxGet)
		if err != nil {
			list = append(list, err.Error())
			continue
		}
		if len(ms) == 0 {
			continue
		}
		list = append(list, fmt.Sprintf("%d visible in %v", len(ms), q))
		for _, m := range ms[:min(len(ms), 3)] {
			h, err := codec.ReadHeader(m.Text)
			if err != nil {
				list = append(list, err.Error())
				continue
			}
			list = append(list, fmt.Sprintf("run %v segment %d tasks %v attempt %d, got %d times",
				h.Run, h.Segment, h.Tasks, h.Attempt, m.Dequeued))
		}
	}
	return strings.Join(list, "; ")
}

// simPlace is a work queue for somebody outside.
type simPlace struct {
	storage.Queue
	account string
}

func (q simPlace) String() string { return q.account + "/" + q.Name() }

// queues are all work queues.
func (w *simWorld) queues() (all []simPlace) {
	for _, name := range w.sim.Accounts() {
		st := w.account(name)
		for i := range w.plan.queues {
			all = append(all, simPlace{st.Queue(fmt.Sprintf("work-%02d", i)), name})
		}
	}
	return all
}
