package workload

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/shardmap"
)

// valid checks the spec by itself.
func (s Spec) valid() error {
	if err := CheckName(s.Name); err != nil {
		return err
	}
	if s.Delivery != string(pump.AtLeastOnce) && s.Delivery != string(pump.Once) {
		return fmt.Errorf("workload %q: delivery is %q; use %q or %q", s.Name, s.Delivery,
			string(pump.AtLeastOnce), string(pump.Once))
	}
	if err := shardmap.Check(s.segments(), s.Shards); err != nil {
		return fmt.Errorf("workload %q: %w", s.Name, err)
	}
	return nil
}

func (s Spec) segments() int {
	if s.Segments != 0 {
		return s.Segments
	}
	own := 0
	for _, sh := range s.Shards {
		if sh.State != shardmap.Foreign {
			own++
		}
	}
	return shardmap.DefaultSegments(own)
}

// first is the row that the spec creates.
func (s Spec) first(draw row.Draw) (Row, error) {
	m, err := shardmap.New(s.segments(), s.Shards)
	if err != nil {
		return Row{}, fmt.Errorf("workload %q: %w", s.Name, err)
	}
	incarnation := fmt.Sprintf("%016x", draw("incarnation", s.Name+"/workload"))
	return Row{
		shards: m, delivery: s.Delivery, shared: s.Shared, foreignKey: s.ForeignKey,
		incarnation: incarnation, made: milliseconds(time.Now()),
	}, nil
}

// Check compares the spec with what the row says, as [Ensure] does; nil if they agree.
func (s Spec) Check(w *Workload) error {
	var found []error
	disagree := func(field, problem, fix string) {
		found = append(found, &pump.MismatchError{
			Workload: s.Name, Field: field, Problem: problem, Fix: fix,
		})
	}
	pinned := fmt.Sprintf("%d", w.Map.Segments)
	switch {
	case s.Shared && !w.Shared:
		disagree("segments",
			"it says that segments have no owners, but the workload was created with owned segments",
			"set segments: "+pinned+beside)
	case !s.Shared && w.Shared:
		disagree("segments",
			"it says that segments have owners, "+
				"but the workload was created with segments that any instance takes",
			"set segments: 0"+beside)
	case s.Segments != 0 && s.Segments != w.Map.Segments:
		disagree("segments",
			fmt.Sprintf("it is %d, but the workload was created with %s, and that never changes",
				s.Segments, pinned),
			"set segments: "+pinned+" or leave it out"+beside)
	}
	if s.Delivery != w.Delivery {
		disagree("delivery",
			fmt.Sprintf("it is %s, but the workload was created with %s", s.Delivery, w.Delivery),
			"set delivery: "+w.Delivery+beside)
	}
	if s.ForeignKey != "" && s.ForeignKey != w.ForeignKey {
		pinned, fix := fmt.Sprintf("with %q", w.ForeignKey),
			"set foreign.key: "+w.ForeignKey+" or leave it out"
		if w.ForeignKey == "" {
			pinned, fix = "without one", "leave it out"
		}
		disagree("foreign.key",
			fmt.Sprintf("it is %q, but the workload was created %s, and that never changes",
				s.ForeignKey, pinned),
			fix+beside)
	}
	config, row := byAccount(s.Shards), byAccount(w.Map.Shards)
	for _, a := range slices.Sorted(maps.Keys(config)) {
		ours, theirs := config[a], row[a]
		switch {
		case theirs == nil || slices.Equal(ours, theirs) || s.Guessed[a]: // unused ones are Extra
		case len(ours) != len(theirs):
			disagree("accounts",
				fmt.Sprintf("account %q has %d queues, but the workload uses %d of it", a, len(ours),
					len(theirs)),
				fmt.Sprintf("set its queues: %d", len(theirs))+beside)
		default:
			disagree("accounts",
				fmt.Sprintf("account %q has the queues %s, but the workload uses %s",
					a, strings.Join(ours, " "), strings.Join(theirs, " ")),
				"use those queues"+beside)
		}
	}
	return errors.Join(found...)
}

// beside is the advice for another value of what is pinned: identities of tasks and the places of
// messages depend on it, so it cannot change under a workload that exists.
const beside = "; for another value make a new workload beside this one: " +
	"give the configuration another workload name, let the distributors use it, " +
	"and stop the old workload's processors when its queues are empty"

// Extra are the accounts that only the spec has, sorted. They are not a mistake: an account is in
// all configurations before the map uses it (P6.5).
func (s Spec) Extra(w *Workload) (names []string) {
	row := byAccount(w.Map.Shards)
	for _, a := range slices.Sorted(maps.Keys(byAccount(s.Shards))) {
		if row[a] == nil {
			names = append(names, a)
		}
	}
	return names
}

// ExtraQueues are other programs' queues that only the spec has, of accounts that the map uses, as
// account/queue, sorted. No processor reads them.
func (s Spec) ExtraQueues(w *Workload) (names []string) {
	row := byAccount(w.Map.Shards)
	for _, sh := range s.Shards {
		if sh.State == shardmap.Foreign && row[sh.Account] != nil && !w.reads(sh) {
			names = append(names, sh.Account+"/"+sh.Queue)
		}
	}
	slices.Sort(names)
	return names
}

func (w *Workload) reads(queue shardmap.Shard) bool {
	return slices.ContainsFunc(w.Map.Shards, func(s shardmap.Shard) bool {
		return s.State == shardmap.Foreign && s.Account == queue.Account && s.Queue == queue.Queue
	})
}

// byAccount gives the sorted names of the workload's own queues in each account. It leaves out
// those of other programs, which may change.
func byAccount(shards []shardmap.Shard) map[string][]string {
	queues := map[string][]string{}
	for _, s := range shards {
		if s.State != shardmap.Foreign {
			queues[s.Account] = append(queues[s.Account], s.Queue)
		}
	}
	for _, q := range queues {
		slices.Sort(q)
	}
	return queues
}
