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

// NoArguments is the Args of a command that takes none. Meant says how a word was probably meant;
// it may be nil.
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

// Group makes a command out of others. Alone it shows its help; a word that is none of the others
// is refused.
func Group(cmd *cobra.Command, sub ...*cobra.Command) *cobra.Command {
	cmd.AddCommand(sub...)
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		cmd.SuggestionsMinimumDistance = 2
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			return Usage("%s has no command %q; did you mean %s?", cmd.CommandPath(), args[0], near[0])
		}
		var names []string
		for _, c := range cmd.Commands() {
			names = append(names, c.Name())
		}
		return Usage("%s has no command %q; it has %s", cmd.CommandPath(), args[0],
			strings.Join(names, ", "))
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

// explain sets what the help of a program looks like, and what is said of flags that it does not
// have.
func explain(root *cobra.Command) {
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), "Flags.FlagUsages |",
		fmt.Sprintf("Flags.FlagUsagesWrapped %d |", helpWidth)) + aboutTwins)
	root.SetFlagErrorFunc(flagError)
	all, show := false, root.HelpFunc()
	every(root, func(cmd *cobra.Command) {
		cmd.InitDefaultHelpFlag()
		cmd.Flags().BoolFunc(helpAll, "help with what is seldom needed, too", func(string) error {
			all = true
			return cmd.Flags().Set("help", "true")
		})
		cmd.Flags().Lookup(helpAll).Hidden = true // unless there is more to see
		seldom(cmd, func(*bool) { cmd.Flags().Lookup(helpAll).Hidden = false })
	})
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		seldom(cmd, func(hidden *bool) { *hidden = !all })
		show(cmd, args)
	})
}

// every calls f with the command and all below it.
func every(cmd *cobra.Command, f func(*cobra.Command)) {
	f(cmd)
	for _, sub := range cmd.Commands() {
		every(sub, f)
	}
}

// What is seldom needed is in the help with --help-all only. It is an annotation, by helpAll: what
// is hidden in cobra's own way is neither completed nor suggested.
const helpAll = "help-all"

// SeldomCommand marks a command as seldom needed.
func SeldomCommand(cmd *cobra.Command) *cobra.Command {
	cmd.Annotations = map[string]string{helpAll: ""}
	return cmd
}

// Seldom marks flags of the command as seldom needed.
func Seldom(cmd *cobra.Command, flags ...string) {
	for _, name := range flags {
		if err := cmd.Flags().SetAnnotation(name, helpAll, nil); err != nil {
			panic(err) // there is no such flag
		}
	}
}

// SeldomBut marks all flags of the command but these as seldom needed.
func SeldomBut(cmd *cobra.Command, flags ...string) {
	cmd.Flags().VisitAll(func(flag *pflag.Flag) {
		if !slices.Contains(flags, flag.Name) {
			Seldom(cmd, flag.Name)
		}
	})
}

// seldom calls f with what hides each flag and command below cmd that is seldom needed.
func seldom(cmd *cobra.Command, f func(hidden *bool)) {
	cmd.Flags().VisitAll(func(flag *pflag.Flag) {
		if _, is := flag.Annotations[helpAll]; is {
			f(&flag.Hidden)
		}
	})
	for _, sub := range cmd.Commands() {
		if _, is := sub.Annotations[helpAll]; is {
			f(&sub.Hidden)
		}
	}
}

// flagError adds to the error of an unknown flag which one was probably meant.
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

// havingFlag is a command below, or else another one of the program, that has a flag of the name.
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
