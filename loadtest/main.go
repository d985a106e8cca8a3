// Command loadtest serves simulated storage accounts, and tries the whole pump
// on them.
package main

import (
	"github.com/spf13/cobra"

	"github.com/queuepump/queuepump/internal/cli"
)

func main() {
	root := &cobra.Command{
		Use:   "loadtest",
		Short: "Serve simulated storage accounts, and try the pump on them",
		Long: `loadtest serves simulated accounts of Azure Queue and Table storage on this
machine, with the limits that Microsoft publishes, and tries the whole pump on
them: no cloud, no costs, nothing to configure.

` + cli.ExitCodes,
	}
	root.AddCommand(serveCommand(), tryCommand(), sha256Worker(), cli.Version())
	cli.Main(root, killProcesses)
}
