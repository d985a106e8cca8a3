package processor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/jsonline"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/closing"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor/internal/message"
	"github.com/queuepump/queuepump/pump/processor/internal/poll"
	"github.com/queuepump/queuepump/pump/processor/internal/record"
	"github.com/queuepump/queuepump/pump/storage"
)

// newerDelay is for how long a message of a newer format is released. A processor that
// reads it is probably being rolled out right now.
const newerDelay = time.Minute

// metAge is how old a message must be for its delivery to be noted, because its run may have no
// distributor to continue it: younger messages cost nothing.
const metAge = time.Minute

// receive takes what a get brought: every message is kept from here on, and
// its header says where it goes. It runs in the get's goroutine and returns how many
// of the messages belong to this process, and how many are of runs that are dropped or paused.
func (r *run) receive(g poll.Get) (own, aside int) {
	msgs := g.Messages
	r.Messages.Add(len(msgs))
	g.Queue.Account.Hold(len(msgs))
	settler := r.settlers.Of(g.Queue)
	delivered := make([]*message.Delivery, len(msgs))
	for i := range msgs {
		delivered[i] = r.deliver(&g, &msgs[i], settler)
	}
	r.Runs.Ahead(r.Wire, runsOf(delivered))
	work := make([]*message.Delivery, 0, len(msgs))
	waiting := false
	for _, d := range delivered {
		if d.Whole == nil && r.aside.isPaused() { // asked once it is kept; see followPause
			d.Whole, d.Waits = notNow(r.Jitter, d, 0), false
		}
		if !d.PassedOn() {
			own++
		}
		if r.aside.putOffQuickly(d) || r.aside.dropQuickly(d) {
			aside++
		}
		if d.Waits && r.lobby.add(d) {
			waiting = true
			continue
		}
		if r.accept(d, len(msgs) < g.Limit) {
			work = append(work, d)
		}
	}
	if waiting {
		r.lobby.releaseReady() // segments may have become ready meanwhile
	}
	for _, d := range r.backlog.Add(work, g.Room) {
		d.Settle()
	}
	return own, aside
}

// runsOf are the runs of messages to be worked on now. A run is there once if its messages stand
// side by side, as they mostly do.
func runsOf(delivered []*message.Delivery) (runs []pump.RunID) {
	for _, d := range delivered {
		id := d.Header.Run
		if d.Whole != nil || d.Waits || id == (pump.RunID{}) || len(runs) > 0 && runs[len(runs)-1] == id {
			continue
		}
		runs = append(runs, id)
	}
	return runs
}

// accept reports whether a message is to be worked on. It has any other message settled; with hint
// the owner of a message that is passed on is told to look.
func (r *run) accept(d *message.Delivery, hint bool) bool {
	if d.Whole == nil && !r.o.Discard {
		r.backlog.SetSplitting(d, d.Count > 1 && r.trials.Suspects(d))
		return true
	}
	d.Started.Store(true)
	if d.Whole == nil {
		r.discard(d)
	}
	if d.PassedOn() {
		d.Text, d.Key, d.Body = nil, nil, nil
		d.Whole.Hint = d.Whole.Delay > 0 || hint
	}
	r.backlog.Weigh(d)
	d.Settler.Add(d)
	return false
}

// discard settles a message without a handler.
func (r *run) discard(d *message.Delivery) {
	count := d.Count
	if r.recorder == nil {
		d.Whole = &message.Disposition{Forget: true}
	} else if d.Whole = r.beginRun(r.Wire, d); d.Whole == nil {
		d.Whole = r.unpack(d) // it is of no run, or a part of it is of a run that has ended
	}
	if d.Whole == nil {
		d.Outcomes.Make(d.Count)
		r.recorder.Screen(d)
		d.Reject()
		return
	}
	if r.recorder != nil && !d.Whole.Record {
		return
	} else if d.Begun.Len() > 0 {
		count = d.Begun.Len()
	}
	d.Text, d.Key, d.Body = nil, nil, nil
	r.Counts.Handled.Add(int64(count))
	r.Tallies.Add(d.Header.Run, workload.Tally{Handled: uint64(count)})
}

