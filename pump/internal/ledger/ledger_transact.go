package ledger

import (
	"context"
	"fmt"

	"github.com/queuepump/queuepump/pump/internal/failure"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/storage"
)

// transaction writes the heads, and pages, of segments of one partition: all or nothing.
type transaction struct {
	partition int
	// property of every head written here holds the nonce, which no other transaction has.
	property, nonce string
	owner           string
	writes          []storage.Write
	segments        []uint32       // for each write, whose it is
	heads           map[uint32]int // which write is a segment's head
	// suspicious: the last one had no effect, so the row that the service names is not enough to judge
	// by.
	suspicious bool
}

func (l *Ledger) begin(partition int, property string) *transaction {
	nonce := l.draw.Nonce(Partition(l.workload, partition))
	return &transaction{
		partition: partition, property: property, nonce: nonce, owner: l.token, heads: map[uint32]int{},
	}
}

func (t *transaction) add(segment uint32, w storage.Write) {
	t.writes, t.segments = append(t.writes, w), append(t.segments, segment)
}

func (t *transaction) addHead(segment uint32, w storage.Write) {
	t.heads[segment] = len(t.writes)
	t.add(segment, w)
}

// outcome is what became of a transaction. If it is neither landed nor too large, it had no effect,
// and never will, because a head that it was based on has changed.
type outcome struct {
	landed   bool
	tooLarge bool
	etags    []storage.ETag      // of a transaction that was answered
	read     map[uint32]headRead // heads that were read because of a failure
}

// send sends a transaction, always the same bytes, until its fate is known or ctx ends; in that
// case, and when the service refuses it for good, there is an error. After an ambiguous answer the
// same bytes are sent again: the transaction may still be on its way (P3.5). A "412" after such an
// answer may be its own effect. All heads were written or none was, so if one head shows the nonce,
// the transaction landed, and heads without the nonce have been written since (window 20).
func (l *Ledger) send(ctx context.Context, t *transaction) (outcome, error) {
	object := Partition(l.workload, t.partition)
	doubt := false
	for attempt := 1; ; attempt++ {
		call, cancel := context.WithTimeout(ctx, row.RequestTimeout)
		etags, err := l.table.Transact(call, t.writes)
		cancel()
		if err == nil {
			l.unwritten.IsOver(l.options.Log.Info, "the ledger can be written again")
			return outcome{landed: true, etags: etags}, nil
		}
		next := failure.Decide(failure.Partition, err, failure.Work)
		switch code := storage.CodeOf(err); {
		case storage.Ambiguous(err):
			doubt = true
		case code == storage.Precondition || code == storage.Exists || code == storage.Gone:
			return l.learn(ctx, t, doubt, err)
		case code == storage.TooLarge:
			return outcome{tooLarge: true}, nil
		case code == storage.Canceled && ctx.Err() != nil || next.Do != failure.Wait:
			return outcome{}, fmt.Errorf("rows %s: %w", object, err)
		case next.Fix != "": // nothing can be recorded until then
			l.unwritten.GoesOn(l.options.Log.Error, "the ledger cannot be written",
				"rows", object, "error", err, "fix", next.Fix)
		}
		l.draw.Pause(ctx, object, attempt, row.RequestTimeout/5, err)
		if ctx.Err() != nil {
			return outcome{}, fmt.Errorf("rows %s: whether they were written could not be learned: %w",
				object, err)
		}
	}
}

// learn reads what a transaction ran into: if there is no doubt, only the row that the service
// named, if it named one.
func (l *Ledger) learn(
	ctx context.Context, t *transaction, doubt bool, cause error,
) (outcome, error) {
	var segments []uint32
	if e, ok := row.StorageError(cause); ok && !doubt && !t.suspicious && e.Index >= 0 &&
		e.Index < len(t.segments) {
		segments = []uint32{t.segments[e.Index]}
	} else {
		for i, segment := range t.segments {
			if t.heads[segment] == i {
				segments = append(segments, segment)
			}
		}
	}
	read, err := l.readHeads(ctx, t.partition, segments)
	if err != nil {
		return outcome{}, err
	}
	o := outcome{read: read}
	for _, r := range read {
		o.landed = o.landed || r.head != nil && t.in(r.head)
	}
	return o, nil
}

// in reports whether a head shows the transaction's nonce.
func (t *transaction) in(h *ledgerHead) bool {
	if t.property == fenceProperty {
		return h.fence == t.nonce
	}
	return h.nonce == t.nonce
}

