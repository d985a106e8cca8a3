// Package bodies keeps the bodies of large tasks in blobs (P3.10 in docs/protocols.md). A blob's
// name is the identity of its task, so that the same body may be put again.
package bodies

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/logs"
	"github.com/queuepump/queuepump/pump/coordination"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/results"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/storage"
)

// Most is the most bytes of a body: a process holds some of them whole.
const Most = 64 << 20

// Container is the name of a workload's container of bodies, the same in each account.
func Container(workload string) string { return workload + "-bodies" }

// RunOf gives the run of the task whose body a blob has; false: the blob is not of this package.
func RunOf(blob string) (run codec.RunID, ok bool) {
	id, _, _ := strings.Cut(blob, "/")
	run, err := codec.ParseRunID(id)
	return run, err == nil
}

// usedKey is the row of the partition of results that says that there are bodies.
const usedKey = "bodies"

// Used reports whether bodies of a workload were ever put.
func Used(ctx context.Context, t storage.Table, workload string) (bool, error) {
	found, err := row.MustFind(ctx, t, storage.Query{
		Partition: results.Partition(workload), From: usedKey, To: row.After(usedKey),
		Select: []string{row.FormatProperty},
	}, 1)
	return len(found) > 0, err
}

// Store puts bodies. Its methods may be called from many goroutines at once.
type Store struct {
	Queues   *queues.Set
	Workload string
	Jitter   waits.Jitter
	Log      *slog.Logger
	// Active gives the accounts that tasks are put into.
	Active func() map[string]bool
	// Patience is for how long all accounts may refuse a body; 0: for ever.
	Patience time.Duration

	once   sync.Once
	placer queues.Placer
	failed logs.Kinds // of each account, that it does not take them

	noting chan struct{} // capacity 1: who has put into it writes the row, and may change used
	used   bool          // the row is written
}

// ErrRefused: no account takes a body.
var ErrRefused = errors.New("no account takes the body of a task; the credential must be allowed " +
	"to make containers and to write blobs")

// Put puts the body of a task, again until an account has taken it or ctx ends.
func (s *Store) Put(
	ctx context.Context, of coordination.TaskRef, body []byte,
) (codec.BodyRef, error) {
	s.once.Do(func() {
		s.noting = make(chan struct{}, 1)
		s.placer = queues.Placer{Set: s.Queues, Container: Container(s.Workload), Asked: s.asked}
	})
	if err := s.note(ctx); err != nil {
		return codec.BodyRef{}, err
	}
	ref := codec.BodyRef{Size: uint64(len(body)), Checksum: xxhash.Sum64(body)}
	var err error
	for began, try := time.Now(), uint64(0); ; try++ {
		ref.Account, err = s.placer.Put(ctx, xxhash.Sum64String(of.String()), s.Active(), of.String(),
			body, nil)
		switch {
		case err == nil:
			return ref, moved(s.Queues, cluster.OpPutBlob, body, nil)
		case ctx.Err() != nil:
			return ref, context.Cause(ctx)
		case s.Patience > 0 && time.Since(began) >= s.Patience && denied(err):
			return ref, fmt.Errorf("%w: %w", ErrRefused, err)
		}
		waits.Wait(ctx, s.Jitter.Around(waits.Doubled(time.Second, 30*time.Second, try), "body",
			of.String(), try))
	}
}

// denied reports whether no account may take the body, of those that a [queues.Placer] has asked.
func denied(err error) bool {
	each, _ := err.(interface{ Unwrap() []error })
	return each != nil && !slices.ContainsFunc(each.Unwrap(), row.MayRetry)
}

func (s *Store) asked(ctx context.Context, account string, err error) {
	s.failed.Of(account).Tell(ctx, s.Log, err,
		"an account does not take the body of a task; another one is asked",
		"an account takes the bodies of tasks again", "account", account)
}

// note writes the row by which closers know that there are bodies, before the first one.
func (s *Store) note(ctx context.Context) error {
	s.noting <- struct{}{} // no lock: it is held for a request
	defer func() { <-s.noting }()
	if s.used {
		return nil
	}
	err := row.InsistOn(ctx, s.Queues.Control, storage.Write{
		Mode: storage.Upsert, Entity: storage.Entity{
			Partition: results.Partition(s.Workload), Row: usedKey,
			Properties: map[string]any{row.FormatProperty: int64(row.Format)},
		},
	})
	s.used = err == nil
	return err
}

// ErrGone: the blob of a body is not there, or has other bytes.
var ErrGone = errors.New("the body of the task is gone")

// Get reads the body of the one task of an envelope. After [ErrGone] no other try brings it.
func Get(ctx context.Context, f *queues.Set, h *codec.Header) ([]byte, error) {
	ref := &h.Body
	of := coordination.TaskRef{Run: h.Run, Segment: h.Segment, N: first(h.Tasks)}
	gone := func(why any) error {
		return fmt.Errorf("%w: blob %s/%s/%s: %v", ErrGone, ref.Account, Container(h.Workload), of, why)
	}
	a := f.Account(ref.Account)
	switch {
	case ref.Size > Most:
		return nil, gone(fmt.Sprintf("%d bytes are said to be in it, more than any body has", ref.Size))
	case a == nil:
		return nil, fmt.Errorf("there are no credentials here for account %q, which has the body; if it "+
			"is gone for good, `distributor runs repair` puts the task again", ref.Account)
	}
	b, err := f.GetBlob(ctx, a, Container(h.Workload), of.String(), max(ref.Size, 1))
	switch {
	case storage.Is(err, storage.Gone), queues.NotThere(err):
		return nil, gone(err)
	case err != nil:
		return nil, err
	case uint64(b.Size) != ref.Size || xxhash.Sum64(b.Body) != ref.Checksum:
		return nil, gone("it has other bytes than were put")
	}
	return b.Body, moved(f, cluster.OpGetBlob, b.Body, nil)
}

// Renew puts a body again where it is, so that it is young (P3.10).
func Renew(ctx context.Context, f *queues.Set, h *codec.Header) error {
	body, err := Get(ctx, f, h)
	if err != nil {
		return err
	}
	of := coordination.TaskRef{Run: h.Run, Segment: h.Segment, N: first(h.Tasks)}
	return moved(f, cluster.OpPutBlob, body, f.PutBlob(ctx, f.Account(h.Body.Account),
		Container(h.Workload), of.String(), body, nil))
}

// moved tells of a body that was put or read, unless err says that it was not, and gives err.
func moved(f *queues.Set, op cluster.Op, body []byte, err error) error {
	if heard := f.Cfg.Hooks.Body; err == nil && heard != nil {
		heard(op.String(), len(body))
	}
	return err
}

func first(tasks codec.NSet) uint64 {
	for n := range tasks.All() {
		return n
	}
	return 0
}
