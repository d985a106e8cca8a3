package processor

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/queuepump/queuepump/pump/internal/backoff"
)

// The dock is where single tasks wait that may have ended their processes (P4.2). A
// trial is: the attempt is written down and acknowledged (processor_mark.go), then
// the message is opened and its task started like any other. If the process dies, the
// mark is what is left of it. So whoever is in hand marked when a process dies takes
// a share of the blame, and the more of it a task has, the fewer others may be on
// trial with it: with n slots n at first, then a quarter of that with each attempt, and the
// last attempts are made alone, with nothing else started anywhere in the process. Only
// that condemns: of those who came in together with a guilty one and share its first
// marks all but the last few are done by then, and these are tried without it. Being
// alone also spares everybody else's work in the process the end that is expected.
const (
	// aloneAttempts are the last of RetryPolicy.MaxAttempts, which a suspect has to itself.
	// Three deaths of a process for other reasons would have to meet it then.
	aloneAttempts = 3
	// fewerEach is by how much the company shrinks with each attempt, as a shift.
	fewerEach = 2
	// soloPatience bounds how long handlers that have no time limit are waited for
	// before a suspect is tried beside them all the same.
	soloPatience = 15 * time.Minute
	// recordMost is for how long a trial lasts after its task is done, until that is recorded.
	// The control plane may be dark, and then the next one need not wait for it.
	recordMost = 2 * backoff.RequestTimeout
	// holdMost is for how long a process starts nothing because of a message to be split,
	// which takes a few requests: its account may be dark.
	holdMost = 5 * time.Second
)

type dock struct {
	r *processing

	mu      sync.Mutex  // guards what follows and delivery.trial
	waiting []*delivery // in the order of their coming
	trials  []*delivery
	alone   bool // the one on trial is alone, or is to be
	closed  bool
}

// take keeps a message for a trial if it needs one: then it is opened later, once that
// is due. It is called before the message is opened.
func (k *dock) take(d *delivery) bool {
	r := k.r
	if d.count != 1 || d.trial || !r.suspicious(d) {
		return false
	}
	if err := r.readAttempts(d); err != nil {
		k.refuse(d, err)
		return true
	}
	if r.o.Retry.MaxAttempts <= 0 || r.outOfTrials(d) { // see endsProcess
		return false
	}
	k.mu.Lock()
	k.waiting = append(k.waiting, d)
	k.mu.Unlock()
	k.look()
	return true
}

// company is how many suspects may be on trial together with one that has made so many
// attempts, itself included; 0: it is alone in the process.
func (k *dock) company(d *delivery) int {
	attempts := int(d.header.Attempt)
	if attempts >= k.r.o.Retry.MaxAttempts-aloneAttempts {
		return 0
	}
	return max(1, k.r.o.Concurrency>>min(fewerEach*attempts, 31))
}

// look begins the trials that may begin, and lets go of what will not be started any
// more. It is called when anything has changed.
func (k *dock) look() {
	k.mu.Lock()
	var gone []*delivery
	k.waiting = slices.DeleteFunc(k.waiting, func(d *delivery) bool {
		if !k.closed && !k.r.backlog.isWithdrawn(d) {
			return false
		}
		gone = append(gone, d)
		return true
	})
	k.begin()
	k.mu.Unlock()
	for _, d := range gone {
		k.letGo(d)
	}
}

// begin begins the trials that may begin, with the lock held.
func (k *dock) begin() {
	for len(k.waiting) > 0 && !k.alone {
		d := k.waiting[0]
		company := k.company(d)
		for _, other := range k.trials {
			company = min(company, k.company(other))
		}
		if len(k.trials) >= max(company, 1) {
			return
		}
		k.waiting = k.waiting[1:]
		k.trials = append(k.trials, d)
		k.alone = company == 0
		d.trial = true
		go k.try(d, k.alone)
	}
}

// letGo settles a message that will not be started here.
func (k *dock) letGo(d *delivery) {
	k.r.backlog.aside(d)
	d.started.Store(true)
	d.settler.add(d)
}