// etag is the version of a segment's head that the transaction made; empty if it is not known,
// because the head has been written again since. (A head with the nonce of a commit may have a
// foreign fence by now: its ETag is the other owner's.)
func (o *outcome) etag(t *transaction, segment uint32) storage.ETag {
	if o.etags != nil {
		return o.etags[t.heads[segment]]
	}
	if r := o.read[segment]; r.head != nil && t.in(r.head) && r.head.owner == t.owner {
		return r.head.etag
	}
	return ""
}

// insist makes a request until it is answered, fails for good, or ctx ends.
func (l *Ledger) insist(
	ctx context.Context, object string, request func(context.Context) error,
) error {
	for attempt := 1; ; attempt++ {
		call, cancel := context.WithTimeout(ctx, row.RequestTimeout)
		err := request(call)
		cancel()
		if err == nil {
			return nil
		}
		if err := l.retry(ctx, object, attempt, err); err != nil {
			return err
		}
	}
}

// retry waits until a request that failed may be made again. It gives the error of a request that
// must not be made again.
func (l *Ledger) retry(ctx context.Context, object string, attempt int, err error) error {
	again := failure.Decide(failure.Partition, err, failure.Work).Do == failure.Wait
	if again && ctx.Err() == nil {
		l.draw.Pause(ctx, object, attempt, row.RequestTimeout/5, err)
	}
	if again && ctx.Err() == nil {
		return nil
	}
	return fmt.Errorf("rows %s: %w", object, err)
}

// headRead is a head as it was read: without a row it has no ETag, and a damaged one has only the
// error.
type headRead struct {
	head *ledgerHead
	err  error
}

// readHeads reads the heads of segments, sorted, of one partition.
func (l *Ledger) readHeads(
	ctx context.Context, partition int, segments []uint32,
) (map[uint32]headRead, error) {
	name := Partition(l.workload, partition)
	rows := map[string]storage.Entity{}
	var err error
	if len(segments) == 1 {
		err = l.insist(ctx, name, func(ctx context.Context) error {
			e, err := l.table.Read(ctx, name, headKey(segments[0]))
			if storage.Is(err, storage.Gone) {
				return nil
			}
			rows[headKey(segments[0])] = e
			return err
		})
	} else {
		q := storage.Query{
			Partition: name, From: headKey(segments[0]), To: headKey(segments[len(segments)-1]) + "~",
		}
		err = l.rows(ctx, q, func(e storage.Entity) { rows[e.Row] = e })
	}
	if err != nil {
		return nil, err
	}
	read := make(map[uint32]headRead, len(segments))
	for _, segment := range segments {
		var r headRead
		if e, is := rows[headKey(segment)]; is {
			r.head, r.err = headOf(l.table, e)
		} else {
			r.head = &ledgerHead{}
		}
		read[segment] = r
	}
	return read, nil
}

// load reads and decodes the pages that a head names. A missing page is an ErrCorrupt; the cause
// may also be that the head has changed.
func (l *Ledger) load(ctx context.Context, segment uint32, h *ledgerHead) (*image, error) {
	partition := Partition(l.workload, l.Partition(segment))
	if len(h.layout.pages) > 0 {
		rows := map[string]storage.Entity{}
		prefix := pagesOf(segment)
		err := l.rows(ctx, storage.Query{Partition: partition, From: prefix, To: prefix + "~"},
			func(e storage.Entity) {
				rows[e.Row] = e
			})
		if err != nil {
			return nil, err
		}
		if err := h.layout.fill(l.table, partition, segment, rows); err != nil {
			return nil, err
		}
	}
	return l.imageOf(l.Partition(segment), segment, h)
}

// fill puts the records of the pages' rows into the pages.
func (y *layout) fill(
	table storage.Table, partition string, segment uint32, rows map[string]storage.Entity,
) error {
	for i, p := range y.pages {
		e, is := rows[pageKey(segment, p.id)]
		if !is {
			return row.Damaged(table, partition, pageKey(segment, p.id),
				fmt.Errorf("%w: it is missing", row.ErrCorrupt))
		}
		var err error
		if p.block, err = pageOf(table, e); err != nil {
			return err
		}
		for key := range p.block {
			if key < p.first || i+1 < len(y.pages) && key >= y.pages[i+1].first {
				return row.Damaged(table, partition, e.Row,
					fmt.Errorf("%w: a record that belongs into another page", row.ErrCorrupt))
			}
		}
	}
	return nil
}

// loadState makes the state from what is stored.
func (m *image) loadState(s State) error {
	state, err := s.Load(m.raw)
	if err != nil {
		return fmt.Errorf("%w: the reducer's state: %w", row.ErrCorrupt, err)
	}
	m.state, m.loaded = state, true
	return nil
}
