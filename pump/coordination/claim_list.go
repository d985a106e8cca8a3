package coordination

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
)

// scannedClaims is how many rows of a partition List reads: a page, so that
// looking at millions of keys costs what looking at a few does.
const scannedClaims = 1000

// ClaimState is what the row of a key says, for people.
type ClaimState struct {
	// Key is the key's first 256 bytes, in base64 if Base64; KeyBytes is how long it is.
	Key      string
	Base64   bool
	KeyBytes int
	Task     string // the identity of the task that claimed it last
	Instance string // and the process
	Running  bool
	Failed   bool // how it stopped
	// Start and Stop are by the server's clock; Stop is zero while running.
	Start, Stop time.Time
}

func (r claimRow) state(modified time.Time) ClaimState {
	s := ClaimState{
		Key: r.key, Base64: r.base64, KeyBytes: int(r.bytes), Task: r.task,
		Instance: row.InstanceOf(r.owner), Running: r.running, Failed: r.failed,
		Start: r.started(modified),
	}
	if !r.running {
		s.Stop = modified
	}
	return s
}

// List gives up to limit claims, running ones first and then those that started last. It reads at
// most 1,000 of each of 16 partitions, in 16 requests; all is false if there are more, of which
// some may be running. Rows that cannot be read are part of the error, and the others are listed.
// It gives up after a minute.
func (c *Claims) List(ctx context.Context, limit int) (list []ClaimState, all bool, err error) {
	if c.err != nil {
		return nil, false, c.err
	}
	var parts [workload.ClaimParts]claimsPart
	g, ctx := errgroup.WithContext(ctx)
	for i := range parts {
		g.Go(func() (err error) {
			parts[i], err = c.list(ctx, i)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, false, fmt.Errorf("listing claims of %q: %w", c.workload, err)
	}
	all = true
	var bad []error
	for _, p := range parts {
		list, bad, all = append(list, p.list...), append(bad, p.bad...), all && p.all
	}
	slices.SortStableFunc(list, func(a, b ClaimState) int {
		switch {
		case a.Running != b.Running && a.Running:
			return -1
		case a.Running != b.Running:
			return 1
		}
		return cmp.Or(b.Start.Compare(a.Start), cmp.Compare(a.Key, b.Key))
	})
	return slices.Clip(list[:min(max(limit, 0), len(list))]), all, errors.Join(bad...)
}

// claimsPart is what was read of one partition.
type claimsPart struct {
	list []ClaimState
	bad  []error
	all  bool
}

func (c *Claims) list(ctx context.Context, part int) (p claimsPart, err error) {
	q := storage.Query{Partition: workload.ClaimsPartition(c.workload, part)}
	found, err := row.MustFind(ctx, c.table, q, scannedClaims)
	p.all = len(found) < scannedClaims
	for _, e := range found {
		if e.Row == row.ClockKey {
			continue
		}
		var v row.Version[claimRow]
		if _, err := claimRowAt(c.table, e.Partition, e.Row).Parse(e, &v); err != nil {
			p.bad = append(p.bad, err)
			continue
		}
		p.list = append(p.list, v.Value.state(v.Modified))
	}
	return p, err
}
