package processor

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/coordination"
	"github.com/queuepump/queuepump/pump/internal/closing"
	"github.com/queuepump/queuepump/pump/internal/ledger"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/tombstone"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/shardmap"
)

// maxOpened is the most that codec.Open unpacks by default. What a header
// declares beyond it will be refused, so no room is kept for it.
const maxOpened = 4 << 20

// maxTasks is the most tasks that codec.Open unpacks by default.
const maxTasks = 1 << 15

// newerDelay is for how long a message of a newer format is released. Whoever
// reads it is probably being rolled out right now.
const newerDelay = time.Minute

// delivery is one message in hand, from the get that brought it until it is settled.
type delivery struct {
	shard    *queues.Queue
	settler  *settler
	id       string // of the message
	inserted time.Time
	age      time.Duration // when it was got, by the service's own clock
	born     time.Time     // when it was ready to be put, on the local clock
	exact    bool          // that is known to the millisecond
	dequeued int64
	sent     time.Time // when its get was
	waits    bool      // in the lobby
	lease    lease

	// The contents: of the header when received, of the rest once opened. They
	// are let go when the settling is planned.
	text    []byte
	header  codec.Header
	foreign string // the identity of a message that no distributor made (P1.4)
	env     *codec.Envelope
	tasks   []pump.Task
	// fresh are the tasks to start, by their index in tasks; nil: all. The others were done
	// before or are in hand in another delivery (mode once).
	fresh []int
	asked bool // its run was asked about
	// ended: its run has ended, and what is fresh goes to quarantine. runless: its tasks were redriven, and
	// have the identity of foreign messages because their run is over or gone.
	ended, runless bool
	// Of mode once: what is to be started according to the ledger, and while the message
	// is being opened what the ledger said if that was not all.
	begun codec.NSet
	split *ledger.Begun
	// contributions to the segment's state, by task; with a reducer only.
	contributions []any
	// whole is what to do with the message as a whole, without its tasks; nil if
	// the tasks decide.
	whole *wholly

	epoch   uint64          // of the hold on its segment
	listed  int             // its place in the list of its segment, from 1; guarded by owned.mu
	unhold  func() bool     // stops waiting for the end of that hold
	holds   bool            // it is to be split, and no task is started before; guarded by backlog.mu once it is there
	trial   bool            // its one task is, or was, on trial (processor_dock.go)
	alone   uint32          // trials alone in a process that a row counts; see aloneTrials
	mark    marked          // its attempt is written down already, and where
	counted bool            // there may be a row that counts its attempts
	untried bool            // it is put back without an attempt
	ctx     context.Context // of its handlers
	end     context.CancelCauseFunc
	started atomic.Bool // a task was started, or none will be
	worked  atomic.Bool // a task was started
	// recording: its result waits for the ledger.
	recording atomic.Bool

	// Guarded by backlog.mu.
	count     int // tasks
	next      int // the first place in the order of starting that was not started
	unstarted int // tasks that count as such
	place     place
	withdrawn bool // no further task is started
	opened    bool // it counts as an opened envelope
	weight    int64

	mu       sync.Mutex // guards what follows
	verdicts []verdict
	troubles []trouble
	pending  int  // tasks without a verdict
	hung     bool // a handler that ignores its context may still read the tasks

	// Of the one settler that has it in hand.
	settlement *settlement
	held       int // bytes of text counted as unsettled
}

// wholly is the settling of a message whose tasks are not looked at.
type wholly struct {
	reason, detail string         // quarantine, if there is a reason
	forget         bool           // else delete, because it was done before
	record         bool           // of forget: what was begun of it is to be recorded as done
	forward        *queues.Queue  // else put into this queue, and delete
	pass           bool           // it is another's: no work of this process
	ours           bool           // it is put back although it is this process's: no reason for suspicion
	hint           bool           // of a pass: its owner should look when it is visible
	pieces         []poisonOrRest // else put these, which are all of its tasks, and delete
	delay          time.Duration  // else release, with this delay
}

