package coordination

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"time"

	"golang.org/x/time/rate"

	"github.com/queuepump/queuepump/pump/internal/failure"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
)

const (
	// gatePoll is the longest time between two looks at a gate (origins T3).
	gatePoll = 2500 * time.Millisecond
	// Hints to look are answered at once up to gateHints in a row, then one each
	// gateHintEvery: a client that can reach an admin port must not make requests by it.
	gateHints     = 3
	gateHintEvery = 500 * time.Millisecond
	// maxGates bounds what Gates reads.
	maxGates = 1000
)

// Gate is a named flag that processes wait at before they start to work: they are started early,
// and an operator lets all of them go at once. The row is the truth; a hint only makes a process
// look sooner.
// A gate that was never released is closed. A Gate may be used from many
// goroutines at once.
type Gate struct {
	// Log receives trouble while waiting. Default [slog.Default]. It is set before use.
	Log *slog.Logger

	name string
	err  error // of the name
	row  row.Row[gateRow]
}

type gateRow struct {
	open bool
	by   string
}

// GateState is what a gate's row says.
type GateState struct {
	Name string
	Open bool
	// Since is when it was opened or closed, by the server's clock, and By names the operator; both
	// are zero if no operator ever did.
	Since time.Time
	By    string
}

// NewGate gives a handle on a workload's gate of that name (1 to 63 of [A-Za-z0-9_.~-]); it makes
// no request. The methods report a name that cannot be used.
func NewGate(t storage.Table, workloadName, name string) *Gate {
	return &Gate{
		name: name, err: errors.Join(workload.CheckName(workloadName), checkRowName("gate", name)),
		row: gateRowOf(t, workloadName, name),
	}
}

// CheckGate reports whether a gate can have that name.
func CheckGate(name string) error { return checkRowName("gate", name) }

// Release opens the gate, for processes that wait and that come later; by names the operator, for
// people. Releasing an open gate is success and changes nothing. After an error it may be made
// again; it gives up after a minute.
func (g *Gate) Release(ctx context.Context, by string) error {
	return g.set(ctx, "releasing", true, by)
}

// Hold closes the gate for processes that come from now on; a process that has passed it is not
// called back. Otherwise it is as Release.
func (g *Gate) Hold(ctx context.Context, by string) error {
	return g.set(ctx, "holding", false, by)
}

func (g *Gate) set(ctx context.Context, doing string, open bool, by string) error {
	return g.change(ctx, doing, func(ctx context.Context) error {
		v, err := g.row.MustReadOrCreate(ctx)
		if err != nil || !v.Absent() && v.Value.open == open {
			return err
		}
		_, err = g.row.TryWrite(ctx, v, gateRow{open, row.Clip(by)})
		return err
	})
}

// Remove takes the gate's row away. Then the gate counts as never opened: it is closed for later
// processes. Removing a gate that is not there is success. Otherwise it is as Release.
func (g *Gate) Remove(ctx context.Context) error {
	return g.change(ctx, "removing", func(ctx context.Context) error {
		v, err := g.row.MustRead(ctx)
		if row.NoTable(err) { // without a table there is no gate
			return nil
		}
		if err != nil {
			return err
		}
		return g.row.TryRemove(ctx, v)
	})
}

// change reads and writes the row by one try after the other, until no other write is before it.
func (g *Gate) change(ctx context.Context, doing string, try func(context.Context) error) error {
	if g.err != nil {
		return g.err
	}
	ctx, cancel := context.WithTimeout(ctx, row.Patience)
	defer cancel()
	for {
		err := try(ctx)
		if errors.Is(err, row.ErrLost) && ctx.Err() == nil {
			continue
		}
		if err != nil {
			return fmt.Errorf("%s gate %q: %w", doing, g.name, err)
		}
		return nil
	}
}

// State reads the gate, trying for up to a minute.
func (g *Gate) State(ctx context.Context) (GateState, error) {
	if g.err != nil {
		return GateState{}, g.err
	}
	v, err := g.row.MustRead(ctx)
	if row.NoTable(err) { // without a table there is no gate
		return GateState{Name: g.name}, nil
	}
	if err != nil {
		return GateState{}, fmt.Errorf("gate %q: %w", g.name, err)
	}
	return GateState{Name: g.name, Open: v.Value.open, Since: v.Modified, By: v.Value.by}, nil
}

