package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
	"github.com/cespare/xxhash/v2"
	"golang.org/x/sync/errgroup"
)

// The rival is a good program without the pump: azqueue as it is, but for a pool that keeps its
// connections, a task a message. 64 goroutines put, each one line after the other. Two
// loops get 32 messages, and handle and delete those in parallel.
const (
	rivalPutters = 64
	rivalLoops   = 2
	rivalGet     = 32
	// rivalIdle is how many idle connections the pool keeps. Of its default, 2, most requests
	// would open a connection, which doubles what they take.
	rivalIdle = 256
)

const azqueueModule = "github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"

// rivalVersion is the version of azqueue that this program is built with.
func rivalVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == azqueueModule {
				return m.Version
			}
		}
	}
	return ""
}

// runRival puts the lines and takes them back. The lines are in memory before anything
// is measured, and are bodies as they are: reading them is not azqueue's matter.
func runRival(ctx context.Context, j job) (m Measurement, err error) {
	if len(j.Accounts) == 0 {
		return m, errors.New("azqueue needs an account that is served")
	}
	lines, err := readLines(j.Input, j.Tasks)
	if err != nil {
		return m, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = rivalIdle, rivalIdle
	o := &azqueue.ClientOptions{}
	o.Transport = &http.Client{Transport: transport}
	c, err := azqueue.NewQueueClientFromConnectionString(j.Accounts[0], "rival", o)
	if err != nil {
		return m, err
	}
	if _, err := c.Create(ctx, nil); err != nil {
		return m, err
	}
	q := rivalQueue{QueueClient: c, total: int64(len(lines))}
	m.Tasks, m.Messages = q.total, q.total
	if m.Put, err = j.phase("put", func() error { return q.put(ctx, lines) }); err != nil {
		return m, err
	}
	m.Take, err = j.phase("take", func() error { return q.take(ctx) })
	m.Repeated = q.handled.Load() - m.Tasks
	if err == nil && (m.Repeated != 0 || q.read.Load() != checksum(lines)) {
		err = fmt.Errorf("%d tasks were put, %d came back, or others", m.Tasks, q.handled.Load())
	}
	return m, err
}

// rivalQueue is a queue and what came back from it.
type rivalQueue struct {
	*azqueue.QueueClient
	total          int64
	taken, handled atomic.Int64
	read           atomic.Uint64 // sum of the checksums of the bodies
}

func (q *rivalQueue) put(ctx context.Context, lines []string) error {
	var next atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for range rivalPutters {
		g.Go(func() error {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(lines) {
					return nil
				}
				if _, err := q.EnqueueMessage(ctx, lines[i], nil); err != nil {
					return err
				}
			}
		})
	}
	return g.Wait()
}

func (q *rivalQueue) take(ctx context.Context) error {
	loops, ctx := errgroup.WithContext(ctx)
	for range rivalLoops {
		loops.Go(func() error {
			for q.taken.Load() < q.total {
				got, err := q.get(ctx)
				if err != nil {
					return err
				}
				g, ctx := errgroup.WithContext(ctx)
				for _, m := range got {
					g.Go(func() error { return q.handle(ctx, m) })
				}
				if err := g.Wait(); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return loops.Wait()
}

// get gets none while the other loop has the rest in hand. The loop that gets none waits a little.
func (q *rivalQueue) get(ctx context.Context) ([]*azqueue.DequeuedMessage, error) {
	o := azqueue.DequeueMessagesOptions{NumberOfMessages: new(int32(rivalGet))}
	r, err := q.DequeueMessages(ctx, &o)
	if err == nil && len(r.Messages) == 0 {
		time.Sleep(10 * time.Millisecond)
	}
	q.taken.Add(int64(len(r.Messages)))
	return r.Messages, err
}

// handle reads the task, as the pump's handler does, and deletes its message.
func (q *rivalQueue) handle(ctx context.Context, m *azqueue.DequeuedMessage) error {
	q.read.Add(xxhash.Sum64String(*m.MessageText))
	_, err := q.DeleteMessage(ctx, *m.MessageID, *m.PopReceipt, nil)
	q.handled.Add(1)
	return err
}

// checksum is the sum of the checksums of lines, whatever their order.
func checksum(lines []string) (sum uint64) {
	for _, line := range lines {
		sum += xxhash.Sum64String(line)
	}
	return sum
}