// unpacks is what opening a message takes, in bytes: its records, in a buffer whose size is a power
// of two mostly, and its tasks in two lists.
func (d *delivery) unpacks() int64 {
	const aTask = int64(unsafe.Sizeof(codec.Task{}) + unsafe.Sizeof(pump.Task{}))
	records := min(d.header.RawLen, maxOpened)
	return int64(1)<<bits.Len64(max(records, 1)-1) + aTask*int64(min(d.count, maxTasks))
}

func (d *delivery) String() string { return d.shard.String() + "/" + d.id }

// starts is how many tasks are to be started, at which of the tasks is the k-th of them.
func (d *delivery) starts() int {
	if d.fresh == nil {
		return d.count
	}
	return len(d.fresh)
}

func (d *delivery) at(k int) int {
	if d.fresh == nil {
		return k
	}
	return d.fresh[k]
}

// receive takes what a get brought: every message is kept from here on, and
// its header says where it goes. It runs in the get's goroutine and says how many
// of the messages were this process's to work on. Lease is what the get asked for.
func (r *processing) receive(q *polled, msgs []storage.Message, sent time.Time, lease time.Duration, limit int, room reservation) (own int) {
	r.hand.add(len(msgs))
	delivered := make([]*delivery, len(msgs))
	for i := range msgs {
		delivered[i] = r.deliver(q, &msgs[i], sent, lease)
	}
	r.runs.ahead(r.wire, runsOf(delivered))
	work := make([]*delivery, 0, len(msgs))
	waiting := false
	for _, d := range delivered {
		if !d.passes() {
			own++
		}
		if d.waits && r.lobby.add(d) {
			waiting = true
			continue
		}
		if r.take(d, len(msgs) < limit) {
			work = append(work, d)
		}
	}
	if waiting {
		r.lobby.look() // segments may have become ready meanwhile
	}
	for _, d := range r.backlog.add(work, room) {
		d.started.Store(true)
		d.settler.add(d)
	}
	return own
}

// runsOf are the runs of messages that are to be worked on now, each once if its messages
// stand side by side, as they mostly do.
func runsOf(delivered []*delivery) (runs []pump.RunID) {
	for _, d := range delivered {
		id := d.header.Run
		if d.whole != nil || d.waits || id == (pump.RunID{}) || len(runs) > 0 && runs[len(runs)-1] == id {
			continue
		}
		runs = append(runs, id)
	}
	return runs
}

// take reports whether a message is to be worked on. Any other it has settled; hint says
// that the owner of one that is passed on should look.
func (r *processing) take(d *delivery, hint bool) bool {
	if d.whole == nil && !r.o.Discard {
		r.backlog.hold(d, d.count > 1 && r.suspicious(d))
		return true
	}
	d.started.Store(true)
	if d.whole == nil {
		r.discard(d)
	}
	if d.passes() {
		d.text = nil
		d.whole.hint = d.whole.delay > 0 || hint
	}
	r.backlog.weigh(d)
	d.settler.add(d)
	return false
}

// discard settles a message without a handler.
func (r *processing) discard(d *delivery) {
	count := d.count
	if r.recorder == nil {
		d.whole = &wholly{forget: true}
	} else if d.whole = r.beginRun(r.wire, d); d.whole == nil {
		d.whole = r.unpack(d) // it is of no run
	}
	if r.recorder != nil && !d.whole.record {
		return
	} else if d.begun.Len() > 0 {
		count = d.begun.Len()
	}
	d.text = nil
	r.counts.handled.Add(int64(count))
	r.tallies.add(d.header.Run, workload.Tally{Handled: uint64(count)})
}

// passes reports whether a message is only put back for its owner.
func (d *delivery) passes() bool { return d.whole != nil && d.whole.pass }

