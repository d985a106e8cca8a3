package worlds

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"time"

	"github.com/queuepump/queuepump/pump/storage"
)

// simEvent is one line of the history: a request as its sender saw it, or
// something that is none.
type simEvent struct {
	began, done time.Duration
	who, what   string
	number      int
	result      string
}

func (e simEvent) String() string {
	return fmt.Sprintf("%v %v %s %s #%d: %s", e.began, e.done, e.who, e.what, e.number, e.result)
}

func (w *simWorld) log(who string) *slog.Logger {
	if w.tell == nil {
		return nil
	}
	return w.tell.With("who", who)
}

// wrongf notes a broken promise; the first few say enough.
func (w *simWorld) wrongf(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.wrong) < 20 {
		w.wrong = append(w.wrong, fmt.Sprintf("%v ", w.now())+fmt.Sprintf(format, args...))
	}
}

func (w *simWorld) count(what string) { w.countAll(what, 1) }

func (w *simWorld) countAll(what string, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[what] += n
}

func (w *simWorld) note(who, what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.noteLocked(who, what)
}

func (w *simWorld) noteLocked(who, what string) {
	if w.records && !w.over {
		w.history = append(w.history, simEvent{began: w.now(), done: w.now(), who: who, what: what})
	}
}

// sent notes a request as its sender saw it.
func (w *simWorld) sent(p *simProcess, began time.Duration, r simRequest, n int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over || p.over() {
		return
	}
	w.requests++
	result := "ok"
	if err != nil {
		result = storage.CodeOf(err).String()
		w.counts["answer "+r.op+" "+result]++
	}
	if w.records {
		w.history = append(w.history, simEvent{began, w.now(), p.String(), r.op + " " + r.object + " " + r.key, n, result})
	}
}

// tally adds to the counts what others have counted.
func (w *simWorld) tally() {
	for _, f := range w.faults {
		if f.Hits() > 0 {
			w.counts["fault "+f.kind+" "+cmp.Or(f.operation, "any")] += int(f.Hits())
		}
	}
	s := w.sim.Stats()
	w.counts["throttled by limits"] += int(s.Throttled)
	for _, n := range s.Blackouts {
		w.counts["requests to a dark account"] += int(n)
	}
	for _, p := range w.all {
		w.counts[simLeasesLost] += int(p.did.Lost)
		w.counts["messages passed on"] += int(p.did.Passed)
		w.counts["messages forwarded"] += int(p.did.Forwarded)
		w.counts["duplicates recognised"] += int(p.did.Duplicates)
	}
	w.meetLocked(s)
	if w.tables.EmptyPages {
		w.counts["worlds with empty pages"]++
	}
	w.counts["effects"] = w.judge.effects
	w.counts["effects repeated"] = w.judge.repeated
	w.counts["runs"] = w.judge.runs
	w.counts["runs sealed"] = w.judge.sealed
	w.counts["runs closed"] = w.judge.closed
	w.counts["runs broken"] = w.judge.broken
	w.counts["runs ended"] = w.judge.ended
	maps.DeleteFunc(w.counts, func(_ string, n int) bool { return n == 0 })
}

// simLog is where logs go when a plan is played by itself.
func simLog() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{Level: slog.LevelDebug}))
}
