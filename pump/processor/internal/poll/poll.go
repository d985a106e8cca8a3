package poll

import (
	"context"
	"net/http"
	"time"

	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/processor/internal/base"
	"github.com/queuepump/queuepump/pump/processor/internal/message"
	"github.com/queuepump/queuepump/pump/storage"
)

// The measures of gets.
const (
	// A get answers in about 20 ms, so one after the other brings 1,600 messages a second. Four at
	// once reach a queue's published 2,000, and 16 an account's 20,000; more would only wait for
	// the budget, unless the account is far away (Ahead of package queues).
	getsPerQueue   = 4
	getsPerAccount = 16
	getsMost       = 4 // times as many

	// A get that is not answered within a quarter of a second is on its way into a throttled or dark
	// queue: it gives back the room that was kept for its messages, so that others can use it, and
	// until its answer the queue is not asked again. The other queues of the account are: if all hang,
	// each has its turn and then waits as well.
	getSlow = 250 * time.Millisecond

	// probe is how many messages a queue that has just failed is asked for; a queue that goes on
	// failing is asked for one. Requests that are never answered may have hidden what they asked for,
	// and no room is kept for that.
	probe      = 8
	probeAgain = 3 // failures
)

// Run polls until the context ends or the queues are idle for good
// (Options.UntilIdle); the error names what could not be read then.
// Gets may still be under way when it returns; those that wait for their budget
// are given up.
func (p *Poller) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer p.Rounds.Begin()()
	defer p.said.Flush()
	for ctx.Err() == nil {
		p.Cfg.Sim.Seeding.Turn.Wait("poll")
		select { // what has woken it until now is looked at now
		case <-p.wake:
		default:
		}
		wait := p.round(ctx)
		if d := p.UntilIdle; d > 0 {
			over, again, err := p.idle(d)
			if over {
				p.logLeft()
				return err
			}
			wait = min(wait, again)
		}
		waits.Sleep(ctx, wait, p.wake)
	}
	return nil
}

// round starts every get that is due and has room, and says how long nothing
// more will be.
func (p *Poller) round(ctx context.Context) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for p.startOne(ctx, now, false) || p.swept > 0 && p.startOne(ctx, now, true) ||
		p.lookOne(ctx, now) {
	}
	p.Rounds.Add()
	p.said.Due()
	wait := waits.Rest
	ready, again := p.Env.Queues.Allowance.Ready(now)
	if !ready {
		wait = min(wait, max(again, pollBase))
	}
	for _, a := range p.accounts {
		for _, q := range a.queues {
			if d := q.askedAt.Add(p.slowest()).Sub(now); !ready && d > 0 {
				wait = min(wait, d)
			}
			// A queue that is due already waits for room or for an answer, which wakes the poller.
			if d := q.due.Sub(now); d > 0 && q.flying < q.width {
				wait = min(wait, d)
			}
		}
	}
	return wait
}

// startOne starts the next get in turn, if any; swept: of a queue that is swept.
func (p *Poller) startOne(ctx context.Context, now time.Time, swept bool) bool {
	if c := p.Recorder(); p.paused || c != nil && c.Full() {
		return false // a commit, or the end of the pause, wakes the poller
	}
	if p.Env.ResultBytes.Load() >= base.ResultsSoft {
		return false // as does the end of a message with results
	}
	want := wanted{full: p.LobbyFull(p.maybeWaiting), swept: swept}
	thrifty := false
	if ready, _ := p.Env.Queues.Allowance.Ready(now); !ready {
		thrifty, want.before = true, now.Add(-p.slowest())
	}
	for i := range p.accounts {
		at := (p.turn + i) % len(p.accounts)
		a := p.accounts[at]
		if a.flying >= a.width {
			continue
		}
		next := a.next(now, want)
		if next < 0 {
			continue
		}
		q := a.queues[next]
		limit, room := probe, message.Reservation{}
		if q.failures == 0 {
			if room = p.Backlog.Reserve(q.swept); room.Messages == 0 {
				return false // the backlog wakes the poller when there is room again
			}
			limit = room.Messages
		} else if p.Backlog.Full() {
			return false
		} else if q.failures >= probeAgain {
			limit = 1
		}
		if thrifty || q.probes {
			limit = 1 // each message costs more than the get
		}
		// Turns pass only with a get: if they passed with every look, the same few queues could be next
		// each time there is room.
		p.turn, a.turn = (at+1)%len(p.accounts), (next+1)%len(a.queues)
		q.asked++
		q.askedAt = now
		q.flying++
		a.flying++
		p.Gets.Add(1)
		waiting := 0
		if q.unready {
			waiting = limit
		}
		p.maybeWaiting += waiting
		go p.get(ctx, a, q, asking{limit: limit, room: room, waiting: waiting})
		return true
	}
	return false
}