// deliver makes a delivery of a message and judges its header.
func (r *processing) deliver(q *polled, m *storage.Message, sent time.Time, lease time.Duration) *delivery {
	s := q.shard
	d := &delivery{shard: s, settler: q.settler, id: m.ID, text: m.Text, inserted: m.Inserted, dequeued: m.Dequeued}
	d.age = ageOf(m, lease)
	d.ctx, d.end = context.WithCancelCause(r.work)
	r.counts.envelopes.Add(1)

	var err error
	d.header, err = codec.ReadHeader(m.Text)
	switch {
	case errors.Is(err, codec.ErrForeign):
		d.foreign = s.Name + "/" + m.ID
		d.header = codec.Header{
			Workload: r.cfg.Workload, Tasks: codec.MakeNSet(0),
			Segment: shardmap.Segment(m.Text, r.workload.Map.Segments),
		}
	case errors.Is(err, codec.ErrVersion):
		// Somebody writes what this process cannot read. That is no fault of the
		// message, so it waits, for ever if need be (P4.6).
		r.alarmOnce("version", "message of a newer format; this processor must be upgraded", "message", d.String(), "error", err)
		d.whole = &wholly{delay: r.jitter.Around(newerDelay, "newer", m.ID, uint64(m.Dequeued))}
	case err != nil:
		d.whole = unreadable(err)
	case d.header.Workload != r.cfg.Workload:
		d.whole = &wholly{reason: pump.ReasonOtherWorkload, detail: fmt.Sprintf("the message belongs to workload %q", d.header.Workload)}
	case int(d.header.Segment) >= r.workload.Map.Segments:
		d.whole = &wholly{reason: pump.ReasonCorrupt, detail: fmt.Sprintf("segment %d of %d", d.header.Segment, r.workload.Map.Segments)}
	}
	d.born, d.exact = d.readiness(sent, d.age)
	d.count = d.header.Tasks.Len()
	if d.age >= metAge {
		r.meets(d, lease)
	}
	if d.sent = sent; d.whole == nil {
		d.whole, d.waits = r.judge(d)
	}
	// Last, because the keeper may find at once that the lease is over.
	r.keeper.keep(d, m.Receipt, sent, lease)
	return d
}

// judge says what becomes of a message whose header is readable: nil, it is this process's to
// work on; or it waits until it is known whose it is to work on.
func (r *processing) judge(d *delivery) (whole *wholly, waits bool) {
	if !r.own(d) {
		if r.waits(d.header.Segment) {
			return nil, true
		}
		return r.others(d), false
	}
	r.spills.got(d.shard, d.header.Segment, d.sent)
	if d.foreign != "" {
		r.counts.foreign.Add(1)
	}
	return nil, false
}

// unreadable is the quarantine of a text that will never be readable.
func unreadable(err error) *wholly {
	w := &wholly{reason: pump.ReasonCorrupt, detail: err.Error()}
	switch {
	case errors.Is(err, codec.ErrTruncated):
		w.reason = pump.ReasonTruncated
	case errors.Is(err, codec.ErrBomb):
		w.reason = pump.ReasonBomb
	}
	return w
}

// openAll opens messages until there will be no more.
func (r *processing) openAll(ctx context.Context) {
	for {
		r.cfg.Private.Seeding.Turn.Wait("open")
		if d := r.backlog.toOpen(); d != nil {
			r.open(ctx, d)
		} else if !r.backlog.awaitOpenable() {
			return
		}
	}
}

// open unpacks one message, after asking whether its run is known (P1.3), and
// makes its tasks startable.
func (r *processing) open(ctx context.Context, d *delivery) {
	d.whole = r.beginRun(ctx, d)
	if d.whole == nil && r.dock.take(d) {
		return // it is opened when its trial begins
	}
	if d.whole == nil {
		d.whole = r.unpack(d)
	}
	if d.whole != nil {
		r.backlog.aside(d)
		d.started.Store(true)
		d.settler.add(d)
		return
	}
	r.cfg.Private.Seeding.Turn.Wait("opened", d.shard.Account.Name, d.id)
	r.backlog.hold(d, false)
	if d.verdicts == nil {
		d.verdicts = make([]verdict, d.count)
	}
	if r.recorder != nil {
		r.recorder.screen(d)
	}
	if d.ended {
		d.reject()
		r.backlog.aside(d)
		d.started.Store(true)
		d.settler.add(d)
		return
	}
	if r.reducer != nil {
		d.contributions = make([]any, d.count)
	}
	d.pending = d.starts()
	if !r.backlog.open(d) {
		d.started.Store(true)
		d.settler.add(d)
	}
}

