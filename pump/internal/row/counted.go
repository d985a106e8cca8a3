package row

import (
	"context"
	"iter"

	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/storage"
)

// Counted gives a handle of the same table whose requests to rows are counted, when they begin and
// when they end, with any result. If the table is Seeded or Suspended, the handle is too.
func Counted(t storage.Table, n *waits.Counter) storage.Table {
	if s, ok := t.(SeededTable); ok {
		s.Table = countedTable{s.Table, n}
		return s
	}
	return countedTable{t, n}
}

type countedTable struct {
	storage.Table
	n *waits.Counter
}

// count counts the begin of a request; end counts its end.
func (t countedTable) count() (end func()) {
	t.n.Add()
	return t.n.Add
}

func (t countedTable) Read(ctx context.Context, partition, row string) (storage.Entity, error) {
	defer t.count()()
	return t.Table.Read(ctx, partition, row)
}

func (t countedTable) Write(ctx context.Context, w storage.Write) (storage.ETag, error) {
	defer t.count()()
	return t.Table.Write(ctx, w)
}

func (t countedTable) Transact(ctx context.Context, ws []storage.Write) ([]storage.ETag, error) {
	defer t.count()()
	return t.Table.Transact(ctx, ws)
}

func (t countedTable) Query(ctx context.Context, q storage.Query) iter.Seq2[storage.Entity, error] {
	return func(yield func(storage.Entity, error) bool) {
		defer t.count()()
		for e, err := range t.Table.Query(ctx, q) {
			t.n.Add()
			if !yield(e, err) {
				return
			}
		}
	}
}
