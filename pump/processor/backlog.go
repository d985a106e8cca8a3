package processor

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/queuepump/queuepump/pump/storage"
)

// The backlog's measures.
const (
	// firstPerMessage is how many tasks a message is thought to hold before the
	// first has been seen: many, so that a slow handler does not begin with 32
	// envelopes of 640 tasks that others could have had.
	firstPerMessage = 128
	// openAhead is for how long opened tasks should last: opening the next
	// envelope takes about a millisecond.
	openAhead = 50 * time.Millisecond
	// rateEvery is how often the rate of starting tasks is measured.
	rateEvery = 250 * time.Millisecond
	// leastPromise is the least room, in bytes, that is kept for each message that a get may bring:
	// a quarter of the largest there is, for what comes may be larger than what came, and four times MaxBytes
	// is then the most that can be in memory. With all of it, a hundred queues of small messages
	// wait for room that nothing is in.
	leastPromise = storage.MaxText / 4
)

// backlog is what was fetched and not yet started: messages that wait to be
// opened, and opened ones with tasks that wait for a handler. It is bounded in
// tasks and in bytes, and it alone says how much may be fetched.
//
// In tasks the bound is one for each free handler, and, where a task lately took
// less than half of the visibility, what handlers start within a second at the
// rate they have lately shown, plus up to two for each handler. A second hides
// any get's round trip; more would only keep tasks from other processors. Where a
// task takes longer, nothing is fetched until a handler is free: handlers that
// began together end together, so what waits may wait for as long as a task
// takes, and would be given back before its turn came. In bytes it counts the
// text of each message and what each opened envelope takes (delivery.unpacks).
type backlog struct {
	visibility time.Duration // the user's; or what it would be, whatever leases have grown to by slow tasks: those must not be hoarded
	maxBytes   int64
	width      int    // handlers that may be at work at once
	batch      bool   // an envelope is started as a whole
	paced      bool   // one start after the other; see goOn
	discards   bool   // nothing is opened, or started
	wake       func() // the poller, which was refused a get

	mu         sync.Mutex // guards what follows and what delivery says it guards
	some       sync.Cond  // there is a task to start, or nothing ever will be
	calm       sync.Cond  // nothing is at work, or whoever waits for that need not
	openable   sync.Cond  // there is a message to open and room for it, or nothing ever will be
	closed     bool
	inbox      []*delivery // not opened
	ready      []*delivery // opened, with tasks not started
	busy       int         // handlers at work
	hung       int         // of them, those that were given up
	alone      *delivery   // only its tasks are started; nil: anyone's
	trying     bool        // and they may be now: nothing else is opened either
	pacing     bool        // what was given last waits for its turn
	holds      int         // messages to be split, until when no task is started
	unstarted  int         // tasks in inbox and ready, and in what is being opened
	readyTasks int         // tasks in ready
	reserved   int         // tasks that gets under way may bring
	bytes      int64       // of text and opened envelopes
	opened     int         // opened envelopes in memory
	promised   int64       // bytes of text that gets under way may bring
	hungry     bool        // a get was refused for want of room
	perMessage float64     // tasks in a message, lately
	seen       bool        // perMessage was measured
	text       float64     // bytes of a message, lately: a large one counts at once, small ones slowly
	took       float64     // seconds that a handler is at work for one start, lately; 0: none has ended
	started    int         // tasks since measured
	measured   time.Time
	rate       float64 // tasks started a second, lately
}

// place is where in the backlog a delivery is.
type place uint8

const (
	nowhere place = iota
	inInbox
	opening
	inReady
)

// reservation is room kept for what a get may bring.
type reservation struct {
	messages, tasks int
	bytes           int64
}

func newBacklog(o *Options, batch bool, wake func()) *backlog {
	b := &backlog{
		width: o.Concurrency, visibility: cmp.Or(o.Visibility, firstLease), maxBytes: o.MaxBytes,
		batch: batch, paced: o.MaxRate > 0, discards: o.Discard, wake: wake, perMessage: firstPerMessage, text: storage.MaxText, measured: time.Now(), busy: o.Concurrency,
	}
	b.some.L, b.openable.L, b.calm.L = &b.mu, &b.mu, &b.mu
	return b
}

// limit is how many tasks may wait. What is discarded waits for no handler: there the bytes alone bound it.
func (b *backlog) limit(now time.Time) int {
	if b.discards {
		return math.MaxInt32
	}
	if now.Sub(b.measured) >= rateEvery {
		// Each rateEvery counts for half of all before it, also when nobody asked
		// for a while: a rate of long ago must not fetch for handlers that hang now.
		span := now.Sub(b.measured)
		old := math.Exp2(-float64(span) / float64(rateEvery))
		b.rate = b.rate*old + float64(b.started)/span.Seconds()*(1-old)
		b.started, b.measured = 0, now
	}
	each := 1.0 // tasks that a handler takes at once
	if b.batch {
		each = b.perMessage
	}
	limit := float64(max(b.width-b.busy, 0)) * each
	if half := b.visibility.Seconds() / 2; b.took > 0 && b.took < half {
		// Free handlers that fill up start more at once than they will go on to.
		handlers := float64(b.width) * each
		rate := min(b.rate, handlers/b.took)
		limit += min(2*handlers, rate*(half-b.took)) + rate*min(1, half/2)
	}
	return int(limit)
}

