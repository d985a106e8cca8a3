package trial

import (
	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump/processor/internal/message"
	"github.com/queuepump/queuepump/pump/storage"
)

// splitInto is how many parts a suspicious message is cut into.
const splitInto = 4

// Split gives the pieces of a message that is suspicious and holds more than one task. Else it is
// nil.
func (t *Trials) Split(d *message.Delivery) *message.Disposition {
	if d.Count == 1 || !t.Suspects(d) {
		return nil
	}
	pieces, ok := t.cut(d)
	if !ok {
		t.Log.Warn("a message came back suspiciously often and cannot be split; it is opened as it is",
			append(d.Attrs(), "deliveries", d.Dequeued)...)
		return nil
	}
	t.Log.Info("a message came back suspiciously often; it is split, to find the task "+
		"that may end its processes",
		append(d.Attrs(), "deliveries", d.Dequeued, "attempts", d.Header.Attempt, "tasks", d.Count,
			"into", len(pieces))...)
	return &message.Disposition{Pieces: pieces}
}

// cut cuts a suspicious message into pieces of fewer tasks, put beside it before it is deleted. No
// task was started, so nothing is recorded and no attempt is counted; a crash in between leaves
// pieces and the whole, whose tasks have the same identities. ok is false if a task cannot be put
// into a message of its own.
func (t *Trials) cut(d *message.Delivery) (pieces []message.Copy, ok bool) {
	parts := min(splitInto, d.Count)
	for i := range parts {
		from, to := i*d.Count/parts, (i+1)*d.Count/parts
		tasks := make([]int, 0, to-from)
		for i := from; i < to; i++ {
			tasks = append(tasks, i)
		}
		if pieces, ok = cutTasks(d, pieces, tasks); !ok {
			return nil, false
		}
	}
	return pieces, true
}

// cutTasks adds a message of some of a message's tasks, or several if it would not fit: tasks that
// are alike take more room apart. It is not ok if a task cannot be put into a message of its own.
func cutTasks(
	d *message.Delivery, pieces []message.Copy, tasks []int,
) (_ []message.Copy, ok bool) {
	text, ok := d.Pack(d.Apart(), tasks, storage.MaxText-codec.DefaultHeadroom)
	if !ok && len(tasks) == 1 {
		text, ok = d.Pack(d.Apart(), tasks, storage.MaxText)
	}
	switch {
	case ok:
		return append(pieces, message.Copy{Queue: d.Queue, Text: text, Tasks: len(tasks)}), true
	case len(tasks) == 1:
		return nil, false
	}
	middle := len(tasks) / 2
	if pieces, ok = cutTasks(d, pieces, tasks[:middle]); !ok {
		return nil, false
	}
	return cutTasks(d, pieces, tasks[middle:])
}

// PlanSplit settles a message that is cut into pieces. Without trust in the lease the message is
// left to the process that has it now.
func (t *Trials) PlanSplit(d *message.Delivery) *message.Plan {
	if !t.Keeper.Trusted(d) {
		return &message.Plan{Final: message.StepForget}
	}
	if d.Count > 1 { // else it is an array of another program's
		t.Counts.Split.Add(1)
	}
	return &message.Plan{Copies: d.Whole.Pieces, Final: message.StepDelete, Released: d.Count}
}
