package closing

import (
	"context"
	"fmt"
	"time"

	"github.com/queuepump/queuepump/internal/logs"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/cluster"
)

// HorizonSlack is by how much the ages of rows may be wrong, because they come from stamps of the
// service.
const HorizonSlack = 30 * time.Second

// Horizon is how far the queues are read: each message that was visible before a time has been
// delivered since. The queue that is read least far sets it.
type Horizon struct {
	At time.Time // by the closer's clock; zero: nothing is known
	By string    // what sets it, for people
}

// Horizons finds the horizon of all queues by what the processors say in their beats ("Quiet"
// in docs/protocols.md).
type Horizons struct {
	// held is, by segment, when a processor that says how far it reads was seen to hold it. A
	// workload whose segments have no owners counts as one segment, which each processor that polls
	// queues holds.
	held []time.Time
}

// Look gives the horizon by a view of the cluster. A segment counts from when it was last seen with
// a processor that says how far it reads: a segment without such an owner holds the horizon back.
func (h *Horizons) Look(v *cluster.View, segments int) Horizon {
	shared := v.Workload != nil && v.Workload.Shared
	if shared {
		segments = 1
	}
	if len(h.held) != segments {
		h.held = make([]time.Time, segments)
	}
	stamp := v.Stamp()
	found := Horizon{At: v.Read}
	silent := ""
	for i := range v.Members {
		m := &v.Members[i]
		switch {
		case m.Role != cluster.RoleProcessor && m.Err == nil || m.Silent(stamp):
			continue
		case m.Err != nil:
			silent = m.Instance
			continue
		case m.Unread == 0: // it has not read yet
			continue
		}
		written := v.Read.Add(-stamp.Sub(m.Beat))
		if shared && m.Queues > 0 {
			h.held[0] = written
		}
		for s := range m.Holds.All() {
			if int(s) < segments {
				h.held[s] = written
			}
		}
		if at := written.Add(-time.Duration(m.Unread * float64(time.Second))); (m.Queues > 0 ||
			m.Holds.Len() > 0) &&
			at.Before(found.At) {
			found = Horizon{at, fmt.Sprintf("queue %s, which %s reads", m.UnreadQueue, m.Instance)}
			if m.Unread >= NeverRead {
				found.At = time.Time{}
			}
		}
	}
	for s, at := range h.held {
		if at.Before(found.At) {
			what := fmt.Sprintf("segment %d, which no processor holds", s)
			if silent != "" {
				what = fmt.Sprintf("segment %d, which no processor of this version holds; %s has another",
					s, silent)
			}
			if shared {
				what = "the queues, which no processor reads"
			}
			found = Horizon{at, what}
		}
	}
	if !found.At.IsZero() {
		found.At = found.At.Add(-HorizonSlack)
	}
	return found
}

// NeverRead is, in seconds, what a processor says if it does not know how far a queue is read.
const NeverRead = 1e8

// HorizonBy gives the function by which a closer learns the horizon.
func (c *Closer) HorizonBy(view func(context.Context) (*cluster.View, error)) {
	h := &Horizons{}
	c.Far = func(ctx context.Context) (Horizon, error) {
		v, err := view(ctx)
		c.view = v
		if err != nil || v == nil {
			return Horizon{By: "the control account, which does not answer"}, err
		}
		return h.Look(v, c.segments), nil
	}
}

// waiting are runs that would have ended, did messages of theirs not perhaps wait unread.
type waiting struct {
	runs  int
	first pump.RunID
	told  logs.Limited
}

// waitsEvery is how often it is said what runs wait for.
const waitsEvery = 10 * time.Minute

func (w *waiting) add(id pump.RunID) {
	if w.runs++; w.runs == 1 {
		w.first = id
	}
}

// tellWaits says what keeps runs from ending.
func (c *Closer) tellWaits() {
	w := &c.waits
	if w.runs > 0 && w.told.Due() {
		attrs := []any{"runs", w.runs, "first", w.first.String(), "held_back_by", c.horizon.By}
		if !c.horizon.At.IsZero() {
			attrs = append(attrs, "behind", time.Since(c.horizon.At).Round(time.Second))
		}
		c.log.Warn(
			"runs that no process continues do not end yet: tasks of them may wait in a queue "+
				"that is not read so far; you can end them with: distributor runs end",
			attrs...)
	}
	w.runs = 0
}
