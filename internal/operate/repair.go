package operate

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/queuepump/queuepump/internal/cli"
	"github.com/queuepump/queuepump/pump/distributor"
)

// repairFlags are the flags of `distributor runs repair`.
type repairFlags struct {
	reporting
	onBadLine string
	source    cli.SourceFlags
	options   distributor.Options
	repair    distributor.RepairOptions
}

func repair() *cobra.Command {
	var f repairFlags
	cmd := &cobra.Command{
		Use:   "repair RUN",
		Short: "Put the tasks of a run again that were lost",
		Long: `Read the source of a run again and put those of its tasks that are neither done nor
in quarantine, each under the identity it had. So nothing is done twice, whatever else
goes on: a task that was not lost after all is recognised. It needs delivery: once. RUN is the
run's name, its id, or the beginning of it that no other has: 4 digits or more.

Source and settings must be those of the run: give the same --input or --files, --key,
--id, --format and --on-bad-line. A copy of a file must have kept its time of change. The
source is read twice: first to compare it with what was sealed, then to put.

A run that broke, or was left open by a distributor that is gone, is put to the end of
its source and sealed. While its distributor is at work it is refused, and so are
runs over standard input or a command, which cannot be read again.

` + cli.SourceHelp + `

` + cli.ExitCodes,
		Example: `  # what is missing?
  distributor runs repair $RUN --config pump.yaml --input tasks.jsonl --key city --dry-run

  # put it, and wait until it is done
  distributor runs repair $RUN --config pump.yaml --input tasks.jsonl --key city &&
    distributor runs wait $RUN --config pump.yaml`,
		Args: cli.OneArgument,
		RunE: f.run(func(cmd *cobra.Command, args []string) error { return f.mend(cmd, args[0]) }),
	}
	f.add(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&f.repair.DryRun, "dry-run", false, "only say what is missing")
	f.source.Add(cmd)
	flags.StringVar(&f.onBadLine, "on-bad-line", "fail",
		"what the run did with a line that cannot be a task, the `POLICY`: fail, skip or quarantine")
	cli.BlobAboveFlag(cmd, &f.options.BlobAbove)
	flags.IntVar(&f.options.Pack, "pack", 0, "the most tasks in a message (default: as many as fit)")
	flags.DurationVar(&f.options.Grace, "grace", 0,
		"how long to go on sending what was read after a signal (default 20s)")
	f.flags.Add(cmd, 5*time.Second)
	return cmd
}

func (f *repairFlags) mend(cmd *cobra.Command, id string) error {
	src, err := f.source.Source()
	if err != nil {
		return err
	}
	ctx, end := f.console.Outlive(cmd.Context())
	defer end()
	run, err := findRun(ctx, f.cfg, "RUN", id)
	if err != nil {
		return err
	}
	f.source.Hide(src, f.file)
	f.options.OnBadLine = distributor.BadLine(f.onBadLine)
	f.options.Progress = SendProgress(f.console)
	d, err := distributor.New(f.cfg, src, f.options)
	if err != nil {
		return err
	}
	s, err := d.Repair(ctx, run, f.repair)
	f.console.Done()
	if s.State == "" || err != nil && s.Put == 0 {
		return err // nothing was done
	}
	var b bytes.Buffer
	printRepair(&b, &s, err)
	return errors.Join(err, f.tell(cmd.OutOrStdout(), &s, b.String()))
}

func printRepair(b *bytes.Buffer, s *distributor.RepairSummary, err error) {
	if s.State == "closed" {
		fmt.Fprintf(b, "run %s: closed; nothing of its %s is missing\n", s.Run,
			cli.Plural(int64(s.Tasks), "task"))
		return
	}
	fmt.Fprintf(b, "run %s (%s): %s, %s done, %s in quarantine, %s missing", s.Run, s.State,
		cli.Plural(int64(s.Tasks), "task"), humanize.Comma(int64(s.Done)),
		humanize.Comma(int64(s.Quarantined)), humanize.Comma(int64(s.Missing)))
	if s.Missing > 0 {
		fmt.Fprintf(b, " in %s", cli.Plural(int64(len(s.Lacking)), "segment"))
	}
	fmt.Fprintln(b)
	if s.Messages != nil && *s.Messages > 0 && s.Missing > 0 {
		fmt.Fprintf(b, "%s in the queues may have some of them\n", cli.Plural(*s.Messages, "message"))
	}
	switch {
	case s.DryRun:
		fmt.Fprintln(b, "nothing was put: this was a dry run")
		return
	case err != nil:
		fmt.Fprintf(b, "stopped: %s put again\n", cli.Plural(s.Put, "task"))
	case s.Missing > 0:
		fmt.Fprintf(b, "put again: %s in %s in %.1f s\n",
			cli.Plural(s.Put, "task"), cli.Plural(s.Envelopes, "message"), s.Seconds)
	}
	if s.Sealed {
		fmt.Fprintf(b, "the run was %s and is sealed now\n", s.State)
	}
	if err == nil && (s.Missing > 0 || s.Sealed) {
		fmt.Fprintln(b, "to wait until it is done: distributor runs wait", s.Run)
	}
	cli.Requests(b, s.Requests, s.Throttled, s.Put)
}

// SendProgress shows how far sending is.
func SendProgress(console *cli.Console) func(distributor.Progress) {
	var speed cli.Rate
	return func(p distributor.Progress) {
		text := fmt.Sprintf("%s tasks · %s · %s messages",
			humanize.Comma(p.Tasks), speed.Per(p.Tasks), humanize.Comma(p.Envelopes))
		if bad := p.Skipped + p.Quarantined; bad > 0 {
			text += fmt.Sprintf(" · %s bad lines", humanize.Comma(bad))
		}
		console.Progress(p.Done, p.Total, text, "run", p.Run, "tasks", p.Tasks, "envelopes", p.Envelopes,
			"read", p.Done, "of", p.Total)
	}
}
