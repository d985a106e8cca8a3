// Command processor takes a workload's tasks from its queues and has them
// done: by child processes, by an HTTP endpoint, or by writing them to a file.
package main

import (
	"github.com/spf13/cobra"
	// Authorities for a machine or an image that has no certificates of its own.
	_ "golang.org/x/crypto/x509roots/fallback"

	"github.com/queuepump/queuepump/internal/cli"
	"github.com/queuepump/queuepump/internal/handlers"
	"github.com/queuepump/queuepump/internal/operate"
)

func main() { cli.Main(root, handlers.KillChildren) }

func root() *cobra.Command {
	root := &cobra.Command{
		Use:   "processor",
		Short: "Take tasks from the queues of many storage accounts and do them",
		Long: `processor takes a workload's tasks from its queues and has them done. Any
number of them may run, on any number of machines, with the configuration that
the distributors use.

` + cli.ExitCodes,
	}
	operate.AddReading(root)
	process := run()
	process.GroupID = operate.GroupProcess
	try := check()
	try.GroupID = operate.GroupProcess
	root.AddCommand(process, try, cli.Version())
	root.AddCommand(topics()...)
	return root
}