// asking is what a get asks for.
type asking struct {
	limit   int // messages
	room    message.Reservation
	waiting int // messages that may have to wait until their segments are ready
}

// get makes one get. When the processor stops, a get that waits for its budget is given up. A get
// that was sent is waited for: it may have hidden 32 messages that only its answer can release.
func (p *Poller) get(ctx context.Context, a *account, q *entry, ask asking) {
	limit, room := ask.limit, ask.room
	slow := time.AfterFunc(getSlow, func() { p.noteSlow(a, q, ask) })
	lease := p.Timing.Lease()
	msgs, sent, err := q.queue.Get(ctx, p.Wire, limit, lease)
	wasSlow := !slow.Stop()
	held := room
	if wasSlow {
		held = message.Reservation{} // given back already
	}
	own, aside := p.Receive(Get{
		Queue: q.queue, Messages: msgs, Sent: sent, Lease: lease, Limit: limit, Room: held,
	})
	tell := false // the other processors of messages that come without nudges

	p.mu.Lock()
	if err == nil {
		q.noteRead(msgs, sent, lease, limit)
		p.sweep(q, q.polls && aside > 0 && 2*aside >= len(msgs))
	}
	q.flying--
	if wasSlow {
		q.slow--
	} else {
		a.flying--
		p.maybeWaiting -= ask.waiting
	}
	switch now := time.Now(); {
	case err != nil:
		if mayHaveHidden(err) {
			q.noteHidden(now.Add(lease + message.HiddenLonger))
		}
		p.failed(ctx, q, err, now)
	case own == aside && (own == 0 || len(msgs) < limit):
		// The back-off ignores others' messages (P7), and messages that are not worked on.
		p.noteAnswer(q, sent)
		q.width = 1
		q.emptyAt = time.Time{}
		if len(msgs) < limit { // and no own message was behind them
			q.emptyAt = sent
		}
		base, most := p.Env.Queues.Allowance.Slow(pollBase), p.longest(now)
		if len(msgs) == limit { // our own may be behind them
			base, most = pollBase, pollBehind
		}
		q.due = now.Add(p.Jitter.Around(waits.Doubled(base, most, q.empties), "poll",
			q.queue.String(), q.asked))
		q.empties++
		if q.hinted.After(sent) { // the message may have come after this get looked
			q.hint(now)
		}
	default:
		tell = q.unannounced(msgs) && p.hasten(now)
		p.noteAnswer(q, sent)
		q.emptyAt = time.Time{}
		q.empties = 0
		q.due = now
		q.width = 1
		// The queue has more messages. If most are others', more gets would only take them out of their
		// owners' reach.
		if len(msgs) == limit && 2*own >= limit {
			q.width = min(q.flying+2,
				q.queue.Gets.Ahead(q.queue.Budget.Rate()/storage.MaxGet, getsPerQueue, getsMost*getsPerQueue))
			a.width = q.queue.Gets.Ahead(a.account.Budget.Rate()/storage.MaxGet, getsPerAccount,
				getsMost*getsPerAccount)
		}
	}
	if err == nil && q.probes {
		q.due = time.Now().Add(p.Jitter.Around(vouchEvery, "vouch", q.queue.String(), q.asked))
	}
	p.mu.Unlock()
	if m := p.Member.Load(); tell && m != nil {
		m.NudgeTraffic()
	}
	p.Gets.Done(1, true)
	waits.Signal(p.wake)
}

func (p *Poller) noteSlow(a *account, q *entry, ask asking) {
	p.mu.Lock()
	q.slow++
	a.flying--
	p.maybeWaiting -= ask.waiting
	p.mu.Unlock()
	p.Backlog.GiveBack(ask.room)
	waits.Signal(p.wake) // another queue of the account may have its turn
}

func (p *Poller) noteAnswer(q *entry, sent time.Time) {
	q.heard = sent
	p.answers(q)
}

// answers ends the trouble of a queue.
func (p *Poller) answers(q *entry) {
	if q.trouble != nil {
		p.said.Sparing(p.Log.Info)("queue answers again", "queue", q.queue.String(),
			"after", time.Since(q.troubled).Round(time.Millisecond))
	}
	if storage.Is(q.trouble, storage.MaybeDone) {
		q.account.makeDue(time.Now())
	}
	q.failures, q.trouble = 0, nil
	q.alarm.Over()
}

// mayHaveHidden reports whether a get that failed with err may have taken messages. After a 503 it
// surely has not.
func mayHaveHidden(err error) bool {
	e, ok := queues.AsError(err)
	return storage.Ambiguous(err) && !(ok && e.Status == http.StatusServiceUnavailable)
}
