package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/queuepump/queuepump/internal/cli"
	"github.com/queuepump/queuepump/loadtest/report"
)

// reportFlags are the flags of `loadtest report`.
type reportFlags struct {
	json bool
}

func reportCommand() *cobra.Command {
	var f reportFlags
	cmd := &cobra.Command{
		Use:   "report FILE [FILE]",
		Short: "Show a saved load test, or compare two",
		Long: `Show a load test that "loadtest run" saved, as text or as JSON. A page with plots of it
is written by a command of its own, in the folder of the source: go run ./loadtest/plot FILE

Of two files of one scenario the second is compared with the first, figure by figure;
settings that are not the same are listed.

` + cli.ExitCodes,
		Example: `  loadtest report out/loadtest-saturate-20260102-150405.json

  # before and after a change
  loadtest report before.json after.json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > 2 {
				return cli.Usage("give one saved report, or two to compare them, not %d\nusage: %s", len(args), cmd.UseLine())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return cli.Command(func(cmd *cobra.Command) error { return f.run(cmd.OutOrStdout(), args) })(cmd, nil)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.BoolVar(&f.json, "json", false, "print a JSON object instead")
	return cmd
}

// rendered is a result or a comparison.
type rendered interface {
	Text(io.Writer) error
}

func (f *reportFlags) run(out io.Writer, paths []string) error {
	var results []*report.Result
	for _, path := range paths {
		r, err := report.ReadFile(path)
		if err != nil {
			return cli.Usage("%w", err)
		}
		results = append(results, r)
	}
	var shown rendered = results[0]
	if len(results) == 2 {
		c, err := report.Compare(results[0], results[1])
		if err != nil {
			return cli.Usage("%s and %s cannot be compared: %w", paths[0], paths[1], err)
		}
		shown = c
	}
	if f.json {
		return cli.JSON(out, shown)
	}
	return shown.Text(out)
}
