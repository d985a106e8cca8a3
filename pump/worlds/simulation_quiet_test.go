package worlds

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/queuepump/queuepump/pump/internal/ledger"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
)

// quiet reports whether nothing goes wrong in a plan: processes start, and that is all.
func (p *simPlan) quiet() bool {
	return p.trouble == 0 && p.limit == 0 && !p.full && p.foreign == 0 &&
		!slices.ContainsFunc(p.steps, func(s simStep) bool { return s.verb != "start" })
}

// got counts what a process was given, by its own account: every message once, and every delivery.
func (w *simWorld) got(q *simQueue, ms []storage.Message) {
	if q.by.processor == nil || strings.HasSuffix(q.object, "/"+workload.PoisonQueue("work")) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range ms {
		w.deliveries++
		w.messages[q.object+"/"+m.ID] = true
	}
}

// checkQuiet judges a world in which nothing went wrong. A message is delivered once to its owner.
// While owners change, as processors start, or where several share a queue, some are passed on
// (P7). No message is suspected of anything, and no task is done again.
func (w *simWorld) checkQuiet(context.Context) {
	if !w.plan.quiet() {
		return
	}
	w.count("worlds without a fault")
	processors, split, lost := 0, int64(0), int64(0)
	for _, p := range w.all {
		if p.processor != nil {
			processors++
			split, lost = split+p.did.Split, lost+p.did.Lost
		}
	}
	most := len(w.messages) * 105 / 100
	if processors > 1 {
		most = 3*len(w.messages) + processors*w.plan.accounts*w.plan.queues*storage.MaxGet
	}
	shared := processors > w.plan.accounts*w.plan.queues
	if !shared && w.deliveries > most {
		w.wrongf("%d messages were delivered %d times though nothing went wrong (at most %d)", len(w.messages), w.deliveries, most)
	}
	if suspects := len(w.messages) / 20; split > int64(suspects)+2 || !shared && split > 0 { // P4.2 counts by what owners of one queue pass on
		w.wrongf("%d healthy messages were split though no process died", split)
	}
	w.judgeFences(processors)
	if lost > 0 {
		w.wrongf("the lease of %d messages ended though nothing went wrong", lost)
	}
	if w.judge.repeated > 0 {
		w.wrongf("%d tasks were done again though nothing went wrong", w.judge.repeated)
	}
}

// simFencing is how long a lone processor takes at most for the ledgers of eight partitions, which
// it makes its own at once: requests of tables take so long, and it needs four of each.
func (p *simPlan) simFencing() time.Duration { return 4 * (p.tables + 50*time.Millisecond) }

// judgeFences judges how fast a lone processor makes ledgers its own: several at once (A4).
func (w *simWorld) judgeFences(processors int) {
	rounds := time.Duration(w.plan.segments/ledger.PartitionSegments+7) / 8
	if n := len(w.judge.fenced); processors == 1 && n > 0 {
		took := w.judge.fenced[n-1].Sub(w.judge.fenced[0])
		if most := rounds * w.plan.simFencing(); took > most {
			w.wrongf("%d segments were fenced within %v though nothing went wrong (at most %v; A4)", n, took, most)
		}
	}
}
