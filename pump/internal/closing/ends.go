package closing

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/ledger"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
)

// What the end of a run may wait for.
const (
	EndWaitsForReading = "reading"
	endWaitsForQuiet   = "quiet"
)

// readNear is how far behind a queue is at most if its processor reads it to its end: the ages of
// beats and the slack. Such a queue does not hold the horizon back for long.
const readNear = HorizonSlack + 30*time.Second

// Ending is what the end of one run waits for, as runs.RunEnd tells.
type Ending struct {
	ID, State string
	LastSign  time.Time
	WaitsFor  string
	NotBefore time.Time
	Text      string
}

// Unended is a run that waits for its end.
type Unended struct {
	id    pump.RunID
	state workload.RunState
	sign  time.Time // see runs.RunEnd
	mode  string
}

// ReadEnding learns the last sign of a run from the rows that the closer looks at; changed is when
// the run's own row last changed.
func ReadEnding(
	ctx context.Context, t storage.Table, name string, id pump.RunID, state workload.RunState,
	mode string, changed time.Time,
) (Unended, error) {
	noted, err := workload.LastNoted(ctx, t, name, id)
	if noted.After(changed) {
		changed = noted
	}
	return Unended{id, state, changed, mode}, err
}

// EndsView is what one look at the cluster says of the ends of runs. The closer has watched
// for longer, so it may see a last sign later than the rows do, never earlier.
type EndsView struct {
	now   time.Time // when the view was read, by the control account's clock
	Read  Horizon   // by the same clock
	quiet time.Duration
	keep  time.Duration // the retention
}

// EndsBy takes a view that was read at a time of the control account's clock.
func EndsBy(v *cluster.View, now time.Time, use ledger.Use, retention time.Duration) EndsView {
	seen := &cluster.View{Workload: v.Workload, Read: v.Read}
	for i := range v.Members {
		// as people are told; the closer watches, and is a live member
		if !v.Members[i].Silent(now) {
			seen.Members = append(seen.Members, v.Members[i])
		}
	}
	e := EndsView{now: now, quiet: QuietFor(use), keep: retention}
	if e.Read = new(Horizons).Look(seen, v.Workload.Map.Segments); !e.Read.At.IsZero() {
		e.Read.At = now.Add(e.Read.At.Sub(v.Read))
	}
	return e
}

// Behind is for how long messages may wait unread, false if that is not known.
func (e *EndsView) Behind() (time.Duration, bool) {
	if e.Read.At.IsZero() {
		return 0, false
	}
	return e.now.Sub(e.Read.At), true
}

// Of tells what a run waits for.
func (e *EndsView) Of(r Unended) Ending {
	e = &EndsView{e.now, e.Read, quietOf(r.mode, e.quiet, e.keep), e.keep}
	end := Ending{
		ID: r.id.String(), State: string(r.state), LastSign: r.sign.UTC(), WaitsFor: endWaitsForQuiet,
		NotBefore: r.sign.Add(e.quiet).UTC(),
	}
	behind, known := e.Behind()
	passed := e.now.Sub(r.sign)
	// Once the time is up the queues must be read beyond half of it.
	needed := r.sign
	if passed >= e.quiet {
		needed = needed.Add(e.quiet / 2)
	}
	if !known || behind > readNear && !e.Read.At.After(needed) {
		end.WaitsFor, end.NotBefore = EndWaitsForReading, e.now.Add(e.quiet/2).UTC()
		if !known || !e.Read.At.After(r.sign) {
			end.NotBefore = e.now.Add(e.quiet).UTC()
		}
	}
	end.Text = e.text(&end, passed)
	return end
}

func (e *EndsView) text(end *Ending, passed time.Duration) string {
	about := func(d time.Duration) string { return max(0, d).Round(time.Second).String() }
	var b strings.Builder
	if end.State == string(workload.RunEnded) {
		b.WriteString("it has ended, and the ledger forgets it when ")
	} else {
		fmt.Fprintf(&b, "it is %s, and ends by itself when ", end.State)
	}
	switch behind, known := e.Behind(); {
	case end.WaitsFor == endWaitsForQuiet && passed < 0:
		fmt.Fprintf(
			&b,
			"nothing of it has been met for %s after a task of it that is hidden for %s comes back",
			about(e.quiet), about(-passed),
		)
	case end.WaitsFor == endWaitsForQuiet:
		fmt.Fprintf(&b, "nothing of it has been met for %s: %s by now", about(e.quiet), about(passed))
	default:
		fmt.Fprintf(
			&b,
			"the queues are read beyond the last sign of it, %s ago, "+
				"and then nothing of it has been met for %s; held back by %s",
			about(passed), about(e.quiet), e.Read.By,
		)
		if known {
			fmt.Fprintf(&b, " (messages may wait there for %s)", about(behind))
		}
	}
	return b.String()
}
