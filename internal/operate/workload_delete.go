package operate

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/queuepump/queuepump/internal/cli"
	"github.com/queuepump/queuepump/pump/workloads"
)

// deleteFlags are the flags of `distributor workload delete`.
type deleteFlags struct {
	reporting
	yes     string
	options workloads.Options
}

func workloadDelete() *cobra.Command {
	var f deleteFlags
	cmd := &cobra.Command{
		Use:   "delete",
		Short: "Delete a workload: its queues, what is in them, and its rows",
		Long: `Delete the workload of a configuration: its queues with what is in them, those of
quarantined messages too, and all its rows: runs, ledger, claims, gates, ranges of ids. The accounts
and the other tables and queues in them stay. There is no way back.

It is refused while processes of the workload live, and while runs are not finished. With
--force those processes end by themselves, and what is left of those runs goes.

First the workload is marked: no process starts with it any more, and each that is at work
ends. After 40 seconds all have noticed; then the queues go, and then the rows.
A deletion that was interrupted has left the mark; the same command continues it. The name
is free again then; the service gives the names of queues free after another half a minute.

An account that was deleted answers for nothing: --lost NAME leaves out its queues, unless one of
them can be counted with the credentials of the configuration.

It asks for the workload's name before, unless --yes NAME gives it. Where no workload is, it removes
what a distributor has left that died while it made one.

` + cli.DeleteExitCodes,
		Example: `  # what would go?
  distributor workload delete --config pump.yaml --dry-run

  distributor workload delete --config pump.yaml --yes orders

  # two of its accounts are gone for good
  distributor workload delete --config pump.yaml --lost acct02,acct07`,
		Args: cli.NoArguments(nil),
		RunE: f.run(func(cmd *cobra.Command, _ []string) error { return f.delete(cmd) }),
	}
	f.add(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&f.options.DryRun, "dry-run", false, "only say what would go")
	flags.BoolVar(&f.options.Force, "force", false,
		"delete it whether processes live and whether runs are finished")
	flags.StringSliceVar(&f.options.Lost, "lost", nil,
		"the accounts `NAME,...` are gone for good: leave out what is in them")
	flags.StringVar(&f.yes, "yes", "", "do not ask: the `NAME` of the workload")
	f.flags.Add(cmd, 5*time.Second)
	return cmd
}

func (f *deleteFlags) delete(cmd *cobra.Command) error {
	if f.yes != "" && f.yes != f.cfg.Workload {
		return cli.Usage("nothing was done: --yes names %q, and the configuration means workload %q",
			f.yes, f.cfg.Workload)
	}
	if !f.options.DryRun && f.yes == "" {
		if err := f.confirm(cmd); err != nil {
			return err
		}
	}
	f.options.Progress = deleteProgress(f.console)
	quiet := f.saySlow(f.console.Log)
	d, err := workloads.Delete(cmd.Context(), f.cfg, f.options)
	quiet()
	f.console.Done()
	if err != nil {
		return halfway(err)
	}
	return f.tell(cmd.OutOrStdout(), d, deletionText(d)+
		If(f.options.DryRun, "nothing was deleted: this was a dry run\n"))
}

// halfway gives a deletion that was begun its own exit status.
func halfway(err error) error {
	if e, ok := errors.AsType[*workloads.Error](err); ok && e.Begun {
		return &cli.Status{Code: cli.ExitHalfway, Err: err}
	}
	return err
}

// confirm shows what goes, and asks for the workload's name.
func (f *deleteFlags) confirm(cmd *cobra.Command) error {
	if !terminal(cmd) {
		return cli.Usage("nothing was done, because standard input is not a terminal. "+
			"Workload %[1]s and what is in its queues would be gone for good. "+
			"Give --yes %[1]s to do that without being asked", f.cfg.Workload)
	}
	plan := f.options
	plan.DryRun = true
	quiet := f.saySlow(f.console.Log)
	d, err := workloads.Delete(cmd.Context(), f.cfg, plan)
	quiet()
	if err != nil {
		return err
	}
	fmt.Fprint(cmd.ErrOrStderr(), deletionText(d))
	fmt.Fprintf(cmd.ErrOrStderr(),
		"All that will be gone for good. To go on, type the workload's name: ")
	answer, _ := bufio.NewReader(io.LimitReader(cmd.InOrStdin(), 100)).ReadString('\n')
	if strings.TrimSpace(answer) != f.cfg.Workload {
		return cli.Usage("nothing was done")
	}
	return nil
}

func deleteProgress(console *cli.Console) func(workloads.Progress) {
	return func(p workloads.Progress) {
		switch p.Step {
		case "noticing":
			text := fmt.Sprintf("marked; processes may take another %.0f s to notice", p.Left.Seconds())
			console.Progress(0, 0, text, "noticing", p.Left.Round(time.Second))
		default:
			console.Progress(int64(p.Done), int64(p.Total), "deleting "+p.Step, "step", p.Step)
		}
	}
}

// deletionText says what goes, or has gone.
func deletionText(d *workloads.Deletion) string {
	var b strings.Builder
	if len(d.Leftovers) > 0 {
		fmt.Fprintf(&b, "workload %s does not exist; what is left of the making of one is in %s\n",
			d.Workload, plain(strings.Join(d.Leftovers, ", ")))
		return b.String()
	}
	goes := "goes"
	if d.Deleted {
		goes = "is deleted"
	}
	fmt.Fprintf(&b, "workload %s (incarnation %s, rows in %s) %s\n",
		d.Workload, plain(d.Incarnation), plain(d.Control), goes)
	all, quarantined := d.Messages()
	fmt.Fprintf(&b, "  %s with %s, %s of them in quarantine\n",
		cli.Plural(int64(len(d.Queues)), "queue"), cli.Plural(all, "message"),
		humanize.Comma(quarantined))
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(d.Rows)) {
		parts = append(parts, fmt.Sprintf("%s %s", plain(what), humanize.Comma(int64(d.Rows[what]))))
	}
	fmt.Fprintf(&b, "  %s: %s\n", cli.Plural(int64(d.AllRows()), "row"), strings.Join(parts, ", "))
	if len(d.Foreign) > 0 {
		fmt.Fprintf(&b, "  foreign queues stay, with their messages: %s\n",
			plain(strings.Join(d.Foreign, ", ")))
	}
	if len(d.Lost) > 0 {
		fmt.Fprintf(&b, "  nothing is deleted in what is gone for good: %s\n",
			plain(strings.Join(d.Lost, ", ")))
	}
	if len(d.Kept) > 0 {
		fmt.Fprintf(&b, "  queues stay in %s: another workload of this name uses them\n",
			plain(strings.Join(d.Kept, ", ")))
	}
	if n := len(d.Members); n > 0 && !d.Deleted {
		fmt.Fprintf(&b, "  %s of it still live: %s\n",
			processes(n), plain(strings.Join(d.Members[:min(n, 10)], ", ")))
	}
	if n := len(d.Unfinished); n > 0 && !d.Deleted {
		fmt.Fprintf(&b, "  runs that are not finished: %s\n", strings.Join(d.Unfinished, ", "))
	}
	return b.String()
}
