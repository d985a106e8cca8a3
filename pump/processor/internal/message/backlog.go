package message

import (
	"math"
	"slices"
	"sync"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/storage"
)

// The backlog's measures.
const (
	// firstPerMessage is how many tasks a message counts as holding before the first was seen: many,
	// so that a slow handler does not begin with 32 envelopes of 640 tasks that others could handle.
	firstPerMessage = 128
	// openAhead is for how long opened tasks should last: opening the next
	// envelope takes about a millisecond.
	openAhead = 50 * time.Millisecond
	// rateEvery is how often the rate of starting tasks is measured.
	rateEvery = 250 * time.Millisecond
	// leastPromise is the least room, in bytes, that is kept for each message of a get: a quarter of
	// the largest message. The next messages may be larger than the last, so memory can hold four
	// times MaxBytes at most. If all of the largest were kept, a hundred queues of small messages
	// would wait for unused room.
	leastPromise = storage.MaxText / 4
)

// Backlog holds what was fetched and not yet started: messages that wait to be opened, and opened
// messages with tasks that wait for a handler. It is bounded in tasks and in bytes, and it alone
// says how much may be fetched.
//
// In tasks the bound is one for each free handler. If a task lately took less than half of the
// visibility, the bound is also what handlers start within a second at their recent rate, plus up
// to two for each handler. A second hides any get's round trip; more would only keep tasks from
// other processors. If tasks take longer, nothing is fetched until a handler is free: handlers that
// began together end together, so a waiting task may wait for as long as a task takes, and would be
// given back before its turn. In bytes it counts the text of each message and what each opened
// envelope takes (Delivery.Unpacks).
type Backlog struct {
	// visibility is the user's, or the first of leases that follow the work. It does not grow with
	// slow tasks: those must not be hoarded.
	visibility time.Duration
	maxBytes   int64
	width      int         // handlers that may be at work at once
	batch      bool        // an envelope is started as a whole
	paced      func() bool // one start after the other; see goOn
	discards   bool        // messages are not opened, tasks not started
	wake       func()      // the poller, which was refused a get

	Mu        sync.Mutex // guards what follows, and the slots of deliveries
	startable sync.Cond  // there is a task to start, or nothing ever will be
	calm      sync.Cond  // no handler is at work, or the wait for that is over
	openable  sync.Cond  // there is a message to open and room for it, or nothing ever will be
	closed    bool
	Unopened  []*Delivery // not opened
	Runnable  []*Delivery // opened, with tasks not started
	Busy      int         // handlers at work
	hung      int         // of them, those that were given up
	exclusive *Delivery   // only its tasks are started; nil: anyone's
	trying    bool        // and they may be now: no other message is opened
	pacing    bool        // what was given last waits for its turn
	// brake is how many tasks a second are started at most; 0: as many as there are handlers for
	brake         float64
	keys          *keyLimits
	splitting     int     // messages to be split, until when no task is started
	Unstarted     int     // tasks in Unopened and Runnable, and in what is being opened
	runnableTasks int     // tasks in Runnable
	Reserved      int     // tasks that gets under way may bring
	Bytes         int64   // of text and opened envelopes
	Opened        int     // Opened envelopes in memory
	Promised      int64   // bytes of text that gets under way may bring
	refusedGet    bool    // a get was refused for want of room
	perMessage    float64 // tasks in a message, lately
	seen          bool    // perMessage was measured
	// bytes of a message, lately: a large one counts at once, small ones slowly
	text     float64
	Took     float64 // seconds that a handler is at work for one start, lately; 0: none has ended
	started  int     // tasks since measured
	Measured time.Time
	Rate     float64 // tasks started a second, lately
}

// Reservation is room kept for what a get may bring.
type Reservation struct {
	Messages, tasks int
	bytes           int64
}

// BacklogOptions are the options of a processor that bound what waits.
type BacklogOptions struct {
	Handlers int           // that may be at work at once
	MaxBytes int64         // of messages fetched and not settled
	Lease    time.Duration // of what is got, or the first of leases that follow the work
	Paced    func() bool   // whether starts wait for a rate; nil: they do not
	PerKey   pump.PerKey
	Discards bool // nothing is handled
}

