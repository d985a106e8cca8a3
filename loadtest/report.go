package main

import (
	"bytes"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/queuepump/queuepump/internal/cli"
	"github.com/queuepump/queuepump/loadtest/report"
)

// reportFlags are the flags of `loadtest report`.
type reportFlags struct {
	html string
	json bool
}

func reportCommand() *cobra.Command {
	var f reportFlags
	cmd := &cobra.Command{
		Use:   "report FILE [FILE]",
		Short: "Show a saved load test, or compare two",
		Long: `Show a load test that "loadtest run" saved: as text, as JSON, or as a page with plots
that needs nothing but itself, to be mailed or attached as it is.

Of two files of one scenario the second is compared with the first, figure by figure;
settings that are not the same are listed.

` + cli.ExitCodes,
		Example: `  loadtest report out/loadtest-saturate-20260102-150405.json
  loadtest report out/loadtest-ramp-20260102-150405.json --html ramp.html

  # before and after a change
  loadtest report before.json after.json
  loadtest report before.json after.json --html compared.html`,
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
	flags.StringVar(&f.html, "html", "", "write a page to `FILE` instead")
	flags.BoolVar(&f.json, "json", false, "print a JSON object instead")
	return cmd
}

// rendered is a result or a comparison.
type rendered interface {
	Text(io.Writer) error
	HTML(io.Writer) error
}

func (f *reportFlags) run(out io.Writer, paths []string) error {
	if f.html != "" && f.json {
		return cli.Usage("--html and --json exclude each other")
	}
	var results []*report.Result
	for _, path := range paths {
		r, err := readResult(path)
		if err != nil {
			return err
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
	switch {
	case f.json:
		return cli.JSON(out, shown)
	case f.html == "":
		return shown.Text(out)
	}
	var page bytes.Buffer
	if err := shown.HTML(&page); err != nil {
		return err
	}
	if err := writeFile(f.html, page.Bytes(), 0o644); err != nil {
		return fmt.Errorf("--html: %w", err)
	}
	fmt.Fprintf(out, "%s is written\n", f.html)
	return nil
}

// readResult reads a saved report; one that cannot be read is a mistake of the command line.
func readResult(path string) (*report.Result, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, cli.Usage("%w", err)
	}
	defer file.Close()
	r, err := report.Read(file)
	if err != nil {
		return nil, cli.Usage("%s: %w", path, err)
	}
	return r, nil
}
