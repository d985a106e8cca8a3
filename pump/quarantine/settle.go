package quarantine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/bodies"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/nudging"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/storage"
)

// Options are the options of [Quarantine.Redrive] and [Quarantine.Drop].
type Options struct {
	// Rate is the most messages a second. Each is two or three requests, and a redriven one also
	// costs what its tasks cost. Default 0: as many as the budgets of the accounts allow, with 32
	// under way at a time.
	Rate float64
	// Dry: say what would be done, and do nothing.
	Dry bool
	// Again, in delivery mode once, also redrives what may then be done twice: messages that an
	// interrupted redrive may have put back, if nothing says any more whether they were done; and
	// tasks of a run that is over or whose row is gone.
	Again bool
}

// What became of a message in quarantine.
const (
	Redriven = "redriven"
	Dropped  = "dropped"
	Kept     = "kept" // it cannot be redriven, or something failed: see Problem
)

// Outcome is what became of one message.
type Outcome struct {
	*Message
	// Outcome is Redriven, Dropped or Kept; with Options.Dry
	// what it would be.
	Outcome string `json:"outcome"`
	// Left is how many of its tasks stay in quarantine.
	Left int `json:"left"`
}

// Redrive puts tasks back into the queues that are their segments' homes, to be tried as if for the
// first time. It deletes the message in quarantine after the put was acknowledged, so a crash in
// between leaves the tasks in both places. A processor that records what is done (delivery mode
// once) does them once. A message whose record may be gone is kept: see [Options.Again]. Redrive
// calls done for each message, and stops when done returns false. The error is that of
// [Quarantine.List].
func (q *Quarantine) Redrive(
	ctx context.Context, f Filter, o Options, done func(Outcome) (more bool),
) error {
	return q.logged(ctx, f, o, Redriven, done)
}

// Drop gives tasks up for good: it deletes them. In delivery mode once it first tells the owners of
// their segments, by a message in the home queue. The owners record the tasks as done, so that
// their runs can be complete. Otherwise Drop is like Redrive.
func (q *Quarantine) Drop(
	ctx context.Context, f Filter, o Options, done func(Outcome) (more bool),
) error {
	return q.logged(ctx, f, o, Dropped, done)
}

// logged notes in the workload's log who settles what.
func (q *Quarantine) logged(
	ctx context.Context, f Filter, o Options, outcome string, done func(Outcome) bool,
) error {
	if o.Dry {
		return q.settleAll(ctx, f, o, outcome, done)
	}
	what := map[string]string{Redriven: "quarantine redrive", Dropped: "quarantine drop"}[outcome]
	if !f.Run.IsZero() {
		what += " of run " + f.Run.String()
	}
	if f.Key != nil {
		what += fmt.Sprintf(" of key %q", f.Key)
	}
	what += " " + strings.Join(slices.Concat(f.Reasons, f.IDs), " ")
	return q.of.Logged(ctx, setup.Operator(), strings.TrimSpace(what), func() error {
		return q.settleAll(ctx, f, o, outcome, done)
	})
}

func (q *Quarantine) settleAll(
	ctx context.Context, f Filter, o Options, outcome string, done func(Outcome) bool,
) error {
	if !(o.Rate >= 0 && o.Rate <= 1e6) {
		return setup.OutOfRange("rate", o.Rate,
			"use 0.01 to 1e6 messages a second, or leave it out for no limit")
	}
	redrives, err := q.redrives(ctx, outcome, o.Again)
	if err != nil {
		return err
	}
	defer func() { redrives.flush(ctx) }()
	s := &settling{
		q: q, o: o, outcome: outcome, redrives: redrives, hints: q.hints(ctx), left: f.Limit, done: done,
	}
	defer s.hints.nudges.Close()
	visit := func(t *taken) scanVerdict { return s.visit(ctx, t) }
	if o.Rate == 0 {
		return q.scan(ctx, f, storage.MaxGet, together(visit))
	}
	s.limiter = rate.NewLimiter(rate.Limit(o.Rate), 1)
	// As many as can be settled within half of a lease.
	atOnce := int(max(1, min(storage.MaxGet, o.Rate*Lease.Seconds()/2)))
	return q.scan(ctx, f, atOnce, oneByOne(visit))
}

// settling is a Redrive or Drop that goes on.
type settling struct {
	q        *Quarantine
	o        Options
	outcome  string
	hints    *redriveHints
	limiter  *rate.Limiter // nil: none
	redrives *redrives     // nil: nothing is recorded

	mu    sync.Mutex // guards what follows
	left  int        // of the filter's limit; below 1 there is no limit
	begun int
	over  bool
	done  func(Outcome) (more bool) // called with mu held
}

