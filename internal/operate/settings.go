package operate

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/queuepump/queuepump/internal/cli"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/workloads"
)

func workloadSet() *cobra.Command {
	var unset []string
	cmd := callCommand(
		"set [NAME=VALUE ...]", "Give all processes a setting, or show the settings",
		`Give a value to all processes of the workload, while they run: they take it with their next
look at the workload, within two beats, or at once where they can be told. Without arguments
all settings are shown: the value, where it is from, who set it and when.
A value has one place: if a process gives it, or what goes with it, by a flag or its pump.yaml,
the command refuses and names the process, and a process that is started so ends with status 2.`,
		`  distributor workload set
  distributor workload set max-rate=50 max-attempts=12
  distributor workload set --unset max-rate`, nil,
		func(cmd *cobra.Command, cfg pump.Config, args []string) (workloads.SettingsChange, error) {
			set := map[string]string{}
			for _, arg := range args {
				name, value, is := strings.Cut(arg, "=")
				if _, twice := set[name]; twice || !is {
					return workloads.SettingsChange{}, cli.Usage("%q: give it once, as NAME=VALUE", arg)
				}
				set[name] = value
			}
			c, err := workloads.SetSettings(cmd.Context(), cfg, set, unset, workloads.Operator())
			if e, is := errors.AsType[*pump.ConfigError](err); is && len(args)+len(unset) > 0 {
				err = cli.Usage("%s: %s; %s", e.Field, e.Problem, e.Fix)
			}
			return c, err
		}, settingsText)
	cmd.Flags().StringSliceVar(&unset, "unset", nil, "go back to the default of these `NAMES`")
	return cmd
}

func settingsText(c workloads.SettingsChange) string {
	var b strings.Builder
	for _, s := range c.Settings {
		fmt.Fprintf(&b, "%-18s  %-10s  %s", plain(s.Name), plain(s.Value), s.From)
		if s.Since != nil {
			fmt.Fprintf(&b, ", by %s since %s UTC", plain(s.By), s.Since.Format(time.DateTime))
		}
		b.WriteString("\n")
	}
	if len(c.Behind) > 0 {
		fmt.Fprintf(&b, "not in force yet in %s; see: distributor doctor\n",
			plain(strings.Join(c.Behind, ", ")))
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func workloadLog() *cobra.Command {
	var o operation
	var since time.Duration
	cmd := &cobra.Command{
		Use:   "log",
		Short: "Show who has changed what",
		Long: `Show the last 1,000 changes by operators, the newest last: settings, pauses, redrives and
drops, accounts, ends of runs, gates, a deletion. "begun" says that the command goes on, or that
its end is not known: the change may have been made.`,
		Example: `  distributor workload log --since 24h --json`,
		Args:    cli.NoArguments(nil),
		RunE: o.run(func(cmd *cobra.Command, _ []string) error {
			log, err := workloads.Log(cmd.Context(), o.cfg, time.Now().Add(-since))
			if err != nil {
				return err
			}
			if o.json {
				return printJSON(cmd.OutOrStdout(), log)
			}
			for _, e := range log {
				fmt.Fprintf(cmd.OutOrStdout(), "%s  %-6s  %s  (%s, version %s)%s\n",
					e.Time.UTC().Format(time.DateTime), e.State, plain(e.What), plain(e.By), plain(e.Version),
					plain(If(e.Note != "", ": "+e.Note)))
			}
			return nil
		}),
	}
	o.add(cmd)
	cmd.Flags().DurationVar(&since, "since", 365*24*time.Hour, "changes of the last `TIME`")
	return cmd
}
