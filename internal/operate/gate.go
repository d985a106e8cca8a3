package operate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/queuepump/queuepump/internal/cli"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/coordination"
	"github.com/queuepump/queuepump/pump/gates"
	"github.com/queuepump/queuepump/pump/workloads"
)

func gate() *cobra.Command {
	cmd := &cobra.Command{
		Use: "gate", Hidden: true,
		Short: "Open, close, list or remove the gates of a workload",
		Long: `A gate makes processors begin together: those that are started with ` + "`--gate NAME`" + `
wait at it until you open it. A gate that was never opened is closed.`,
	}
	return cli.Group(cmd, gateOpen(), gateClose(), gateList(), gateRemove())
}

func gateOpen() *cobra.Command {
	var fresh bool
	cmd := gateCommand(
		"open NAME", "Open a gate, and tell those who wait at it",
		`Open a gate. Processors that were started with `+"`--gate NAME`"+` wait at it; they start to
work at once if they can be told, and otherwise within 2.5 seconds. Those that are
started later find it open.`,
		`  processor run --config pump.yaml --gate morning --exec ./work &
  distributor gate open morning --config pump.yaml`,
		func(ctx context.Context, cfg pump.Config, name, by string) (gates.Change, error) {
			if !fresh {
				if err := knownGate(ctx, cfg, name); err != nil {
					return gates.Change{}, err
				}
			}
			return gates.Open(ctx, cfg, name, by)
		})
	cmd.Flags().BoolVar(&fresh, "new", false,
		"open it although no process waits at it and others wait elsewhere")
	return cmd
}

// knownGate refuses to open a gate that was never there while processes wait at others: its name is
// a slip, and the processes would wait on.
func knownGate(ctx context.Context, cfg pump.Config, name string) error {
	list, err := gates.List(ctx, cfg)
	if err != nil {
		return err
	}
	var others []string
	for _, g := range list {
		switch {
		case g.Name == name:
			return nil
		case g.Waiting > 0:
			others = append(others, g.Name)
		}
	}
	if len(others) == 0 {
		return nil
	}
	return cli.Usage("no process waits at gate %q, which was never opened or closed; "+
		"processes wait at %s; to open it for those who come later give --new",
		name, plain(strings.Join(others, ", ")))
}

func gateClose() *cobra.Command {
	return gateCommand(
		"close NAME", "Close a gate for those who come later",
		`Close a gate: processors that are started with `+"`--gate NAME`"+` from now on wait at it.
Those that passed it go on working.`,
		`  distributor gate close morning --config pump.yaml`, gates.Close)
}

func gateCommand(
	use, short, long, example string,
	change func(context.Context, pump.Config, string, string) (gates.Change, error),
) *cobra.Command {
	return onGate(use, short, long, example, func(
		cmd *cobra.Command, cfg pump.Config, name string,
	) (gates.Change, error) {
		return change(cmd.Context(), cfg, name, workloads.Operator())
	}, gateText)
}

// onGate is a command that does something with one gate.
func onGate[C any](
	use, short, long, example string, change func(*cobra.Command, pump.Config, string) (C, error),
	text func(C) string,
) *cobra.Command {
	return callCommand(use, short, long, example, cli.OneArgument,
		func(cmd *cobra.Command, cfg pump.Config, args []string) (c C, err error) {
			if err := coordination.CheckGate(args[0]); err != nil {
				return c, cli.Usage("%w", err)
			}
			return change(cmd, cfg, args[0])
		}, text)
}

func gateText(c gates.Change) string {
	name := plain(c.Gate)
	switch {
	case !c.Open && c.Waiting > 0:
		return fmt.Sprintf("gate %s is closed; %s at it", name, waiting(c.Waiting))
	case !c.Open:
		return fmt.Sprintf("gate %s is closed", name)
	case c.Waiting == 0:
		return fmt.Sprintf("gate %s is open; no process waits at it", name)
	case c.Nudged == c.Waiting:
		return fmt.Sprintf("gate %s is open; %s at it, and %s told",
			name, waiting(c.Waiting), map[bool]string{true: "was", false: "were"}[c.Waiting == 1])
	}
	return fmt.Sprintf("gate %s is open; %s at it, %d of them could be told, "+
		"the others look within 2.5 s",
		name, waiting(c.Waiting), c.Nudged)
}

func waiting(n int) string { return processes(n) + " wait" + If(n == 1, "s") }

// GateList is what `gate list` prints with --json.
type GateList struct {
	Workload string         `json:"workload"`
	Gates    []gates.Status `json:"gates"`
}

func gateList() *cobra.Command {
	return callCommand("list", "List the gates of the workload", "",
		`  distributor gate list --config pump.yaml`, cli.NoArguments(nil),
		func(cmd *cobra.Command, cfg pump.Config, _ []string) (GateList, error) {
			list, err := gates.List(cmd.Context(), cfg)
			return GateList{cfg.Workload, list}, err
		}, func(s GateList) string {
			if len(s.Gates) == 0 {
				return "no gate was ever opened or closed, and no process waits at one"
			}
			var b strings.Builder
			t := Table{Columns: gateColumns}
			for _, g := range s.Gates {
				t.Add(gateCells(g, time.Now())...)
			}
			t.Write(&b, 120)
			return strings.TrimSuffix(b.String(), "\n")
		})
}

// GateRemoved is what `gate remove` prints with --json.
type GateRemoved struct {
	Gate    string `json:"gate"`
	Removed bool   `json:"removed"`
}

func gateRemove() *cobra.Command {
	return onGate(
		"remove NAME", "Remove a gate that has served",
		`Remove a gate from the list. It is then as a gate that was never opened: processors that
are started with `+"`--gate NAME`"+` wait at it. A gate that processes wait at is not removed.`,
		`  distributor gate remove morning --config pump.yaml`,
		func(cmd *cobra.Command, cfg pump.Config, name string) (GateRemoved, error) {
			removed, err := gates.Remove(cmd.Context(), cfg, name)
			if errors.Is(err, gates.ErrWaiting) {
				err = fmt.Errorf("%w; open it with \"distributor gate open %s\" or stop them first", err, name)
			}
			return GateRemoved{name, removed}, err
		}, func(c GateRemoved) string {
			if !c.Removed {
				return "there is no gate " + plain(c.Gate)
			}
			return fmt.Sprintf("gate %s is removed", plain(c.Gate))
		})
}
