package sampling

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
)

// Span is how far back the rows reach.
const Span = 6 * time.Hour

const (
	ring = int64(Span / time.Minute) // rows
	// MaxAccounts bounds a row: in a larger workload the further accounts are one account without a
	// name.
	MaxAccounts = 250
	// ahead is how far a row may be ahead of the service's stamp on it. A row that is further ahead
	// comes from a process with a wrong clock: it would hide all others.
	ahead = 2 * time.Minute
	// skew is how far this machine's clock may be behind the service's, whose minutes the rows have.
	// The service refuses requests signed with a clock that is 15 minutes off.
	skew = 16 * time.Minute
	// bad is how many unreadable rows are logged, and how many are passed over in search of the newest
	// row.
	bad = 5
)

// HistoryPoint is what a workload was like in one minute.
type HistoryPoint struct {
	Time  time.Time `json:"time"`           // the beginning of the minute, UTC
	Tasks float64   `json:"tasksPerSecond"` // handled
	// Sampled: the next two are known; see pump.Backlog. They are 0 until a process looked at the
	// queues.
	Sampled bool    `json:"sampled"`
	Done    float64 `json:"messagesDonePerSecond"`
	Waiting float64 `json:"waitingSeconds"`
	// Cost is the cost since the last row was written: of the minute, and of any gap before it;
	// DayCost is that of the UTC day up to now. Both are in Currency.
	Cost     float64          `json:"cost"`
	DayCost  float64          `json:"dayCost"`
	Currency string           `json:"currency"`
	Accounts []HistoryAccount `json:"accounts"` // by name
	// DayKinds are the day's requests by kind, as far as processes say it; see [ReadKinds].
	DayKinds cluster.OpCounts `json:"-"`
}

// HistoryAccount is what an account was like in one minute.
type HistoryAccount struct {
	Name  string  `json:"name"` // empty: the accounts beyond [MaxAccounts] together
	Asked float64 `json:"askedPerSecond"`
	Limit float64 `json:"limit"` // messages a second
	// Throttled counts the requests of the minute that were refused as too many.
	Throttled uint64 `json:"throttled"`
	// Sampled: the queues were looked at within the last minutes, and the next are known; see
	// pump.WaitingAccount. Otherwise they are 0.
	Sampled     bool    `json:"sampled"`
	Messages    uint64  `json:"messages"`
	Visible     uint64  `json:"visible"`
	InFlight    uint64  `json:"inFlight"`
	Delayed     uint64  `json:"delayed"`
	Quarantined uint64  `json:"quarantined"`
	Oldest      float64 `json:"oldestSeconds"`
	// Requests are those of the minute, Day those of the UTC day up to now.
	Requests Requests `json:"requests"`
	Day      Requests `json:"day"`
	Cost     float64  `json:"cost"` // of the minute
	// DayKinds are the day's requests by kind, as far as processes say it by account; see
	// [ReadKinds].
	DayKinds cluster.OpCounts `json:"-"`
}

// Requests counts requests of the two services, which have a price each.
type Requests struct {
	Queue uint64 `json:"queue"`
	Table uint64 `json:"table"`
}

// Add gives the sum.
func (r Requests) Add(o Requests) Requests { return Requests{r.Queue + o.Queue, r.Table + o.Table} }

// Since gives what was asked after o; nothing where a count is smaller than before.
func (r Requests) Since(o Requests) Requests {
	return Requests{r.Queue - min(o.Queue, r.Queue), r.Table - min(o.Table, r.Table)}
}

// Unknown are the requests of r that are not among those whose kind is known.
func (r Requests) Unknown(known cluster.OpCounts) Requests {
	return r.Since(Requests{known.Of(cluster.QueueService), known.Of(cluster.TableService)})
}

// Max gives the larger count of each service.
func (r Requests) Max(o Requests) Requests {
	return Requests{max(r.Queue, o.Queue), max(r.Table, o.Table)}
}

// Marks are what each process had asked when a row was written, by process as [MarkOf] names it:
// the next sampling process counts from there.
type Marks map[uint64]Mark

