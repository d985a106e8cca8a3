package coordination

import (
	"context"
	"fmt"
	"time"

	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
)

// RetireClaims removes claims that were written before a moment of the server's clock, and whose
// interval was over then too. It looks at up to a thousand claims of one of the parts (0 to 15),
// those from a key on, and gives the key to go on from, "" at the end.
func RetireClaims(
	ctx context.Context, t storage.Table, workloadName string, part int, before time.Time,
	from string,
) (removed int, next string, err error) {
	ctx, cancel := context.WithTimeout(ctx, row.Patience)
	defer cancel()
	found, err := row.MustFind(ctx, t,
		storage.Query{
			Partition: workload.ClaimsPartition(workloadName, part%workload.ClaimParts), From: from,
		}, row.PageSize)
	if err != nil {
		return 0, from, fmt.Errorf("looking for old claims of %s: %w", workloadName, err)
	}
	if len(found) == row.PageSize {
		next = row.After(found[len(found)-1].Row)
	}
	var old []storage.Entity
	for _, e := range found {
		f := &row.Fields{Props: e.Properties}
		c := row.ReadFormat(f, decodeClaim)
		if f.Err == nil && e.Modified.Add(c.interval).Before(before) {
			old = append(old, e)
		}
	}
	return len(old), next, row.RemoveFound(ctx, t, old)
}
