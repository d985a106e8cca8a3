package processor

import (
	"fmt"
	"sync"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/storage"
)

// Blame by splitting (P4.2, window 18). A task that ends its process leaves no trace
// but that the messages the process had in hand are delivered once more than was
// written down about them. Those that come back like that suspiciously often are cut in four,
// down to single tasks; a single one has its attempt written down before it is
// opened (processor_dock.go), and is quarantined when all of its attempts ended like that.
// The count of deliveries alone condemns nobody: it only says where to look, and
// cutting an innocent message costs requests and nothing else.

// How many deliveries that left no trace make a message suspicious.
const (
	// suspectAfter of them can be an accident where a queue has one owner: a get whose
	// answer was lost, a machine that went away, a hand-over.
	suspectAfter = 3
	// suspectOwner more are innocent for each further owner of the queue, each of whom
	// gets others' messages and puts them back (P7). Measured of 2,000 healthy messages: the
	// median of 8 owners is 7 deliveries, 99 in 100 have at most 69, the most is 82; of 16 owners it is
	// 13, 83 and 124. One or two in a hundred are split then, which costs about as many
	// requests as three more deliveries to each owner; guilt takes 45 deaths among 8 owners to find.
	suspectOwner = 10
	// crowdKept is for how long the most owners that a queue had are remembered: when
	// most of them leave, its messages still have the counts of their time.
	crowdKept = 15 * time.Minute

	// splitInto is how many parts a suspicious message is cut into.
	splitInto = 4
)

// traceless is how many deliveries of the message, before this one, left nothing behind.
func (d *delivery) traceless() int64 { return max(0, d.dequeued-1-int64(d.header.Attempt)) }

// suspicious reports whether a message has come back often enough for its tasks to
// be suspected of ending their processes.
func (r *processing) suspicious(d *delivery) bool {
	if c := r.recorder; c != nil && c.states.full(d.header.Segment) {
		return false // it was put back for want of room (processor_record_full.go)
	}
	n := d.traceless()
	return n >= suspectAfter && n >= suspectAt(r.crowd(d))
}

func suspectAt(owners int) int64 { return suspectAfter + suspectOwner*int64(owners-1) }

// crowd is how many processors may have passed a message on to each other.
func (r *processing) crowd(d *delivery) int {
	s := r.share.Load()
	if s == nil || s.view.Workload.Shared {
		return 1 // whoever gets it keeps it
	}
	if s.shards[s.of.Home(d.header.Segment)] != d.shard {
		return max(1, len(s.view.Processors())) // who looks here depends on marks and keepers of any time
	}
	return r.crowds.most(d.shard)
}

// crowds remembers how many processors have lately looked into queues.
type crowds struct {
	mu sync.Mutex // guards what follows
	of map[*queues.Queue]crowded
}

type crowded struct {
	owners int
	until  time.Time
}

// follow takes the counts of a new view.
func (c *crowds) follow(s *share) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil {
		c.of = map[*queues.Queue]crowded{}
	}
	now := time.Now()
	for i, q := range s.shards {
		if q == nil {
			continue
		}
		// While messages of other homes are looked for in a queue, its own are passed on as often.
		if old := c.of[q]; s.readers[i] >= old.owners || !now.Before(old.until) {
			c.of[q] = crowded{s.readers[i], now.Add(crowdKept)}
		}
	}
}

func (c *crowds) most(q *queues.Queue) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return max(1, c.of[q].owners)
}

// outOfTrials reports whether a single task has had all of its attempts, the last of them alone in a
// process. Attempts by themselves do not say so: they may be failures under a larger MaxAttempts.
func (r *processing) outOfTrials(d *delivery) bool {
	most := r.o.Retry.MaxAttempts
	return most > 0 && int64(d.header.Attempt) >= int64(most) && d.aloneTrials() >= min(aloneAttempts, most)
}

// endsProcess says whether a single task is out of attempts although it comes back:
// the last was written down before it began, and nothing was heard of it.
func (r *processing) endsProcess(d *delivery) *wholly {
	if d.count != 1 || d.trial || !r.outOfTrials(d) || !r.suspicious(d) {
		return nil
	}
	return &wholly{
		reason: pump.ReasonEndsProcess,
		detail: fmt.Sprintf("%d attempts; the last ones ended without a word from the process that made them, which died, was cut off, or lost the message", d.header.Attempt),
	}
}

