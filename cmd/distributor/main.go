// Command distributor reads tasks from files, a directory, a command or
// standard input and sends them to a workload's queues.
package main

import (
	_ "time/tzdata" // 400 kB: a container from scratch has no files of time zones

	"github.com/spf13/cobra"
	// Authorities for a machine or an image that has no certificates of its own.
	_ "golang.org/x/crypto/x509roots/fallback"

	"github.com/queuepump/queuepump/internal/cli"
	"github.com/queuepump/queuepump/internal/operate"
)

func main() { cli.Main(root, func() {}) }

func root() *cobra.Command {
	root := &cobra.Command{
		Use:   "distributor",
		Short: "Send tasks to the queues of many storage accounts",
		Long: `distributor reads tasks and sends them to a workload's queues, spread over all
its storage accounts, where any number of processors do them.

` + cli.ExitCodes,
	}
	operate.Add(root)
	send, takes := run(), serveCommand()
	send.GroupID, takes.GroupID = operate.GroupSend, operate.GroupSend
	root.AddCommand(send, takes, cli.Version())
	return root
}
