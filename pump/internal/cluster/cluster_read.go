package cluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
)

const (
	// The keys of a workload's own partition, in key order: owners come before
	// members, which is part of the safety argument (see the package comment).
	ownerPrefix  = "owner."
	memberPrefix = "present."
	spillKey     = "spill"
	// WorkloadKey is the workload's own row, behind all others.
	WorkloadKey = "workload"
	afterView   = "workload~"

	// maxViewRows bounds what one query may bring: foreign rows must not fill the memory.
	maxViewRows = 10_000
)

// LoadView reads the cluster once, for callers that are not members: status, commands. It fails
// with [pump.ErrNoWorkload] if the workload has no row. Damaged rows of owners, members or marks
// are not an error but stand in the view. It tries again for up to a minute.
func LoadView(ctx context.Context, t storage.Table, workloadName string) (*View, error) {
	if err := workload.CheckName(workloadName); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, row.Patience)
	defer cancel()
	r := viewReader{table: t, workload: workloadName, timeout: row.RequestTimeout}
	v, _, err := r.mustRead(ctx)
	if row.NoTable(err) {
		err = pump.ErrNoWorkload // nor is there a table
	}
	if err != nil {
		return nil, fmt.Errorf("workload %q: %w", workloadName, err)
	}
	return v, nil
}

// viewReader reads the cluster. It does not decode unchanged rows again.
type viewReader struct {
	table    storage.Table
	workload string
	timeout  time.Duration
}

// mustRead reads a first view, and its rows, for as long as that may succeed.
func (r viewReader) mustRead(ctx context.Context) (v *View, rows []storage.Entity, err error) {
	err = row.Retry(ctx, r.table, r.workload+"/view", r.timeout/5, func() error {
		if err == nil || ctx.Err() == nil { // else err says more than that the context ended
			v, rows, err = r.readRows(ctx, nil)
		}
		return err
	})
	return v, rows, err
}

// readRows asks once, after before was read, which is nil for the first time.
func (r viewReader) readRows(ctx context.Context, before *View) (*View, []storage.Entity, error) {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	before = cmp.Or(before, &View{})
	v := &View{Read: time.Now()}
	rows, err := r.query(ctx)
	if err != nil {
		return nil, nil, err
	}
	v.received = time.Now()
	if err := r.fill(v, before, rows); err != nil {
		return nil, nil, err
	}
	return v, rows, nil
}

// fill makes a view of rows in key order.
func (r viewReader) fill(v, before *View, rows []storage.Entity) error {
	if err := r.readWorkload(v, before, rows); err != nil {
		return err
	}
	if !v.Workload.Shared {
		r.readOwners(v, before, rows)
	}
	r.readMembers(v, before, rows)
	r.readSpill(v, before, rows)
	return nil
}

// query gives the rows in key order. A refused page is asked for again, from the last row on: after
// a page of 1,000 rows a partition may refuse the next, and a query that began from the start each
// time would never end. Later pages are newer, as reading owners before members demands.
func (r viewReader) query(ctx context.Context) ([]storage.Entity, error) {
	var rows []storage.Entity
	for attempt := 1; ; attempt++ {
		err := r.queryOn(ctx, &rows)
		if err == nil || len(rows) == 0 || ctx.Err() != nil || !row.MayRetry(err) {
			return rows, err
		}
		row.DrawOf(r.table).Pause(ctx, r.workload+"/view", attempt, r.timeout/5, err)
		if ctx.Err() != nil {
			return rows, err
		}
	}
}

// queryOn goes on after the rows that are there.
func (r viewReader) queryOn(ctx context.Context, rows *[]storage.Entity) error {
	q := storage.Query{Partition: r.workload, From: ownerPrefix, To: afterView}
	if n := len(*rows); n > 0 {
		q.From = row.After((*rows)[n-1].Row)
	}
	for e, err := range r.table.Query(ctx, q) {
		if err != nil {
			return err
		}
		if *rows = append(*rows, e); len(*rows) > maxViewRows {
			return fmt.Errorf("%w: partition %s of table %s has more than %d rows between %s and %s",
				row.ErrCorrupt, r.workload, r.table.Name(), maxViewRows, ownerPrefix, afterView)
		}
	}
	return nil
}

