package runs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/closing"
	"github.com/queuepump/queuepump/pump/internal/ledger"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/internal/workload"
)

// Info is what is known of a run.
type Info struct {
	ID string `json:"id"`
	// State is "open", "sealed", "closed", "broken", "abandoned" or "ended".
	State    string    `json:"state"`
	Mode     string    `json:"mode"`
	Name     string    `json:"name"`     // the user's own; empty: it has none
	Instance string    `json:"instance"` // the process that made it
	Started  time.Time `json:"started"`
	// Ended is when it was sealed, or ended otherwise; null while it is open.
	Ended *time.Time `json:"ended"`
	Note  string     `json:"note"`
	// Tasks is how many it has, null until it is sealed.
	Tasks *uint64 `json:"tasks"`
	// Done and Quarantined are by the ledger: null in delivery mode at-least-once, in a list, and for
	// a run that is over.
	Done        *uint64 `json:"done"`
	Quarantined *uint64 `json:"quarantined"`
	// Requests is about how many requests to queues its messages have cost so far, as processors
	// count them: puts, gets, renewals, and what ends deliveries. Null in a list.
	Requests *float64 `json:"requests"`
	// Cost is what those cost, in Currency.
	Cost     *float64 `json:"cost"`
	Currency string   `json:"currency"`
	// Drop: the run was ended, and its messages are dropped when they are met.
	Drop bool `json:"drop"`
	// WaitsFor says, for people, when it ends and what holds that back. Empty for a run that a
	// distributor continues or that is over, and in a list.
	WaitsFor string `json:"waitsFor"`
}

// States are the states that a run may be in.
func States() []string {
	return []string{
		string(workload.RunOpen), string(workload.RunSealed), string(workload.RunClosed),
		string(workload.RunBroken), string(workload.RunAbandoned), string(workload.RunEnded),
	}
}

func infoOf(run *workload.Run) Info {
	i := Info{
		ID: run.ID.String(), State: string(run.State), Mode: run.Mode, Name: run.Name,
		Instance: run.Instance, Started: run.Started, Note: run.Note, Drop: run.Drop,
	}
	if !run.Ended.IsZero() {
		i.Ended = &run.Ended
	}
	if run.Sealed != nil {
		i.Tasks = &run.Tasks
	}
	return i
}

// runsMost is how many of the newest runs are searched for a state, or for the beginning of an id.
const runsMost = 10_000

// List lists up to limit runs, the last started first; only those in state, if that is given. It
// looks at the last ten thousand. Damaged rows are an error beside the runs that can be read.
func List(ctx context.Context, cfg pump.Config, state string, limit int) ([]Info, error) {
	if state != "" && !slices.Contains(States(), state) {
		return nil, pump.Invalid("state",
			fmt.Sprintf("%q is not a state of a run", state), "use "+strings.Join(States(), ", "))
	}
	if limit < 1 || limit > runsMost {
		return nil, setup.OutOfRange("limit", limit, fmt.Sprintf("use 1 to %d", runsMost))
	}
	o, err := setup.Open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	look := limit
	if state != "" {
		look = runsMost
	}
	all, err := o.Runs().List(ctx, look)
	list := []Info{}
	for i := range all {
		if len(list) < limit && (state == "" || string(all[i].State) == state) {
			list = append(list, infoOf(&all[i]))
		}
	}
	return list, err
}

// Show gives the run whose id is, or begins with, id.
func Show(ctx context.Context, cfg pump.Config, id string) (Info, error) {
	o, err := setup.Open(ctx, cfg)
	if err != nil {
		return Info{}, err
	}
	run, err := o.FindRun(ctx, id)
	if err != nil {
		return Info{}, err
	}
	return show(ctx, o, run)
}

// spent fills in what the run has cost.
func (i *Info) spent(tallies map[string]workload.Tally, list *pump.Prices) {
	requests := workload.SumTallies(tallies).Requests()
	i.Requests, i.Cost, i.Currency = &requests, new(list.Cost(requests, 0)), list.Currency
}

// End ends the run whose id is, or begins with, id: its distributor stops, and nothing more of it
// is started. Its later messages go to quarantine, or with drop are deleted and counted. For a
// closed run the error is [pump.ErrRunState]: it has nothing left to end.
func End(ctx context.Context, cfg pump.Config, id string, drop bool, note string) (Info, error) {
	o, err := setup.Open(ctx, cfg)
	if err != nil {
		return Info{}, err
	}
	run, err := o.FindRun(ctx, id)
	if err == nil {
		what := "runs end " + run.String()
		if drop {
			what += " --drop"
		}
		err = o.Logged(ctx, setup.Operator(), what, func() error {
			return o.Runs().End(ctx, run, drop, note)
		})
	}
	if err != nil {
		return Info{}, err
	}
	// The run's row is the truth, and processors read it again after minutes.
	if err := workload.NoteEnded(ctx, o.Queues.Control, o.Workload.Name, run); err != nil {
		o.Cfg.Log.Warn("processors could not be told of the end of the run; they "+
			"learn of it within minutes",
			"run", run, "error", err)
	} else {
		o.Tell(ctx)
	}
	// The paused tasks of the run meet its end. Resumed after the end, or they would be begun.
	end := workload.PausedPart{Run: run}
	if _, _, err := workload.SetPausedPart(ctx, o.Queues.Control, o.Workload.Name, end); err != nil {
		o.Cfg.Log.Warn("the run stays paused for now; try again", "run", run, "error", err)
	}
	return show(ctx, o, run)
}

// Find gives the run that a user means: by the whole id, which is not looked up, by its name, or by
// its first digits, at least four, if exactly one run with a row begins with them. A
// [pump.ConfigError] of the field "run" says that it is not an id, or names the runs that it may
// mean. [pump.ErrNoRun] says that no run fits.
func Find(ctx context.Context, cfg pump.Config, id string) (pump.RunID, error) {
	if _, whole, _ := setup.RunDigits(id); !whole.IsZero() {
		return whole, nil
	}
	o, err := setup.Open(ctx, cfg)
	if err != nil {
		return pump.RunID{}, err
	}
	return o.FindRun(ctx, id)
}

func show(ctx context.Context, o *setup.Session, id pump.RunID) (Info, error) {
	var progress map[pump.RunID]*ledger.RunProgress
	var damage error
	once := o.Workload.Delivery == string(pump.Once)
	if once { // before the row: if that says sealed, nothing of the run had been pruned
		progress, damage = ledger.ReadProgress(ctx, o.Queues.Control, o.Workload.Name,
			o.Workload.Map.Segments, id)
	}
	run, err := o.Runs().Get(ctx, id)
	if err != nil {
		return Info{}, errors.Join(err, damage)
	}
	i := infoOf(&run)
	if once && damage == nil && (!run.Over || run.State == workload.RunClosed) {
		done, quarantined := progress[id].Sums()
		p := closing.ProgressOf(&run, done, quarantined)
		i.Done, i.Quarantined = &p.Done, &p.Quarantined
	}
	if tallies, err := workload.Tallies(ctx, o.Queues.Control, o.Workload.Name, id); err == nil {
		i.spent(tallies, &o.Cfg.Prices)
	}
	waits, err := endOf(ctx, o, &run)
	i.WaitsFor = waits
	return i, errors.Join(err, damage)
}