// deliver makes a delivery of a message and judges its header.
func (r *run) deliver(g *poll.Get, m *storage.Message, settler message.Settler) *message.Delivery {
	s, sent, lease := g.Queue, g.Sent, g.Lease
	d := &message.Delivery{
		Queue: s, Settler: settler, ID: m.ID, Text: m.Text, Inserted: m.Inserted, Dequeued: m.Dequeued,
		Together: len(g.Messages), Segments: r.Workload.Map.Segments,
	}
	d.Age = message.AgeOf(m, lease)
	d.Ctx, d.End = context.WithCancelCause(r.work)
	r.Counts.Envelopes.Add(1)

	var err error
	d.Header, err = codec.ReadHeader(m.Text)
	switch {
	case errors.Is(err, codec.ErrForeign):
		d.Foreign = s.Name + "/" + m.ID
		d.Key, d.Body = r.foreign.Read(m.Text)
		d.Header = codec.Header{
			Workload: r.Cfg.Workload, Tasks: codec.MakeNSet(0),
			Segment: jsonline.ForeignSegment(m.Text, d.Key, r.Workload.Map.Segments),
		}
		if size := len(d.Body); size > len(m.Text) { // it waits as small as it came
			d.Body, d.Read, d.Header.RawLen = nil, r.foreign.Read, uint64(size)
		}
	case errors.Is(err, codec.ErrVersion):
		// Another process writes a format that this process cannot read. The message is not at fault, so
		// it waits, for ever if need be (P4.6).
		r.AlarmOnce("version", "message of a newer format; this processor must be upgraded",
			"message", d.String(), "error", err)
		d.Whole = &message.Disposition{
			Delay: r.Jitter.Around(newerDelay, "newer", m.ID, uint64(m.Dequeued)),
		}
	case err != nil:
		d.Whole = unreadable(err)
	case d.Header.Workload != r.Cfg.Workload:
		d.Whole = &message.Disposition{
			Reason: codec.ReasonOtherWorkload,
			Detail: fmt.Sprintf("the message belongs to workload %q", d.Header.Workload),
		}
	case int(d.Header.Segment) >= r.Workload.Map.Segments:
		d.Whole = &message.Disposition{
			Reason: codec.ReasonCorrupt,
			Detail: fmt.Sprintf("segment %d of %d", d.Header.Segment, r.Workload.Map.Segments),
		}
	}
	d.Born, d.Exact = d.Readiness(sent, d.Age)
	d.Count = d.Header.Tasks.Len()
	if d.Age >= metAge {
		r.Tallies.AddMet(d.Header.Run, lease)
	}
	if d.Sent = sent; d.Whole == nil {
		d.Whole, d.Waits = r.route(d)
	}
	// Last, because the keeper may find at once that the lease is over.
	r.keeper.Keep(d, m.Receipt, sent, lease)
	return d
}

// route says what becomes of a message whose header is readable: nil if this process is to work on
// it; or it waits until its owner is known.
func (r *run) route(d *message.Delivery) (whole *message.Disposition, waits bool) {
	if !r.segments.own(d) {
		if r.segments.waits(d.Header.Segment) {
			return nil, true
		}
		return r.segments.notMine(d), false
	}
	r.spills.got(d.Queue, d.Header.Segment, d.Sent)
	if d.Foreign != "" {
		r.Counts.Foreign.Add(1)
	}
	return nil, false
}

// unreadable is the quarantine of a text that will never be readable.
func unreadable(err error) *message.Disposition {
	w := &message.Disposition{Reason: codec.ReasonCorrupt, Detail: err.Error()}
	switch {
	case errors.Is(err, codec.ErrTruncated):
		w.Reason = codec.ReasonTruncated
	case errors.Is(err, codec.ErrBomb):
		w.Reason = codec.ReasonBomb
	}
	return w
}

// openAll opens messages until the backlog has ended.
func (r *run) openAll(ctx context.Context) {
	for {
		r.Cfg.Sim.Seeding.Turn.Wait("open")
		if d := r.backlog.ToOpen(); d != nil {
			r.open(ctx, d)
		} else if !r.backlog.AwaitOpenable() {
			return
		}
	}
}

// open unpacks one message, after asking whether its run is known (P1.3), and
// makes its tasks startable.
func (r *run) open(ctx context.Context, d *message.Delivery) {
	d.Whole = r.beginRun(ctx, d)
	if d.Whole == nil && r.trials.Enqueue(d) {
		return // it is opened when its trial begins
	}
	if d.Whole == nil {
		d.Whole = r.unpack(d)
	}
	if d.Whole != nil {
		r.backlog.SetAside(d)
		d.Settle()
		return
	}
	r.Cfg.Sim.Seeding.Turn.Wait("opened", d.Queue.Account.Name, d.ID)
	r.backlog.SetSplitting(d, false)
	d.Outcomes.Make(d.Count)
	if r.recorder != nil {
		r.recorder.Screen(d)
	}
	if d.Ended {
		d.Reject()
	}
	// The keeper does not show a suspect to a pause that comes while its attempt is written down.
	if d.Ended || r.aside.isPaused() || r.aside.putOffTasks(d) {
		r.backlog.SetAside(d)
		d.Settle()
		return
	}
	if r.Reducer != nil {
		d.Contributions = make([]*any, d.Count)
	}
	if r.o.Results {
		d.Results = make([][]byte, d.Count)
	}
	d.Outcomes.Await(d.Starts())
	if !r.backlog.Open(d) {
		d.Settle()
	}
}

