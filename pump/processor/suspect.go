package processor

import (
	"fmt"
	"sync"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/processor/internal/message"
	"github.com/queuepump/queuepump/pump/processor/internal/ownership"
	"github.com/queuepump/queuepump/pump/storage"
)

// Blame by splitting (P4.2, window 18). A task that ends its process leaves no trace
// but that the messages the process had in hand are delivered once more than was
// written down about them. Those that come back like that suspiciously often are cut in four,
// down to single tasks; a single one has its attempt written down before it is
// opened (dock.go), and is quarantined when all of its attempts ended like that.
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

// suspicious reports whether a message has come back often enough for its tasks to
// be suspected of ending their processes.
func (r *processing) suspicious(d *message.Delivery) bool {
	if c := r.recorder; c != nil && c.States.Full(d.Header.Segment) {
		return false // it was put back for want of room (internal/record/full.go)
	}
	n := d.Traceless()
	return n >= suspectAfter && n >= suspectAt(r.crowd(d))
}

func suspectAt(owners int) int64 { return suspectAfter + suspectOwner*int64(owners-1) }

// crowd is how many processors may have passed a message on to each other.
func (r *processing) crowd(d *message.Delivery) int {
	s := r.share.Load()
	if s == nil || s.View.Workload.Shared {
		return 1 // whoever gets it keeps it
	}
	if s.Shards[s.Of.Home(d.Header.Segment)] != d.Shard {
		return max(1, len(s.View.Processors())) // who looks here depends on marks and keepers of any time
	}
	return r.crowds.most(d.Shard)
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
func (c *crowds) follow(s *ownership.Assignment) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil {
		c.of = map[*queues.Queue]crowded{}
	}
	now := time.Now()
	for i, q := range s.Shards {
		if q == nil {
			continue
		}
		// While messages of other homes are looked for in a queue, its own are passed on as often.
		if old := c.of[q]; s.Readers[i] >= old.owners || !now.Before(old.until) {
			c.of[q] = crowded{s.Readers[i], now.Add(crowdKept)}
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
func (r *processing) outOfTrials(d *message.Delivery) bool {
	most := r.o.Retry.MaxAttempts
	return most > 0 && int64(d.Header.Attempt) >= int64(most) && d.AloneTrials() >= min(aloneAttempts, most)
}

// endsProcess says whether a single task is out of attempts although it comes back:
// the last was written down before it began, and nothing was heard of it.
func (r *processing) endsProcess(d *message.Delivery) *message.Disposition {
	if d.Count != 1 || d.Trial || !r.outOfTrials(d) || !r.suspicious(d) {
		return nil
	}
	return &message.Disposition{
		Reason: pump.ReasonEndsProcess,
		Detail: fmt.Sprintf("%d attempts; the last ones ended without a word from the process that made them, which died, was cut off, or lost the message", d.Header.Attempt),
	}
}

// pieces says to cut a message that is suspicious and holds more than one task.
func (r *processing) pieces(d *message.Delivery) *message.Disposition {
	if d.Count == 1 || !r.suspicious(d) {
		return nil
	}
	pieces, ok := r.split(d)
	if !ok {
		r.Log.Warn("a message came back suspiciously often and cannot be split; it is opened as it is", append(d.Attrs(-1), "deliveries", d.Dequeued)...)
		return nil
	}
	r.Log.Info("a message came back suspiciously often; it is split, to find the task that may end its processes",
		append(d.Attrs(-1), "deliveries", d.Dequeued, "attempts", d.Header.Attempt, "tasks", d.Count, "into", len(pieces))...)
	return &message.Disposition{Pieces: pieces}
}

// split cuts a suspicious message into pieces of fewer tasks, put beside it before it is
// deleted. Nothing was done, so nothing is recorded and no attempt is counted; a crash in
// between leaves pieces and the whole, whose tasks have the same identities. ok is false
// if a task cannot be put into a message of its own.
func (r *processing) split(d *message.Delivery) (pieces []message.Copy, ok bool) {
	parts := min(splitInto, d.Count)
	for i := range parts {
		from, to := i*d.Count/parts, (i+1)*d.Count/parts
		if pieces, ok = r.piece(d, pieces, from, to); !ok {
			return nil, false
		}
	}
	return pieces, true
}

// piece adds a message of some consecutive tasks, or several if it would not fit:
// tasks that are alike take more room apart.
func (r *processing) piece(d *message.Delivery, pieces []message.Copy, from, to int) (_ []message.Copy, ok bool) {
	tasks := make([]int, 0, to-from)
	for i := from; i < to; i++ {
		tasks = append(tasks, i)
	}
	text, ok := d.Pack(d.Header.Attempt, tasks, storage.MaxText-codec.DefaultHeadroom)
	if !ok && len(tasks) == 1 {
		text, ok = d.Pack(d.Header.Attempt, tasks, storage.MaxText)
	}
	switch {
	case ok:
		return append(pieces, message.Copy{Shard: d.Shard, Text: text, Tasks: len(tasks)}), true
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
func (r *processing) acquits(d *message.Delivery) bool {
	switch {
	case d.Whole != nil && !d.Whole.Ours, d.Count == 1 && (d.Whole == nil || r.suspicious(d)):
		return false
	}
	if _, ok := d.Wrap(d.Header.Attempt); d.Foreign != "" && !ok {
		return false // put anew it would be another message, by its id (P1.4)
	}
	return d.Traceless()+int64(r.crowd(d)) >= suspectAt(r.crowd(d)) && r.keeper.Trusted(d)
}

// planPieces settles a message that is cut into pieces. Without trust in the lease it is
// left to whoever has it now.
func (r *processing) planPieces(d *message.Delivery) *message.Settlement {
	if !r.keeper.Trusted(d) {
		return &message.Settlement{Final: message.StepForget}
	}
	r.Counts.Split.Add(1)
	return &message.Settlement{Copies: d.Whole.Pieces, Final: message.StepDelete, Released: d.Count}
}

// putBackSuspect puts a message back of which nothing was done, if it is one that was
// marked, whose mark is taken back with it, or one that is acquitted. Else it is nil.
func (r *processing) putBackSuspect(d *message.Delivery, delay time.Duration, released int) *message.Settlement {
	switch {
	case d.Mark == message.MarkInText:
		if text, ok := r.unmarkedText(d); ok {
			return &message.Settlement{Final: message.StepReplace, Text: text, Delay: delay, Released: released}
		}
	case d.Mark == message.MarkInRow:
		d.Untried = true
	case r.acquits(d):
		text, ok := d.Wrap(d.Header.Attempt)
		if !ok {
			text = d.Text
		}
		return &message.Settlement{
			Copies: []message.Copy{{Shard: d.Shard, Text: text, Delay: delay, Tasks: d.Count}},
			Final:  message.StepDelete, Released: released,
		}
	}
	return nil
}
