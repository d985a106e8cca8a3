package workload

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/shardmap"
)

// Run rows are found by id. Ids are random, so their order has no meaning, and all rows cannot be
// scanned for the newest, since they are never removed (one a minute is half a million a year). So
// each run has a second row whose key begins with its start time counted down, and the newest come
// first in key order. That row never changes and only names the run.

const (
	byTime = "t."
	// afterByTime is the first key past all that begin with byTime ('.' < '~').
	afterByTime = "t~"
	lastMilli   = 9_999_999_999_999 // in the year 2286
)

func (r *Runs) timeKey(run Run) string {
	milli := min(max(run.Started.UnixMilli(), 0), lastMilli)
	return fmt.Sprintf("%s%013d.%s", byTime, lastMilli-milli, run.ID)
}

// note writes the row by time. Writing it again changes nothing, so an
// ambiguous answer is simply followed by another attempt.
func (r *Runs) note(ctx context.Context, run Run) error {
	return row.InsistOn(ctx, r.table, r.noteOf(run.ID, r.timeKey(run)))
}

func (r *Runs) noteOf(run codec.RunID, key string) storage.Write {
	return storage.Write{Mode: storage.Upsert, Entity: storage.Entity{
		Partition: r.partition(), Row: key,
		Properties: map[string]any{row.FormatProperty: int64(row.Format), "Run": run.String()},
	}}
}

// toldDamaged is how many damaged rows a list names.
const toldDamaged = 10

// List gives up to limit runs, the last started first, by the clocks of the
// instances that started them. It costs one request for the keys of each
// thousand and one for each run, and gives up after a minute. Damaged rows are
// an error beside the runs that can be read ([row.ErrCorrupt], which names the
// first ten); any other error ends the list.
func (r *Runs) List(ctx context.Context, limit int) ([]Run, error) {
	ctx, cancel := context.WithTimeout(ctx, row.Patience)
	defer cancel()
	var runs []Run
	var bad []error
	// More than once round only if there are rows by time without a run to show.
	for from := byTime; len(runs) < limit; {
		noted, err := r.findNoted(ctx, from, limit-len(runs))
		if err != nil {
			return nil, fmt.Errorf("listing runs of %s: %w", r.workload, err)
		}
		if len(noted) == 0 {
			break
		}
		found, errs := make([]Run, len(noted)), make([]error, len(noted))
		var g errgroup.Group
		g.SetLimit(16) // one after another thousands take longer than a minute
		for i, n := range noted {
			g.Go(func() error {
				found[i], errs[i] = r.ofNoted(ctx, n)
				return nil
			})
		}
		_ = g.Wait()
		for i, err := range errs {
			switch {
			case err == nil:
				runs = append(runs, found[i])
			case errors.Is(err, pump.ErrNoRun):
			case !errors.Is(err, row.ErrCorrupt):
				return nil, err
			case len(bad) < toldDamaged:
				bad = append(bad, err)
			}
		}
		from = row.After(noted[len(noted)-1].key)
	}
	return runs, errors.Join(bad...)
}

// ofNoted reads the run of a row by time. [pump.ErrNoRun]: the row is from a Create that did not
// get further, or that was made again at another time.
func (r *Runs) ofNoted(ctx context.Context, n noted) (Run, error) {
	if n.err != nil {
		return Run{}, n.err
	}
	run, err := r.Get(ctx, n.run)
	if err == nil && r.timeKey(run) != n.key {
		return Run{}, pump.ErrNoRun
	}
	return run, err
}

// Born is when the row of a run was made, by the server's clock; zero: that is not known.
func (r *Runs) Born(ctx context.Context, run Run) (time.Time, error) {
	e, err := r.table.Read(ctx, r.partition(), r.timeKey(run))
	if storage.Is(err, storage.Gone) {
		err = nil
	}
	return e.Modified, err
}

// noted is a row by time.
type noted struct {
	key string
	run codec.RunID
	// freed: the row of a run with a name is gone since modified, by the server's clock
	freed    bool
	modified time.Time
	err      error // of a row that cannot be read
}

