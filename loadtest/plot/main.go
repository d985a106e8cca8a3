// Command plot writes a saved load test, or two compared, as a page with plots. It is a command of
// its own, so that loadtest is built without the plots, which take longer than all the rest.
package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/queuepump/queuepump/internal/cli"
	"github.com/queuepump/queuepump/loadtest/report"
	"github.com/queuepump/queuepump/loadtest/report/drawing"
)

func main() { cli.Main(command(), func() {}) }

func command() *cobra.Command {
	var to string
	cmd := &cobra.Command{
		Use:   "plot FILE [FILE]",
		Short: "Write a saved load test, or two compared, as a page with plots",
		Long: `Write a load test that "loadtest run" saved as a page with plots that needs nothing but
itself, to be mailed or attached as it is. It stands beside the saved report.

Of two files of one scenario the second is compared with the first; --to says where that goes.

` + cli.ExitCodes,
		Example: `  go run ./loadtest/plot out/loadtest-ramp-20260102-150405.json
  go run ./loadtest/plot before.json after.json --to compared.html`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) < 1 || len(args) > 2:
				return cli.Usage("give one saved report, or two to compare them, not %d\nusage: %s", len(args),
					cmd.UseLine())
			case len(args) == 2 && to == "":
				return cli.Usage("two reports need --to FILE: where their comparison goes")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return cli.Command(func(cmd *cobra.Command) error {
				return run(cmd.OutOrStdout(), args, to)
			})(cmd, nil)
		},
	}
	cmd.Flags().StringVar(&to, "to", "",
		"write the page to `FILE` (default: the report's name with .html)")
	return cmd
}

// run writes the page of one report, or of two compared.
func run(out io.Writer, paths []string, to string) error {
	page, err := draw(paths)
	if err != nil {
		return err
	}
	if to == "" {
		to = strings.TrimSuffix(paths[0], filepath.Ext(paths[0])) + ".html"
	}
	if err := os.WriteFile(to, page, 0o644); err != nil { //nolint:gosec // it is read by all
		return err
	}
	fmt.Fprintf(out, "%s is written\n", to)
	return nil
}

func draw(paths []string) ([]byte, error) {
	sides, err := report.ReadSides(paths)
	if err != nil {
		return nil, cli.Usage("%w", err)
	}
	var page bytes.Buffer
	if len(sides) == 1 {
		err := sides[0][0].HTML(&page, drawing.Element)
		return page.Bytes(), err
	}
	c, err := report.Compare(sides[0], sides[1])
	if err != nil {
		return nil, cli.Usage("%s and %s cannot be compared: %w", paths[0], paths[1], err)
	}
	err = c.HTML(&page, drawing.Element)
	return page.Bytes(), err
}