// reserve keeps room for one get and says for how many messages; none if more
// than half of the room is taken, so that gets stay large.
func (b *backlog) reserve() reservation {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if !b.hasRoom(now) {
		b.hungry = true
		return reservation{}
	}
	tasks := float64(b.limit(now)-b.unstarted-b.reserved) / b.perMessage
	bytes := float64(b.maxBytes-b.bytes-b.promised) / b.promise()
	got := reservation{messages: max(1, int(min(tasks, bytes, storage.MaxGet)))}
	got.tasks = int(float64(got.messages) * b.perMessage)
	b.reserved += got.tasks
	got.bytes = int64(float64(got.messages) * b.promise())
	b.promised += got.bytes
	return got
}

// promise is the room kept for the text of a message that a get may bring.
func (b *backlog) promise() float64 { return max(b.text, leastPromise) }

// hasRoom reports whether a get would be granted.
func (b *backlog) hasRoom(now time.Time) bool {
	limit, waiting := b.limit(now), b.unstarted+b.reserved
	if limit-waiting < 1 {
		return false
	}
	if held := b.bytes + b.promised; held > 0 && held+int64(b.promise()) > b.maxBytes {
		return false
	}
	return waiting <= limit/2 || float64(limit-waiting) >= b.perMessage*storage.MaxGet
}

// full reports whether not even one more message should be fetched.
func (b *backlog) full() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.unstarted >= max(b.limit(time.Now()), 1) || b.bytes > b.maxBytes {
		b.hungry = true
		return true
	}
	return false
}

// giveBack ends a reservation.
func (b *backlog) giveBack(room reservation) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unreserve(room)
}

func (b *backlog) unreserve(room reservation) {
	b.reserved -= room.tasks
	b.promised -= room.bytes
	b.feed()
}

// feed wakes the poller when a get that was refused would be granted.
func (b *backlog) feed() {
	if b.hungry {
		b.feedAt(time.Now())
	}
}

// feedAt is feed by a caller who knows the time.
func (b *backlog) feedAt(now time.Time) {
	if b.hungry && b.hasRoom(now) {
		b.hungry = false
		b.wake()
	}
}

// add takes what a get brought, in exchange for its reservation. It gives back
// what will not be started, which is the caller's to settle: all of it when the
// processor stops, and any message that was withdrawn before it came here. The
// latter's get was answered after its lease, or the machine slept in between.
func (b *backlog) add(ds []*delivery, room reservation) (refused []*delivery) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unreserve(room)
	if b.closed {
		return ds
	}
	for _, d := range ds {
		if d.withdrawn {
			refused = append(refused, d)
			continue
		}
		if b.seen {
			b.perMessage += (float64(d.count) - b.perMessage) / 16
		} else {
			b.perMessage, b.seen = float64(d.count), true
		}
		d.unstarted = d.count
		b.unstarted += d.count
		d.weight = int64(len(d.text))
		b.bytes += d.weight
		b.text = max(float64(d.weight), b.text+(float64(d.weight)-b.text)/256)
		d.place = inInbox
		if d.holds {
			b.inbox = slices.Insert(b.inbox, 0, d)
		} else {
			b.inbox = append(b.inbox, d)
		}
	}
	b.openable.Broadcast()
	return refused
}

// awaitOpenable waits until there may be a message to open; false means never again.
func (b *backlog) awaitOpenable() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for !b.closed && !b.mayOpen() {
		b.openable.Wait()
	}
	return !b.closed
}

// toOpen gives the message that should be opened now; nil: there is none.
func (b *backlog) toOpen() *delivery {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || !b.mayOpen() {
		return nil
	}
	d := b.inbox[0]
	b.inbox[0] = nil
	b.inbox = b.inbox[1:]
	d.place = opening
	opened := d.unpacks()
	d.weight += opened
	b.bytes += opened
	d.opened = true
	b.opened++
	return d
}

// mayOpen reports whether the first message should be opened now. One is
// always allowed to be open, however large.
func (b *backlog) mayOpen() bool {
	if len(b.inbox) == 0 || b.trying {
		return false
	}
	if b.inbox[0].holds { // everything else waits for that
		return true
	}
	if b.readyTasks > 2*b.width+int(b.rate*openAhead.Seconds()) {
		return false
	}
	return b.opened == 0 || b.bytes+b.inbox[0].unpacks() <= b.maxBytes
}

