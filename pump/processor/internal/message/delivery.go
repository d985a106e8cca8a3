package message

import (
	"context"
	"errors"
	"math/bits"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"go.opentelemetry.io/otel/trace"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/coordination"
	"github.com/queuepump/queuepump/pump/internal/bodies"
	"github.com/queuepump/queuepump/pump/internal/ledger"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/shardmap"
)

// maxOpened is the most that codec.Open unpacks by default. A message whose
// header declares more will be refused, so no room is kept for it.
const maxOpened = 4 << 20

// maxTasks is the most tasks that codec.Open unpacks by default.
const maxTasks = 1 << 15

// Delivery is one message in hand, from the get that brought it until it is settled.
type Delivery struct {
	Queue    *queues.Queue
	Settler  Settler
	ID       string // of the message
	Inserted time.Time
	Age      time.Duration // when it was got, by the service's own clock
	Born     time.Time     // when it was ready to be put, on the local clock
	Exact    bool          // that is known to the millisecond
	Dequeued int64
	Sent     time.Time // when its get was
	Waits    bool      // in the lobby
	// Together is how many messages its get has brought.
	Together int
	lease    lease

	// The contents: the header's when received, the others once opened. They are let go when the
	// settling is planned.
	Text    []byte
	Header  codec.Header
	Count   int    // tasks
	Foreign string // the identity of a message that no distributor made (P1.4)
	// Segments are those of the workload.
	Segments int
	// Key and Body are the task of such a message. Body may be Text, or what Text encodes. If that is
	// larger than Text, it is read again by Read when it is needed; see Content.
	Key, Body []byte
	Read      func(text []byte) (key, body []byte)
	Env       *codec.Envelope
	Tasks     []pump.Task
	// Fresh are the tasks to start, by their index in tasks; nil: all. The others were done
	// before or are in hand in another delivery (mode once).
	Fresh []int
	Asked bool // its run was asked about
	// Ended: its run has ended, and what is fresh goes to quarantine. runless: its tasks were
	// redriven, and have the identity of foreign messages because their run is over or gone.
	Ended, Runless bool
	// In mode once: Begun is what is to be started according to the ledger. Split is what the ledger
	// said while the message is being opened, if that was not all.
	Begun codec.NSet
	Split *ledger.Begun
	// Named are those of Begun that are done under their names; see record/redriven.go.
	Named codec.NSet
	// Contributions to the segment's state, by task; with a reducer only. nil: it has made none, as
	// where a middleware called the task done by itself.
	Contributions []*any
	// Results are the lines of the tasks' results, by task; with Options.Results only. Kept is how
	// many bytes that is.
	Results [][]byte
	Kept    atomic.Int64
	// Whole is what to do with the message as a whole, without its tasks; nil if
	// the tasks decide.
	Whole *Disposition

	Epoch   uint64      // of the hold on its segment
	Listed  int         // its place in the list of its segment, from 1; guarded by owned.mu
	Unhold  func() bool // stops waiting for the end of that hold
	Trial   bool        // its one task is, or was, on trial (package trial)
	Alone   uint32      // trials alone in a process that a row counts; see AloneTrials
	Written written     // its attempt is written down already, and where
	Counted bool        // there may be a row that counts its attempts
	Untried bool        // it is put back without an attempt
	// Told is what the row of a message without room for a header is to say of "not now".
	Told    codec.NotNow
	Ctx     context.Context // of its handlers
	End     context.CancelCauseFunc
	Started atomic.Bool // a task was started, or none will be
	Worked  atomic.Bool // a task was started
	// Delayed: a task of it was held until its key's turn. The backlog's lock guards it.
	Delayed bool
	// Recording: its result waits for the ledger.
	Recording atomic.Bool

	slot slot

	Outcomes Outcomes

	// Of the one settler that has it in hand.
	Plan *Plan
	Held int // bytes of text counted as unsettled
}

// Request is how much one request adds to what a run has spent: a message's part of a get is less.
const Request = 1000

