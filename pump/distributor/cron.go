package distributor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor/internal/due"
	"github.com/queuepump/queuepump/pump/internal/election"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/source"
)

// A due time is the name of its run, so the run's id follows from it, and any leader finds the run
// that a former one made. The election row says up to when due times are considered. If it is gone
// or came back older, a due time is considered again, and its run tells that it was made.

const (
	// mostTries is how many runs a due time has at most, each because the one before it broke.
	mostTries = 5
	// againPause and mostPause are the pauses before a due time begins again.
	againPause, mostPause = time.Minute, 10 * time.Minute
)

// dueName is the name of a run of a due time. No other run can have it: it has a space.
func dueName(at time.Time, try int) string {
	name := "cron " + at.UTC().Format(time.RFC3339)
	if try > 1 {
		name += fmt.Sprintf(".%d", try)
	}
	return name
}

// schedule reads Cron and what belongs to it; nil: there is none.
func (o *Options) schedule(kept time.Duration) (s *election.Schedule, err error) {
	switch {
	case o.Missed != "" && o.Missed != "once" && o.Missed != "skip":
		return nil, pump.Invalid("missed", fmt.Sprintf("%q is not possible", o.Missed),
			"use once or skip")
	case o.Cron != "":
		if s, err = due.Parse(o.Cron, o.Timezone); err == nil {
			s.Skip, s.Kept = o.Missed == "skip", kept
		}
	case o.Timezone != "" || o.Missed != "":
		err = pump.Invalid("cron", "timezone and missed belong to it, and it is not given",
			"give cron, for example '0 6 * * 1-5', or leave them out")
	}
	return s, err
}

// wanted is the run that this term makes: with a schedule that of the latest due time or, if it
// broke, its next try. Nil: none. Open says that it has a row already.
func (t *term) wanted(ctx context.Context) (r *run, open bool, err error) {
	d := t.d
	if d.cron == nil {
		return t.begin(), false, nil
	}
	at, now, err := t.won.Due(ctx)
	if err != nil || at.IsZero() {
		return nil, false, err
	}
	d.nextDue.Store(new(d.cron.Next(at)))
	for try := 1; try <= mostTries; try++ {
		name := dueName(at, try)
		id := workload.NamedRun(d.router.Current().Workload.Incarnation, name)
		_, err := d.runs.Get(ctx, id)
		if errors.Is(err, pump.ErrNoRun) {
			r := t.begin()
			r.id, r.name, r.try = id, name, try
			r.log = d.cfg.Log.With("name", name, "run", id.String())
			if late := now.Sub(at); late > time.Minute {
				r.log.Warn("a due time is made late", "late", late.Round(time.Second))
			}
			return r, false, nil
		}
		var over bool
		if err == nil {
			r, over, err = t.resume(ctx, &election.Resume{Run: id})
		}
		if over { // it was made before; the row shall name it
			err = t.won.Begin(ctx, id)
		}
		if r != nil || over || err != nil {
			return r, true, err
		}
	}
	d.cfg.Log.Error("a due time is given up: each of its runs broke", "due", at, "runs", mostTries)
	return nil, false, nil
}

// again has a due time begin again after a pause, because its run broke or, without a run, because
// the source cannot be sent.
func (t *term) again(r *run, err error) {
	d, n, log := t.d, t.d.unread, t.d.cfg.Log
	if d.cron == nil || r != nil && (!r.broken || r.over.Load()) { // over: an operator ended it
		return
	}
	if d.unread++; r != nil {
		n, log = uint64(max(r.try, 1)-1), r.log
		if _, bad := errors.AsType[*source.BadInput](err); bad || r.try == mostTries {
			log.Error("the due time is given up: the record would break it again, or each run broke",
				"error", err)
			return
		}
	}
	pause := waits.Doubled(againPause, mostPause, n)
	log.Error("the due time begins again after a pause", "error", err, "pause", pause)
	t.won.PutOff(pause)
}
