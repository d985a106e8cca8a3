package operate

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/queuepump/queuepump/internal/cli"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/runs"
)

// WaitFlags adds the flags that say when to give up waiting for a run.
func WaitFlags(cmd *cobra.Command, o *pump.WaitOptions, timeout string) {
	cmd.Flags().DurationVar(&o.StuckAfter, "stuck-after", 0,
		"with nothing recorded for so long, and every queue empty for as long after that, "+
			"give the run up as stuck; so long without a distributor too, if it is open (default 1m)")
	cmd.Flags().DurationVar(&o.Timeout, timeout, 0,
		"wait so long at most, then end with status 6 (default: until the run is over)")
}

// waitFlags are the flags of `distributor runs wait`.
type waitFlags struct {
	reporting
	options pump.WaitOptions
}

func wait() *cobra.Command {
	var f waitFlags
	cmd := &cobra.Command{
		Use:   "wait RUN",
		Short: "Wait until every task of a run is done",
		Long: `Wait until every task of a run is done or in quarantine, as run --wait does. It
needs a workload with delivery: once, where the ledger records what is done; that
is counted exactly, each task once. A run that is still being sent is waited for too.
RUN is its name, its id, or the beginning of it that no other has: 4 digits or more.

A run is stuck when tasks are missing, nothing was recorded for --stuck-after, and
then every queue of the workload counted as empty for as long: a message was lost. A run is also
stuck when it was not sent to its end and no distributor has sent on for --stuck-after.
distributor runs repair puts what is missing again.

` + cli.WaitExitCodes,
		Example: `  distributor runs wait 0123456789ab --config pump.yaml
  distributor runs wait $(distributor status --json | jq -r '.runs[0].id')`,
		Args: cli.OneArgument,
		RunE: f.run(func(cmd *cobra.Command, args []string) error { return f.wait(cmd, args[0]) }),
	}
	f.add(cmd)
	WaitFlags(cmd, &f.options, "timeout")
	f.flags.Add(cmd, 10*time.Second)
	return cmd
}

func (f *waitFlags) wait(cmd *cobra.Command, id string) error {
	ctx, cancel := f.options.Within(cmd.Context())
	defer cancel()
	run, err := findRun(ctx, f.cfg, "RUN", id)
	if err != nil && errors.Is(context.Cause(ctx), pump.ErrTimeout) {
		return &cli.Status{Code: cli.ExitNotOver, Err: fmt.Errorf("run %s: %w; the control account "+
			"did not answer; to wait on: distributor runs wait %[1]s", plain(id), pump.ErrTimeout)}
	}
	if err != nil {
		return err
	}
	o := f.options
	o.Progress = WaitProgress(f.console)
	c, err := runs.Wait(ctx, f.cfg, run, o)
	f.console.Done()
	if c.State == "" || errors.Is(err, pump.ErrNoRun) { // there is nothing to tell
		return err
	}
	var b bytes.Buffer
	PrintCompletion(&b, &c)
	return errors.Join(Outcome(&c, err), f.tell(cmd.OutOrStdout(), &c, b.String()))
}

// Outcome gives the exit status for the end of an awaited run. Err is what ended the waiting, and c
// its result, nil without one.
func Outcome(c *pump.Completion, err error) error {
	if _, stuck := errors.AsType[*pump.StuckError](err); stuck {
		return &cli.Status{Code: cli.ExitStuck, Err: err}
	}
	if errors.Is(err, pump.ErrTimeout) {
		return &cli.Status{
			Code: cli.ExitNotOver,
			Err:  fmt.Errorf("run %s: %w; to wait on: distributor runs wait %[1]s", c.Run, err),
		}
	}
	if err == nil && c != nil && c.State == pump.RunQuarantined {
		return &cli.Status{
			Code: cli.ExitQuarantined,
			Err: fmt.Errorf("run %s: %s %s in quarantine; see them with: distributor quarantine list",
				c.Run, cli.Plural(int64(c.Quarantined), "task"), cmp.Or(If(c.Quarantined == 1, "is"), "are")),
		}
	}
	return err
}

// WaitProgress shows how far a run is.
func WaitProgress(console *cli.Console) func(pump.RunProgress) {
	var speed cli.Rate
	first := true
	return func(p pump.RunProgress) {
		if first { // the last bar was about sending
			first = false
			console.Done()
		}
		settled := int64(p.Done + p.Quarantined)
		text := fmt.Sprintf("%s done · %s", humanize.Comma(int64(p.Done)), speed.Per(settled))
		total := int64(0)
		if p.Total != nil {
			total = int64(*p.Total)
			text = fmt.Sprintf("%s of %s done · %s", humanize.Comma(int64(p.Done)), humanize.Comma(total),
				speed.Per(settled))
		}
		if p.Quarantined > 0 {
			text += fmt.Sprintf(" · %s in quarantine", humanize.Comma(int64(p.Quarantined)))
		}
		console.Progress(settled, total, text, "done", p.Done, "quarantined", p.Quarantined, "of", total)
	}
}

// PrintCompletion says how a run ended. The ledger's counts are exact. The processors' reports are
// not exact, and it says that they are the processors' own.
func PrintCompletion(b *bytes.Buffer, c *pump.Completion) {
	missing := c.Tasks - min(c.Done+c.Quarantined, c.Tasks)
	switch c.State {
	case pump.RunDone:
		fmt.Fprintf(b, "done: %s", cli.Plural(int64(c.Done), "task"))
	case pump.RunQuarantined:
		fmt.Fprintf(b, "settled: %s done, %s in quarantine",
			cli.Plural(int64(c.Done), "task"), humanize.Comma(int64(c.Quarantined)))
	case pump.RunStuck:
		fmt.Fprintf(b, "stuck: %s done, %s in quarantine, %s missing in %s",
			cli.Plural(int64(c.Done), "task"), humanize.Comma(int64(c.Quarantined)),
			humanize.Comma(int64(missing)), cli.Plural(int64(len(c.Lacking)), "segment"))
	default:
		fmt.Fprintf(b, "not over yet: %s done, %s in quarantine",
			cli.Plural(int64(c.Done), "task"), humanize.Comma(int64(c.Quarantined)))
		if c.Tasks > 0 {
			fmt.Fprintf(b, ", %s to go", humanize.Comma(int64(missing)))
		}
	}
	fmt.Fprintf(b, "; waited %.1f s", c.Seconds)
	if c.Closed {
		fmt.Fprint(b, "; the run is closed")
	}
	fmt.Fprintln(b)
	r := c.Reported
	if r.Handled < c.Done && r.Failed+r.Retried+r.Quarantined+r.Duplicates == 0 {
		return // the processors have not noted all of it yet, and their figures add nothing
	}
	fmt.Fprintf(b, "the processors have reported so far, each delivery counted: "+
		"%s handled, %s failed, %s retried, %s quarantined, %s recognised\n",
		cli.Plural(int64(r.Handled), "task"), humanize.Comma(int64(r.Failed)),
		humanize.Comma(int64(r.Retried)), humanize.Comma(int64(r.Quarantined)),
		cli.Plural(int64(r.Duplicates), "duplicate"))
}