// NewBacklog makes an empty backlog. wake is called when there is room for more.
func NewBacklog(o BacklogOptions, batch bool, wake func()) *Backlog {
	b := &Backlog{
		width: o.Handlers, visibility: o.Lease, maxBytes: o.MaxBytes,
		batch: batch, paced: o.Paced, discards: o.Discards, wake: wake, perMessage: firstPerMessage,
		text: storage.MaxText, Measured: time.Now(), Busy: o.Handlers,
	}
	if b.paced == nil {
		b.paced = func() bool { return false }
	}
	b.startable.L, b.openable.L, b.calm.L = &b.Mu, &b.Mu, &b.Mu
	b.SetPerKey(o.PerKey)
	return b
}

// limit is how many tasks may wait. A discarded task waits for no handler: there the bytes alone
// bound it.
func (b *Backlog) limit(now time.Time) int {
	if b.discards {
		return math.MaxInt32
	}
	if now.Sub(b.Measured) >= rateEvery {
		// Each rateEvery counts for half of all before it, also if nothing asked for a while: an old rate
		// must not fetch for handlers that hang now.
		span := now.Sub(b.Measured)
		old := math.Exp2(-float64(span) / float64(rateEvery))
		b.Rate = b.Rate*old + float64(b.started)/span.Seconds()*(1-old)
		b.started, b.Measured = 0, now
	}
	each := 1.0 // tasks that a handler takes at once
	if b.batch {
		each = b.perMessage
	}
	limit := float64(max(b.width-b.Busy, 0)) * each
	if half := b.visibility.Seconds() / 2; b.Took > 0 && b.Took < half {
		// Free handlers that fill up start more at once than they will go on to.
		handlers := float64(b.width) * each
		rate := min(b.Rate, handlers/b.Took)
		limit += min(2*handlers, rate*(half-b.Took)) + rate*min(1, half/2)
	}
	return int(b.braked(limit))
}

// Reserve keeps room for one get and says for how many messages; none if more than half of the room
// is taken, so that gets stay large. If dropped messages are expected, which take no room for
// tasks, only bytes count.
func (b *Backlog) Reserve(dropped bool) Reservation {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	now := time.Now()
	if dropped {
		return b.reserveBytes()
	}
	if !b.hasRoom(now) {
		b.refusedGet = true
		return Reservation{}
	}
	tasks := float64(b.limit(now)-b.Unstarted-b.Reserved) / b.perMessage
	bytes := float64(b.maxBytes-b.Bytes-b.Promised) / b.promise()
	got := Reservation{Messages: max(1, int(min(tasks, bytes, storage.MaxGet)))}
	got.tasks = int(float64(got.Messages) * b.perMessage)
	b.Reserved += got.tasks
	got.bytes = int64(float64(got.Messages) * b.promise())
	b.Promised += got.bytes
	return got
}

func (b *Backlog) reserveBytes() Reservation {
	free := max(0, float64(b.maxBytes-b.Bytes-b.Promised)/b.promise())
	got := Reservation{Messages: int(min(free, storage.MaxGet))}
	got.bytes = int64(float64(got.Messages) * b.promise())
	b.Promised += got.bytes
	b.refusedGet = b.refusedGet || got.Messages == 0
	return got
}

// promise is the room kept for the text of a message that a get may bring.
func (b *Backlog) promise() float64 { return max(b.text, leastPromise) }

// hasRoom reports whether a get would be granted.
func (b *Backlog) hasRoom(now time.Time) bool {
	limit, waiting := b.limit(now), b.Unstarted+b.Reserved
	if limit-waiting < 1 {
		return false
	}
	if held := b.Bytes + b.Promised; held > 0 && held+int64(b.promise()) > b.maxBytes {
		return false
	}
	return waiting <= limit/2 || float64(limit-waiting) >= b.perMessage*storage.MaxGet
}

// AtWork is how many handlers are at work, those that were given up included.
func (b *Backlog) AtWork() int {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	return b.Busy
}

// Full reports whether not even one more message should be fetched.
func (b *Backlog) Full() bool {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	if b.Unstarted >= max(b.limit(time.Now()), 1) || b.Bytes > b.maxBytes {
		b.refusedGet = true
		return true
	}
	return false
}

