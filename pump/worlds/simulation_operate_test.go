package worlds

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/accounts"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/gates"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/quarantine"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/shardmap"
)

// simPatience is how long an operator waits for a command.
const simPatience = 4 * time.Minute

// simGate is where some processors of a gated plan wait.
const simGate = "go"

// Commands of operators, by whether they name an account.
var (
	simCommands        = []string{"redrive", "drop", "repair", "release", "hold", "end", "end-drop", "pause", "resume", "pause-run", "pause-key", "resume-part", "set", "unset", "delete", "show", "coordinate"}
	simAccountCommands = []string{"add", "drain", "remove"}
)

func (s *simStep) parseOrder(args []string, accounts int) error {
	switch {
	case s.who[0] != 'x':
		return fmt.Errorf("%q is no operator", s.who)
	case len(args) == 2 && slices.Contains(simCommands, args[1]):
	case len(args) == 3 && slices.Contains(simAccountCommands, args[1]):
		if err := checkSimAccount(args[2], accounts); err != nil {
			return err
		}
	case len(args) < 2:
		return errors.New("an operator needs a command")
	default:
		return fmt.Errorf("%q is no command, or has other arguments", args[1])
	}
	s.order = args[1:]
	return nil
}

// operates carries out one command. That it fails while things go wrong is what an operator sees
// too. The end of the world judges what it has done, too.
func (p *simProcess) operates(ctx context.Context, order []string) error {
	w := p.world
	w.count("operate " + order[0])
	all := ctx
	ctx, cancel := context.WithTimeout(ctx, simPatience)
	defer cancel()
	cfg := p.config()
	var err error
	switch order[0] {
	case "redrive", "drop":
		err = p.empties(ctx, cfg, order[0])
	case "repair":
		err = p.repairs(all, cfg)
	case "end", "end-drop":
		err = p.endsRun(ctx, cfg, simEnds[order[0]])
	case "release":
		_, err = gates.Open(ctx, cfg, simGate, p.name)
	case "hold":
		_, err = gates.Close(ctx, cfg, simGate, p.name)
	case "pause", "resume":
		err = p.pauses(ctx, cfg, order[0])
	case "pause-run", "pause-key", "resume-part":
		err = p.pausesPart(ctx, cfg, order[0])
	case "set", "unset":
		err = p.setsValues(ctx, cfg, order[0])
	case "delete":
		err = p.triesToDelete(ctx, cfg)
	case simLoses:
		err = p.loses(all, cfg)
	case simDeletes:
		err = p.deletesAllBy(all, cfg)
	case "show":
		err = p.shows(ctx, cfg)
	case "coordinate":
		err = p.coordinates(ctx, cfg)
	case "add":
		_, err = accounts.Add(ctx, cfg, order[1])
	case "drain":
		_, err = accounts.Drain(ctx, cfg, order[1])
	case "remove":
		_, err = accounts.Remove(ctx, cfg, order[1], accounts.RemoveOptions{Wait: true})
	}
	if err == nil && !p.over() {
		w.count("operated " + order[0])
	}
	return err
}

// empties redrives or drops the tasks in quarantine. Bad lines stay there. A drop leaves tasks that
// seem to have ended their processes: from outside nothing tells whether those were done before.
func (p *simProcess) empties(ctx context.Context, cfg pump.Config, what string) error {
	q, err := quarantine.Open(ctx, cfg)
	if err != nil {
		return err
	}
	p.world.mu.Lock()
	p.emptying = what
	p.world.mu.Unlock()
	filter := quarantine.Filter{Reasons: []string{simLeftFor}}
	if p.name != simInterrupted {
		filter.Reasons = append(filter.Reasons, codec.ReasonAttempts, codec.ReasonRejected)
	}
	seen := func(o quarantine.Outcome) bool {
		p.world.count("operated on a message: " + o.Outcome)
		return !p.over()
	}
	if what == "drop" {
		return q.Drop(ctx, filter, quarantine.Options{}, seen)
	}
	if p.name != simInterrupted {
		filter.Reasons = append(filter.Reasons, codec.ReasonEndsProcess, codec.ReasonRunEnded)
	}
	if err := q.Redrive(ctx, filter, quarantine.Options{}, seen); err != nil || !p.world.runsAreBack() {
		return err
	}
	return p.redrivesUnknown(ctx, cfg, q, seen)
}

// redrivesUnknown redrives the tasks that are in quarantine as of an unknown run, if the row of
// their run is there again.
func (p *simProcess) redrivesUnknown(ctx context.Context, cfg pump.Config, q *quarantine.Quarantine, seen func(quarantine.Outcome) bool) error {
	runs, err := operatedRuns(ctx, cfg)
	for _, r := range runs {
		filter := quarantine.Filter{Reasons: []string{codec.ReasonUnknownRun}, Run: r.ID}
		err = errors.Join(err, q.Redrive(ctx, filter, quarantine.Options{}, seen))
	}
	return err
}

// takes notes the tasks that an operator is about to redrive or drop: from here on that may be
// done, whatever the command says.
func (p *simProcess) takes(ms []storage.Message) {
	w := p.world
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.emptying == "" || p.over() {
		return
	}
	for _, m := range ms {
		h, err := codec.ReadHeader(m.Text)
		if err != nil || h.Cause == nil || h.Cause.Reason == codec.ReasonEndsProcess && p.emptying == "drop" {
			continue
		}
		for n := range h.Tasks.All() {
			if key := (simKey{h.Run, h.Segment, n}); w.touched[key] != "drop" {
				w.touched[key] = p.emptying
			}
		}
	}
}

// operatedRuns are the runs that an operator's command finds.
func operatedRuns(ctx context.Context, cfg pump.Config) ([]workload.Run, error) {
	table, err := gates.Table(cfg)
	if err != nil {
		return nil, err
	}
	return workload.NewRuns(table, "work").List(ctx, 1000)
}

// repairs puts again what is missing of every run that it finds. An operator waits for each run
// anew: each repair reads the run's whole source, which may be a slow one.
func (p *simProcess) repairs(ctx context.Context, cfg pump.Config) error {
	runs, err := operatedRuns(ctx, cfg)
	if err != nil {
		return err
	}
	var all error
	for _, r := range runs {
		source := p.world.sourceOf(r)
		if source == nil || strings.HasPrefix(r.Instance, "s") {
			continue
		}
		all = errors.Join(all, p.repair(ctx, r.ID, source))
	}
	return all
}

func (p *simProcess) repair(ctx context.Context, run codec.RunID, from *simSource) error {
	ctx, cancel := context.WithTimeout(ctx, simPatience)
	defer cancel()
	d, err := p.newDistributor(from)
	if err == nil {
		_, err = d.Repair(ctx, run, distributor.RepairOptions{})
	}
	if err == nil {
		p.world.count("runs repaired")
	}
	return err
}

// checkAccounts: of an account that was removed nothing is left, in quarantine neither. (That
// nothing is in the work queues is a matter of recovering.)
func (w *simWorld) checkAccounts(ctx context.Context) {
	work, err := workload.Load(ctx, w.openTable(), "work")
	if err != nil {
		w.wrongf("the workload cannot be read: %v", err)
		return
	}
	for _, name := range w.sim.Accounts() {
		if slices.ContainsFunc(work.Map.Shards, func(s shardmap.Shard) bool { return s.Account == name }) {
			continue
		}
		w.count("accounts that were removed in the end")
		if n := w.leftInQuarantine[name]; n > 0 && w.lost[name] == nil {
			w.wrongf("lost: %d messages are in quarantine in %s, which was removed", n, name)
		}
	}
}