// begin reports whether another message is to be settled.
func (s *settling) begin(ctx context.Context) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over || ctx.Err() != nil || s.left > 0 && s.begun >= s.left {
		return false
	}
	s.begun++
	return true
}

func (s *settling) visit(ctx context.Context, t *taken) scanVerdict {
	if !s.begin(ctx) {
		return scanKeep | scanEnough
	}
	verdict, out := scanKeep,
		Outcome{Message: t.message, Outcome: s.outcome, Left: t.message.Tasks - t.message.Matching}
	switch {
	case s.outcome == Redriven && t.message.Problem != "":
		out.Outcome, out.Left = Kept, t.message.Tasks
	case s.outcome == Redriven && !s.o.Again && s.q.forgotten(ctx, t.message):
		out.Outcome, out.Left, out.Problem = Kept, t.message.Tasks, errForgotten
	case s.o.Dry:
	case s.limiter != nil && s.limiter.Wait(ctx) != nil:
		return scanKeep | scanEnough
	default:
		var err error
		if verdict, err = s.q.settleOne(ctx, t, s.outcome, s.redrives, s.hints); err != nil {
			out.Outcome, out.Left, out.Problem = Kept, t.message.Tasks, err.Error()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = !s.done(out) || s.over
	if s.over || s.left > 0 && s.begun >= s.left {
		verdict |= scanEnough
	}
	return verdict
}

// settleOne redrives or drops one message, or the tasks of it that are meant. It
// finishes what it has begun, also when the context ends in the midst of it.
func (q *Quarantine) settleOne(
	ctx context.Context, t *taken, outcome string, redrives *redrives, hints *redriveHints,
) (scanVerdict, error) {
	if !t.sure() {
		return scanKeep, errLeftLooking
	}
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), t.until)
	defer cancel()
	m := t.message
	parts, err := m.cut()
	if err != nil {
		return scanKeep, err
	}
	text, put, err := q.replacement(ctx, m, parts, outcome)
	if err != nil {
		return scanKeep, err
	}
	segment := q.segmentOf(m)
	var home *queues.Queue
	first := false
	if outcome == Redriven && m.header.Body != (codec.BodyRef{}) {
		if err = bodies.Renew(ctx, q.of.Queues, &m.header); err != nil {
			return scanKeep, err
		}
	}
	if outcome == Redriven {
		if first, err = redrives.begin(ctx, m); err != nil {
			return scanKeep, err
		}
	}
	if put {
		var maybe bool
		if home, maybe, err = q.putHome(ctx, m.ID, text, segment); err != nil {
			if first && !maybe { // surely nothing was put
				redrives.end(ctx, m)
			}
			return scanKeep, err
		}
	}
	poison := t.account.Poison
	doubt := false
	err = q.trying(ctx, poison, "settle", m.ID, func(ctx context.Context) (err error) {
		if parts.rest != nil {
			err = poison.Replace(ctx, t.receipt, parts.rest, 0)
		} else {
			err = poison.Delete(ctx, t.receipt)
		}
		if storage.Is(err, storage.Gone) && doubt {
			return nil // it was this request's own effect
		}
		doubt = doubt || storage.Ambiguous(err)
		return err
	})
	if err != nil {
		return scanKeep, fmt.Errorf("%s, but it is still in quarantine as well: %w", outcome, err)
	}
	redrives.end(ctx, m)
	if parts.rest == nil {
		q.removeCause(ctx, m.row)
	}
	if home != nil {
		// last: it may take a while, while the message in quarantine is leased
		hints.put(ctx, home, segment)
	}
	return scanGone, nil
}

// putHome puts a text into the queue that is its segment's home when it is sent, and gives that
// queue. Each try looks that queue up again: minutes may pass between two tries, in which the
// account may have been drained and removed. A copy that an unanswered try has left elsewhere is
// recognised by its tasks, or read by no process. After an error maybe says whether a try may have
// put it.
func (q *Quarantine) putHome(
	ctx context.Context, object string, text []byte, segment uint32,
) (home *queues.Queue, maybe bool, err error) {
	for try := uint64(0); ; try++ {
		if home, err = q.homeOf(ctx, segment); err == nil {
			about := home.Digest(text)
			if err = home.Pay(ctx, queues.ClassPut, 1, queues.OpPut, about); err != nil {
				return nil, maybe, err
			}
			if !queues.Young(q.read) { // the budget has kept it waiting for so long
				try--
				continue
			}
			err = home.PutBy(ctx, q.read, text, 0, about)
			maybe = maybe || storage.Ambiguous(err)
		}
		if !again(err) || try == quarantineTries-1 ||
			!q.pauseAfter(ctx, err, "put", object, try) {
			return home, maybe, err
		}
	}
}

