// Command measure compares the pump with a program that uses azqueue alone, writes what it
// measured as JSON, and renders bench/RESULTS.md and the tables of the documents from that.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/queuepump/queuepump/bench"
	"github.com/queuepump/queuepump/internal/cli"
)

func main() {
	// It never returns in a process that was started by another of this program.
	bench.PlayRole()
	cli.Main(root, func() { os.Exit(1) }) // children end with their standard input
}

func root() *cobra.Command {
	root := &cobra.Command{
		Use:   "measure",
		Short: "Compare the pump with azqueue alone, and render the results",
		Long: `measure compares the pump with a program that uses azqueue alone and with bare gzip, on
simulated accounts in a process of their own, by the CPU time of the client.
It is run in the root of the source tree.

` + cli.ExitCodes,
	}
	root.AddCommand(runCommand(), renderCommand(), soakCommand())
	return root
}
