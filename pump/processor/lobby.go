package processor

import (
	"slices"
	"sync"
	"time"

	"github.com/queuepump/queuepump/pump/processor/internal/message"
	"github.com/queuepump/queuepump/pump/storage"
)

// Messages wait in the lobby if their segment is this process's but not to be worked on: it is held
// and not fenced yet, or is being claimed, or handed over. If such messages were put back, this
// process would get them again at once, and each time would count as a delivery without a trace,
// until healthy envelopes are split. So they wait in hand, their leases kept, until the segment is
// ready or another's; for a lease at most.
const (
	// lobbyMost is how many messages may wait, and lobbyPart which part of MaxBytes they may take.
	// From half of both on, gets under way included, queues that may have more such messages are left
	// alone. The other half is for messages whose segment has only then ceased to be ready. *Messages
	// without room came back after five seconds, so a run of six seconds took eight.*
	lobbyMost = 4096
	lobbyPart = 4
	// lobbyAgain is for about how long a message is put back if it finds no room or its time in the
	// lobby is over. lobbyStuck is the same for segments whose ledger cannot be read or is another's.
	lobbyAgain = 5 * time.Second
	lobbyStuck = 30 * time.Second
)

type lobby struct {
	r *run

	mu     sync.Mutex // guards what follows
	closed bool
	list   []*message.Delivery // in the order of their coming
	bytes  int64
}

// add takes a message, or says by d.whole how it is to be settled if there is no room. A taken
// message is the lobby's: it may go on, or be put back, before add returns.
func (l *lobby) add(d *message.Delivery) (taken bool) {
	r := l.r
	l.mu.Lock()
	switch {
	case l.closed:
		d.Whole = &message.Disposition{PassOn: true}
	case l.fullLocked():
		d.Whole = notNow(r.Jitter, d, lobbyAgain)
	default:
		taken = true
		l.list = append(l.list, d)
		l.bytes += int64(len(d.Text))
		r.backlog.Weigh(d)
	}
	l.mu.Unlock()
	// The lease may have ended while the message was on its way here.
	if taken && r.backlog.IsWithdrawn(d) {
		l.remove(d)
	}
	return taken
}

// full reports whether messages that may have to wait here should not be got. Gets under way ask
// for coming such messages already.
func (l *lobby) full(coming int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.crowdedLocked(coming)
}

// crowdedLocked reports whether half of the room is taken, or will be.
func (l *lobby) crowdedLocked(coming int) bool {
	bytes := l.bytes + int64(coming)*storage.MaxText
	return len(l.list)+coming >= lobbyMost/2 || bytes >= l.r.o.MaxBytes/lobbyPart/2
}

func (l *lobby) fullLocked() bool {
	return len(l.list) >= lobbyMost || l.bytes >= l.r.o.MaxBytes/lobbyPart
}

// remove puts a waiting message back if its lease is over, or it has waited for long. It is false
// if the message is not here.
func (l *lobby) remove(d *message.Delivery) bool {
	l.mu.Lock()
	i := slices.Index(l.list, d)
	if i >= 0 {
		l.list = slices.Delete(l.list, i, i+1)
		l.bytes -= int64(len(d.Text))
	}
	l.mu.Unlock()
	if i < 0 {
		return false
	}
	d.Whole = notNow(l.r.Jitter, d, lobbyAgain)
	d.Settle()
	return true
}

// close has everything put back that waits, and will wait.
func (l *lobby) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.releaseReady()
}

// releaseReady lets messages go on that need not wait any more. It is called when anything about
// segments has changed.
func (l *lobby) releaseReady() {
	l.mu.Lock()
	wasCrowded := l.crowdedLocked(0)
	var out []*message.Delivery
	l.list = slices.DeleteFunc(l.list, func(d *message.Delivery) bool {
		_, ready := l.r.segments.hold(d.Header.Segment)
		if !ready && !l.closed && l.r.segments.waits(d.Header.Segment) {
			return false
		}
		l.bytes -= int64(len(d.Text))
		out = append(out, d)
		return true
	})
	calm := wasCrowded && !l.crowdedLocked(0)
	l.mu.Unlock()
	if len(out) > 0 {
		l.routeAgain(out)
	}
	if calm {
		l.r.poller.Wake()
	}
}

// routeAgain takes up messages that waited where their get would have.
func (l *lobby) routeAgain(ds []*message.Delivery) {
	r := l.r
	for _, d := range ds {
		r.backlog.Unweigh(d)
		d.Whole, d.Waits = r.route(d)
	}
	r.Runs.Ahead(r.Wire, runsOf(ds))
	work := make([]*message.Delivery, 0, len(ds))
	for _, d := range ds {
		if d.Waits && l.add(d) {
			continue
		}
		if d.PassedOn() {
			d.Whole.Delay = 0 // its next owner has waited for this
		}
		if r.accept(d, true) {
			work = append(work, d)
		}
	}
	for _, d := range r.backlog.Add(work, message.Reservation{}) {
		d.Settle()
	}
}