// Mark is what a member had asked when it was last seen, and how long ago that was, to the minute.
type Mark struct {
	Requests
	Ago time.Duration
}

// HistoryPartition is the partition with the rows.
func HistoryPartition(workload string) string { return workload + ".history" }

func key(minute int64) string { return fmt.Sprintf("m.%03d", minute%ring) }

// WriteHistory writes the row of a minute over the row of six hours before, with one request, never
// tried again: the next row says more. After an ambiguous failure the row may be there.
func WriteHistory(
	ctx context.Context, t storage.Table, workloadName string, p HistoryPoint, marks Marks,
) error {
	if err := workload.CheckName(workloadName); err != nil {
		return err
	}
	packed, kinds := p.encode()
	props := map[string]any{
		row.FormatProperty: int64(row.Format), "Minute": p.Time.Unix() / 60, "Point": packed,
		kindsColumn: kinds,
	}
	marks.put(props)
	ctx, cancel := context.WithTimeout(ctx, row.RequestTimeout)
	defer cancel()
	_, err := t.Write(ctx, storage.Write{Mode: storage.Upsert, Entity: storage.Entity{
		Partition: HistoryPartition(workloadName), Row: key(p.Time.Unix() / 60), Properties: props,
	}})
	if err != nil {
		return fmt.Errorf("the history of workload %s: %w", workloadName, err)
	}
	return nil
}

// ReadHistory gives the points that are later than after, in the order of time; the zero time: all.
// A minute without a row is missing among them. ReadHistory passes over a row of a newer program.
// Rows that cannot be read are part of the error, beside the points of the others. Read gives up
// after a minute.
func ReadHistory(
	ctx context.Context, t storage.Table, workloadName string, after time.Time,
) ([]HistoryPoint, error) {
	return readPoints(ctx, t, workloadName, after, row.FormatProperty, "Minute", "Point")
}

// ReadHistoryKinds is [ReadHistory] with the day's requests by kind, which make a row larger by
// half. A row with damaged kinds has none.
func ReadHistoryKinds(
	ctx context.Context, t storage.Table, workloadName string, after time.Time,
) ([]HistoryPoint, error) {
	columns := []string{row.FormatProperty, "Minute", "Point", kindsColumn}
	return readPoints(ctx, t, workloadName, after, columns...)
}

func readPoints(
	ctx context.Context, t storage.Table, workloadName string, after time.Time, columns ...string,
) ([]HistoryPoint, error) {
	if err := workload.CheckName(workloadName); err != nil {
		return nil, err
	}
	var points []HistoryPoint
	var errs []error
	for _, q := range queries(workloadName, after, time.Now()) {
		q.Select = columns
		rows, err := row.MustFind(ctx, t, q, int(ring))
		if err != nil {
			return nil, fmt.Errorf("the history of workload %s: %w", workloadName, err)
		}
		for _, e := range rows {
			p, err := read(e)
			switch {
			case errors.Is(err, errNewer):
			case err != nil:
				errs = append(errs, row.Damaged(t, e.Partition, e.Row, err))
			case p.Time.After(after):
				points = append(points, p)
			}
		}
	}
	return newest(points), errors.Join(errs[:min(len(errs), bad)]...)
}

// queries are those that reach all rows after a time. Those of a few minutes are a few rows.
func queries(workloadName string, after, now time.Time) []storage.Query {
	all := storage.Query{Partition: HistoryPartition(workloadName), From: "m.", To: "m.~"}
	from, to := after.Unix()/60-1, now.Add(skew).Unix()/60
	if after.IsZero() || to-from >= ring-1 || to < from {
		return []storage.Query{all}
	}
	lap := func(from, to int64) storage.Query { // of the same lap of the ring, to included
		return storage.Query{Partition: all.Partition, From: key(from), To: key(to) + "~"}
	}
	if from%ring <= to%ring {
		return []storage.Query{lap(from, to)}
	}
	return []storage.Query{lap(from, from/ring*ring+ring-1), lap(to/ring*ring, to)}
}