// GiveBack ends a reservation.
func (b *Backlog) GiveBack(room Reservation) {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	b.unreserve(room)
}

func (b *Backlog) unreserve(room Reservation) {
	b.Reserved -= room.tasks
	b.Promised -= room.bytes
	b.wakePoller()
}

// wakePoller wakes the poller when a get that was refused would be granted.
func (b *Backlog) wakePoller() {
	if b.refusedGet {
		b.wakePollerAt(time.Now())
	}
}

// wakePollerAt is wakePoller for a caller that knows the time.
func (b *Backlog) wakePollerAt(now time.Time) {
	if b.refusedGet && b.hasRoom(now) {
		b.refusedGet = false
		b.wake()
	}
}

// Add takes what a get brought, in exchange for its reservation. It gives back messages that will
// not be started, for the caller to settle: all when the processor stops, and any that was
// withdrawn before it came here, because its get was answered after its lease, or the machine slept
// in between.
func (b *Backlog) Add(ds []*Delivery, room Reservation) (refused []*Delivery) {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	b.unreserve(room)
	if b.closed {
		return ds
	}
	for _, d := range ds {
		if d.slot.withdrawn {
			refused = append(refused, d)
			continue
		}
		if b.seen {
			b.perMessage += (float64(d.Count) - b.perMessage) / 16
		} else {
			b.perMessage, b.seen = float64(d.Count), true
		}
		d.slot.unstarted = d.Count
		b.Unstarted += d.Count
		d.slot.weight = int64(len(d.Text))
		b.Bytes += d.slot.weight
		b.text = max(float64(d.slot.weight), b.text+(float64(d.slot.weight)-b.text)/256)
		d.slot.place = fetched
		if d.slot.splits {
			b.Unopened = slices.Insert(b.Unopened, 0, d)
		} else {
			b.Unopened = append(b.Unopened, d)
		}
	}
	b.openable.Broadcast()
	return refused
}

// AwaitOpenable waits until there may be a message to open; false means never again.
func (b *Backlog) AwaitOpenable() bool {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	for !b.closed && !b.mayOpen() {
		b.openable.Wait()
	}
	return !b.closed
}

// ToOpen gives the message that should be opened now, or nil.
func (b *Backlog) ToOpen() *Delivery {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	if b.closed || !b.mayOpen() {
		return nil
	}
	d := b.Unopened[0]
	b.Unopened[0] = nil
	b.Unopened = b.Unopened[1:]
	d.slot.place = opening
	opened := d.Unpacks()
	d.slot.weight += opened
	b.Bytes += opened
	d.slot.opened = true
	b.Opened++
	return d
}

// mayOpen reports whether the first message should be opened now. One message of any size may
// always be open.
func (b *Backlog) mayOpen() bool {
	if len(b.Unopened) == 0 || b.trying {
		return false
	}
	if b.Unopened[0].slot.splits { // everything else waits for that
		return true
	}
	if b.runnableTasks > 2*b.width+int(b.Rate*openAhead.Seconds()) {
		return false
	}
	return b.Opened == 0 || b.Bytes+b.Unopened[0].Unpacks() <= b.maxBytes
}

// Open makes the tasks of an opened message startable. It reports false if the
// message was withdrawn meanwhile, or the backlog closed: none of its tasks will be started.
func (b *Backlog) Open(d *Delivery) bool {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	if b.closed && !d.slot.withdrawn {
		d.slot.withdrawn = true
		b.Unstarted -= d.slot.unstarted
	}
	if d.slot.withdrawn {
		d.slot.place = nowhere
		return false
	}
	b.Unstarted += d.Starts() - d.slot.unstarted
	d.slot.unstarted = d.Starts()
	d.slot.place = startable
	if d == b.exclusive {
		b.Runnable = slices.Insert(b.Runnable, 0, d)
	} else {
		b.Runnable = append(b.Runnable, d)
	}
	b.runnableTasks += d.slot.unstarted
	b.startable.Broadcast()
	return true
}