func (r *processing) unpack(d *delivery) *wholly {
	if d.foreign != "" {
		d.tasks = []pump.Task{{Segment: d.header.Segment, Body: d.text, Epoch: d.epoch, Attempt: int(d.header.Attempt) + 1, Foreign: d.foreign}}
		return r.beginForeign(d)
	}
	if d.header.Run != (pump.RunID{}) { // else see beginForeign
		if w := r.endsProcess(d); w != nil {
			return w
		}
	}
	env, err := codec.Open(d.text, codec.Limits{})
	if err != nil {
		return unreadable(err)
	}
	d.env = env
	d.tasks = d.unpacked(env.Tasks)
	if w := r.pieces(d); w != nil {
		return w
	}
	if d.header.Run == (pump.RunID{}) || d.runless {
		return r.beginForeign(d)
	}
	return nil
}

// taskLists are lists of the tasks of an envelope, reused from envelope to envelope: a
// thousand tasks are 128 KiB.
var taskLists = sync.Pool{New: func() any { return new([]pump.Task) }}

// keptTasks is the longest list that is reused; a longer one belongs to a rare
// envelope of tiny tasks.
const keptTasks = 1 << 12

// unpacked are the tasks of an opened envelope as handlers get them.
func (d *delivery) unpacked(tasks []codec.Task) []pump.Task {
	list := *taskLists.Get().(*[]pump.Task)
	if cap(list) < len(tasks) {
		list = make([]pump.Task, 0, len(tasks))
	}
	list = list[:len(tasks)]
	ids := sharedIDs(tasks)
	h := &d.header
	common := pump.Task{Run: h.Run, Segment: h.Segment, Epoch: d.epoch, Attempt: int(h.Attempt) + 1}
	foreign := h.Run == (pump.RunID{}) // one that was rewritten: it keeps its identity as its id
	for i := range tasks {
		from, t := &tasks[i], &list[i]
		*t = common
		t.N, t.Key, t.Body = from.N, from.Key, from.Body
		t.ID, ids = ids[:len(from.ID)], ids[len(from.ID):]
		switch {
		case foreign:
			t.Foreign, t.ID = t.ID, ""
		case d.runless:
			t.Foreign = coordination.TaskRef{Run: h.Run, Segment: h.Segment, N: t.N}.String()
		}
	}
	return list
}

// sharedIDs is the ids of all tasks one after another, in one string.
func sharedIDs(tasks []codec.Task) string {
	n := 0
	for i := range tasks {
		n += len(tasks[i].ID)
	}
	var b strings.Builder
	b.Grow(n)
	for i := range tasks {
		b.Write(tasks[i].ID)
	}
	return b.String()
}

// reuseTasks gives the list of a message's tasks to the next one. No handler
// may have them any more.
func reuseTasks(tasks []pump.Task) {
	if cap(tasks) == 0 || cap(tasks) > keptTasks {
		return
	}
	clear(tasks) // they point into the buffer that somebody else gets now
	tasks = tasks[:0]
	taskLists.Put(&tasks)
}

// beginRun asks whether the tasks of a run are to be started (P1.3), and says what to
// do with the message if none of them are.
func (r *processing) beginRun(ctx context.Context, d *delivery) *wholly {
	if d.asked || d.header.Run == (pump.RunID{}) {
		return nil
	}
	d.asked = true
	if r.recorder != nil {
		return r.recorder.begin(ctx, d)
	}
	switch verdict := r.runs.look(ctx, d.header.Run); verdict {
	case closing.Rest:
		if d.header.Generation == 0 {
			return r.duplicate(d)
		}
	default:
		if w, over := r.beyond(d, verdict); over {
			return w
		}
		switch verdict {
		case closing.Ended:
			return runEndedWhole(&d.header)
		case closing.Dropped:
			return r.dropped(d, d.count)
		}
	}
	if tombstone.Is(&d.header) { // nothing is recorded that it could change
		return &wholly{forget: true}
	}
	return nil
}

func (r *processing) beginForeign(d *delivery) *wholly {
	if r.recorder != nil {
		if w := r.recorder.gate(d); w != nil {
			return w
		}
		if w := r.recorder.beginForeign(d); w != nil {
			return w
		}
	}
	w := r.endsProcess(d)
	if w != nil && r.recorder != nil && r.recorder.once {
		r.recorder.endForeign(d, []int{0}) // quarantine keeps no record of it
	}
	return w
}
