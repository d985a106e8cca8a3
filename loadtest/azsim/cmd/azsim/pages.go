//go:build packaging

package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/queuepump/queuepump/internal/cli"
	"github.com/queuepump/queuepump/loadtest/simserver"
)

// init writes the man page and the completions, as packages hold them, and nothing is served.
func init() {
	cli.Main(func() *cobra.Command {
		var p simserver.Program
		cmd := &cobra.Command{
			Use: "azsim", Short: short, Long: simserver.Help() + "\n" + statuses, Example: examples,
			Run: func(*cobra.Command, []string) {},
		}
		p.AddFlags(cmd.Flags())
		return cmd
	}, nil)
	os.Exit(0)
}
