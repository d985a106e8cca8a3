package coordination

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"sync"

	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
)

const (
	// defaultIDs is how many numbers are reserved at once (origins T1): a write
	// for a thousand numbers, and at most a thousand lost in a crash.
	defaultIDs = 1000
	// idTries is how often a reservation is tried against others (origins T1).
	idTries = 25
	// idPause is the longest pause between two of them: 25 take about 20 s.
	idPause = row.RequestTimeout / 10
)

// IDRange hands out unique numbers, 1, 2, 3 and so on, to any number of processes. It reserves a
// range of a stored counter by compare-and-swap and gives the numbers from memory, so most calls
// make no request. No number is ever given twice while the row is as it was left; see the package
// for what follows when it is gone, or comes back as it was before. Numbers that a process has
// reserved and not given when it ends are never given, nor are those of a reservation whose outcome
// could not be learned. Numbers of several processes therefore do not follow the order of time.
//
// An IDRange may be used from many goroutines at once.
type IDRange struct {
	// Log receives that the row was gone, or had come back as it was before. Default: nothing. It is
	// set before use.
	Log *slog.Logger

	row    row.Row[uint64] // the first number that is not reserved
	size   uint64
	refill row.Flight

	mu        sync.Mutex
	next, end uint64 // in hand: next <= number < end
	above     uint64 // the greatest number that the row is known to have had
}

// NewIDRange gives a handle on a workload's range of that name (1 to 63 of
// [A-Za-z0-9_.~-]); it makes no request. Size is how many numbers are reserved at
// once, 0 for 1,000; processes may differ in it.
func NewIDRange(t storage.Table, workloadName, name string, size int) (*IDRange, error) {
	if err := errors.Join(workload.CheckName(workloadName),
		checkRowName("id range", name)); err != nil {
		return nil, err
	}
	if size < 0 {
		return nil, fmt.Errorf("id range %q: a range of %d numbers", name, size)
	}
	size = cmp.Or(size, defaultIDs)
	return &IDRange{row: idRowOf(t, workloadName, name), size: uint64(size)}, nil
}

// Next gives a number that no other caller gets. If none is in hand it reserves a
// range first, as Reserve does and with its errors; of many goroutines that wait one does.
func (r *IDRange) Next(ctx context.Context) (uint64, error) {
	for {
		if id, ok := r.take(); ok {
			return id, nil
		}
		err := r.refill.Do(ctx, func(ctx context.Context) error {
			if r.inHand() {
				return nil // another goroutine was quicker
			}
			first, err := r.Reserve(ctx, r.size)
			if err == nil {
				r.put(first, first+r.size)
			}
			return err
		})
		if err != nil {
			return 0, err
		}
	}
}

func (r *IDRange) take() (id uint64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next == r.end {
		return 0, false
	}
	r.next++
	return r.next - 1, true
}

func (r *IDRange) inHand() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.next < r.end
}

func (r *IDRange) put(first, end uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next, r.end = first, end
}

// Reserve takes n numbers, first to first + n - 1, for the caller alone; Next never gives them. It
// makes the table and the counter if they are not there.
//
// It is an error if others were quicker 25 times in a row, if fewer than n numbers are left below
// 2^64 - 1, or if the table does not answer within a minute; then nothing was given, though numbers
// may be lost. A counter that no version of this program writes is an error with the row's name,
// and is left as it is.
func (r *IDRange) Reserve(ctx context.Context, n uint64) (first uint64, err error) {
	if n == 0 {
		return 0, fmt.Errorf("id range %q: a range of no numbers", r.row.Key)
	}
	ctx, cancel := context.WithTimeout(ctx, row.Patience)
	defer cancel()
	for try := 1; ; try++ {
		first, err = r.try(ctx, n)
		if err == nil {
			return first, nil
		}
		if !errors.Is(err, row.ErrLost) || ctx.Err() != nil {
			return 0, fmt.Errorf("id range %q: %w", r.row.Key, err)
		}
		if try == idTries {
			return 0, fmt.Errorf("id range %q: %w, %d times in a row: reserve larger ranges less often",
				r.row.Key, err, idTries)
		}
		row.DrawOf(r.row.Table).Pause(ctx, r.row.Object(), try, idPause, nil)
	}
}

// try is one compare-and-swap. A range is ours only if its own write is known to have raised the
// counter; in doubt it is not used.
func (r *IDRange) try(ctx context.Context, n uint64) (first uint64, err error) {
	v, err := r.row.MustReadOrCreate(ctx)
	if err != nil {
		return 0, err
	}
	first = v.Value
	if v.Absent() {
		first = 1
	}
	r.mu.Lock()
	above := r.above
	r.mu.Unlock()
	said := first
	first = max(first, above)
	if n > math.MaxUint64-first {
		return 0, fmt.Errorf("row %s stands at %d: there are no %d numbers left",
			r.row.Object(), first, n)
	}
	if _, err = r.row.TryWrite(ctx, v, first+n); err != nil {
		return 0, err
	}
	r.mu.Lock()
	r.above = max(r.above, first+n)
	r.mu.Unlock()
	if first > said && r.Log != nil {
		r.Log.Error("the row of a range of ids was gone, or had come back as it was before; this "+
			"process goes on above its own numbers, and others may have got some of them",
			"row", r.row.Object(), "said", said, "from", first)
	}
	return first, nil
}

// idRowOf is the row of a counter, which is stored as text: the greatest integer that a table
// stores is 2^63 - 1 and a number that went through a float is another one.
func idRowOf(t storage.Table, workloadName, name string) row.Row[uint64] {
	return row.Row[uint64]{
		Table: t, Partition: workload.IDsPartition(workloadName), Key: name, Timeout: row.RequestTimeout,
		Encode: func(next uint64) map[string]any {
			return map[string]any{"Next": strconv.FormatUint(next, 10)}
		},
		Decode: func(f *row.Fields) uint64 {
			text := f.Text("Next")
			next, err := strconv.ParseUint(text, 10, 64)
			if err != nil || next == 0 || strconv.FormatUint(next, 10) != text {
				f.Fail("Next", fmt.Sprintf("is %.40q, not a number from 1", text))
			}
			return next
		},
	}
}
