package bench

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
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

// runRival puts the lines and takes them back. The lines are in memory before anything
// is measured, and are bodies as they are: reading them is not azqueue's matter.
func runRival(tb testing.TB, tasks int) (m measured) {
	lines := inputLines(tb, tasks)
	server, at := startSimulator(tb, simulated{Accounts: 1, Latency: latency})
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = rivalIdle, rivalIdle
	o := &azqueue.ClientOptions{}
	o.Transport = &http.Client{Transport: transport}
	c, err := azqueue.NewQueueClientFromConnectionString(at.ConnectionStrings[0], "rival", o)
	if err == nil {
		_, err = c.Create(tb.Context(), nil)
	}
	must(tb, err)
	q := rivalQueue{QueueClient: c, total: int64(len(lines))}
	m.tasks, m.messages = q.total, q.total
	m.out = metered(tb, func() error { return q.put(tb.Context(), lines) })
	m.back = metered(tb, func() error { return q.take(tb.Context()) })
	if q.handled.Load() != m.tasks || q.read.Load() != checksum(lines) {
		tb.Fatalf("%d tasks were put, %d came back, or others", m.tasks, q.handled.Load())
	}
	m.served(server)
	return m
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
