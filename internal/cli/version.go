package cli

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/queuepump/queuepump/internal/logs"
)

// Version is the subcommand that prints the build and its sources.
func Version() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: Command(func(cmd *cobra.Command) error {
			fmt.Fprintln(cmd.OutOrStdout(), version(cmd.Root()))
			return nil
		}),
	}
}

// version is what `version` and --version print.
func version(root *cobra.Command) string {
	return fmt.Sprintf("%s %s %s %s/%s", root.Name(), logs.Revision(), runtime.Version(), runtime.GOOS,
		runtime.GOARCH)
}