// refuse puts a message back whose attempt cannot be written down.
func (k *dock) refuse(d *delivery, err error) {
	attrs := append(d.attrs(-1), "error", err)
	k.r.lines.Of("unmarked").Add(d.count, func(messages, _ int) {
		k.r.log.Warn("a task that may have ended its processes could not be marked; it is put back for a while", append(attrs, "messages", messages)...)
	})
	d.whole = &wholly{delay: k.r.jitter.Around(markAgain, "mark", d.id, uint64(d.dequeued))}
	k.letGo(d)
}

// try marks a message and has it opened.
func (k *dock) try(d *delivery, alone bool) {
	r := k.r
	r.cfg.Private.Seeding.Turn.Wait("try", d.shard.Account.Name, d.id)
	if alone {
		d.started.Store(true) // whoever else got it would wait as well
		patience := r.o.Timeout + hungAfter
		if r.o.Timeout <= 0 {
			patience = soloPatience
		}
		if !r.backlog.hush(d, patience) {
			k.letGo(d)
			return
		}
	}
	if err := r.mark(d, alone); err != nil {
		k.refuse(d, err)
		return
	}
	r.log.Warn("a message came back so often that its task may have ended its processes; this attempt was written down before it begins",
		append(d.attrs(-1), "deliveries", d.dequeued, "attempt", fmt.Sprintf("%d of %d", d.header.Attempt+1, r.o.Retry.MaxAttempts), "alone", alone)...)
	r.open(r.wire, d)
}

// over ends the splitting or the trial of a message that was settled, or at least tried to be: its
// handler has returned, and whatever ends the process now was not the task. In mode
// once that must be recorded first: were the process ended by the next suspect before, the mark
// would be all that is left of an attempt that did no harm.
func (k *dock) over(d *delivery) {
	k.r.backlog.hold(d, false)
	if d.trial && d.recording.Load() { // over is called again when it is settled
		time.AfterFunc(recordMost, func() { k.end(d) })
		return
	}
	k.end(d)
}

func (k *dock) end(d *delivery) {
	k.mu.Lock()
	i := slices.Index(k.trials, d)
	if i < 0 {
		k.mu.Unlock()
		return
	}
	k.trials = slices.Delete(k.trials, i, i+1)
	if k.alone {
		k.alone = false
		k.r.backlog.unhush()
	}
	k.mu.Unlock()
	k.look()
}

// close ends trials that have not begun.
func (k *dock) close() {
	k.mu.Lock()
	k.closed = true
	k.mu.Unlock()
	k.look()
}

// mayStart reports whether the first task that waits may be started now.
func (b *backlog) mayStart() bool {
	if len(b.ready) == 0 || b.pacing {
		return false
	}
	if b.alone != nil {
		return b.trying && b.alone == b.ready[0]
	}
	return b.holds == 0
}

// hold says whether a message is to be split, until when no task is started. Were
// the process ended in the midst of that, its tasks would be there twice, the guilty one
// among them, and every further death would make more of them.
func (b *backlog) hold(d *delivery, holds bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if d.holds == holds {
		return
	}
	d.holds = holds
	if holds {
		b.holds++
		time.AfterFunc(holdMost, func() { b.hold(d, false) })
		return
	}
	if b.holds--; b.holds == 0 {
		b.calm.Broadcast()
		b.some.Broadcast()
	}
}

// hush ends the starting of all tasks but those of d and waits until nothing is at work
// or being split, for no longer than patience; handlers that were given up are not waited
// for. It reports false if d will not be started either.
func (b *backlog) hush(d *delivery, patience time.Duration) bool {
	over := false
	timer := time.AfterFunc(patience, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		over = true
		b.calm.Broadcast()
	})
	defer timer.Stop()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.alone = d
	for !b.closed && !d.withdrawn && !over && (b.busy > b.hung || b.holds > 0) {
		b.calm.Wait()
	}
	b.trying = !b.closed && !d.withdrawn
	return b.trying
}

// unhush lets everything be opened and started again.
func (b *backlog) unhush() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.alone, b.trying = nil, false
	b.some.Broadcast()
	b.openable.Broadcast()
	b.feed()
}

// hang says that so many handlers more were given up.
func (b *backlog) hang(more int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hung += more
	b.calm.Broadcast()
}

// isWithdrawn reports whether no task of d will be started here any more.
func (b *backlog) isWithdrawn(d *delivery) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return d.withdrawn
}
