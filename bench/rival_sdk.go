package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
	"golang.org/x/sync/errgroup"
)

// The rivals (a) and (b): what people write today. One task a message, 64 goroutines. They work
// in waves, as loops over batches do: 64 lines are put at once, and the next 64 when all
// of them are; 32 messages are got, each is handled and deleted by a goroutine of its own, and
// when all are deleted the next 32 are got. At the end of a wave its connections are idle all at once,
// and the default pool keeps 10 of them for a host.
//
// The stricter rival has 64 workers instead, each of which puts one line after the other,
// and then gets 32 messages and deletes one after the other: no connection is idle for long.
const (
	sdkGoroutines = 64
	sdkGet        = 32
)

// tunedOptions are (b): the SDK with a pool that keeps as many connections as there are goroutines.
func tunedOptions() *azqueue.ClientOptions {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConns, t.MaxIdleConnsPerHost = 0, 2*sdkGoroutines
	o := &azqueue.ClientOptions{}
	o.Transport = &http.Client{Transport: t}
	return o
}

// runSDK puts the lines and takes them back. The lines are in memory before anything
// is measured, and are bodies as they are: reading them is not the SDK's matter.
func runSDK(ctx context.Context, j job, o *azqueue.ClientOptions, waves bool) (m Measurement, err error) {
	if len(j.Accounts) == 0 {
		return m, errors.New("the SDK needs an account that is served")
	}
	lines, err := readLines(j.Input, j.Tasks)
	if err != nil {
		return m, err
	}
	c, err := azqueue.NewQueueClientFromConnectionString(j.Accounts[0], "rival", o)
	if err != nil {
		return m, err
	}
	if _, err := c.Create(ctx, nil); err != nil {
		return m, err
	}
	q := sdkQueue{QueueClient: c, total: int64(len(lines))}
	put, take := q.putByWorkers, q.takeByWorkers
	if waves {
		put, take = q.putInWaves, q.takeInWaves
	}
	m.Tasks, m.Messages = q.total, q.total
	if m.Put, err = j.phase("put", func() error { return put(ctx, lines) }); err != nil {
		return m, err
	}
	m.Take, err = j.phase("take", func() error { return take(ctx) })
	if want := sum(lines); err == nil && (q.handled.Load() != m.Tasks || q.bytes.Load() != want) {
		err = fmt.Errorf("%d tasks of %d bytes were put, %d of %d came back", m.Tasks, want, q.handled.Load(), q.bytes.Load())
	}
	return m, err
}

// sdkQueue is a queue and what came back from it.
type sdkQueue struct {
	*azqueue.QueueClient
	total                 int64
	taken, handled, bytes atomic.Int64
}

func (q *sdkQueue) put(ctx context.Context, line string) error {
	_, err := q.EnqueueMessage(ctx, line, nil)
	return err
}

// get is empty with others having the rest in hand; who asks waits a little then.
func (q *sdkQueue) get(ctx context.Context) ([]*azqueue.DequeuedMessage, error) {
	r, err := q.DequeueMessages(ctx, &azqueue.DequeueMessagesOptions{NumberOfMessages: new(int32(sdkGet))})
	if err == nil && len(r.Messages) == 0 {
		time.Sleep(10 * time.Millisecond)
	}
	q.taken.Add(int64(len(r.Messages)))
	return r.Messages, err
}

// handle is the handler, and the delete.
func (q *sdkQueue) handle(ctx context.Context, m *azqueue.DequeuedMessage) error {
	q.bytes.Add(int64(len(*m.MessageText)))
	_, err := q.DeleteMessage(ctx, *m.MessageID, *m.PopReceipt, nil)
	q.handled.Add(1)
	return err
}

func (q *sdkQueue) putInWaves(ctx context.Context, lines []string) error {
	for wave := range slices.Chunk(lines, sdkGoroutines) {
		g, ctx := errgroup.WithContext(ctx)
		for _, line := range wave {
			g.Go(func() error { return q.put(ctx, line) })
		}
		if err := g.Wait(); err != nil {
			return err
		}
	}
	return nil
}

func (q *sdkQueue) takeInWaves(ctx context.Context) error {
	loops, ctx := errgroup.WithContext(ctx)
	for range sdkGoroutines / sdkGet {
		loops.Go(func() error {
			for q.taken.Load() < q.total {
				wave, err := q.get(ctx)
				if err != nil {
					return err
				}
				g, ctx := errgroup.WithContext(ctx)
				for _, m := range wave {
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

func (q *sdkQueue) putByWorkers(ctx context.Context, lines []string) error {
	var next atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for range sdkGoroutines {
		g.Go(func() error {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(lines) {
					return nil
				}
				if err := q.put(ctx, lines[i]); err != nil {
					return err
				}
			}
		})
	}
	return g.Wait()
}

func (q *sdkQueue) takeByWorkers(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for range sdkGoroutines {
		g.Go(func() error {
			for q.taken.Load() < q.total {
				messages, err := q.get(ctx)
				if err != nil {
					return err
				}
				for _, m := range messages {
					if err := q.handle(ctx, m); err != nil {
						return err
					}
				}
			}
			return nil
		})
	}
	return g.Wait()
}

func sum(lines []string) (n int64) {
	for _, l := range lines {
		n += int64(len(l))
	}
	return n
}
