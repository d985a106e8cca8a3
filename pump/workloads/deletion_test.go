package workloads

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/testkit"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
)

// A group of more rows than a page has is counted, which a plan of a deletion begins with.
func TestRowsOfSeveralPagesAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &workload.Workload{Name: "city", Table: testkit.NewServer().Client("a")}
		const many = 2*row.PageSize + 1
		for n := range many {
			proof.Must(t, proof.ErrOf(w.Table.Write(t.Context(), storage.Write{Mode: storage.Insert, Entity: storage.Entity{
				Partition: "city.gates", Row: fmt.Sprintf("%04d", n),
			}})))
		}
		if n, err := countRows(t.Context(), w, rowGroup{partition: "city.gates"}); n != many || err != nil {
			t.Errorf("%d rows of %d, %v", n, many, err)
		}
	})
}
