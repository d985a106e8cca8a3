package operate

import (
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/queuepump/queuepump/internal/cli"
	"github.com/queuepump/queuepump/pump/status"
)

// topFlags are the flags of `distributor top`.
type topFlags struct {
	operation
	options status.Options
}

func topCommand() *cobra.Command {
	var f topFlags
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show the workload live in a terminal",
		Long: `Show the workload live in a terminal, as the page does: how things stand and what limits
them, and one table at a time of accounts, queues, processes, runs, causes of quarantine,
keys and gates, and problems. It changes nothing.

Press ? for the keys: tab and 1 to 8 choose a table, / filters it, s sorts it, p holds it:
nothing is read then, until p is pressed again.
It makes 25 requests a second at most, so a large workload's queues come one by one.
NO_COLOR=1 shows no colours. Scripts take "status --json".`,
		Example: `  distributor top --config pump.yaml
  NO_COLOR=1 distributor top --config pump.yaml --runs 50`,
		Args: cli.NoArguments(nil),
		RunE: f.run(func(cmd *cobra.Command, _ []string) error { return f.show(cmd) }),
	}
	cmd.Flags().SortFlags = false
	cli.ConfigFlag(cmd, &f.config)
	addReading(cmd, &f.options, 20)
	return cmd
}

func (f *topFlags) show(cmd *cobra.Command) error {
	out := cmd.OutOrStdout()
	in, isFile := cmd.InOrStdin().(*os.File)
	if _, _, terminal := size(out); !terminal || !isFile || !term.IsTerminal(int(in.Fd())) {
		return cli.Usage("top needs a terminal to show and to read keys from; in a "+
			"script use: %s status",
			cmd.Root().Name())
	}
	if err := checkReading(f.options); err != nil {
		return err
	}
	return Run(cmd.Context(), f.cfg, f.options, in, out)
}
