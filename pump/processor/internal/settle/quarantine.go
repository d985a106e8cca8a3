package settle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/processor/internal/message"
	"github.com/queuepump/queuepump/pump/storage"
)

// poisonGroups is how many different causes the tasks of one message may bring to the poison queue;
// further causes of one reason share the first one's detail.
const poisonGroups = 8

// quarantineTasks makes the poison copies of some of a message's tasks, one for
// each cause.
func (r *Settlers) quarantineTasks(
	d *message.Delivery, tasks []message.ToQuarantine,
) []message.Copy {
	type cause struct{ reason, detail string }
	groups := map[cause][]int{}
	var order []cause
	for _, t := range tasks {
		c := cause{t.Reason, detailOf(t.Err)}
		if _, known := groups[c]; !known && len(order) >= poisonGroups {
			if i := slices.IndexFunc(order, func(o cause) bool { return o.reason == c.reason }); i >= 0 {
				c = order[i]
			}
		}
		if _, known := groups[c]; !known {
			order = append(order, c)
		}
		groups[c] = append(groups[c], t.Task)
	}
	var out []message.Copy
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
	if e, _ := errors.AsType[*pump.TaskError](err); e != nil && e.Err == nil {
		return ""
	}
	return err.Error()
}

// poisonCopy makes the poison copy of some of a message's tasks.
func (r *Settlers) poisonCopy(
	d *message.Delivery, tasks []int, reason, detail string,
) message.Copy {
	text := d.Text
	if d.Foreign != "" || len(tasks) < d.Count {
		packed, ok := d.Pack(d.Apart(), tasks, storage.MaxText)
		if ok {
			text = packed
		} else if d.Foreign == "" {
			// A part of an envelope that does not fit where the whole did: the whole goes.
			detail = fmt.Sprintf("%d of its tasks: %s", len(tasks), detail)
		}
	}
	return r.poisonText(d, text, r.cause(d, reason, detail, 1), len(tasks))
}

// quarantineWhole makes the poison copy of a message as it is.
func (r *Settlers) quarantineWhole(d *message.Delivery, reason, detail string) []message.Copy {
	text, ok := d.Wrap(d.Header.Attempt)
	if !ok {
		text = d.Text
	}
	return []message.Copy{r.poisonText(d, text, r.cause(d, reason, detail, 0), max(d.Count, 1))}
}

// cause says why, and after how many attempts: the earlier ones and those of this delivery.
func (r *Settlers) cause(d *message.Delivery, reason, detail string, now uint32) codec.Cause {
	return codec.Cause{
		Reason: reason, Detail: detail, Instance: r.Cfg.Instance,
		Attempts: d.Header.Attempt + now, First: d.Inserted, Last: time.Now(),
	}
}

// poisonText puts the cause into a text's header. A text without a header for the cause, or without
// room, goes as it is, with its cause in a row (P4.3).
func (r *Settlers) poisonText(
	d *message.Delivery, text []byte, c codec.Cause, tasks int,
) message.Copy {
	attrs := append(d.Attrs(), "reason", c.Reason, "detail", c.Detail)
	r.Lines.Of("quarantined "+c.Reason).Add(tasks, func(messages, tasks int) {
		r.Log.Warn("quarantined", append(attrs, "messages", messages, "tasks", tasks)...)
	})
	p := message.Copy{Queue: d.Queue.Account.Poison, Reason: c.Reason, Tasks: tasks}
	if with, err := codec.Quarantined(text, c); err == nil {
		p.Text = with
		return p
	}
	p.Text = slices.Clone(text)
	p.Row = &message.CauseRow{Queue: d.Queue, Message: d.ID, Cause: c, Text: row.TextHash(text)}
	return p
}

// writeCause writes the row that says why a message is in the poison queue.
// Writing it again after a lost answer writes the same row.
func (r *Settlers) writeCause(c *message.CauseRow) error {
	ctx, cancel := context.WithTimeout(r.Wire, waits.RequestTimeout)
	defer cancel()
	_, err := r.Queues.Control.Write(ctx, storage.Write{Mode: storage.Upsert, Entity: storage.Entity{
		Partition: row.CausePartition(r.Cfg.Workload),
		Row:       message.RowKey(c.Queue.Account.Name, c.Queue.Name, c.Message),
		Properties: map[string]any{
			"Reason": c.Cause.Reason, "Detail": c.Cause.Detail[:min(len(c.Cause.Detail), 8<<10)],
			"Instance": c.Cause.Instance, "Attempts": int64(c.Cause.Attempts), "First": c.Cause.First.UTC(),
			"Last": c.Cause.Last.UTC(), "Account": c.Queue.Account.Name, "Queue": c.Queue.Name,
			"Message": c.Message, "Text": c.Text,
		},
	}})
	return err
}
