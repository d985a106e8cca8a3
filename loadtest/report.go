package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/queuepump/queuepump/internal/cli"
	"github.com/queuepump/queuepump/loadtest/report"
	"github.com/queuepump/queuepump/loadtest/simserver"
)

// reportFlags are the flags of `loadtest report`.
type reportFlags struct {
	json, html bool
	to         string
}

func reportCommand() *cobra.Command {
	var f reportFlags
	cmd := &cobra.Command{
		Use:   "report FILE [FILE]",
		Short: "Show a saved load test, or compare two",
		Long: `Show a load test that "loadtest run" saved, as text or as JSON, or write it as a page
with plots. The page is one file that needs no other, so it can be mailed as it is. It is written
beside the saved report, or where --to says.

Of two files of one scenario the second is compared with the first, figure by figure:
better, worse, or within noise. Settings that are not the same are listed. A side may be
several files with commas between them, the runs of one test that was repeated. With four
or more on each side, noise is how far the runs are apart; with fewer, how far parts of a run are.

` + cli.ExitCodes,
		Example: `  loadtest report out/loadtest-saturate-20260102-150405.json

  # before and after a change
  loadtest report before.json after.json

  # as pages with plots
  loadtest report --html out/loadtest-ramp-20260102-150405.json
  loadtest report --html before.json after.json --to compared.html

  # four runs of each
  loadtest report b1.json,b2.json,b3.json,b4.json a1.json,a2.json,a3.json,a4.json`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) < 1 || len(args) > 2:
				return cli.Usage("give one saved report, or two to compare them, not %d\nusage: %s", len(args),
					cmd.UseLine())
			case f.html && f.json:
				return cli.Usage("a report is shown as JSON or written as a page: give --json or --html")
			case f.html && len(args) == 2 && f.to == "":
				return cli.Usage("a page of two reports needs --to FILE: where it goes")
			case f.to != "" && !f.html:
				return cli.Usage("--to says where a page goes: it needs --html")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return cli.Command(func(cmd *cobra.Command) error {
				return f.run(cmd.OutOrStdout(), args)
			})(cmd, nil)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.BoolVar(&f.json, "json", false, "print a JSON object instead")
	flags.BoolVar(&f.html, "html", false, "write a page with plots instead")
	flags.StringVar(&f.to, "to", "",
		"with --html, write the page to `FILE` (default: the report's name with .html)")
	return cmd
}

// rendered is a result or a comparison.
type rendered interface {
	Text(io.Writer) error
	HTML(io.Writer) error
}

func (f *reportFlags) run(out io.Writer, paths []string) error {
	sides, err := report.ReadSides(paths)
	if err != nil {
		return cli.Usage("%w", err)
	}
	var shown rendered = sides[0][0]
	if len(sides) == 2 {
		c, err := report.Compare(sides[0], sides[1])
		if err != nil {
			return cli.Usage("%s and %s cannot be compared: %w", paths[0], paths[1], err)
		}
		shown = c
	}
	switch {
	case f.json:
		return cli.PlainJSON(out, shown)
	case !f.html:
		return shown.Text(out)
	}
	to := cmp.Or(f.to, strings.TrimSuffix(paths[0], filepath.Ext(paths[0]))+".html")
	var page bytes.Buffer
	if err := shown.HTML(&page); err != nil {
		return err
	}
	if err := simserver.WriteFile(to, page.Bytes(), 0o644); err != nil {
		return err
	}
	fmt.Fprintf(out, "%s is written\n", to)
	return nil
}
