package workload

import (
	"cmp"
	"context"
	"fmt"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/row"
)

// PinReducer makes the reducer of that name the workload's, unless it has one, and gives the
// workload as it is then. Two reducers would fold into the same states with different meanings, and
// tasks of a processor without a reducer would be in no state. So it is a [*pump.MismatchError] if
// the workload has another reducer, or has one and name is empty. Only the first processor of a
// workload with a reducer costs requests. It gives up after a minute, and may be called by any
// number of processes at once.
func (w *Workload) PinReducer(ctx context.Context, name string) (*Workload, error) {
	if w.Reducer == "" && name != "" {
		var err error
		if w, err = w.pin(ctx, name); err != nil {
			return nil, fmt.Errorf("workload %q: %w", w.Name, err)
		}
	}
	switch {
	case w.Reducer == name:
		return w, nil
	case name == "":
		return nil, &pump.MismatchError{
			Workload: w.Name, Field: "reducer",
			Problem: fmt.Sprintf("its tasks are reduced by %q, and what is done without it would be "+
				"missing there",
				w.Reducer),
			Fix: "let this processor use that reducer" + besideReducer,
		}
	default:
		return nil, &pump.MismatchError{
			Workload: w.Name, Field: "reducer",
			Problem: fmt.Sprintf("it is %q, but the workload's states are of reducer %q, and that "+
				"never changes",
				name, w.Reducer),
			Fix: "use that one" + besideReducer,
		}
	}
}

const besideReducer = ", or another workload"

// pin gives the workload with a reducer, its own or the reducer that another process pinned first.
// A lost answer makes no difference: the row is read, and says whose the reducer is.
func (w *Workload) pin(ctx context.Context, name string) (*Workload, error) {
	ctx, cancel := context.WithTimeout(ctx, row.Patience)
	defer cancel()
	v, err := RowOf(w.Table, w.Name).Change(ctx, func(is row.Version[Row]) (Row, bool, error) {
		next := is.Value
		if is.Absent() {
			return next, false, pump.ErrNoWorkload
		}
		next.reducer = cmp.Or(next.reducer, name)
		return next, is.Value.reducer == "", nil
	})
	if row.NoTable(err) {
		err = pump.ErrNoWorkload
	}
	if err != nil {
		return w, err
	}
	return w.Later(FromRow(w.Table, w.Name, v))
}
