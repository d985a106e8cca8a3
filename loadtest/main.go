// Command loadtest measures what storage accounts give through the pump, serves
// simulated ones, and tries the whole pump on them.
package main

import (
	"github.com/spf13/cobra"

	"github.com/queuepump/queuepump/internal/cli"
)

func main() {
	cli.Main(root, killProcesses)
}

func root() *cobra.Command {
	root := &cobra.Command{
		Use:   "loadtest",
		Short: "Measure what storage accounts give, and try the pump on simulated ones",
		Long: `loadtest puts load on storage accounts through the pump and reports what they give:
on real accounts, or on simulated ones with the limits that Microsoft publishes, which
need no cloud, no money and no configuration. It also serves such accounts for
other programs, and tries the whole pump on them.

` + cli.ExitCodes,
	}
	root.AddCommand(runCommand(), reportCommand(), serveCommand(), demoCommand(), sha256Worker(),
		cli.Version())
	return root
}
