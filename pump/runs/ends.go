package runs

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/closing"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/failure"
	"github.com/queuepump/queuepump/pump/internal/ledger"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
)

// Ends is what holds back the ends of runs that no distributor continues: in delivery mode once
// they live, and take room in the ledger, until a quiet time has passed.
type Ends struct {
	// Waiting is how many runs are broken, abandoned or ended, and not over yet.
	Waiting int `json:"waiting"`
	// HeldBackBy is the queue that is read least far, or the segment that no processor reads, and
	// BehindSeconds for how long messages may wait there, null if that is not known. Empty and null
	// if no run of Runs waits for it.
	HeldBackBy    string   `json:"heldBackBy"`
	BehindSeconds *float64 `json:"behindSeconds"`
	// Runs are the first of them, those that have waited longest.
	Runs []RunEnd `json:"runs"`
}

// RunEnd is what the end of one run waits for.
type RunEnd struct {
	ID    string `json:"id"`
	State string `json:"state"` // "broken", "abandoned", "ended"
	// LastSign is when something of it was last noted, or until when something of it is hidden, by
	// the control account's clock.
	LastSign time.Time `json:"lastSign"`
	// WaitsFor is "reading" while the queues are not read beyond the last sign, then "quiet".
	WaitsFor string `json:"waitsFor"`
	// NotBefore is when it ends at the earliest, if nothing of it is met until then.
	NotBefore time.Time `json:"notBefore"`
	// Text says it all, for people.
	Text string `json:"text"`
}

// What the end of a run may wait for.
const (
	EndWaitsForReading = "reading"
	endWaitsForQuiet   = "quiet"
)

// EndsShown is how many runs are shown with their ends: each costs a request.
const EndsShown = 5

// readNear is how far a queue is behind at most whose processor reads it to its end: the ages of
// beats and the slack. It holds nothing back for long.
const readNear = closing.HorizonSlack + 30*time.Second

// Unended is a run that waits for its end.
type Unended struct {
	id    pump.RunID
	state workload.RunState
	sign  time.Time // see RunEnd.LastSign
}

// ReadEnding learns the last sign of a run by the rows that the closer looks at: its own changed
// last at a time.
func ReadEnding(
	ctx context.Context, t storage.Table, name string, id pump.RunID, state workload.RunState,
	changed time.Time,
) (Unended, error) {
	noted, err := workload.LastNoted(ctx, t, name, id)
	if noted.After(changed) {
		changed = noted
	}
	return Unended{id, state, changed}, err
}

// EndsView is what one look at the cluster says of the ends of runs. The closer has watched
// for longer, so it may see a last sign later than the rows do, never earlier.
type EndsView struct {
	now   time.Time       // when the view was read, by the control account's clock
	Read  closing.Horizon // by the same clock
	quiet time.Duration
}

// EndsBy takes a view that was read at a time of the control account's clock.
func EndsBy(v *cluster.View, now time.Time, use ledger.Use) EndsView {
	seen := &cluster.View{Workload: v.Workload, Read: v.Read}
	for i := range v.Members {
		// as people are told; the closer watches, and is one of those that live
		if !v.Members[i].Silent(now) {
			seen.Members = append(seen.Members, v.Members[i])
		}
	}
	e := EndsView{now: now, quiet: closing.QuietFor(use)}
	if e.Read = new(closing.Horizons).Look(seen, v.Workload.Map.Segments); !e.Read.At.IsZero() {
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
func (e *EndsView) Of(r Unended) RunEnd {
	end := RunEnd{
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

func (e *EndsView) text(end *RunEnd, passed time.Duration) string {
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

// endOf tells what the end of a run waits for; empty if it waits for none.
func (o *openedRuns) endOf(ctx context.Context, run *workload.Run) (string, error) {
	if o.Workload.Delivery != string(pump.Once) || !closing.WaitsForEnd(run.State, run.Over) {
		return "", nil
	}
	r, err := ReadEnding(ctx, o.Queues.Control, o.Workload.Name, run.ID, run.State, run.Changed)
	if err != nil {
		return "", err
	}
	sums, err := ledger.ReadSums(ctx, o.Queues.Control, o.Workload.Name, o.Workload.Map.Segments)
	if err != nil {
		return "", err
	}
	v, err := cluster.LoadView(ctx, o.Queues.Control, o.Workload.Name)
	if err != nil {
		return "", err
	}
	now := v.Read
	server, local, err := workload.ServerTime(ctx, o.Queues.Control, o.Workload.Name)
	switch {
	// a credential that may only read is fine for looking
	case err != nil && failure.Ends(failure.Help, err, failure.Command):
		return "", err
	case err == nil && !server.IsZero():
		now = server.Add(v.Read.Sub(local))
	}
	e := EndsBy(v, now, sums.Use)
	return e.Of(r).Text, nil
}
