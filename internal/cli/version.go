package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
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
	return fmt.Sprintf("%s %s %s %s/%s", root.Name(), Revision(), runtime.Version(), runtime.GOOS,
		runtime.GOARCH)
}

// revision is set by the linker where packages are built.
var revision string

// Revision is the version of the module, or the commit that the binary was built from.
func Revision() string {
	if revision != "" {
		return revision
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	commit, dirty := "unknown", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			commit = s.Value[:min(12, len(s.Value))]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "+changes"
		}
	}
	return commit + dirty
}
