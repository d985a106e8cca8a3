package processor

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/queuepump/queuepump/pump/internal/backoff"
	"github.com/queuepump/queuepump/pump/processor/internal/message"
)

// The dock is where single tasks wait that may have ended their processes (P4.2). A
// trial is: the attempt is written down and acknowledged (mark.go), then
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
)

type dock struct {
	r *processing

	mu      sync.Mutex          // guards what follows and delivery.trial
	waiting []*message.Delivery // in the order of their coming
	trials  []*message.Delivery
	alone   bool // the one on trial is alone, or is to be
	closed  bool
}

// take keeps a message for a trial if it needs one: then it is opened later, once that
// is due. It is called before the message is opened.
func (k *dock) take(d *message.Delivery) bool {
	r := k.r
	if d.Count != 1 || d.Trial || !r.suspicious(d) {
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
func (k *dock) company(d *message.Delivery) int {
	attempts := int(d.Header.Attempt)
	if attempts >= k.r.o.Retry.MaxAttempts-aloneAttempts {
		return 0
	}
	return max(1, k.r.o.Concurrency>>min(fewerEach*attempts, 31))
}

// look begins the trials that may begin, and lets go of what will not be started any
// more. It is called when anything has changed.
func (k *dock) look() {
	k.mu.Lock()
	var gone []*message.Delivery
	k.waiting = slices.DeleteFunc(k.waiting, func(d *message.Delivery) bool {
		if !k.closed && !k.r.backlog.IsWithdrawn(d) {
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
		d.Trial = true
		go k.try(d, k.alone)
	}
}

// letGo settles a message that will not be started here.
func (k *dock) letGo(d *message.Delivery) {
	k.r.backlog.Aside(d)
	d.Started.Store(true)
	d.Settler.Add(d)
}

// refuse puts a message back whose attempt cannot be written down.
func (k *dock) refuse(d *message.Delivery, err error) {
	attrs := append(d.Attrs(-1), "error", err)
	k.r.Lines.Of("unmarked").Add(d.Count, func(messages, _ int) {
		k.r.Log.Warn("a task that may have ended its processes could not be marked; it is put back for a while", append(attrs, "messages", messages)...)
	})
	d.Whole = &message.Disposition{Delay: k.r.Jitter.Around(markAgain, "mark", d.ID, uint64(d.Dequeued))}
	k.letGo(d)
}

// try marks a message and has it opened.
func (k *dock) try(d *message.Delivery, alone bool) {
	r := k.r
	r.Cfg.Private.Seeding.Turn.Wait("try", d.Shard.Account.Name, d.ID)
	if alone {
		d.Started.Store(true) // whoever else got it would wait as well
		patience := r.o.Timeout + hungAfter
		if r.o.Timeout <= 0 {
			patience = soloPatience
		}
		if !r.backlog.Hush(d, patience) {
			k.letGo(d)
			return
		}
	}
	if err := r.mark(d, alone); err != nil {
		k.refuse(d, err)
		return
	}
	r.Log.Warn("a message came back so often that its task may have ended its processes; this attempt was written down before it begins",
		append(d.Attrs(-1), "deliveries", d.Dequeued, "attempt", fmt.Sprintf("%d of %d", d.Header.Attempt+1, r.o.Retry.MaxAttempts), "alone", alone)...)
	r.open(r.Wire, d)
}

// over ends the splitting or the trial of a message that was settled, or at least tried to be: its
// handler has returned, and whatever ends the process now was not the task. In mode
// once that must be recorded first: were the process ended by the next suspect before, the mark
// would be all that is left of an attempt that did no harm.
func (k *dock) over(d *message.Delivery) {
	k.r.backlog.Hold(d, false)
	if d.Trial && d.Recording.Load() { // over is called again when it is settled
		time.AfterFunc(recordMost, func() { k.end(d) })
		return
	}
	k.end(d)
}

func (k *dock) end(d *message.Delivery) {
	k.mu.Lock()
	i := slices.Index(k.trials, d)
	if i < 0 {
		k.mu.Unlock()
		return
	}
	k.trials = slices.Delete(k.trials, i, i+1)
	if k.alone {
		k.alone = false
		k.r.backlog.Unhush()
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
