package quarantine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/closing"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
)

// causeFound is a cause that stands in a row of its own, because the text has no room for it.
type causeFound struct {
	row   string
	cause codec.Cause
	used  bool // by a message of this scan
}

// runsKnown is how many runs have their state remembered.
const runsKnown = 4096

// causesMost bounds how many rows of causes are read. Each is of a full text in quarantine.
const causesMost = 100_000

// readCauses reads the causes that stand in rows. A damaged row is left out: its message is then
// shown without a cause.
func (q *Quarantine) readCauses(ctx context.Context) error {
	q.rows = map[string][]causeFound{}
	n := 0
	for e, err := range q.of.Queues.Control.Query(ctx,
		storage.Query{Partition: row.CausePartition(q.of.Cfg.Workload)}) {
		if err != nil {
			return q.of.Advise(ctx, err)
		}
		if n++; n > causesMost {
			q.of.Cfg.Log.Warn("there are more causes in rows than are read; some messages are shown without",
				"read", causesMost)
			break
		}
		hash, _ := e.Properties["Text"].(string)
		c := causeFound{row: e.Row}
		c.cause.Reason, _ = e.Properties["Reason"].(string)
		c.cause.Detail, _ = e.Properties["Detail"].(string)
		c.cause.Instance, _ = e.Properties["Instance"].(string)
		c.cause.First, _ = e.Properties["First"].(time.Time)
		c.cause.Last, _ = e.Properties["Last"].(time.Time)
		if attempts, ok := e.Properties["Attempts"].(int64); ok {
			c.cause.Attempts = uint32(min(max(attempts, 0), 1<<31))
		}
		q.rows[hash] = append(q.rows[hash], c)
	}
	return nil
}

// causeOf gives the row of the cause of a text, each to one message.
func (q *Quarantine) causeOf(text []byte) *causeFound {
	list := q.rows[row.TextHash(text)]
	for i := range list {
		if !list[i].used {
			list[i].used = true
			return &list[i]
		}
	}
	return nil
}

// judge reads a message, says whether the filter means it and whether it can be redriven.
func (q *Quarantine) judge(
	ctx context.Context, account string, m *storage.Message, f *Filter,
) *Message {
	qm := &Message{
		Account: account, ID: m.ID, Put: m.Inserted, Tasks: 1, text: m.Text, key: f.Key,
		segments: q.of.Workload.Map.Segments,
	}
	var err error
	qm.header, err = codec.ReadHeader(m.Text)
	qm.foreign = errors.Is(err, codec.ErrForeign)
	qm.intact = err == nil
	cause := qm.header.Cause
	if cause == nil {
		if qm.row = q.causeOf(m.Text); qm.row != nil {
			cause = &qm.row.cause
		}
	}
	if cause != nil {
		qm.Reason, qm.Detail, qm.Instance, qm.Attempts = cause.Reason, cause.Detail, cause.Instance,
			cause.Attempts
		qm.First, qm.Last = orNil(cause.First), orNil(cause.Last)
	}
	if qm.intact {
		h := &qm.header
		qm.Tasks, qm.Generation, qm.Segment = h.Tasks.Len(), h.Generation, new(h.Segment)
		if !h.Run.IsZero() {
			qm.Run = h.Run.String()
		}
	}
	if !f.means(qm) {
		return qm
	}
	qm.Matching = qm.Tasks
	if f.Key != nil {
		tasks, e := qm.Open()
		if qm.Matching = len(tasks); e != nil || qm.foreign {
			qm.Matching = 0 // without its text no key is known
		}
	}
	if qm.Matching > 0 {
		qm.Problem = q.problem(ctx, qm, err)
	}
	return qm
}

// orNil is a time, nil if there is none.
func orNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// means reports whether the filter means a message, apart from its tasks and their keys.
func (f *Filter) means(m *Message) bool {
	at := m.Put
	if m.Last != nil {
		at = *m.Last
	}
	switch {
	case len(f.Reasons) > 0 && !slices.Contains(f.Reasons, m.Reason),
		len(f.IDs) > 0 && !slices.Contains(f.IDs, m.ID),
		!f.Since.IsZero() && at.Before(f.Since),
		!f.Until.IsZero() && !at.Before(f.Until):
		return false
	case f.Run.IsZero(), m.header.Run == f.Run:
		return true
	}
	// A bad line has no identity in its run, and says where it comes from.
	return m.Reason == codec.ReasonBadLine && strings.Contains(m.Detail, "run "+f.Run.String()+":")
}

