package workload

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/queuepump/queuepump/shardmap"
)

// putBackTimeout bounds the extra time of a look at the workload when its row is behind: the loop
// that looks also beats.
const putBackTimeout = 3 * time.Second

// putBack writes the map that this process has read into a row that came back with an older one.
// Queues of only the newer map may hold messages, and a reader of the older map does not know these
// queues. Every process that has read the newer map tries; one is first. The version is new for
// every map, because the row may be changed again from the older map. A process that knows a still
// newer map sees by the origin that this map is older, and puts its own back. The error says how it
// went. The next look reads what is there then.
func (w *Workload) putBack(found error) error {
	ctx, cancel := context.WithTimeout(context.Background(), putBackTimeout)
	defer cancel()
	r := RowOf(w.Table, w.Name)
	v, err := r.Read(ctx)
	if err != nil {
		return fmt.Errorf("%w; it is not put back yet: %w", found, err)
	}
	if v.Absent() {
		return w.Deleted()
	}
	now := FromRow(w.Table, w.Name, v)
	if now.origin >= w.origin || now.Incarnation != w.Incarnation || !now.Deleting.IsZero() {
		return found // another was first, or there is nothing left to be put back
	}
	next := v.Value
	next.origin, next.shards = w.origin, new(shardmap.Map)
	stored, err := w.Map.MarshalBinary()
	if err == nil {
		err = next.shards.UnmarshalBinary(stored)
	}
	if err != nil {
		return fmt.Errorf("%w; it cannot be put back: %w", found, err)
	}
	next.shards.Version = max(now.Map.Version, w.Map.Version) + 1
	next.reducer = cmp.Or(next.reducer, w.Reducer)
	if _, err := r.TryWrite(ctx, v, next); err != nil {
		return fmt.Errorf("%w; it is not put back yet: %w", found, err)
	}
	return fmt.Errorf("%w; this process has put its map back, as version %d",
		found, next.shards.Version)
}

// sameMap compares two maps of the same version.
func sameMap(a, b *shardmap.Map) bool {
	x, errX := a.MarshalBinary()
	y, errY := b.MarshalBinary()
	return errX != nil || errY != nil || bytes.Equal(x, y)
}
