package workload

import (
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/storage"
)

// The blackboard (origins B1): each instance writes what it has done of a run into a row of its
// own, and readers add the rows up. Only the closer decides by it.

// Tally is what one instance has done of one run, each task counted as often as it
// was delivered.
type Tally struct {
	Handled     uint64 // done
	Failed      uint64 // handlings that failed
	Retried     uint64 // put back for later
	Quarantined uint64 // put into a poison queue
	Duplicates  uint64 // recognised as done before
	Dropped     uint64 // not handled, because the run was ended so
	Skipped     uint64 // not handled, because its key was begun not long ago
	// Met is how often something of the run was met that is not (yet) counted above: old messages,
	// renewed leases, tasks put back for later.
	Met uint64
	// Spent is what its messages have cost, in thousandths of a request to a queue: puts, each
	// one's part of the get that brought it, renewals, and what ended each delivery.
	Spent uint64
	// Results are kept ones, ResultBytes of their lines.
	Results, ResultBytes uint64
	// Hides is for how long something of it may be hidden from when this was written.
	Hides time.Duration
}

// Add gives the sum of two tallies.
func (t Tally) Add(o Tally) Tally {
	return Tally{
		t.Handled + o.Handled, t.Failed + o.Failed, t.Retried + o.Retried,
		t.Quarantined + o.Quarantined, t.Duplicates + o.Duplicates, t.Dropped + o.Dropped,
		t.Skipped + o.Skipped, t.Met + o.Met, t.Spent + o.Spent,
		t.Results + o.Results, t.ResultBytes + o.ResultBytes, max(t.Hides, o.Hides),
	}
}

// SumTallies adds up what the processes of a run have counted.
func SumTallies(tallies map[string]Tally) (sum Tally) {
	for _, t := range tallies {
		sum = sum.Add(t)
	}
	return sum
}

// Requests are those that were spent.
func (t Tally) Requests() float64 { return float64(t.Spent) / 1000 }

// maxTallies bounds the rows that are read of one run, one for each instance that ever took part in
// it.
const maxTallies = 20_000

// RunTally is what an instance has done of one run.
type RunTally struct {
	Run codec.RunID
	Tally
}

// NoteTallies writes what an instance has done of 1 to [storage.MaxBatch] different runs over what
// it wrote before. It is one request, never tried again: the next says more. After an ambiguous
// failure older tallies may be there for a while.
func NoteTallies(
	ctx context.Context, t storage.Table, workload, instance string, tallies ...RunTally,
) error {
	if err := CheckName(workload); err != nil {
		return err
	}
	writes := make([]storage.Write, len(tallies))
	for i := range tallies {
		writes[i] = tallies[i].write(workload, instance)
	}
	ctx, cancel := context.WithTimeout(ctx, row.RequestTimeout)
	defer cancel()
	if err := row.WriteAll(ctx, t, writes); err != nil {
		return fmt.Errorf("tallies of %d runs, the first of run %s: %w", len(tallies),
			tallies[0].Run, err)
	}
	return nil
}

// write is what puts the instance's row of the run.
func (t *RunTally) write(workload, instance string) storage.Write {
	props := map[string]any{
		row.FormatProperty: int64(row.Format), "Instance": printable(instance), "Hides": int64(t.Hides),
	}
	for _, p := range t.properties() {
		props[p.name] = int64(min(*p.count, math.MaxInt64))
	}
	return storage.Write{Mode: storage.Upsert, Entity: storage.Entity{
		Partition: TallyPartition(workload), Row: t.Run.String() + "." + instanceKey(instance),
		Properties: props,
	}}
}

// Tallies gives what each instance has noted of a run; no notes are not an error. Unreadable rows
// are part of the error, and the others are still given. It gives up after a minute.
func Tallies(
	ctx context.Context, t storage.Table, workload string, run codec.RunID,
) (map[string]Tally, error) {
	found, _, err := readTallies(ctx, t, workload, run)
	return found, err
}

