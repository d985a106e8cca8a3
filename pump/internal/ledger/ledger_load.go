package ledger

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/storage"
)

// loadGap is how many segments that are not to be loaded may lie between two that one query reads:
// if several processes share a partition, each then asks a few times instead of once for each
// segment, and reads some pages in vain.
const loadGap = 4

// loadMost is how many segments' pages one query reads at most: commits to the partition wait for
// it.
const loadMost = 16

// Load reads the pages of segments that were fenced under these holds, so that they are
// [Ledger.Fenced], each as soon as its pages are read: ready, which may be nil, is then called.
// Segments of one partition that lie near each other are read by one query, partitions one after
// the other; commits go in between. A failed query goes on where it was, and segments loaded when
// ctx ended stay so: a slow table costs time, but no page is read twice. The error is an
// [*UnfencedError] about the others: [row.ErrCorrupt] with the row's name, or what the table said
// when ctx ended. Segments that are fenced already, or not under these holds, are left as they are.
// It must not be called twice at once for a segment.
func (l *Ledger) Load(ctx context.Context, holds []cluster.Hold, ready func(segment uint32)) error {
	holds = slices.Clone(holds)
	slices.SortStableFunc(holds, func(a, b cluster.Hold) int {
		return cmp.Compare(a.Segment, b.Segment)
	})
	holds = slices.DeleteFunc(holds, func(h cluster.Hold) bool {
		return !l.Unloaded(h.Segment, h.Epoch)
	})
	if ready == nil {
		ready = func(uint32) {}
	}
	var failed []Unfenced
	for len(holds) > 0 {
		n, partition := 1, l.Partition(holds[0].Segment)
		for n < min(len(holds), loadMost) && l.Partition(holds[n].Segment) == partition &&
			holds[n].Segment-holds[n-1].Segment <= loadGap+1 {
			n++
		}
		g := loading{l: l, partition: partition, todo: holds[:n], ready: ready}
		if err := g.run(ctx); err != nil {
			for _, h := range g.todo {
				g.failed = append(g.failed, Unfenced{h.Segment, 0, err})
			}
		}
		failed = append(failed, g.failed...)
		holds = holds[n:]
	}
	return unfenced(failed)
}

// loading is the loading of segments of one partition by one query.
type loading struct {
	l         *Ledger
	partition int
	todo      []cluster.Hold
	rows      map[string]storage.Entity // pages of todo[0]
	ready     func(uint32)
	failed    []Unfenced
}

// run reads pages in key order. A segment is complete when a row of a later one comes.
func (g *loading) run(ctx context.Context) error {
	if err := g.l.lock(ctx, g.partition); err != nil {
		return err
	}
	defer g.l.unlock(g.partition)
	g.rows = map[string]storage.Entity{}
	q := storage.Query{
		Partition: Partition(g.l.workload, g.partition),
		From:      pagesOf(g.todo[0].Segment), To: pagesOf(g.todo[len(g.todo)-1].Segment) + "~",
	}
	err := g.l.rows(ctx, q, func(e storage.Entity) {
		for len(g.todo) > 0 && e.Row >= pagesOf(g.todo[0].Segment)+"~" {
			g.finish()
		}
		if len(g.todo) > 0 && e.Row >= pagesOf(g.todo[0].Segment) {
			g.rows[e.Row] = e
		}
	})
	for err == nil && len(g.todo) > 0 {
		g.finish()
	}
	return err
}

// pagesOf is the beginning of the keys of a segment's pages.
func pagesOf(segment uint32) string { return pagePrefix + cluster.SegmentKey(segment) + "." }

// finish decodes the pages of the first segment that is still to be loaded. The partition's lock is
// held, so the segment's head is the fenced one.
func (g *loading) finish() {
	h, rows := g.todo[0], g.rows
	g.todo, g.rows = g.todo[1:], map[string]storage.Entity{}
	s := &g.l.segments[h.Segment]
	s.mu.Lock()
	head := s.head
	wanted := s.written && s.epoch == h.Epoch && head != nil
	s.mu.Unlock()
	if !wanted { // it was dropped or lost meanwhile, or a commit has loaded it
		return
	}
	full := *head
	full.layout.pages = make([]*ledgerPage, len(head.layout.pages))
	for i, p := range head.layout.pages {
		page := *p
		full.layout.pages[i] = &page
	}
	err := full.layout.fill(g.l.table, Partition(g.l.workload, g.partition), h.Segment, rows)
	var m *image
	if err == nil {
		m, err = g.l.imageOf(g.partition, h.Segment, &full)
	}
	if err != nil {
		g.failed = append(g.failed, Unfenced{h.Segment, 0, err})
		return
	}
	s.mu.Lock()
	taken := s.head == head
	if taken {
		s.head, s.image = nil, m
	}
	s.mu.Unlock()
	if taken {
		g.ready(h.Segment)
	}
}

// imageOf makes sense of a head whose pages are there.
func (l *Ledger) imageOf(partition int, segment uint32, h *ledgerHead) (*image, error) {
	m, err := newImage(h)
	if err == nil && l.options.Names > 0 {
		m.foreign.most = l.options.Names
	}
	if err == nil && l.options.State != nil {
		err = m.loadState(l.options.State)
	}
	if err != nil {
		return nil, row.Damaged(l.table, Partition(l.workload, partition), headKey(segment), err)
	}
	return m, nil
}

// rows gives the rows of a query to each, until all came, the table refuses, or ctx ends. Each
// of the service's answers may take RequestTimeout; after a failure it goes on behind the
// last row that came.
func (l *Ledger) rows(ctx context.Context, q storage.Query, each func(storage.Entity)) error {
	for attempt := 1; ; attempt++ {
		from := q.From
		err := l.rowsOnce(ctx, q, func(e storage.Entity) {
			q.From = row.After(e.Row)
			each(e)
		})
		if err == nil {
			return nil
		}
		if q.From != from {
			attempt = 1
		}
		if err := l.retry(ctx, q.Partition, attempt, err); err != nil {
			return err
		}
	}
}

var errSlowRows = errors.New("no row came in time")

func (l *Ledger) rowsOnce(ctx context.Context, q storage.Query, each func(storage.Entity)) error {
	call, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watch := time.AfterFunc(row.RequestTimeout, func() { cancel(errSlowRows) })
	defer watch.Stop()
	for e, err := range l.table.Query(call, q) {
		if err != nil {
			return err
		}
		watch.Reset(row.RequestTimeout)
		each(e)
	}
	return nil
}
