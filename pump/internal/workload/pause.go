package workload

import (
	"context"
	"time"

	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/storage"
)

// Pause is an operator's mark in a workload's row: no task of the workload is to be started; see
// "Pause" in docs/protocols.md. The zero value: not paused.
type Pause struct {
	Since time.Time // by the clock of the operator's machine
	By    string
}

// Is reports whether there is a mark.
func (p Pause) Is() bool { return !p.Since.IsZero() }

func (p Pause) encode(props map[string]any) {
	if p.Is() {
		props["Paused"], props["PausedBy"] = p.Since, row.Clip(p.By)
	}
}

func decodePause(f *row.Fields) Pause {
	return Pause{Since: f.Moment("Paused"), By: f.Line("PausedBy")}
}

// SetPause marks a workload as paused, or with the zero Pause takes the mark away, and gives the
// workload as it is then. A paused workload keeps its mark: people ask since when nothing is
// started. Changed is false if there was nothing to change. It is applied once at most and gives up
// after a minute, as ChangeMap.
func SetPause(
	ctx context.Context, t storage.Table, workload string, p Pause,
) (w *Workload, changed bool, err error) {
	if p.Is() {
		p.Since = p.Since.UTC().Truncate(time.Microsecond) // as it is stored
	}
	return changeRow(ctx, t, workload, func(is Row) (Row, bool, error) {
		if is.paused.Is() == p.Is() {
			return is, false, nil
		}
		is.paused = p
		return is, true, nil
	})
}
