package cli

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/queuepump/queuepump/internal/configfile"
)

// ConfigFlag adds the flag that names the configuration file; see [configfile.Path].
func ConfigFlag(cmd *cobra.Command, path *string) {
	cmd.Flags().StringVar(path, "config", "",
		"the configuration `FILE` (default: $"+configfile.PathVariable+
			", else pump.yaml, else "+configfile.SystemPath+")")
}

// NoArguments is the Args of a command that takes none. Meant guesses what a word was to mean; it
// may be nil.
func NoArguments(meant func(word string) string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		if meant != nil {
			return Usage("%q is not expected here; did you mean %s?", args[0], meant(args[0]))
		}
		return Usage("%q is not expected here: %s takes no arguments", args[0], cmd.CommandPath())
	}
}

// Group makes a command of subcommands. Without one it shows its help; it refuses an unknown one.
func Group(cmd *cobra.Command, sub ...*cobra.Command) *cobra.Command {
	cmd.AddCommand(sub...)
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		var names, below []string
		for _, c := range cmd.Commands() {
			names = append(names, c.Name())
			if sub, _, err := c.Find(args); !cmd.HasParent() && err == nil && sub != c {
				below = append(below, "`"+sub.CommandPath()+"`")
			}
		}
		cmd.SuggestionsMinimumDistance = 2
		near := append(cmd.SuggestionsFor(args[0]), "")
		if name := configfile.Nearest(args[0], names); name != "" {
			near[0] = name
		}
		what := "there is no command `" + cmd.CommandPath() + " " + args[0] + "`"
		switch {
		case len(below) > 0:
			return Usage("%s; did you mean %s?", what, strings.Join(below, " or "))
		case near[0] != "":
			return Usage("%s; did you mean %s?", what, near[0])
		}
		return Usage("%s; there are %s", what, strings.Join(names, ", "))
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	return cmd
}

// Topic is a part of the help that no command is: `help NAME` shows it.
func Topic(name, short, text string) *cobra.Command {
	return &cobra.Command{Use: name, Short: short, Long: text}
}

// helpWidth is how wide the lines of flags are.
const helpWidth = 100

// explain sets the look of a program's help, and the error about flags that it does not have.
func explain(root *cobra.Command) {
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), "Flags.FlagUsages |",
		fmt.Sprintf("Flags.FlagUsagesWrapped %d |", helpWidth)) + aboutTwins)
	root.SetFlagErrorFunc(flagError)
	// Hidden flags are seldom needed: only --help-all shows them. They are completed and suggested
	// like the others.
	all, show, seldom := false, root.HelpFunc(), map[*cobra.Command][]*bool{}
	every(root, func(cmd *cobra.Command) {
		cmd.InitDefaultHelpFlag()
		note := func(hidden *bool) {
			if *hidden {
				*hidden, seldom[cmd] = false, append(seldom[cmd], hidden)
			}
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) { note(&f.Hidden) })
		for _, sub := range cmd.Commands() {
			note(&sub.Hidden)
		}
		cmd.Flags().BoolFunc(helpAll, "help with what is seldom needed, too", func(string) error {
			all = true
			return cmd.Flags().Set("help", "true")
		})
		cmd.Flags().Lookup(helpAll).Hidden = len(seldom[cmd]) == 0
	})
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		for _, hidden := range seldom[cmd] {
			*hidden = !all
		}
		show(cmd, args)
	})
}

// every calls f with the command and all commands below it.
func every(cmd *cobra.Command, f func(*cobra.Command)) {
	f(cmd)
	for _, sub := range cmd.Commands() {
		every(sub, f)
	}
}

const helpAll = "help-all"

// Seldom shows flags of the command only with --help-all.
func Seldom(cmd *cobra.Command, flags ...string) {
	for _, name := range flags {
		cmd.Flags().Lookup(name).Hidden = true
	}
}

// SeldomBut shows all flags of the command but these only with --help-all.
func SeldomBut(cmd *cobra.Command, flags ...string) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) { f.Hidden = !slices.Contains(flags, f.Name) })
}

// flagError adds to the error about an unknown flag the one that was probably meant.
func flagError(cmd *cobra.Command, err error) error {
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return err
	}
	name := unknown.GetSpecifiedName()
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	if near := configfile.Nearest(name, names); near != "" {
		return fmt.Errorf("%w; did you mean --%s?", err, near)
	}
	if of := havingFlag(cmd, name); of != "" {
		return fmt.Errorf("%w; it belongs to: %s --%s", err, of, name)
	}
	return err
}

// havingFlag is a command below, or else another command of the program, with a flag of that name.
func havingFlag(cmd *cobra.Command, name string) (path string) {
	found := map[string]bool{}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if f := c.LocalNonPersistentFlags().Lookup(name); !c.Hidden && f != nil && !f.Hidden {
			found[c.CommandPath()] = true
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(cmd.Root())
	run := cmd.Root().Name() + " run"
	if found[run] {
		return run
	}
	for _, path := range slices.Sorted(maps.Keys(found)) {
		return path
	}
	return ""
}
