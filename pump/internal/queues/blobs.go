package queues

import (
	"context"
	"time"

	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/storage"
)

// blobTimeout bounds one request to a blob, with the wait for the account's budget: 8 MiB take less
// than a second, and another account takes what this one does not.
const blobTimeout = 15 * time.Second

// Blob makes a request to a blob of an account. It is paid for from the account's budget and
// counted. That it fails does not count as trouble of the account: its queues may be well.
func (f *Set) Blob(
	ctx context.Context, a *Account, container string, op cluster.Op,
	call func(ctx context.Context, c storage.Container) error,
) error {
	start := time.Now()
	ctx, cancel := context.WithTimeout(ctx, blobTimeout)
	defer cancel()
	if a.Budget.Spend(ctx, ClassPut, 1) != nil {
		return storage.NotSent(ctx, op.String(), a.Name, container)
	}
	err := call(ctx, a.Store.Container(container))
	a.counts.count(op, err)
	hookRequest(&f.Cfg.Hooks, a.Name, container, op.String(), time.Since(start), err)
	if storage.Is(err, storage.Throttled) {
		a.Budget.Throttled()
	}
	return err
}

// BlobPage is how many blobs a page has.
const BlobPage = 5000

// Blobs lists blobs of a container from a name on, a page at most, and gives the name to go on
// from, "" at the end. Without the container there are none.
func (f *Set) Blobs(
	ctx context.Context, a *Account, container, from string,
) (page []storage.Blob, next string, err error) {
	err = f.Blob(ctx, a, container, cluster.OpListBlobs,
		func(ctx context.Context, c storage.Container) error {
			for b, err := range c.List(ctx, "", from) {
				if err != nil {
					return err
				}
				if page = append(page, b); len(page) == BlobPage {
					next = b.Name + "-" // the least character of a name
					return nil
				}
			}
			return nil
		})
	if NotThere(err) {
		return nil, "", nil
	}
	return page, next, err
}