// Turn is what a slot is to start: one task, or all of an envelope in a batch, by their places in
// the order of starting (Delivery.At); To = 0 means the end. At is the time then: to read the clock
// costs as much as all else in Next together.
type Turn struct {
	D        *Delivery
	From, To int
	At       time.Time
	Key      *Key          // what counts the task until its handler has returned; nil: nothing does
	Off      time.Duration // if set, the task is not started but put back for so long
	Paced    bool          // nothing else is started before StartNext
}

// Next is called by a slot that is free now, with how long it was at work since the last call, 0 if
// it was not, and with the key that counted its task. It waits for the next turn.
func (b *Backlog) Next(took time.Duration, now time.Time, of *Key) (t Turn) {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	b.Busy--
	switch s := took.Seconds(); {
	case s <= 0:
	case b.Took == 0:
		b.Took = s
	default:
		b.Took += (s - b.Took) / 16
	}
	if of != nil {
		b.keys.end(of, took, now)
	}
	b.wakePollerAt(now)
	b.calm.Broadcast()
	for ok := false; !ok; {
		for !b.closed && !b.mayStart() {
			b.startable.Wait()
			now = time.Now()
		}
		if b.closed {
			return Turn{At: now}
		}
		t, ok = b.take(now)
	}
	b.Busy++
	if t.Off == 0 {
		b.pacing = b.brake > 0 || b.paced()
		t.Paced = b.pacing
		b.started += t.To - t.From
	}
	b.wakePollerAt(now)
	if b.keys != nil && b.mayStart() { // what became due has woken one slot only
		b.startable.Signal()
	}
	return t
}

// Withdraw makes sure that no further task of d is started. It gives how many were not started, and
// whether d waits to be opened: then the caller settles it. If d is being opened, the opener
// settles it.
func (b *Backlog) Withdraw(d *Delivery) (unstarted int, unopened bool) {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	if d.slot.withdrawn {
		return 0, false
	}
	d.slot.withdrawn = true
	b.calm.Broadcast()
	n := d.slot.unstarted
	switch d.slot.place {
	case fetched:
		b.Unopened = without(b.Unopened, d)
		unopened = true
	case startable:
		b.Runnable = without(b.Runnable, d)
		b.runnableTasks -= n
		unstarted = n + drop(d)
	case opening:
	case nowhere:
		return 0, false
	}
	if d.slot.place != opening {
		d.slot.place = nowhere
	}
	b.Unstarted -= n
	b.wakePoller()
	return unstarted, unopened
}

func without(ds []*Delivery, d *Delivery) []*Delivery {
	if i := slices.Index(ds, d); i >= 0 {
		return slices.Delete(ds, i, i+1)
	}
	return ds
}

// SetAside takes an opened message whose contents cannot be used out of the count.
func (b *Backlog) SetAside(d *Delivery) {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	d.slot.place = nowhere
	if !d.slot.withdrawn {
		d.slot.withdrawn = true
		b.Unstarted -= d.slot.unstarted
	}
	b.wakePoller()
}

// Weigh counts the text of a message that does not wait here.
func (b *Backlog) Weigh(d *Delivery) {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	d.slot.weight = int64(len(d.Text))
	b.Bytes += d.slot.weight
}

// Unweigh takes the text of a message that waited elsewhere out of the count.
func (b *Backlog) Unweigh(d *Delivery) {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	b.Bytes -= d.slot.weight
	d.slot.weight = 0
}

// Free gives back the memory of a message's contents, except for what is kept until the message is
// settled. The kept part may be larger than the contents, and it counts: if an account takes no
// puts, copies that must be put first would fill all memory.
func (b *Backlog) Free(d *Delivery, kept int) {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	b.Bytes += int64(kept) - d.slot.weight
	d.slot.weight = int64(kept)
	if d.slot.opened {
		d.slot.opened = false
		b.Opened--
	}
	if b.mayOpen() {
		b.openable.Broadcast()
	}
	b.wakePoller()
}

// Close ends starting and opening, and gives all that waits, some of it more than once.
func (b *Backlog) Close() []*Delivery {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	b.closed = true
	b.calm.Broadcast()
	b.startable.Broadcast()
	b.openable.Broadcast()
	all := slices.Concat(b.Unopened, b.Runnable)
	if b.keys != nil {
		for _, s := range b.keys.keys {
			for _, t := range s.held {
				all = append(all, t.D)
			}
		}
	}
	return all
}