// parts are a message cut into the tasks that are meant and the others.
type parts struct {
	header codec.Header // of the tasks that are meant
	meant  []byte       // their envelope, or the text; nil if it was not cut
	rest   []byte       // the others, with their cause; nil without others
}

// cut takes the tasks that are meant out of a message. The others stay in it: the message is
// rewritten, not put again, so that no task is ever there twice.
func (m *Message) cut() (p parts, err error) {
	p.header = m.header
	if m.Matching == m.Tasks {
		return p, nil
	}
	env, err := codec.Open(m.text, codec.Limits{})
	if err != nil {
		return p, err
	}
	defer env.Release()
	pack := func(meant bool, limit int) ([]byte, codec.Header, error) {
		b := codec.NewBuilder(limit)
		b.Reset(m.header)
		for _, t := range env.Tasks {
			if (string(m.keyOf(&t)) == string(m.key)) != meant {
				continue
			}
			if fits, err := b.Add(t); err != nil || !fits {
				return nil, codec.Header{}, errors.Join(err,
					errors.New("some tasks of the message take more room without the others "+
						"than a message has; settle it as a whole"))
			}
		}
		return b.Seal(nil)
	}
	if p.meant, p.header, err = pack(true, storage.MaxText); err != nil {
		return p, err
	}
	p.header.Cause = m.header.Cause
	rest, _, err := pack(false, storage.MaxText)
	if err != nil {
		return p, err
	}
	cause := m.header.Cause
	if cause == nil && m.row != nil {
		cause = &m.row.cause
	}
	if cause != nil {
		if rest, err = codec.Quarantined(rest, *cause); err != nil {
			return p, err
		}
	}
	p.rest = rest
	return p, nil
}

// replacement is what is put home in place of tasks in quarantine, and whether anything is: a text
// may be empty.
func (q *Quarantine) replacement(
	ctx context.Context, m *Message, p parts, outcome string,
) (text []byte, put bool, err error) {
	now := q.mapNow()
	switch {
	case outcome == Redriven && m.foreign:
		return m.text, true, nil
	case outcome == Redriven:
		if text = p.meant; text == nil {
			text = m.text
		}
		// Its time budget begins again, or the first "not now" would give it up.
		text, err = codec.Restamped(text, 0, p.header.Generation+1, codec.NotNow{})
		return text, true, err
	case pump.Delivery(now.Delivery) != pump.Once, !m.intact, m.header.Run.IsZero(),
		m.header.Workload != q.of.Cfg.Workload, int64(m.header.Segment) >= int64(now.Map.Segments):
		return nil, false, nil // no ledger of this workload says anything of it
	}
	switch s := q.runState(ctx, m.header.Run); {
	case s.err != nil:
		return nil, false, s.err
	case !s.told, s.former(m):
		return nil, false, nil
	}
	text, err = row.NewTombstone(p.header, q.by(), time.Now())
	return text, true, err
}

// hintViewFor is how long owners are looked up in one view of the cluster. A hint to the owner of
// shortly before only costs a request.
const hintViewFor = 10 * time.Second

// redriveHints tell the owners of segments that something was put back into their queues (P8.2):
// these may have been idle for long, and are asked seldom.
type redriveHints struct {
	q      *Quarantine
	nudges *nudging.Sender

	busy chan struct{} // capacity 1: guards the fields below
	view *cluster.View // nil: it could not be read
	read time.Time
}

func (q *Quarantine) hints(ctx context.Context) *redriveHints {
	return &redriveHints{
		q: q, busy: make(chan struct{}, 1),
		nudges: nudging.NewSender(context.WithoutCancel(ctx), &q.of.Cfg.Config),
	}
}

// put says that something was put into a queue. It never fails: owners look by themselves, later.
func (h *redriveHints) put(ctx context.Context, queue *queues.Queue, segment uint32) {
	h.busy <- struct{}{}
	defer func() { <-h.busy }()
	if h.read.IsZero() || time.Since(h.read) >= hintViewFor {
		view, err := waits.Get(ctx, func(ctx context.Context) (*cluster.View, error) {
			return cluster.LoadView(ctx, h.q.of.Queues.Control, h.q.of.Cfg.Workload)
		})
		if h.view = view; err != nil {
			h.q.of.Cfg.Log.Debug("who owns the segments could not be read; owners are not "+
				"told that tasks come back", "error", err)
		}
		h.read = time.Now()
	}
	if h.view != nil {
		h.nudges.NudgeOwner(h.view, h.q.of.Cfg.Instance, queue.String(), segment)
	}
}