// open makes the tasks of an opened message startable. It reports false if the
// message was withdrawn meanwhile, or the backlog closed: none of its tasks will be started.
func (b *backlog) open(d *delivery) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed && !d.withdrawn {
		d.withdrawn = true
		b.unstarted -= d.unstarted
	}
	if d.withdrawn {
		d.place = nowhere
		return false
	}
	b.unstarted += d.starts() - d.unstarted
	d.unstarted = d.starts()
	d.place = inReady
	if d == b.alone {
		b.ready = slices.Insert(b.ready, 0, d)
	} else {
		b.ready = append(b.ready, d)
	}
	b.readyTasks += d.unstarted
	b.some.Broadcast()
	return true
}

// next is called by a slot that is free now, with how long it was at work since
// the last call, 0 if it was not. It waits for tasks to start: one, or all of an
// envelope in a batch, by their places in the order of starting (delivery.at); to = 0 means
// that there will be no more. At is the time then, which costs as much to ask for as all else
// here together.
func (b *backlog) next(took time.Duration, now time.Time) (d *delivery, from, to int, at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.busy--
	switch s := took.Seconds(); {
	case s <= 0:
	case b.took == 0:
		b.took = s
	default:
		b.took += (s - b.took) / 16
	}
	b.feedAt(now)
	b.calm.Broadcast()
	for !b.closed && !b.mayStart() {
		b.some.Wait()
		now = time.Now()
	}
	if b.closed {
		return nil, 0, 0, now
	}
	b.busy++
	b.pacing = b.paced
	d = b.ready[0]
	from, to = d.next, d.next+1
	if b.batch {
		to = d.starts()
	}
	d.next = to
	d.unstarted -= to - from
	if d.unstarted == 0 {
		d.place = nowhere
		b.ready[0] = nil
		b.ready = b.ready[1:]
	}
	b.readyTasks -= to - from
	b.unstarted -= to - from
	b.started += to - from
	if b.mayOpen() {
		b.openable.Signal()
	}
	b.feedAt(now)
	return d, from, to, now
}

// goOn lets the next be started: what was given last has had its turn.
func (b *backlog) goOn() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pacing = false
	b.some.Broadcast()
}

// withdraw makes sure that no further task of d is started, and gives how many
// were not and whether d waits to be opened: then the caller settles it. One
// that is being opened is settled by whoever opens it.
func (b *backlog) withdraw(d *delivery) (unstarted int, unopened bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.take(d)
}

func (b *backlog) take(d *delivery) (unstarted int, unopened bool) {
	if d.withdrawn {
		return 0, false
	}
	d.withdrawn = true
	b.calm.Broadcast()
	n := d.unstarted
	switch d.place {
	case inInbox:
		b.inbox = without(b.inbox, d)
		unopened = true
	case inReady:
		b.ready = without(b.ready, d)
		b.readyTasks -= n
		unstarted = n
	case opening:
	case nowhere:
		return 0, false
	}
	if d.place != opening {
		d.place = nowhere
	}
	b.unstarted -= n
	b.feed()
	return unstarted, unopened
}

func without(ds []*delivery, d *delivery) []*delivery {
	if i := slices.Index(ds, d); i >= 0 {
		return slices.Delete(ds, i, i+1)
	}
	return ds
}

// aside takes an opened message whose contents cannot be used out of the count.
func (b *backlog) aside(d *delivery) {
	b.mu.Lock()
	defer b.mu.Unlock()
	d.place = nowhere
	if !d.withdrawn {
		d.withdrawn = true
		b.unstarted -= d.unstarted
	}
	b.feed()
}

// weigh counts the text of a message that does not wait here.
func (b *backlog) weigh(d *delivery) {
	b.mu.Lock()
	defer b.mu.Unlock()
	d.weight = int64(len(d.text))
	b.bytes += d.weight
}

// unweigh takes the text of a message that waited elsewhere out of the count.
func (b *backlog) unweigh(d *delivery) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bytes -= d.weight
	d.weight = 0
}

// free gives back the memory of a message's contents, but for what is kept of
// them until it is settled. That may be more than they were, and it counts: with an
// account that takes no puts, all memory would fill with what must be put first.
func (b *backlog) free(d *delivery, kept int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bytes += int64(kept) - d.weight
	d.weight = int64(kept)
	if d.opened {
		d.opened = false
		b.opened--
	}
	if b.mayOpen() {
		b.openable.Broadcast()
	}
	b.feed()
}

// close ends starting and opening, and gives all that waits.
func (b *backlog) close() []*delivery {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.calm.Broadcast()
	b.some.Broadcast()
	b.openable.Broadcast()
	return append(slices.Clone(b.inbox), b.ready...)
}