// Wait returns nil once the gate is open, at once if it is. It looks at the row at
// least every 2.5 s, and at once when look gives a token, which should be a
// channel with room for one so that a hint during a look is not lost; a nil look means that
// there are no hints. While the table does not answer, Wait goes on, and logs that once. A damaged
// row, a refused credential and the end of ctx are errors.
func (g *Gate) Wait(ctx context.Context, look <-chan struct{}) error {
	if g.err != nil {
		return g.err
	}
	r := g.row
	r.Timeout = gatePoll // a look that hangs must not put off the next
	hints := rate.NewLimiter(rate.Every(gateHintEvery), gateHints)
	draw := row.DrawOf(r.Table)
	failing := false
	for {
		next := time.Now().Add(draw.Jitter("poll", r.Object(), gatePoll))
		v, err := r.Read(ctx)
		switch {
		case err == nil && v.Value.open:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("waiting at gate %q: %w", g.name, context.Cause(ctx))
		case err == nil:
			failing = false
		case failure.Ends(failure.ControlAccount, err, failure.Command):
			return fmt.Errorf("waiting at gate %q: %w", g.name, err)
		case !failing:
			failing = true
			g.log().Warn("cannot look at the gate; trying on", "gate", g.name, "error", err)
		}
		if hinted, open := waitForHint(ctx, look, next); !open {
			look = nil // the source of hints is gone
		} else if hinted {
			soonest := time.Now().Add(hints.Reserve().Delay())
			if soonest.After(next) {
				soonest = next
			}
			waitForHint(ctx, nil, soonest)
		}
	}
}

// waitForHint waits for a token, a moment, or the end of ctx; open is false if
// look was closed.
func waitForHint(ctx context.Context, look <-chan struct{}, until time.Time) (hinted, open bool) {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
		select { // a hint of this very instant is heeded by the look that follows (P9)
		case <-look:
		default:
		}
	case _, open = <-look:
		return open, open
	}
	return false, true
}

func (g *Gate) log() *slog.Logger { return cmp.Or(g.Log, slog.Default()) }

// Gates lists the workload's gates that were ever released or held, by name, at most 1,000 of
// them. A row that cannot be read is part of the error, and the others are listed.
func Gates(ctx context.Context, t storage.Table, workloadName string) ([]GateState, error) {
	if err := workload.CheckName(workloadName); err != nil {
		return nil, err
	}
	found, err := row.MustFind(ctx, t, storage.Query{Partition: workload.GatesPartition(workloadName)},
		maxGates)
	if err != nil {
		return nil, fmt.Errorf("listing gates of %q: %w", workloadName, err)
	}
	var gates []GateState
	var bad []error
	for _, e := range found {
		var v row.Version[gateRow]
		if _, err := gateRowOf(t, workloadName, e.Row).Parse(e, &v); err != nil {
			bad = append(bad, err)
			continue
		}
		gates = append(gates, GateState{
			Name: e.Row, Open: v.Value.open, Since: v.Modified, By: v.Value.by,
		})
	}
	return gates, errors.Join(bad...)
}

func gateRowOf(t storage.Table, workloadName, name string) row.Row[gateRow] {
	return row.Row[gateRow]{
		Table: t, Partition: workload.GatesPartition(workloadName), Key: name,
		Timeout: row.RequestTimeout,
		Encode:  func(g gateRow) map[string]any { return map[string]any{"Open": g.open, "By": g.by} },
		Decode:  decodeGate,
	}
}

func decodeGate(f *row.Fields) gateRow {
	if _, ok := f.Props["Open"]; !ok {
		f.Fail("Open", "is not there")
	}
	return gateRow{open: f.Flag("Open"), by: f.Text("By")}
}

// A name is a row key as it stands, so it has only characters that a row key may have
// (storage.Table) and that need no quotes in a shell.
var validRowName = regexp.MustCompile(`^[A-Za-z0-9_.~-]{1,63}$`)

func checkRowName(what, name string) error {
	if !validRowName.MatchString(name) {
		return fmt.Errorf("%s name %.80q: use 1 to 63 of letters, digits, _ . ~ and -", what, name)
	}
	return nil
}