// Spent is what a delivery has cost when it ends, beside its renewals: its part of the get, the
// request that ends it, the message's put if this is its first delivery, and the puts of copies
// that no processor will get.
func (d *Delivery) Spent(quarantined int) uint64 {
	n := uint64(Request/max(d.Together, 1)) + Request + uint64(quarantined)*Request
	if d.Dequeued <= 1 {
		n += Request
	}
	return n
}

// Disposition is the settling of a message whose tasks are not looked at.
type Disposition struct {
	Reason, Detail string        // quarantine, if there is a reason
	Forget         bool          // else delete, because it was done before
	Record         bool          // of forget: what was begun of it is to be recorded as done
	Forward        *queues.Queue // else put into this queue, and delete
	PassOn         bool          // it is another's: no work of this process
	// it is put back although it is this process's: no reason for suspicion
	Ours   bool
	Paused bool          // it is put back because its run or key is paused
	Hint   bool          // of a pass: its owner should look when it is visible
	Pieces []Copy        // else put these, together all of its tasks, and delete
	Delay  time.Duration // else release, with this delay
}

// Unpacks is what opening a message takes, in bytes: its records, in a buffer whose size is a power
// of two mostly, its tasks in two lists, and a body that lies in a blob.
func (d *Delivery) Unpacks() int64 {
	const aTask = int64(unsafe.Sizeof(codec.Task{}) + unsafe.Sizeof(pump.Task{}))
	records := min(d.Header.RawLen, maxOpened)
	return int64(1)<<bits.Len64(max(records, 1)-1) + aTask*int64(min(d.Count, maxTasks)) +
		int64(min(d.Header.Body.Size, bodies.Most))
}

// Content is the body of the task of a message that no distributor made.
func (d *Delivery) Content() []byte {
	if d.Read == nil {
		return d.Body
	}
	_, body := d.Read(d.Text)
	return body
}

func (d *Delivery) String() string { return d.Queue.String() + "/" + d.ID }

// Settle hands the message to its settler: no further task of it will be started.
func (d *Delivery) Settle() {
	d.Started.Store(true)
	d.Settler.Add(d)
}

// Starts is how many tasks are to be started, at which of the tasks is the k-th of them.
func (d *Delivery) Starts() int {
	if d.Fresh == nil {
		return d.Count
	}
	return len(d.Fresh)
}

// At is the index of the k-th task that is to be started.
func (d *Delivery) At(k int) int {
	if d.Fresh == nil {
		return k
	}
	return d.Fresh[k]
}

// PassedOn reports whether a message is only put back for its owner.
func (d *Delivery) PassedOn() bool { return d.Whole != nil && d.Whole.PassOn }

// IsWork reports whether a message is more than something to put back for others, or for later.
func (d *Delivery) IsWork() bool { return d.Whole == nil || !d.Whole.PassOn && !d.Whole.Paused }

// taskLists are lists of the tasks of an envelope, reused from envelope to envelope: a
// thousand tasks are 128 KiB.
var taskLists = sync.Pool{New: func() any { return new([]pump.Task) }}

// keptTasks is the longest list that is reused; a longer one belongs to a rare
// envelope of tiny tasks.
const keptTasks = 1 << 12

// Unpacked are the tasks of an opened envelope as handlers get them.
func (d *Delivery) Unpacked(tasks []codec.Task) []pump.Task {
	list := *taskLists.Get().(*[]pump.Task)
	if cap(list) < len(tasks) {
		list = make([]pump.Task, 0, len(tasks))
	}
	list = list[:len(tasks)]
	ids := sharedIDs(tasks)
	h := &d.Header
	common := pump.Task{Run: h.Run, Segment: h.Segment, Epoch: d.Epoch, Attempt: int(h.Attempt) + 1}
	foreign := h.Run == (pump.RunID{}) // a rewritten message: its id is its identity
	for i := range tasks {
		from, t := &tasks[i], &list[i]
		*t = common
		t.N, t.Body, t.Trace = from.N, from.Body, from.Trace
		t.Key = shardmap.KeyOf(from.Key, from.Body, h.Segment, d.Segments)
		t.ID, ids = ids[:len(from.ID)], ids[len(from.ID):]
		switch {
		case foreign:
			t.Foreign, t.ID = t.ID, ""
		case d.Runless:
			t.Foreign = coordination.TaskRef{Run: h.Run, Segment: h.Segment, N: t.N}.String()
		}
	}
	return list
}

