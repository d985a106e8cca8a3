package row

import (
	"github.com/queuepump/queuepump/internal/through"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/storage"
)

// Counted gives a handle of the same table whose requests are counted, when they begin, with each
// row of a query, and when they end, with any result. If the table is Seeded or Suspended, the
// handle is too.
func Counted(t storage.Table, n *waits.Counter) storage.Table {
	if s, ok := t.(SeededTable); ok {
		s.Table = Counted(s.Table, n)
		return s
	}
	return through.Table{
		Called: t.Name(),
		Way: func(_ string, request func(storage.Table) error) error {
			n.Add()
			defer n.Add()
			return request(t)
		},
		Row: func(int) error {
			n.Add()
			return nil
		},
	}
}
