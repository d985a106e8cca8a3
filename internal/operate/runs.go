package operate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/queuepump/queuepump/internal/cli"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/runs"
	"github.com/queuepump/queuepump/pump/workloads"
)

func runsCommand(short string, sub ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "runs",
		Short: short,
		Long: `Look at runs, wait for them, repair and end them. A run is one distribution. It is open
until its source is sent, sealed then, and closed when every task is done or in quarantine.
One that cannot go on is broken; one whose client is gone is abandoned, and its source can be
sent to the end with distributor runs repair RUN --input FILE. Runs that no distributor
continues end by themselves after a quiet hour.`,
	}
	return cli.Group(cmd, sub...)
}

func runsList() *cobra.Command {
	var o operation
	var state string
	var limit int
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List runs, the last started first",
		Example: `  distributor runs list --config pump.yaml
  distributor runs list --state abandoned --json`,
		Args: cli.NoArguments(nil),
		RunE: o.run(func(cmd *cobra.Command, _ []string) error {
			list, bad := runs.List(cmd.Context(), o.cfg, state, limit)
			if bad != nil && len(list) == 0 {
				return bad
			}
			return errors.Join(printRuns(cmd.OutOrStdout(), &o, list), bad)
		}),
	}
	o.add(cmd)
	cmd.Flags().StringVar(&state, "state", "",
		"only runs in this state: "+strings.Join(runs.States(), ", "))
	cmd.Flags().IntVar(&limit, "limit", 50, "the most runs to list")
	return cmd
}

// RunList is what `runs list` prints with --json.
type RunList struct {
	Workload string      `json:"workload"`
	Runs     []runs.Info `json:"runs"`
}

func printRuns(out io.Writer, o *operation, list []runs.Info) error {
	if o.json {
		return printJSON(out, RunList{o.cfg.Workload, list})
	}
	if len(list) == 0 {
		_, err := fmt.Fprintln(out, "there is no such run")
		return err
	}
	for i := range list {
		if _, err := fmt.Fprintln(out, runLine(&list[i])); err != nil {
			return err
		}
	}
	return nil
}

func comma(n uint64) string { return humanize.Comma(int64(n)) }

// runLine is a run on one line.
func runLine(r *runs.Info) string {
	line := fmt.Sprintf("%s  %-9s  %-6s  %12s tasks  %s  %s", r.ID, r.State, plain(r.Mode),
		Known(r.Tasks, comma, "-"), r.Started.Format(time.DateTime),
		notes(plain(r.Name), plain(r.Note)))
	return strings.TrimRight(line, " ")
}

func runsShow() *cobra.Command {
	return runCommand("show RUN", "Show a run",
		`Show a run: its state, how far it is, who made it, and of one that no
distributor continues when it ends and what that waits for. RUN is its name, its id,
or the beginning of it that no other has: 4 digits or more.`,
		`  distributor runs show 0123456789ab --config pump.yaml`, runs.Show)
}

func runsEnd() *cobra.Command {
	var drop bool
	cmd := runCommand(
		"end RUN", "End a run",
		`End a run. Its distributor stops within half a minute, and nothing more of the run is started.
What handlers have in hand they finish. A task that is met later goes to quarantine with the
cause run-ended, from where it can be redriven; with --drop it is deleted and counted.
RUN is the run's name, its id, or the beginning of it that no other has: 4 digits or more.`,
		`  distributor runs end 0123456789ab --config pump.yaml
  distributor runs end 0123456789ab --drop`,
		func(ctx context.Context, cfg pump.Config, id string) (runs.Info, error) {
			return runs.End(ctx, cfg, id, drop, "ended by "+workloads.Operator())
		})
	cmd.Flags().BoolVar(&drop, "drop", false,
		"delete and count what is met of the run, rather than quarantine it")
	return cmd
}

func runCommand(
	use, short, long, example string,
	act func(context.Context, pump.Config, string) (runs.Info, error),
) *cobra.Command {
	return callCommand(use, short, long, example, cli.OneArgument,
		func(cmd *cobra.Command, cfg pump.Config, args []string) (r runs.Info, err error) {
			id, err := findRun(cmd.Context(), cfg, "RUN", args[0])
			if err != nil {
				return r, err
			}
			return act(cmd.Context(), cfg, id.String())
		}, runText)
}

func runText(r runs.Info) string {
	var b strings.Builder
	line := Facts(&b, 12)
	line("run", r.ID)
	line("name", plain(r.Name))
	line("state", r.State)
	line("made by", plain(r.Instance))
	line("started", r.Started.Format(time.DateTime))
	at := func(t time.Time) string { return t.Format(time.DateTime) }
	line("sent until", Known(r.Ended, at, ""))
	line("tasks", Known(r.Tasks, comma, ""))
	line("done", Known(r.Done, comma, ""))
	line("quarantined", Known(r.Quarantined, comma, ""))
	if r.Cost != nil && *r.Requests > 0 {
		line("requests", humanize.Comma(int64(*r.Requests))+" to queues")
		line("cost", moneyText(*r.Cost, r.Currency))
	}
	line("what is met", If(r.Drop, "is dropped"))
	line("note", plain(r.Note))
	line("waits for", plain(r.WaitsFor))
	return strings.TrimSuffix(b.String(), "\n")
}
