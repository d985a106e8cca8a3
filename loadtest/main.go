// Command loadtest measures what storage accounts give through the pump, serves
// simulated ones, and tries the whole pump on them.
package main

import (
	"github.com/spf13/cobra"

	"github.com/queuepump/queuepump/internal/cli"
	"github.com/queuepump/queuepump/loadtest/realaccounts"
)

func main() {
	cli.Main(root, func() {
		killProcesses()
		realaccounts.KillAll()
	})
}

func root() *cobra.Command {
	root := &cobra.Command{
		Use:   "loadtest",
		Short: "Measure what storage accounts give, and try the pump on simulated ones",
		Long: `loadtest puts load on storage accounts through the pump and reports what they give:
on real accounts, or on simulated ones with the limits that Microsoft publishes, which
need no cloud, no money and no configuration. It also serves such accounts for
other programs, and tries the whole pump on them, or on accounts of Azure.

` + cli.ExitCodes,
	}
	root.AddCommand(runCommand(), reportCommand(), serveCommand(), demoCommand(), azureCommand(),
		sha256Worker(), cli.Version())
	return root
}
