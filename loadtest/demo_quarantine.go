package main

import (
	"context"
	"errors"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/loadtest/scenario"
	"github.com/queuepump/queuepump/loadtest/simserver"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/pump/storage/azure"
)

// quarantine is what lies in the poison queues, so that each task can be told
// to be there or lost. The processors' own counts do not tell: they count a
// task again for each delivery that was quarantined.
type quarantine struct {
	queues []storage.Queue
	// keys holds the key of each task that was found, "" if it cannot be read.
	keys map[identity]string
	// unreadable counts messages that do not say which tasks they carry.
	unreadable int
}

func newQuarantine(s *simserver.Served, workload string) (*quarantine, error) {
	q := &quarantine{keys: map[identity]string{}}
	for _, name := range s.Names {
		account, err := azure.Open(azure.Options{ConnectionString: s.ConnectionString(name)})
		if err != nil {
			return nil, err
		}
		q.queues = append(q.queues, account.Queue(workload+"-poison"))
	}
	return q, nil
}

// read takes in what has come since the last call. It hides the messages that it has read for
// longer than a trial lasts, so that they are not read again.
func (q *quarantine) read(ctx context.Context) error {
	for _, queue := range q.queues {
		if err := q.readQueue(ctx, queue); err != nil {
			return err
		}
	}
	return nil
}

func (q *quarantine) readQueue(ctx context.Context, queue storage.Queue) error {
	for {
		request, cancel := context.WithTimeout(ctx, 10*time.Second)
		messages, err := queue.Get(request, storage.MaxGet, storage.MaxVisibility)
		cancel()
		switch {
		case err == nil:
		case storage.Is(err, storage.Missing):
			return nil // the distributor has not made it yet
		case storage.Is(err, storage.Throttled):
			if err := scenario.Sleep(ctx, 100*time.Millisecond); err != nil {
				return err
			}
			continue
		default:
			return errors.Join(context.Cause(ctx), err)
		}
		if len(messages) == 0 {
			return nil
		}
		for _, m := range messages {
			q.add(m.Text)
		}
	}
}

// add takes in a message. Its header says which tasks it carries; the tasks
// themselves are only asked for their keys, and may be damaged.
func (q *quarantine) add(text []byte) {
	h, err := codec.ReadHeader(text)
	if err != nil {
		q.unreadable++
		return
	}
	at := identity{Run: h.Run.String(), Segment: h.Segment}
	if e, err := codec.Open(text, codec.Limits{}); err == nil {
		for _, task := range e.Tasks {
			at.N = task.N
			q.keys[at] = string(task.Key)
		}
		e.Release()
		return
	}
	// Bounded: the n-set of a header that is right may still name any number.
	if h.Tasks.Len() > maxTasks {
		q.unreadable++
		return
	}
	for n := range h.Tasks.All() {
		at.N = n
		q.keys[at] = ""
	}
}

// maxTasks is how many tasks an envelope may carry (codec.Limits).
const maxTasks = 32768