// newest sorts points and drops those from before the ring's reach: their rows were not
// overwritten.
func newest(points []HistoryPoint) []HistoryPoint {
	slices.SortFunc(points, func(a, b HistoryPoint) int { return a.Time.Compare(b.Time) })
	return slices.DeleteFunc(points, func(p HistoryPoint) bool {
		return points[len(points)-1].Time.Sub(p.Time) >= Span
	})
}

// errNewer is a row of a newer program.
var errNewer = errors.New("the row is of a newer program")

// read reads what a row says of its minute.
func read(e storage.Entity) (HistoryPoint, error) {
	f := &row.Fields{Props: e.Properties}
	if f.Integer(row.FormatProperty) > row.Format {
		return HistoryPoint{}, errNewer
	}
	p := row.ReadFormat(f, decodePoint)
	switch minute := p.Time.Unix() / 60; {
	case f.Err != nil:
	case e.Row != key(minute):
		f.Fail("Minute", fmt.Sprintf("is %d in row %s", minute, e.Row))
	case !e.Modified.IsZero() && p.Time.Sub(e.Modified) > ahead:
		f.Fail("Minute", fmt.Sprintf("is %v, and the row was written at %v", p.Time, e.Modified))
	}
	if f.Err != nil {
		return HistoryPoint{}, f.Err
	}
	return p, nil
}

// NewestPoint gives the newest row that can be read, with its marks, for the process that goes on
// from it; the zero point without such a row. A row that came back older does no harm: its marks
// came back with it.
func NewestPoint(
	ctx context.Context, t storage.Table, workloadName string,
) (HistoryPoint, Marks, error) {
	if err := workload.CheckName(workloadName); err != nil {
		return HistoryPoint{}, nil, err
	}
	rows, err := row.MustFind(ctx, t, storage.Query{
		Partition: HistoryPartition(workloadName), From: "m.", To: "m.~",
		Select: []string{row.FormatProperty, "Minute"},
	}, int(ring))
	if err != nil {
		return HistoryPoint{}, nil, fmt.Errorf("the history of workload %s: %w", workloadName, err)
	}
	minute := func(e storage.Entity) int64 {
		at, _ := e.Properties["Minute"].(int64)
		return at
	}
	slices.SortStableFunc(rows, func(a, b storage.Entity) int {
		return cmp.Compare(minute(b), minute(a))
	})
	var errs []error
	for _, e := range rows[:min(len(rows), bad)] {
		p, marks, err := readWhole(ctx, t, e)
		if err == nil {
			return p, marks, nil
		}
		if !errors.Is(err, row.ErrCorrupt) && !errors.Is(err, errNewer) &&
			!storage.Is(err, storage.Gone) {
			return HistoryPoint{}, nil, fmt.Errorf("the history of workload %s: %w", workloadName, err)
		}
		errs = append(errs, row.Damaged(t, e.Partition, e.Row, err))
	}
	return HistoryPoint{}, nil, errors.Join(errs...)
}

func readWhole(
	ctx context.Context, t storage.Table, e storage.Entity,
) (p HistoryPoint, marks Marks, err error) {
	partition, key := e.Partition, e.Row
	err = row.Insist(ctx, t, partition+"/"+key, func(ctx context.Context) (err error) {
		e, err = t.Read(ctx, partition, key)
		return err
	})
	if err != nil {
		return p, nil, err
	}
	if p, err = read(e); err != nil {
		return p, nil, err
	}
	f := &row.Fields{Props: e.Properties}
	marks = decodeMarks(f)
	return p, marks, f.Err
}

// Minute is the minute of a time.
func Minute(at time.Time) time.Time { return at.UTC().Truncate(time.Minute) }

// MarkOf is what stands among [Marks] for a process that counts since a time of its clock. The
// incarnation of its member does not: an evicted member has another when it is back.
func MarkOf(instance string, since time.Time) uint64 {
	return hash(strconv.Quote(instance) + strconv.FormatInt(since.UnixMicro(), 10))
}
