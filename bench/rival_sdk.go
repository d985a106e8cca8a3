package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
	"golang.org/x/sync/errgroup"
)

// The rivals (a) and (b): what people write today. One task a message, 64 goroutines
// that put; then 64 that get 32 messages and delete one after the other.
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
func runSDK(ctx context.Context, j job, o *azqueue.ClientOptions) (m Measurement, err error) {
	if len(j.Accounts) == 0 {
		return m, errors.New("the SDK needs an account that is served")
	}
	lines, err := readLines(j.Input, j.Tasks)
	if err != nil {
		return m, err
	}
	q, err := azqueue.NewQueueClientFromConnectionString(j.Accounts[0], "rival", o)
	if err != nil {
		return m, err
	}
	if _, err := q.Create(ctx, nil); err != nil {
		return m, err
	}
	m.Tasks, m.Messages = int64(len(lines)), int64(len(lines))
	if m.Put, err = j.phase("put", func() error { return putAll(ctx, q, lines) }); err != nil {
		return m, err
	}
	var handled, bytes atomic.Int64
	m.Take, err = j.phase("take", func() error { return takeAll(ctx, q, int64(len(lines)), &handled, &bytes) })
	if want := sum(lines); err == nil && (handled.Load() != m.Tasks || bytes.Load() != want) {
		err = fmt.Errorf("%d tasks of %d bytes were put, %d of %d came back", m.Tasks, want, handled.Load(), bytes.Load())
	}
	return m, err
}

func putAll(ctx context.Context, q *azqueue.QueueClient, lines []string) error {
	var next atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for range sdkGoroutines {
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

func takeAll(ctx context.Context, q *azqueue.QueueClient, tasks int64, handled, bytes *atomic.Int64) error {
	var taken atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for range sdkGoroutines {
		g.Go(func() error {
			for taken.Load() < tasks {
				r, err := q.DequeueMessages(ctx, &azqueue.DequeueMessagesOptions{NumberOfMessages: new(int32(sdkGet))})
				if err != nil {
					return err
				}
				if len(r.Messages) == 0 { // others have the rest in hand
					time.Sleep(10 * time.Millisecond)
					continue
				}
				taken.Add(int64(len(r.Messages)))
				for _, msg := range r.Messages {
					bytes.Add(int64(len(*msg.MessageText))) // the handler
					if _, err := q.DeleteMessage(ctx, *msg.MessageID, *msg.PopReceipt, nil); err != nil {
						return err
					}
					handled.Add(1)
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