// N is the number of a task of a run in the ledger. It is read from the message, as Name is: a
// handler may have changed its task, and one that hangs may do so yet.
func (d *Delivery) N(i int) uint64 { return d.Env.Tasks[i].N }

// Name is the name of a task without a run in the ledger; empty for others.
func (d *Delivery) Name(i int) string {
	switch h := &d.Header; {
	case d.Env != nil && h.Run == (pump.RunID{}):
		return string(d.Env.Tasks[i].ID)
	case d.Runless:
		return coordination.TaskRef{Run: h.Run, Segment: h.Segment, N: d.N(i)}.String()
	}
	return d.Foreign
}

// AsSent is a task as it was sent, without its body, for what is said of it. Key and Trace are
// slices of the message.
func (d *Delivery) AsSent(i int) pump.Task {
	h := &d.Header
	t := pump.Task{
		Run: h.Run, Segment: h.Segment, Attempt: int(h.Attempt) + 1, Foreign: d.Name(i), Key: d.Key,
	}
	if d.Env != nil {
		from := &d.Env.Tasks[i]
		t.N, t.Trace = from.N, from.Trace
		t.Key = shardmap.KeyOf(from.Key, from.Body, h.Segment, d.Segments)
		if h.Run != (pump.RunID{}) { // else it is Foreign
			t.ID = string(from.ID)
		}
	}
	return t
}

// Restore sets the fields that name a task as they were sent.
func (d *Delivery) Restore(i int) {
	t := &d.Tasks[i]
	if t.Foreign = d.Name(i); d.Env != nil {
		t.Run, t.Segment, t.N = d.Header.Run, d.Header.Segment, d.N(i)
	}
}

