package workloads

import (
	"context"
	"errors"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/accounts"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/internal/workload"
)

// Info is what is known of a workload that exists.
type Info struct {
	Name string `json:"workload"`
	// Incarnation tells it from an earlier workload of that name; empty if a version without it
	// made it.
	Incarnation string `json:"incarnation"`
	// Control is the account whose table has the workload's rows.
	Control string `json:"control"`
	// Made is when, by the clock of the distributor that made it; null if that is not known.
	Made *time.Time `json:"made"`
	// Changed is the last change of its map, by the service's clock.
	Changed    time.Time `json:"changed"`
	Delivery   string    `json:"delivery"`
	Segments   int       `json:"segments"`
	Shared     bool      `json:"shared"` // segments have no owners
	Reducer    string    `json:"reducer"`
	MapVersion uint64    `json:"mapVersion"`
	// Queues counts those of the map; the poison queue of each account is not among them.
	Queues   int            `json:"queues"`
	Accounts []accounts.Use `json:"accounts"`
	// Deleting is when its deletion was begun, by that machine's clock; null if it was not.
	Deleting *time.Time `json:"deleting"`
	// Retention is this configuration's, in seconds.
	Retention float64 `json:"retentionSeconds"`
	// Distributors and Processors count the members that have a row.
	Distributors int `json:"distributors"`
	Processors   int `json:"processors"`
	// Runs counts the runs that have rows, by state. AllRuns says whether those are all: more than a
	// hundred thousand are not counted.
	Runs    map[string]int `json:"runs"`
	AllRuns bool           `json:"allRuns"`
	// Rivals are workloads of the same name in other accounts of the configuration; never null.
	Rivals []Rival `json:"rivals"`
	// Unseen are the accounts of the configuration that could not be searched for a rival; never null.
	Unseen []string `json:"unseen"`
}

// Rival is another workload of the same name, in the table of another account.
type Rival struct {
	Account     string `json:"account"` // that has its rows
	Incarnation string `json:"incarnation"`
	// SameQueues are accounts whose queues both workloads use, so that each takes the
	// other's messages for its own; never null.
	SameQueues []string `json:"sameQueues"`
	// Problem is why its row could not be read; empty if it could.
	Problem string `json:"problem"`
}

// Show gives the workload that a configuration means, also if the configuration disagrees with what
// is pinned.
func Show(ctx context.Context, cfg pump.Config) (*Info, error) {
	o, err := setup.Open(ctx, cfg)
	if err != nil && !errors.Is(err, workload.ErrDeleting) {
		return nil, err
	}
	cfg, w := o.Cfg.Config, o.Workload
	i := &Info{
		Name: w.Name, Incarnation: w.Incarnation, Control: cfg.Control, Changed: w.Changed,
		Delivery: w.Delivery, Segments: w.Map.Segments,
		Shared: w.Shared, Reducer: w.Reducer, MapVersion: w.Map.Version, Queues: len(w.Map.Shards),
		Accounts:  accounts.Uses(&cfg, w.Map),
		Retention: cfg.Retention.Seconds(), Runs: map[string]int{},
		Rivals: []Rival{},
	}
	if !w.Made.IsZero() {
		i.Made = &w.Made
	}
	if !w.Deleting.IsZero() {
		i.Deleting = &w.Deleting
	}
	view, err := cluster.LoadView(ctx, o.Queues.Control, cfg.Workload)
	if err != nil {
		return nil, o.Advise(ctx, err)
	}
	for _, m := range view.Members {
		if m.Role == cluster.RoleDistributor {
			i.Distributors++
		} else {
			i.Processors++ // also a run whose row cannot be read
		}
	}
	runs, all, err := o.Runs().CountStates(ctx)
	if err != nil {
		return nil, err
	}
	for state, n := range runs {
		i.Runs[string(state)] = n
	}
	i.AllRuns = all
	rivals, unseen := setup.Rivals(ctx, &o.Cfg, w)
	for _, r := range rivals {
		i.Rivals = append(i.Rivals, Rival(r))
	}
	i.Unseen = unseen
	return i, nil
}