func find(rows []storage.Entity, key string) (storage.Entity, bool) {
	i, ok := slices.BinarySearchFunc(rows, key, func(e storage.Entity, key string) int {
		return strings.Compare(e.Row, key)
	})
	if !ok {
		return storage.Entity{}, false
	}
	return rows[i], true
}

// parsed gives what a row holds now, decoded only if it is another version than before.
func parsed[T any](
	r row.Row[T], e storage.Entity, v *View, before row.Version[T],
) (row.Version[T], error) {
	now := row.Version[T]{Sent: v.Read, Received: v.received}
	if !before.Absent() && before.ETag == e.ETag {
		now.Value, now.ETag, now.Modified = before.Value, e.ETag, e.Modified
		return now, nil
	}
	_, err := r.Parse(e, &now)
	return now, err
}

func (r viewReader) readWorkload(v, before *View, rows []storage.Entity) error {
	e, ok := find(rows, WorkloadKey)
	switch {
	case !ok && before.Workload != nil:
		return before.Workload.Deleted()
	case !ok:
		return pump.ErrNoWorkload
	}
	now, err := parsed(workload.RowOf(r.table, r.workload), e, v, before.workload)
	if err != nil {
		return err
	}
	v.workload = now
	v.Workload = workload.FromRow(r.table, r.workload, now)
	if before.Workload != nil {
		v.Workload, err = before.Workload.Later(v.Workload)
	}
	return err
}

func (r viewReader) readOwners(v, before *View, rows []storage.Entity) {
	segments := v.Workload.Map.Segments
	v.Owners = make([]Owner, segments)
	v.owners = make([]row.Version[[]Owner], ownerRows(segments))
	v.bad = make([]bool, len(v.owners))
	for i := range v.owners {
		first := ownerRowFirst(i)
		owners := ownerRowOf(r.table, r.workload, first, segments, r.timeout)
		v.owners[i] = row.Version[[]Owner]{Sent: v.Read, Received: v.received}
		e, ok := find(rows, owners.Key)
		if !ok {
			continue // no segment of it was ever owned
		}
		var was row.Version[[]Owner]
		if before.owners != nil && !before.bad[i] {
			was = before.owners[i]
		}
		now, err := parsed(owners, e, v, was)
		v.owners[i] = now
		if err != nil {
			v.bad[i] = true
			v.Damaged = append(v.Damaged, err)
			if before.Owners != nil {
				copy(v.Owners[first:min(first+ownersPerRow, segments)], before.Owners[first:])
			}
			continue
		}
		copy(v.Owners[first:], now.Value)
	}
}

func (r viewReader) readMembers(v, before *View, rows []storage.Entity) {
	for _, e := range rows {
		instance, ok := strings.CutPrefix(e.Row, memberPrefix)
		if !ok {
			continue
		}
		var was row.Version[memberRow]
		if i := before.Index(instance); i >= 0 && before.Members[i].Err == nil {
			was = before.present[i]
		}
		now, err := parsed(memberRowOf(r.table, r.workload, instance, r.timeout), e, v, was)
		m := now.Value.Member
		m.Every, m.Dead = now.Value.Times.Beat, now.Value.Times.Dead()
		if err == nil && !validInstance.MatchString(instance) {
			err = fmt.Errorf("row %s/%s: %w: %w", r.workload, e.Row, row.ErrCorrupt, CheckInstance(instance))
		}
		if err != nil {
			m = Member{Instance: instance, Every: m.Every, Dead: m.Dead, Err: err}
			v.Damaged = append(v.Damaged, err)
		}
		m.Beat = e.Modified
		v.Members, v.present = append(v.Members, m), append(v.present, now)
	}
}

func (r viewReader) readSpill(v, before *View, rows []storage.Entity) {
	e, ok := find(rows, spillKey)
	if !ok {
		return
	}
	now, err := parsed(spillRowOf(r.table, r.workload, v.Workload.Map.Segments, r.timeout), e, v,
		before.spill)
	if err != nil {
		v.Damaged = append(v.Damaged, err)
		// A mark too many costs a poll; one too few leaves messages unread.
		v.Spills = before.Spills
		return
	}
	v.spill = now
	for _, marks := range now.Value {
		if marks != 0 {
			v.Spills = now.Value
		}
	}
}