// TakeBody gives the one task the body that was read from its blob.
func (d *Delivery) TakeBody(body []byte) {
	t := &d.Tasks[0]
	t.Body, t.Key = body, shardmap.KeyOf(d.Env.Tasks[0].Key, body, d.Header.Segment, d.Segments)
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

// ReuseTasks gives the list of a message's tasks to the next one. No handler
// may have them any more.
func ReuseTasks(tasks []pump.Task) {
	if cap(tasks) == 0 || cap(tasks) > keptTasks {
		return
	}
	clear(tasks) // they point into the buffer that is used again now
	tasks = tasks[:0]
	taskLists.Put(&tasks)
}

// Attrs are what a log line says about a delivery.
func (d *Delivery) Attrs() []any {
	a := []any{"queue", d.Queue.String(), "message", d.ID}
	if d.Foreign == "" && d.Header.Run != (pump.RunID{}) {
		a = append(a, "run", d.Header.Run, "segment", d.Header.Segment)
	}
	return a
}

// TaskAttrs are what a log line says about a task of a delivery. Handled is the span of what a
// worker does with it. If that is not exported, the line names the span in which the task was sent.
func (d *Delivery) TaskAttrs(task int, handled trace.SpanContext) []any {
	a := d.Attrs()
	if task < 0 || task >= len(d.Tasks) {
		return a
	}
	t := d.AsSent(task)
	a = append(a, "n", t.N, "attempt", t.Attempt)
	if !handled.IsSampled() {
		handled, _ = codec.DecodeTrace(t.Trace)
	}
	if handled.IsValid() {
		a = append(a, "trace_id", handled.TraceID().String(), "span_id", handled.SpanID().String())
	}
	return a
}

// AgeOf is how old a message was when it was got. Both times are the service's own, without this
// machine's clock.
func AgeOf(m *storage.Message, lease time.Duration) time.Duration {
	return max(0, m.NextVisible.Add(-lease).Sub(m.Inserted))
}

// Pointers is the batch that a BatchHandler gets, by its places in the order of starting.
func (d *Delivery) Pointers(from, to int) []*pump.Task {
	ps := make([]*pump.Task, to-from)
	for k := range ps {
		ps[k] = &d.Tasks[d.At(from+k)]
	}
	return ps
}

// serviceUnit is how exactly the service says when a message was put and got.
const serviceUnit = time.Second

// Readiness says when a message was ready to be put, as far as it is known, on the local clock, and
// whether to the millisecond. Age is the message's age at sent, as the difference of two times of
// the service in whole seconds.
func (d *Delivery) Readiness(sent time.Time, age time.Duration) (at time.Time, exact bool) {
	at = sent.Add(-age)
	if d.Header.Sealed.IsZero() {
		return at, false
	}
	if latest := at.Add(serviceUnit); d.Header.Sealed.After(latest) {
		return latest, true
	}
	return d.Header.Sealed, true
}

// written says where the attempt that is under way stands written.
type written uint8

const (
	notWritten    written = iota
	WrittenInText         // in the header of the message as it is in the queue
	WrittenInRow          // in a row, because the message is a text without room for a header
)

// ReasonOnTrial is the cause that a marked message carries in its queue: its Attempts are how many
// of the last attempts were trials alone in a process. Any other verdict on the message removes it.
const ReasonOnTrial = "on-trial"

// AloneTrials is how many of the last attempts at a single task were trials alone in a process
// whose outcome was not heard. The attempts in the header say less: they may have failed under a
// larger MaxAttempts, or run beside other tasks.
func (d *Delivery) AloneTrials() int {
	if c := d.Header.Cause; c != nil && c.Reason == ReasonOnTrial {
		return int(c.Attempts)
	}
	return int(d.Alone)
}

// Traceless is how many deliveries of the message, before this one, left nothing behind.
func (d *Delivery) Traceless() int64 {
	return max(0, d.Dequeued-1-int64(d.Header.Attempt)-int64(d.Header.NotNow.Here))
}

// ServerTime is what the clock of the message's queue says now.
func (d *Delivery) ServerTime() time.Time {
	return d.Inserted.Add(d.Age + time.Since(d.Sent))
}

// Wait is the verdict on a task that is in hand in another delivery.
func (d *Delivery) Wait(i int, delay time.Duration) {
	d.Outcomes.Set(Postponed, Trouble{Task: i, After: delay})
}

// ErrRunEnded is why tasks of an ended run go to quarantine if they are in a message with others.
var ErrRunEnded = errors.New("their run has ended; redriven tasks are still done")

// Reject gives the tasks that would be started the verdict that their run has ended. The message is
// open.
func (d *Delivery) Reject() {
	for k := range d.Starts() {
		d.Outcomes.Set(Rejected, Trouble{Task: d.At(k), Err: ErrRunEnded})
	}
}

// Contributed lists what the finished tasks contribute to the reducer's state.
func (d *Delivery) Contributed() (list []ledger.Contribution) {
	verdicts, _ := d.Outcomes.All()
	for i := range d.Contributions {
		if made := d.Contributions[i]; verdicts[i] == Finished && made != nil {
			list = append(list, ledger.Contribution{N: d.N(i), Value: *made})
		}
	}
	return list
}

// slot is a message's place in the backlog, whose lock guards it.
type slot struct {
	place     place
	next      int // the first place in the order of starting that was not started
	unstarted int // tasks that count as such
	held      int // tasks that stay in hand until their keys' turns
	// keys are those of the tasks that came up, and for how long the last were put off.
	keys      map[*Key]time.Duration
	weight    int64
	opened    bool // it counts as an opened envelope
	withdrawn bool // no further task is started
	splits    bool // it is to be split, and no task is started before
}

// place is where in the backlog a delivery is.
type place uint8

const (
	nowhere   place = iota // not in it
	fetched                // not opened
	opening                // being opened
	startable              // opened
)

// Settler is the settler of a delivery's queue, which goes on with it.
type Settler interface {
	Add(d *Delivery)    // what became of its tasks is known
	Park(d *Delivery)   // it waits for a commit, and for no request
	Unpark(d *Delivery) // the commit is over
}
