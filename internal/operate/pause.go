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
	cmd := changeCommand("pause", "Let processors start nothing more until it is resumed", `Pause the workload: processors finish the tasks that they have begun, put back the others
without an attempt, and start nothing more until `+"`distributor resume`"+`. Processors that are
told do so at once, and others within two beats; of more than 32 processes those that have no
admin port take up to four beats. Distributors go on: what they send waits. A processor that
cannot read the control account goes on, too, and so does one of an older version.
distributor status says since when a workload is paused, and which processors stand still.`,
		`  distributor pause --config pump.yaml
  distributor pause --wait && ./migrate-database && distributor resume`, cli.NoArguments(nil),
		func(cmd *cobra.Command, cfg pump.Config, _ []string) (workloads.PauseChange, error) {
			told := 0
			o.Seen = func(c workloads.PauseChange) {
				if n := len(c.Working); n != told {
					told = n
					fmt.Fprintf(cmd.ErrOrStderr(), "waiting for %s\n", cli.Plural(int64(n), "processor"))
				}
			}
			return workloads.Pause(cmd.Context(), cfg, operator(), o)
		}, pauseText)
	cmd.Flags().BoolVar(&o.Wait, "wait", false, "wait until no handler of any live processor is at work")
	return cmd
}

func resumeCommand() *cobra.Command {
	return changeCommand("resume", "Let processors go on that were paused", `Resume the workload after `+"`distributor pause`"+`. Processors that are told go on at once, and
others at their next look. To resume a workload that is not paused changes nothing.`,
		`  distributor resume --config pump.yaml`, cli.NoArguments(nil),
		func(cmd *cobra.Command, cfg pump.Config, _ []string) (workloads.PauseChange, error) {
			return workloads.Resume(cmd.Context(), cfg)
		}, pauseText)
}

func pauseText(c workloads.PauseChange) string {
	name := plain(c.Workload)
	switch {
	case !c.Paused && !c.Changed:
		return fmt.Sprintf("workload %s was not paused", name)
	case !c.Paused:
		return fmt.Sprintf("workload %s goes on; %s", name, told(c))
	}
	paused := "is paused"
	if !c.Changed {
		paused = fmt.Sprintf("was paused already, since %s by %s", c.Since.Format(time.DateTime), plain(c.By))
	}
	switch working := len(c.Working); {
	case c.Processors == 0:
		return fmt.Sprintf("workload %s %s; no processor is there", name, paused)
	case working == 0:
		return fmt.Sprintf("workload %s %s; no handler is at work", name, paused)
	}
	return fmt.Sprintf("workload %s %s; %s, and finish what they have begun", name, paused, told(c))
}

// told says how many processors know.
func told(c workloads.PauseChange) string {
	all := cli.Plural(int64(c.Processors), "processor")
	if c.Nudged == c.Processors {
		return all + " told"
	}
	return fmt.Sprintf("%d of %s could be told, the others look by themselves", c.Nudged, all)
}