func (r *run) unpack(d *message.Delivery) *message.Disposition {
	if d.Foreign != "" {
		body := d.Content()
		if d.Read == nil { // it is put back as it came, and a handler may change what it gets in place
			body = bytes.Clone(body)
		}
		d.Tasks = []pump.Task{{
			Segment: d.Header.Segment, Key: bytes.Clone(d.Key), Body: body, Epoch: d.Epoch,
			Attempt: int(d.Header.Attempt) + 1, Foreign: d.Foreign,
		}}
		if w := r.cutArray(d); w != nil {
			return w
		}
		return r.beginForeign(d)
	}
	if d.Header.Run != (pump.RunID{}) { // else see beginForeign
		if w := r.trials.KillsProcess(d); w != nil {
			return w
		}
	}
	env, err := codec.Open(d.Text, codec.Limits{})
	if err != nil {
		return unreadable(err)
	}
	d.Env = env
	d.Tasks = d.Unpacked(env.Tasks)
	if w := r.trials.Split(d); w != nil {
		return w
	}
	if w := r.cutArray(d); w != nil {
		return w
	}
	if d.Header.Run == (pump.RunID{}) || d.Runless {
		return r.beginForeign(d)
	}
	return nil
}

// beginRun asks whether the tasks of a run are to be started (P1.3), and says what to do with the
// message if no task is.
func (r *run) beginRun(ctx context.Context, d *message.Delivery) *message.Disposition {
	if d.Asked || d.Header.Run == (pump.RunID{}) {
		return nil
	}
	d.Asked = true
	if r.recorder != nil {
		return r.recorder.Begin(ctx, d)
	}
	switch verdict := r.Runs.Look(ctx, d.Header.Run); verdict {
	case closing.Rest:
		if d.Header.Generation == 0 {
			return record.Duplicate(r.Env, d)
		}
	default:
		if w, over := record.Beyond(r.Env, d, verdict, !r.recorder.AtLeastOnce()); over {
			return w
		}
		switch verdict {
		case closing.Ended:
			return record.RunEndedWhole(&d.Header)
		case closing.Dropped:
			return record.Dropped(r.Env, d, d.Count)
		}
	}
	if row.IsTombstone(&d.Header) { // nothing is recorded that it could change
		return &message.Disposition{Forget: true}
	}
	return nil
}

func (r *run) beginForeign(d *message.Delivery) *message.Disposition {
	if r.recorder != nil {
		if w := r.recorder.Gate(d); w != nil {
			return w
		}
		if w := r.recorder.BeginForeign(d); w != nil {
			return w
		}
	}
	w := r.trials.KillsProcess(d)
	// Parsers recurse. A few such messages would end a command so often that it counts as broken, and
	// then the processor, and each one that has them after it.
	if w == nil && d.Header.Run == (pump.RunID{}) && d.Count == 1 &&
		jsonline.TooDeep(d.Tasks[0].Body) {
		w = &message.Disposition{
			Reason: codec.ReasonRejected,
			Detail: "it is JSON nested more than 512 deep, by which parsers may end their processes",
		}
	}
	if w != nil && r.recorder != nil && r.recorder.Once {
		r.recorder.EndForeign(d, []int{0}) // quarantine keeps no record of it
	}
	return w
}

// lost makes sure that no further task of a message is started after its lease is no longer
// trusted, and ends its handlers if ends says so.
func (r *run) lost(d *message.Delivery, ends bool) {
	if ends {
		r.Counts.Lost.Add(1)
		attrs := d.Attrs()
		r.Lines.Of("lost").Add(d.Count, func(messages, _ int) {
			r.Log.Warn("lease lost; the message will be delivered again",
				append(attrs, "messages", messages)...)
		})
		d.End(ErrLeaseEnded)
	}
	r.withdraw(d)
}

// withdraw gives the tasks of a message that were not started the verdict
// unfinished, and settles it if that was all.
func (r *run) withdraw(d *message.Delivery) {
	if r.lobby.remove(d) {
		return
	}
	unstarted, unopened := r.backlog.Withdraw(d)
	defer r.trials.StartDue()
	if unopened {
		d.Settle()
	}
	if unstarted == 0 {
		return
	}
	d.Started.Store(true)
	if d.Outcomes.Withdraw(unstarted) {
		d.Settler.Add(d)
	}
}