func readTallies(
	ctx context.Context, t storage.Table, workload string, run codec.RunID,
) (found map[string]Tally, last time.Time, err error) {
	if err := CheckName(workload); err != nil {
		return nil, last, err
	}
	ctx, cancel := context.WithTimeout(ctx, row.Patience)
	defer cancel()
	for attempt := 1; ; attempt++ {
		found, last, bad, err := findTallies(ctx, t, workload, run)
		if row.NoTable(err) {
			return nil, last, nil // without the table there are no tallies
		}
		if err == nil {
			err = errors.Join(bad...)
		}
		if err == nil {
			return found, last, nil
		}
		if ctx.Err() != nil || !row.MayRetry(err) {
			return found, last, fmt.Errorf("tallies of run %s: %w", run, err)
		}
		row.DrawOf(t).Pause(ctx, TallyPartition(workload), attempt, row.RequestTimeout/5, err)
	}
}

// LastNoted is when something of a run was noted last, or until when something of it is hidden, by
// the server's clock; zero if nothing was noted. Rows that cannot be read are part of the error,
// beside what the others say. It gives up after a minute.
func LastNoted(
	ctx context.Context, t storage.Table, workload string, run codec.RunID,
) (last time.Time, err error) {
	_, last, err = readTallies(ctx, t, workload, run)
	return last, err
}

func findTallies(
	ctx context.Context, t storage.Table, workload string, run codec.RunID,
) (found map[string]Tally, last time.Time, bad []error, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*row.RequestTimeout) // a request a thousand rows
	defer cancel()
	found = map[string]Tally{}
	first := run.String() + "."
	// '.' < '~'
	q := storage.Query{Partition: TallyPartition(workload), From: first, To: run.String() + "~"}
	for e, err := range t.Query(ctx, q) {
		if err != nil {
			return nil, last, nil, err
		}
		instance, tally, err := decodeTally(e, first)
		if err != nil {
			bad = append(bad, fmt.Errorf("row %s/%s: %w", e.Partition, e.Row, err))
		} else {
			found[instance] = tally
			if at := e.Modified.Add(tally.Hides); at.After(last) {
				last = at
			}
		}
		if len(found)+len(bad) > maxTallies {
			return nil, last, nil, errors.New("more rows than any run has instances")
		}
	}
	return found, last, bad, nil
}

// decodeTally reads a row whose key begins with first.
func decodeTally(e storage.Entity, first string) (instance string, tally Tally, err error) {
	f := &row.Fields{Props: e.Properties}
	instance = f.Text("Instance")
	for _, p := range tally.properties() {
		*p.count = f.Count(p.name)
	}
	tally.Hides = f.Duration("Hides")
	if f.Err == nil && (!strings.HasPrefix(e.Row, first) ||
		e.Row[len(first):] != instanceKey(instance)) {
		f.Fail("Instance", "is not the one of the row's key")
	}
	return instance, tally, f.Err
}

type tallyProperty struct {
	name  string
	count *uint64
}

func (t *Tally) properties() []tallyProperty {
	return []tallyProperty{
		{"Handled", &t.Handled},
		{"Failed", &t.Failed},
		{"Retried", &t.Retried},
		{"Quarantined", &t.Quarantined},
		{"Duplicates", &t.Duplicates},
		{"Dropped", &t.Dropped},
		{"Skipped", &t.Skipped},
		{"Met", &t.Met},
		{"Spent", &t.Spent},
		{"Results", &t.Results},
		{"ResultBytes", &t.ResultBytes},
	}
}

// TallyPartition is the partition with the tallies of a workload's runs.
func TallyPartition(workload string) string { return workload + ".progress" }

var plainInstance = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,200}$`)

// instanceKey is the part of a row key that stands for an instance: its name, or, if the name is
// not a possible key, a tilde and a hash of it. A name that is a key never begins with a tilde.
func instanceKey(instance string) string {
	instance = printable(instance)
	if plainInstance.MatchString(instance) {
		return instance
	}
	return fmt.Sprintf("~%016x", xxhash.Sum64String(instance))
}
