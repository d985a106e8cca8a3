//go:build !packaging

package cli

import (
	"context"
	"os"

	"github.com/spf13/cobra"
)

// Main makes the root command, runs the program, and ends the process. atOnce is called before a
// second signal ends the process at once.
func Main(program func() *cobra.Command, atOnce func()) {
	own = true
	takeHangups() // signals first: all else takes time
	ctx, stop := withSignals(context.Background(), atOnce)
	root := program()
	prepare(root)
	leaveHangups(root)
	cmd, err := root.ExecuteContextC(ctx)
	stop()
	if err != nil {
		report(os.Stderr, root, cmd, err)
	}
	os.Exit(exitCode(err))
}
