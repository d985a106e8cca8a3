package processor

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/jsonline"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/processor/internal/message"
	"github.com/queuepump/queuepump/pump/storage"
)

// mostElements is how many tasks an array of another program's message may be. A longer one is a
// single task.
const mostElements = 10_000

// cutDelay is for how long an array waits in a foreign queue until the map says where its tasks go.
const cutDelay = 10 * time.Second

// cutArray gives the tasks of another program's message that is a JSON array, as messages to be put
// before it is deleted. It is nil if the message stays as it is. No task of it was started. Each
// task is named by the message and its place in the array, so that all copies of it are one task,
// if the message is cut again after a delete that was lost (P1.4).
func (r *run) cutArray(d *message.Delivery) *message.Disposition {
	if !r.Cfg.ForeignSplit || d.Count != 1 || d.Header.Run != (pump.RunID{}) {
		return nil
	}
	whole := &d.Tasks[0]
	if strings.Count(whole.Foreign, "/") != 1 { // it is such a task, and may be an array itself
		return nil
	}
	elements := jsonline.Elements(whole.Body, mostElements)
	if len(elements) == 0 || jsonline.TooDeep(whole.Body) {
		return nil
	}
	if r.recorder != nil {
		if done, _ := r.recorder.Ledger.StandingForeign(d.Header.Segment, whole.Foreign); done {
			return nil // as a whole, before split was set; it is recognised
		}
	}
	segments := map[uint32][]codec.Task{}
	for i, element := range elements {
		key, segment := r.foreign.Key(element), d.Header.Segment
		if key != nil {
			segment = jsonline.ForeignSegment(nil, key, d.Segments)
		}
		segments[segment] = append(segments[segment], codec.Task{
			N: uint64(i), Key: key, ID: fmt.Append(nil, whole.Foreign, "/", i), Body: element,
		})
	}
	w := &message.Disposition{}
	for _, segment := range slices.Sorted(maps.Keys(segments)) {
		to, forward := d.Queue, false
		if home := r.Assignment.Load().Stray(d.Queue, segment); home != nil {
			to, forward = home, true
		} else if r.Assignment.Load().Foreign(d.Queue) { // nothing of ours is put there
			return notNow(r.Jitter, d, cutDelay)
		}
		pieces, err := packed(d, segment, segments[segment], to, forward)
		if err != nil {
			r.Log.Warn("a message is an array whose tasks do not fit messages of their own; it is one task",
				append(d.Attrs(), "tasks", len(elements), "error", err)...)
			return nil
		}
		w.Pieces = append(w.Pieces, pieces...)
	}
	return w
}

// packed are messages of tasks of one segment.
func packed(
	d *message.Delivery, segment uint32, tasks []codec.Task, to *queues.Queue, forward bool,
) (pieces []message.Copy, err error) {
	h := d.Apart()
	h.Segment, h.Attempt = segment, 0
	for len(tasks) > 0 {
		b := codec.NewBuilder(0)
		b.Reset(h)
		fits := true
		for fits && err == nil && b.Len() < len(tasks) {
			fits, err = b.Add(tasks[b.Len()])
		}
		if errors.Is(err, codec.ErrTaskTooLarge) { // for a text with room for a cause
			b = codec.NewBuilder(storage.MaxText)
			b.Reset(h)
			_, err = b.Add(tasks[0])
		}
		if err != nil {
			return nil, err
		}
		n := b.Len()
		text, _, err := b.Seal(nil)
		if err != nil {
			return nil, err
		}
		pieces = append(pieces, message.Copy{
			Queue: to, Text: text, Tasks: n, Forward: forward, Segment: segment,
		})
		tasks = tasks[n:]
	}
	return pieces, nil
}