// pieces says to cut a message that is suspicious and holds more than one task.
func (r *processing) pieces(d *delivery) *wholly {
	if d.count == 1 || !r.suspicious(d) {
		return nil
	}
	pieces, ok := r.split(d)
	if !ok {
		r.log.Warn("a message came back suspiciously often and cannot be split; it is opened as it is", append(d.attrs(-1), "deliveries", d.dequeued)...)
		return nil
	}
	r.log.Info("a message came back suspiciously often; it is split, to find the task that may end its processes",
		append(d.attrs(-1), "deliveries", d.dequeued, "attempts", d.header.Attempt, "tasks", d.count, "into", len(pieces))...)
	return &wholly{pieces: pieces}
}

// split cuts a suspicious message into pieces of fewer tasks, put beside it before it is
// deleted. Nothing was done, so nothing is recorded and no attempt is counted; a crash in
// between leaves pieces and the whole, whose tasks have the same identities. ok is false
// if a task cannot be put into a message of its own.
func (r *processing) split(d *delivery) (pieces []poisonOrRest, ok bool) {
	parts := min(splitInto, d.count)
	for i := range parts {
		from, to := i*d.count/parts, (i+1)*d.count/parts
		if pieces, ok = r.piece(d, pieces, from, to); !ok {
			return nil, false
		}
	}
	return pieces, true
}

// piece adds a message of some consecutive tasks, or several if it would not fit:
// tasks that are alike take more room apart.
func (r *processing) piece(d *delivery, pieces []poisonOrRest, from, to int) (_ []poisonOrRest, ok bool) {
	tasks := make([]int, 0, to-from)
	for i := from; i < to; i++ {
		tasks = append(tasks, i)
	}
	text, ok := r.pack(d, d.header.Attempt, tasks, storage.MaxText-codec.DefaultHeadroom)
	if !ok && len(tasks) == 1 {
		text, ok = r.pack(d, d.header.Attempt, tasks, storage.MaxText)
	}
	switch {
	case ok:
		return append(pieces, poisonOrRest{shard: d.shard, text: text, tasks: len(tasks)}), true
	case len(tasks) == 1:
		return nil, false
	}
	middle := (from + to) / 2
	if pieces, ok = r.piece(d, pieces, from, middle); !ok {
		return nil, false
	}
	return r.piece(d, pieces, middle, to)
}

// acquits reports whether a message that is put back by a live process should be
// put anew, so that its deliveries count from zero: it would be suspicious when it is
// back here, although its tasks have ended nobody. (A handler that gives tasks back again
// and again would otherwise have every message cut into single tasks.) A message of
// one task is not: what was found out about it would be forgotten; but if nothing was yet, and it goes
// back because its segment is not ready here, it is.
func (r *processing) acquits(d *delivery) bool {
	switch {
	case d.whole != nil && !d.whole.ours, d.count == 1 && (d.whole == nil || r.suspicious(d)):
		return false
	}
	if _, ok := wrapped(d, d.header.Attempt); d.foreign != "" && !ok {
		return false // put anew it would be another message, by its id (P1.4)
	}
	return d.traceless()+int64(r.crowd(d)) >= suspectAt(r.crowd(d)) && r.keeper.trusted(d)
}

// planPieces settles a message that is cut into pieces. Without trust in the lease it is
// left to whoever has it now.
func (r *processing) planPieces(d *delivery) *settlement {
	if !r.keeper.trusted(d) {
		return &settlement{final: stepForget}
	}
	r.counts.split.Add(1)
	return &settlement{copies: d.whole.pieces, final: stepDelete, released: d.count}
}

// putBackSuspect puts a message back of which nothing was done, if it is one that was
// marked, whose mark is taken back with it, or one that is acquitted. Else it is nil.
func (r *processing) putBackSuspect(d *delivery, delay time.Duration, released int) *settlement {
	switch {
	case d.mark == markInText:
		if text, ok := r.unmarkedText(d); ok {
			return &settlement{final: stepReplace, text: text, delay: delay, released: released}
		}
	case d.mark == markInRow:
		d.untried = true
	case r.acquits(d):
		text, ok := wrapped(d, d.header.Attempt)
		if !ok {
			text = d.text
		}
		return &settlement{
			copies: []poisonOrRest{{shard: d.shard, text: text, delay: delay, tasks: d.count}},
			final:  stepDelete, released: released,
		}
	}
	return nil
}
