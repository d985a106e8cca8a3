package operate

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/queuepump/queuepump/internal/cli"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/workloads"
)

func pauseCommand() *cobra.Command {
	var o workloads.PauseOptions
	var part partFlags
	cmd := callCommand(
		"pause", "Let processors start nothing more until it is resumed",
		`Pause the workload: processors finish the tasks that they have begun, put back the others
without an attempt, and start nothing more until `+"`distributor workload resume`"+`.
Processors that are told do so at once, and others within two beats; of more than 32 processes
those that have no admin port take up to four beats. Distributors go on: what they send waits.
A processor that cannot read the control account goes on, too.

With --run or --key only the tasks of that run, or with that key, wait. Processors put them back
when they meet them, out of the way of the rest, until `+"`distributor workload resume`"+` with
the same flag. A message is met every three to five minutes, which costs a request or two each
time. At most 16 runs and keys can be paused at the same time.
distributor status says what is paused since when, and which processors stand still.`,
		`  distributor workload pause --config pump.yaml
  distributor workload pause --wait && ./migrate-database && distributor workload resume
  distributor workload pause --run 3f2a
  distributor workload pause --key customer-17`, cli.NoArguments(nil),
		func(cmd *cobra.Command, cfg pump.Config, _ []string) (any, error) {
			switch is, err := part.given(cmd); {
			case err != nil:
				return nil, err
			case is && o.Wait:
				return nil, pump.Invalid("--wait",
					"it waits until no handler of the workload is at work", "leave it out with --run and --key")
			case is:
				return workloads.PausePart(cmd.Context(), cfg, part.part(), workloads.Operator())
			}
			told := 0
			o.Seen = func(c workloads.PauseChange) {
				if n := len(c.Working); n != told {
					told = n
					fmt.Fprintf(cmd.ErrOrStderr(), "waiting for %s\n", cli.Plural(int64(n), "processor"))
				}
			}
			return workloads.Pause(cmd.Context(), cfg, workloads.Operator(), o)
		}, changedText)
	cmd.Flags().BoolVar(&o.Wait, "wait", false,
		"wait until no handler of any live processor is at work")
	part.add(cmd, "pause")
	return cmd
}

func resumeCommand() *cobra.Command {
	var part partFlags
	cmd := callCommand(
		"resume", "Let processors go on that were paused",
		`Resume the workload after `+"`distributor workload pause`"+`. Processors that are told go
on at once, and others at their next look. To resume a workload that is not paused changes nothing.
With --run or --key what was put back of that run or key comes within about half of the time for
which it was paused, and within five minutes.`,
		`  distributor workload resume --config pump.yaml
  distributor workload resume --run 3f2a`, cli.NoArguments(nil),
		func(cmd *cobra.Command, cfg pump.Config, _ []string) (any, error) {
			switch is, err := part.given(cmd); {
			case err != nil:
				return nil, err
			case is:
				return workloads.ResumePart(cmd.Context(), cfg, part.part())
			}
			return workloads.Resume(cmd.Context(), cfg)
		}, changedText)
	part.add(cmd, "resume")
	return cmd
}

// partFlags name a run or a key.
type partFlags struct{ run, key string }

func (f *partFlags) add(cmd *cobra.Command, verb string) {
	cmd.Flags().StringVar(&f.run, "run", "",
		verb+" only this run: its id, or four digits or more of it")
	cmd.Flags().StringVar(&f.key, "key", "", verb+" only the tasks with this key")
}

// given reports whether one of the two is given.
func (f *partFlags) given(cmd *cobra.Command) (bool, error) {
	run, key := cmd.Flags().Changed("run"), cmd.Flags().Changed("key")
	switch {
	case run && key:
		return false, pump.Invalid("--key",
			"there is --run beside it", "name a run or a key, one at a time")
	case run && f.run == "":
		return false, pump.Invalid("--run", "it is empty", "give the id of a run: distributor runs list")
	case key && f.key == "":
		return false, pump.Invalid("--key", "it is empty", "give a key, as tasks have it")
	}
	return run || key, nil
}

func (f *partFlags) part() workloads.Part {
	return workloads.Part{Run: f.run, Key: []byte(f.key)}
}

// changedText tells the result of a pause or a resume.
func changedText(c any) string {
	if c, ok := c.(workloads.PartChange); ok {
		return partText(c)
	}
	return pauseText(c.(workloads.PauseChange))
}

func partText(c workloads.PartChange) string {
	what := "run " + c.Run
	if c.Run == "" {
		what = "key " + plain(c.Key)
	}
	switch {
	case !c.Paused && !c.Changed:
		return what + " was not paused"
	case !c.Paused:
		return fmt.Sprintf("%s goes on; %s", what, told(c.Processors, c.Nudged))
	case !c.Changed:
		return fmt.Sprintf("%s was paused already, since %s by %s",
			what, c.Since.Format(time.DateTime), plain(c.By))
	case c.Processors == 0:
		return fmt.Sprintf("%s is paused; no processor is there", what)
	}
	return fmt.Sprintf("%s is paused; %s", what, told(c.Processors, c.Nudged))
}

func pauseText(c workloads.PauseChange) string {
	name := plain(c.Workload)
	switch {
	case !c.Paused && !c.Changed:
		return fmt.Sprintf("workload %s was not paused", name)
	case !c.Paused:
		return fmt.Sprintf("workload %s goes on; %s", name, told(c.Processors, c.Nudged))
	}
	paused := "is paused"
	if !c.Changed {
		paused = fmt.Sprintf("was paused already, since %s by %s", c.Since.Format(time.DateTime),
			plain(c.By))
	}
	switch working := len(c.Working); {
	case c.Processors == 0:
		return fmt.Sprintf("workload %s %s; no processor is there", name, paused)
	case working == 0 && c.Processors > 0:
		return fmt.Sprintf("workload %s %s; no handler is at work", name, paused)
	}
	return fmt.Sprintf("workload %s %s; %s; tasks that have begun are finished", name, paused,
		told(c.Processors, c.Nudged))
}

// told says how many processors know.
func told(processors, nudged int) string {
	if processors < 0 {
		return "who processes it could not be read; each processor sees it at its next look"
	}
	all := cli.Plural(int64(processors), "processor")
	if nudged == processors {
		return all + " told"
	}
	return fmt.Sprintf("%d of %s could be told, the others look by themselves", nudged, all)
}