// problem says why a message cannot be redriven; empty if it can. err is that of its header.
func (q *Quarantine) problem(ctx context.Context, m *Message, err error) string {
	switch h := &m.header; {
	case m.foreign:
		return ""
	case errors.Is(err, codec.ErrVersion):
		return "it has a newer format than this program knows; use a newer one"
	case err != nil:
		return "it is damaged: " + err.Error()
	case h.Workload != q.of.Cfg.Workload:
		return fmt.Sprintf("it belongs to workload %q; a processor of that workload would "+
			"do it, and none of this one",
			h.Workload)
	case int64(h.Segment) >= int64(q.of.Workload.Map.Segments):
		return fmt.Sprintf("it says segment %d of %d", h.Segment, q.of.Workload.Map.Segments)
	case m.Reason == codec.ReasonBadLine:
		return "no task could be made of this line; correct its source, and distribute that again"
	case m.Reason == codec.ReasonTruncated, m.Reason == codec.ReasonCorrupt,
		m.Reason == codec.ReasonBomb:
		if env, err := codec.Open(m.text, codec.Limits{}); err != nil {
			return "it cannot be unpacked: " + err.Error()
		} else {
			env.Release()
		}
	}
	if run := m.header.Run; !run.IsZero() {
		switch s := q.runState(ctx, run); {
		case s.err != nil:
			return "its run's row cannot be read: " + s.err.Error()
		case s.former(m):
			return "it is of a former run of this name, and a later run has the id: it would be taken " +
				"for a task of that one; drop it, and send what it has under another name"
		case s.closed:
			return "its run is closed: it was done, and would be deleted unread"
		}
	}
	return ""
}

// runSeen is what a run's row says.
type runSeen struct {
	// closed: the run is done, and nothing of it was in quarantine. told: owners keep a ledger of the
	// run, so they are told of what is dropped. A redriven task of any other run is done under another
	// identity.
	closed, told bool
	// ended: its tasks are not started under their numbers any more, and owners still keep a ledger
	// of it.
	ended bool
	// forgot: no row or ledger says any more which of its tasks are done. changed is when the row last
	// changed, for the message about it.
	forgot  bool
	changed time.Time
	born    time.Time // of a run with a name in delivery mode once: when its row was made
	err     error
}

// former reports whether a message came into quarantine before its run was made: it is of a former
// run of the name. [workload.NameKept] was between the two, and no two clocks differ by half of it.
func (s *runSeen) former(m *Message) bool { return m.Put.Add(workload.NameKept / 2).Before(s.born) }

// keeps is what the ledger keeps of the run.
func (s *runSeen) keeps() workload.Keeping {
	switch {
	case s.told:
		return workload.KeepsAll
	case s.ended:
		return workload.KeepsNumbers
	}
	return workload.KeepsNothing
}

// runState reads a run's row, once for each run.
func (q *Quarantine) runState(ctx context.Context, id pump.RunID) runSeen {
	q.runBusy <- struct{}{}
	defer func() { <-q.runBusy }()
	s, ok := q.known[id]
	if ok && s.err == nil {
		return s
	}
	var run workload.Run
	var born time.Time
	err := waits.Within(ctx, func(ctx context.Context) (err error) {
		run, err = q.runs.Get(ctx, id)
		if err == nil && run.Name != "" && pump.Delivery(q.mapNow().Delivery) == pump.Once {
			born, err = q.runs.Born(ctx, run)
		}
		return err
	})
	if s = (runSeen{err: err, born: born}); errors.Is(err, pump.ErrNoRun) {
		s.err, s.forgot = nil, true
	} else if err == nil {
		s.forgot, s.changed = run.Over, run.Changed
		switch v := closing.VerdictOf(&run); v {
		case closing.Closed:
			s.closed = true
		case closing.GoOn, closing.Rest:
			s.told = true
		case closing.Ended:
			s.ended = true
		}
	}
	if len(q.known) >= runsKnown {
		clear(q.known)
	}
	q.known[id] = s
	return s
}

// errForgotten says why a task is not redriven if nothing says any more whether it is done.
const errForgotten = "what was done of its run is not known any more: the run's row is gone or " +
	"the run is over, and a copy of it may have been done since; drop it if it was, else redrive " +
	"it with --again"

// forgotten reports whether a copy may have done a message without any record of it. If the message
// came after the run's end and before the run was over, the processor knew that it was not done.
func (q *Quarantine) forgotten(ctx context.Context, m *Message) bool {
	if pump.Delivery(q.mapNow().Delivery) != pump.Once || m.foreign || m.header.Run.IsZero() {
		return false
	}
	s := q.runState(ctx, m.header.Run)
	return s.forgot && !(m.Reason == codec.ReasonRunEnded && m.Put.Before(s.changed))
}

// removeCause removes the row of a cause with its message. A row that stays is only
// ever shown for a message of the same text.
func (q *Quarantine) removeCause(ctx context.Context, c *causeFound) {
	if c == nil {
		return
	}
	err := waits.Within(ctx, func(ctx context.Context) error {
		_, err := q.of.Queues.Control.Write(ctx, storage.Write{
			Mode:   storage.Remove,
			Entity: storage.Entity{Partition: row.CausePartition(q.of.Cfg.Workload), Row: c.row},
		})
		return err
	})
	if err != nil && !storage.Is(err, storage.Gone) {
		q.of.Cfg.Log.Warn("the row that said why a message was quarantined could not be removed",
			"row", c.row, "error", err)
	}
}

// by is the operator's name in causes.
func (q *Quarantine) by() string { return cmp.Or(q.of.Cfg.Instance, "operator") }
