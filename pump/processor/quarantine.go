package processor

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump/internal/backoff"
	"github.com/queuepump/queuepump/pump/internal/outcome"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/tombstone"
	"github.com/queuepump/queuepump/pump/storage"
)

// condemned is a task that will not be tried again.
type condemned struct {
	task   int
	reason string
	err    error
}

// poisonGroups is how many different causes the tasks of one message may bring
// to the poison queue; more of one reason share the first one's detail.
const poisonGroups = 8

// quarantineTasks makes the poison copies of some of a message's tasks, one for
// each cause.
func (r *processing) quarantineTasks(d *delivery, tasks []condemned) []poisonOrRest {
	type cause struct{ reason, detail string }
	groups := map[cause][]int{}
	var order []cause
	for _, t := range tasks {
		c := cause{t.reason, detailOf(t.err)}
		if _, known := groups[c]; !known && len(order) >= poisonGroups {
			if i := slices.IndexFunc(order, func(o cause) bool { return o.reason == c.reason }); i >= 0 {
				c = order[i]
			}
		}
		if _, known := groups[c]; !known {
			order = append(order, c)
		}
		groups[c] = append(groups[c], t.task)
	}
	var out []poisonOrRest
	for _, c := range order {
		slices.Sort(groups[c])
		out = append(out, r.poisonCopy(d, groups[c], c.reason, c.detail))
	}
	return out
}

func detailOf(err error) string {
	if err == nil {
		return ""
	}
	if o, ok := outcome.Of(err); ok && o.Err == nil {
		return ""
	}
	return err.Error()
}

// poisonCopy makes the poison copy of some of a message's tasks.
func (r *processing) poisonCopy(d *delivery, tasks []int, reason, detail string) poisonOrRest {
	text := d.text
	if d.foreign != "" || len(tasks) < d.count {
		packed, ok := r.pack(d, d.header.Attempt, tasks, storage.MaxText)
		if ok {
			text = packed
		} else if d.foreign == "" {
			// A part of an envelope that does not fit where the whole did: the whole goes.
			detail = fmt.Sprintf("%d of its tasks: %s", len(tasks), detail)
		}
	}
	return r.poisonText(d, text, r.cause(d, reason, detail, 1), len(tasks))
}

// quarantineWhole makes the poison copy of a message as it is.
func (r *processing) quarantineWhole(d *delivery, reason, detail string) []poisonOrRest {
	text, ok := wrapped(d, d.header.Attempt)
	if !ok {
		text = d.text
	}
	return []poisonOrRest{r.poisonText(d, text, r.cause(d, reason, detail, 0), max(d.count, 1))}
}

// cause says why, after how many attempts: those of before and now those of
// this delivery.
func (r *processing) cause(d *delivery, reason, detail string, now uint32) codec.Cause {
	return codec.Cause{
		Reason: reason, Detail: detail, Instance: r.cfg.Instance,
		Attempts: d.header.Attempt + now, First: d.inserted, Last: time.Now(),
	}
}

// poisonText puts the cause into a text's header. A text that has no header to
// put it in, or no room, goes as it is, with its cause in a row (P4.3).
func (r *processing) poisonText(d *delivery, text []byte, c codec.Cause, tasks int) poisonOrRest {
	attrs := append(d.attrs(-1), "reason", c.Reason, "detail", c.Detail)
	r.lines.Of("quarantined "+c.Reason).Add(tasks, func(messages, tasks int) {
		r.log.Warn("quarantined", append(attrs, "messages", messages, "tasks", tasks)...)
	})
	p := poisonOrRest{shard: d.shard.Account.Poison, reason: c.Reason, tasks: tasks}
	if with, err := codec.Quarantined(text, c); err == nil {
		p.text = with
		return p
	}
	p.text = slices.Clone(text)
	p.row = &causeRow{shard: d.shard, message: d.id, cause: c, text: tombstone.TextHash(text)}
	return p
}

// causeRow is a cause that did not fit into its message.
type causeRow struct {
	shard   *queues.Queue
	message string
	cause   codec.Cause
	text    string // tombstone.TextHash
}

// writeCause writes the row that says why a message is in the poison queue.
// Writing it again after a lost answer writes the same row.
func (r *processing) writeCause(c *causeRow) error {
	ctx, cancel := context.WithTimeout(r.wire, backoff.RequestTimeout)
	defer cancel()
	_, err := r.fleet.Control.Write(ctx, storage.Write{Mode: storage.Upsert, Entity: storage.Entity{
		Partition: tombstone.Partition(r.cfg.Workload),
		Row:       c.shard.Account.Name + "." + c.shard.Name + "." + rowSafe(c.message),
		Properties: map[string]any{
			"Reason": c.cause.Reason, "Detail": shorten(c.cause.Detail, 8<<10), "Instance": c.cause.Instance,
			"Attempts": int64(c.cause.Attempts), "First": c.cause.First.UTC(), "Last": c.cause.Last.UTC(),
			"Account": c.shard.Account.Name, "Queue": c.shard.Name, "Message": c.message,
			"Text": c.text,
		},
	}})
	return err
}

// rowSafe is a message id as part of a row key: ids are GUIDs, but they come
// from outside.
func rowSafe(id string) string {
	for _, c := range []byte(id) {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-') {
			return "x" + hex.EncodeToString([]byte(shorten(id, 64)))
		}
	}
	return cmp.Or(shorten(id, 128), "none")
}

func shorten(s string, n int) string { return s[:min(len(s), n)] }
