package scenario

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/queuepump/queuepump/pump/source"
)

// taskSource hands the tasks of a schedule to the distributor, each when it is due. It
// is used for one run.
type taskSource struct {
	id       string
	schedule schedule
	end      time.Duration // tasks that are not taken by then are not sent
	options  *Options
	record   *recorder
	put      func() int64 // messages that were put so far

	opened chan struct{} // closed when the distributor begins to read: the workload exists
	begin  chan struct{} // closed when the load begins

	// The fields below belong to the reader until the distributor's Run has returned.
	n      uint64
	groups [256]groupSent
	unsent int64
}

// groupSent is what was sent of a group.
type groupSent struct {
	count int64
	first time.Duration // when the first was due
}

func newSource(id string, p *plan, o *Options, r *recorder, put func() int64) *taskSource {
	return &taskSource{
		id: id, schedule: schedule{loads: p.loads()}, end: p.end(), options: o, record: r, put: put,
		opened: make(chan struct{}), begin: make(chan struct{}),
	}
}

// Fingerprint implements [source.Source]: a load cannot be read again.
func (s *taskSource) Fingerprint(context.Context) (string, error) { return "", nil }

// Open implements [source.Source].
func (s *taskSource) Open(context.Context, []byte) (source.Reader, error) {
	close(s.opened)
	return &reader{taskSource: s}, nil
}

type reader struct {
	*taskSource
	// Records are valid until the call after the next, so there are two buffers by turns.
	keys, bodies [2][]byte
	timer        *time.Timer
}

// Next implements [source.Reader].
func (r *reader) Next(ctx context.Context) (source.Record, error) {
	select {
	case <-r.begin:
	default:
		select {
		case <-r.begin:
		case <-ctx.Done():
			return source.Record{}, ctx.Err()
		}
	}
	for {
		now := r.record.now()
		d, ok := r.schedule.next(now)
		if !ok {
			return source.Record{}, io.EOF
		}
		if !d.taken && now >= r.end {
			r.unsent = 1 + r.schedule.rest()
			return source.Record{}, io.EOF
		}
		if d.at > now {
			if err := r.wait(ctx, d.at-now); err != nil {
				return source.Record{}, err
			}
			now = r.record.now()
		}
		if d.taken {
			if err := r.room(ctx, d.load); err != nil {
				return source.Record{}, err
			}
			if now = r.record.now(); now >= d.load.until {
				continue // the window had no room until that load was over
			}
			d.at = now
		}
		return r.task(d, now), nil
	}
}

// task makes the next task.
func (r *reader) task(d due, now time.Duration) source.Record {
	t := task{n: r.n, at: d.at, sent: now, group: d.group}
	if d.taken {
		t.at = noSchedule
	}
	i := r.n & 1
	r.n++
	key := xxhash.Sum64String(strconv.FormatUint(t.n, 16)) // evenly spread, and the same in every test
	if hot := r.options.HotShare; hot > 0 && float64(key>>11)/(1<<53) < hot {
		t.group = groupHot
		r.keys[i] = append(r.keys[i][:0], "the-hot-key"...)
	} else {
		r.keys[i] = fmt.Appendf(r.keys[i][:0], "key-%06d", key%uint64(r.options.Keys))
	}
	r.bodies[i] = appendTask(r.bodies[i][:0], r.id, t, r.options.TaskBytes)
	g := &r.groups[t.group]
	if g.count == 0 {
		g.first = d.at
	}
	g.count++
	r.record.sent.Add(1)
	return source.Record{Key: r.keys[i], Body: r.bodies[i]}
}

// wait waits for a time.
func (r *reader) wait(ctx context.Context, d time.Duration) error {
	if r.timer == nil {
		r.timer = time.NewTimer(d)
	} else {
		r.timer.Reset(d)
	}
	select {
	case <-r.timer.C:
		return nil
	case <-ctx.Done():
		r.timer.Stop()
		return ctx.Err()
	}
}

// room waits until there is room in the window, or the load is over.
func (r *reader) room(ctx context.Context, l *load) error {
	for r.under(l) >= l.window && r.record.now() < l.until {
		select {
		case <-r.record.handledSome:
		case <-time.After(roomLook):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// under is how many tasks are under way, as the load counts them.
func (r *reader) under(l *load) int64 {
	if !l.unhandled {
		return r.record.waiting()
	}
	// in a message; more if as many as fit, and then fewer messages are under way
	tasks := int64(max(r.options.Pack, 1))
	return r.record.sent.Load() - tasks*r.put()
}

// roomLook is how long a full window is waited for at a time: puts and the end of the load
// are noticed that late, a task that is handled at once.
const roomLook = 20 * time.Millisecond

// AppendCursor implements [source.Reader]: nothing is ever resumed.
func (r *reader) AppendCursor(dst []byte) []byte { return dst }

// Progress implements [source.Reader].
func (r *reader) Progress() (done, total int64) { return 0, 0 }

// Close implements [source.Reader].
func (r *reader) Close() error { return nil }
