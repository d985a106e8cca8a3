package cluster

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/queuepump/queuepump/pump/storage"
)

// clusterWire is the table as one process of one machine reaches it: the driver
// that ships over the simulated service, and between the two the machine's
// network and what it is to be a process that is stopped or dies.
//
// A request is on its way whatever becomes of the sender: the request runs
// in a goroutine of its own under a context of its own, and acts although its
// caller has given up or is dead.
type clusterWire struct {
	storage.Table
	life *clusterLife
}

var errBrokenWire = errors.New("the connection broke")

// clusterFate is what becomes of one request.
type clusterFate struct {
	kind          string // one of clusterFaults, or empty
	before, after time.Duration
}

// sendOver carries one request. n is the how-manieth of its kind on its object.
func sendOver[T any](w *clusterWire, ctx context.Context, op, object string, act func(context.Context) (T, error)) (T, error) {
	life := w.life
	world := life.machine.world
	n := life.count(op, object)
	world.look()
	began := world.now()
	answer, err := carry(life, ctx, op, object, n, act)
	world.record(life, began, op, object, n, err)
	return answer, err
}

// carry is the sender's side: it sends, and waits for the answer or its context.
func carry[T any](life *clusterLife, ctx context.Context, op, object string, n int, act func(context.Context) (T, error)) (zero T, _ error) {
	paused := life.stopped(op + object)
	switch {
	case life.over():
		<-ctx.Done() // nothing waits for this
		return zero, storage.NotSent(ctx, op, "control", object)
	case ctx.Err() != nil && (!paused || life.roll(2, "wakes", op+object, n) == 0):
		// Otherwise it was stopped in the middle of sending, and sends the rest
		// when it goes on, although the time for it is over.
		return zero, storage.NotSent(ctx, op, "control", object)
	}
	answers := travel(life, ctx, op, object, n, act)
	var a clusterAnswer[T]
	answered := false
	select {
	case a = <-answers:
		answered = true
	case <-ctx.Done():
	}
	if life.stopped(op + object) {
		// The answer and the end of the caller's patience are both there when the
		// process goes on; it sees either of them first.
		if !answered {
			select {
			case a = <-answers:
				answered = true
			default:
			}
		}
		answered = answered && (ctx.Err() == nil || life.roll(4, "awake", op+object, n) > 0)
	}
	if life.over() {
		<-ctx.Done()
		answered = false
	}
	if !answered {
		return zero, lostOnTheWay(op, object, storage.MaybeDone, context.Cause(ctx))
	}
	return a.answer, a.err
}

type clusterAnswer[T any] struct {
	answer T
	err    error
}

// travel is the request's own side: what becomes of it on its way.
func travel[T any](life *clusterLife, ctx context.Context, op, object string, n int, act func(context.Context) (T, error)) <-chan clusterAnswer[T] {
	goes := &life.machine.world.goes
	fate := life.fate(op, object, n)
	answers := make(chan clusterAnswer[T], 1)
	arrives := func(within time.Duration) (a clusterAnswer[T]) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), within)
		defer cancel()
		a.answer, a.err = act(ctx)
		return a
	}
	goes.Go(func() {
		time.Sleep(fate.before)
		a := clusterAnswer[T]{err: lostOnTheWay(op, object, storage.MaybeDone, errBrokenWire)}
		switch fate.kind {
		case "hung":
			return
		case "broken":
			time.Sleep(10 * time.Millisecond)
		case "refused":
			time.Sleep(10 * time.Millisecond)
			a.err = lostOnTheWay(op, object, storage.Throttled, nil)
		case "lost":
			arrives(30 * time.Second)
		case "late":
			late := time.Duration(life.roll(uint64(12*time.Second), "late", op+object, n))
			goes.Go(func() {
				time.Sleep(late)
				arrives(30 * time.Second)
			})
		default:
			a = arrives(30 * time.Second)
		}
		time.Sleep(fate.after)
		answers <- a
	})
	return answers
}

func lostOnTheWay(op, object string, code storage.Code, err error) error {
	return &storage.Error{Code: code, Op: op, Account: "control", Object: object, Index: -1, Err: err}
}

func (w *clusterWire) Create(ctx context.Context) error {
	_, err := sendOver(w, ctx, "create", w.Name(), func(ctx context.Context) (struct{}, error) {
		return struct{}{}, w.Table.Create(ctx)
	})
	return err
}

func (w *clusterWire) Read(ctx context.Context, partition, row string) (storage.Entity, error) {
	e, err := sendOver(w, ctx, "read", partition+"/"+row, func(ctx context.Context) (storage.Entity, error) {
		return w.Table.Read(ctx, partition, row)
	})
	return w.life.machine.hears(e), err
}

func (w *clusterWire) Write(ctx context.Context, write storage.Write) (storage.ETag, error) {
	modes := [...]string{storage.Insert: "insert", storage.Replace: "replace", storage.Merge: "merge", storage.Upsert: "upsert", storage.Remove: "remove"}
	row := write.Entity.Row
	if write.Mode == storage.Remove && strings.HasPrefix(row, "present.") && row != "present."+w.life.machine.name {
		w.life.machine.world.evicts(w.life, row)
	}
	write.Entity = w.life.machine.says(write.Entity)
	return sendOver(w, ctx, modes[write.Mode], write.Entity.Partition+"/"+row, func(ctx context.Context) (storage.ETag, error) {
		return w.Table.Write(ctx, write)
	})
}

func (w *clusterWire) Transact(ctx context.Context, writes []storage.Write) ([]storage.ETag, error) {
	return nil, fmt.Errorf("no transactions in this world: %w", errors.ErrUnsupported)
}

// Query gives the answer as a whole: its pages come from several moments, but a
// stopped process is stopped before the first or after the last.
func (w *clusterWire) Query(ctx context.Context, q storage.Query) iter.Seq2[storage.Entity, error] {
	return func(yield func(storage.Entity, error) bool) {
		rows, err := sendOver(w, ctx, "query", q.Partition+"/"+q.From, func(ctx context.Context) (rows []storage.Entity, _ error) {
			for e, err := range w.Table.Query(ctx, q) {
				if err != nil {
					return nil, err
				}
				rows = append(rows, e)
			}
			return rows, nil
		})
		for _, e := range rows {
			if !yield(w.life.machine.hears(e), nil) {
				return
			}
		}
		if err != nil {
			yield(storage.Entity{}, err)
		}
	}
}
