package cli

import (
	"cmp"
	"context"
	"log/slog"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// called is how the programs are called here, if not by their own names: packages install
// queuepump-distributor, since "distributor" may be anything. It is set before all else.
var called = map[string]string{}

// callAs gives the program the name that it was called by, without folders. The other program's
// name is formed in the same way: a user who calls queuepump-processor has a queuepump-distributor.
func callAs(root *cobra.Command, path string) {
	own, name := root.Name(), strings.TrimSuffix(filepath.Base(path), ".exe")
	if name = Plain(name); name == "." || name == string(filepath.Separator) {
		return
	}
	root.Use = name
	called[own] = name
	for _, other := range []string{"distributor", "processor"} {
		if other != own && strings.Contains(name, own) {
			called[other] = strings.Replace(name, own, other, 1)
		}
	}
}

// typed finds commands in a text, but not a sentence such as "a distributor runs".
var typed = regexp.MustCompile(`(^|[^-/\w])(distributor|processor) ((?:run|runs (?:list|show|` +
	`wait|repair|end)|accounts|check|completion|counts|doctor|gate|generate|help|ids|page|peek|plan|` +
	`quarantine|status|top|version|workload|--[a-z-]+)\b)`)

// Called is a text of ours. In it the commands have the names that they are called by here.
func Called(text string) string {
	return typed.ReplaceAllStringFunc(text, func(found string) string {
		part := typed.FindStringSubmatch(found)
		return part[1] + cmp.Or(called[part[2]], part[2]) + " " + part[3]
	})
}

// nameCommands makes the program's help name commands as they are called.
func nameCommands(root *cobra.Command) {
	every(root, func(cmd *cobra.Command) {
		cmd.Short, cmd.Long, cmd.Example = Called(cmd.Short), Called(cmd.Long), Called(cmd.Example)
		cmd.Flags().VisitAll(func(f *pflag.Flag) { f.Usage = Called(f.Usage) })
	})
}

// named is a handler that names commands in its lines as they are called.
type named struct{ slog.Handler }

// Handle writes a line; see [slog.Handler].
func (h named) Handle(ctx context.Context, r slog.Record) error {
	line := slog.NewRecord(r.Time, r.Level, Called(r.Message), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "error" || a.Key == "fix" || a.Key == "to_wait" {
			a.Value = slog.StringValue(Called(a.Value.String()))
		}
		line.AddAttrs(a)
		return true
	})
	return h.Handler.Handle(ctx, line)
}

// WithAttrs adds attributes to the lines; see [slog.Handler].
func (h named) WithAttrs(attrs []slog.Attr) slog.Handler {
	return named{h.Handler.WithAttrs(attrs)}
}

// WithGroup puts attributes into a group; see [slog.Handler].
func (h named) WithGroup(name string) slog.Handler { return named{h.Handler.WithGroup(name)} }
