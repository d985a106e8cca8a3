package queues

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/shardmap"
)

// blobTimeout bounds one request to a blob, with the wait for the account's budget: 8 MiB take less
// than a second, and another account takes what this one does not. A body has a second more for
// each MiB.
const blobTimeout = 15 * time.Second

// Blob makes a request to a blob of an account, with so many bytes of a body. It is paid for from
// the account's budget and counted. That it fails does not count as trouble of the account: its
// queues may be well.
func (f *Set) Blob(
	ctx context.Context, a *Account, container string, op cluster.Op, size uint64,
	call func(ctx context.Context, c storage.Container) error,
) error {
	start := time.Now()
	ctx, cancel := context.WithTimeout(ctx, blobTimeout+time.Duration(size>>20)*time.Second)
	defer cancel()
	if a.Budget.Spend(ctx, ClassPut, 1) != nil {
		return storage.NotSent(ctx, op.String(), a.Name, container)
	}
	err := call(ctx, a.Store.Container(container))
	a.counts.count(op, err)
	HookRequest(&f.Cfg.Hooks, a.Name, container, op.String(), time.Since(start), err)
	if storage.Is(err, storage.Throttled) {
		a.Budget.Throttled()
	}
	return err
}

// GetBlob reads a blob of at most so many bytes.
func (f *Set) GetBlob(
	ctx context.Context, a *Account, container, name string, most uint64,
) (b storage.Blob, err error) {
	err = f.Blob(ctx, a, container, cluster.OpGetBlob, most,
		func(ctx context.Context, c storage.Container) (err error) {
			b, err = c.Get(ctx, name, 0, int64(most))
			return err
		})
	return b, err
}

// PutBlob writes a blob.
func (f *Set) PutBlob(ctx context.Context, a *Account, container, name string, body []byte,
	metadata map[string]string,
) error {
	return f.Blob(ctx, a, container, cluster.OpPutBlob, uint64(len(body)),
		func(ctx context.Context, c storage.Container) error {
			return c.Put(ctx, name, body, metadata)
		})
}

// Placer puts blobs into a container that each account has, every blob into the first account that
// takes it. An account that did not is asked last for a minute.
type Placer struct {
	Set       *Set
	Container string
	// Asked is told whether an account took a blob; if not, another one is asked.
	Asked func(ctx context.Context, account string, err error)

	mu   sync.Mutex           // guards late
	late map[string]time.Time // when an account did not take a blob
}

// roundFor is how long an account that did not take a blob is asked last.
const roundFor = time.Minute

// Put puts a blob. Active are the accounts that tasks are put into: they
// are asked, all if there are none, beginning at the place first. It gives the account that has
// taken the blob. A put in doubt may leave a copy in an account that was gone round.
func (p *Placer) Put(ctx context.Context, first uint64, active map[string]bool,
	name string, body []byte, metadata map[string]string,
) (account string, err error) {
	var errs []error
	for _, of := range p.order(first, active) {
		a := p.Set.Account(of)
		err := p.Set.PutBlob(ctx, a, p.Container, name, body, metadata)
		if storage.Is(err, storage.Missing) {
			err = p.Set.Blob(ctx, a, p.Container, cluster.OpCreate, 0,
				func(ctx context.Context, c storage.Container) error { return c.Create(ctx) })
			if err == nil {
				err = p.Set.PutBlob(ctx, a, p.Container, name, body, metadata)
			}
		}
		p.note(of, err)
		p.Asked(ctx, of, err)
		if err == nil {
			return of, nil
		}
		if errs = append(errs, err); ctx.Err() != nil {
			break
		}
	}
	return "", errors.Join(errs...)
}

func (p *Placer) note(account string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		delete(p.late, account)
		return
	}
	if p.late == nil {
		p.late = map[string]time.Time{}
	}
	p.late[account] = time.Now()
}

// order is the accounts in the order in which they are asked.
func (p *Placer) order(first uint64, active map[string]bool) []string {
	names := slices.DeleteFunc(slices.Clone(p.Set.Names()), func(name string) bool {
		return !active[name]
	})
	if len(names) == 0 {
		names = slices.Clone(p.Set.Names())
	}
	own := int(first % uint64(len(names)))
	names = slices.Concat(names[own:], names[:own])
	p.mu.Lock()
	defer p.mu.Unlock()
	late := func(name string) int {
		if time.Since(p.late[name]) < roundFor {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(names, func(a, b string) int { return late(a) - late(b) })
	return names
}

// ActiveAccounts are the accounts of a map that tasks are put into.
func ActiveAccounts(m *shardmap.Map) map[string]bool {
	active := map[string]bool{}
	for _, s := range m.Shards {
		if s.State == shardmap.Active {
			active[s.Account] = true
		}
	}
	return active
}

// BlobPage is how many blobs a page has.
const BlobPage = 5000

// Blobs lists blobs of a container from a name on, a page at most, and gives the name to go on
// from, "" at the end. Without the container there are none.
func (f *Set) Blobs(
	ctx context.Context, a *Account, container, from string,
) (page []storage.Blob, next string, err error) {
	err = f.Blob(ctx, a, container, cluster.OpListBlobs, 0,
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