// findNoted reads the first `limit` rows by time from a key on; without the table there are none.
func (r *Runs) findNoted(ctx context.Context, from string, limit int) ([]noted, error) {
	rows, err := row.MustFind(ctx, r.table, storage.Query{
		Partition: r.partition(), From: from, To: afterByTime, Select: []string{"Run", freedProperty},
	}, limit)
	found := make([]noted, len(rows))
	for i, e := range rows {
		f := &row.Fields{Props: e.Properties}
		found[i] = noted{
			key: e.Row, run: f.Run("Run"), freed: f.Flag(freedProperty), modified: e.Modified,
		}
		if f.Err != nil {
			found[i].err = row.Damaged(r.table, e.Partition, e.Row, f.Err)
		}
	}
	return found, err
}

// Counts are stored as how many there are and then each one, all varints.

func appendCounts(b []byte, counts []uint64) []byte {
	b = binary.AppendUvarint(b, uint64(len(counts)))
	for _, n := range counts {
		b = binary.AppendUvarint(b, n)
	}
	return b
}

func readCounts(b []byte) ([]uint64, error) {
	n, size := binary.Uvarint(b)
	// Every count takes a byte at least.
	if size <= 0 || n < 1 || n > shardmap.MaxSegments || n > uint64(len(b)-size) {
		return nil, errors.New("has no number of segments")
	}
	b = b[size:]
	counts := make([]uint64, n)
	for i := range counts {
		if counts[i], size = binary.Uvarint(b); size <= 0 {
			return nil, fmt.Errorf("ends in the count of segment %d", i)
		}
		b = b[size:]
	}
	if len(b) > 0 {
		return nil, fmt.Errorf("has %d bytes after its last count", len(b))
	}
	return counts, nil
}

// Find gives the first runs by id, at most so many, whose ids begin with these lower-case
// hexadecimal digits, in any state.
func (r *Runs) Find(ctx context.Context, prefix string, most int) ([]codec.RunID, error) {
	if prefix == "" || len(prefix) > 32 || strings.Trim(prefix, "0123456789abcdef") != "" {
		return nil, fmt.Errorf("%q is not a beginning of a run's id, which is of 0-9 and a-f", prefix)
	}
	q := storage.Query{
		Partition: r.partition(), From: prefix, To: prefix + "g", Select: []string{"State"},
	}
	rows, err := row.MustFind(ctx, r.table, q, most)
	if err != nil {
		return nil, fmt.Errorf("looking for run %s: %w", prefix, err)
	}
	var found []codec.RunID
	for _, e := range rows {
		if id, err := codec.ParseRunID(e.Row); err == nil {
			found = append(found, id)
		}
	}
	return found, nil
}

// countedMost bounds how many runs are counted: a request for each thousand.
const countedMost = 100_000

// CountStates counts the runs by state, up to a hundred thousand; all says whether those were all.
// It gives up after a minute.
func (r *Runs) CountStates(ctx context.Context) (counts map[RunState]int, all bool, err error) {
	// Of all keys of the partition only ids begin with a hexadecimal digit.
	q := storage.Query{Partition: r.partition(), From: "0", To: "g", Select: stateProperties}
	rows, err := row.MustFind(ctx, r.table, q, countedMost)
	if err != nil {
		return nil, false, fmt.Errorf("counting runs of %s: %w", r.workload, err)
	}
	counts = map[RunState]int{}
	for _, e := range rows {
		counts[storedState(e)]++
	}
	return counts, len(rows) < countedMost, nil
}

// stateProperties are what storedState reads of a run's row.
var stateProperties = []string{"State", "Rest"}

// storedState is the state of a partly read run: a run closed with a rest is stored as sealed.
func storedState(e storage.Entity) RunState {
	state, _ := e.Properties["State"].(string)
	if rest, _ := e.Properties["Rest"].(int64); RunState(state) == RunSealed && rest > 0 {
		return RunClosed
	}
	return RunState(state)
}
