package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/queuepump/queuepump/internal/cli"
	"github.com/queuepump/queuepump/loadtest/realaccounts"
)

// azureFlags are the flags of `loadtest azure`.
type azureFlags struct {
	options realaccounts.Options
	skip    []string
	out     string
	console cli.ConsoleFlags
}

func azureCommand() *cobra.Command {
	var f azureFlags
	cmd := &cobra.Command{
		Use:   "azure",
		Short: "Try the pump on real accounts and say what differs from the simulator",
		Long: `Try the pump on storage accounts of Azure, which environment variables name, and say
what differs from the simulator. Before it begins it prints the accounts, the names
of all that it makes, the most requests it makes and what they cost. Without the
variables it says what to set and does nothing.

Its parts:
  conformance  the suite that every driver and server of this project passes
  rules        what the simulator does by inference or from memory, asked of the account
  limits       the rules that need the published limit of a queue to be reached
  figures      what a put, a get and a delete take
  pump         the whole pump by the real binaries, beside what "distributor plan" estimates
  kill         the same with delivery once, a processor and a distributor killed with kill -9

Each request counts against --requests, those of the binaries too, and none is made
beyond it. What it makes has names that begin with "qpaz" and the time. It is removed
at the end, also after Ctrl-C; what a run that was killed has left is removed by a later
one, once it is as old as --older.

The report is written to report.md and report.json in the --out directory. No credential
is in it. The status is 0 if nothing differs, 1 if something does or has failed. A rule
that could not be decided is no difference; the report says why it was not.

` + cli.ExitCodes,
		Example: `  # an account to try, by its connection string
  export QUEUEPUMP_AZURE_1='DefaultEndpointsProtocol=https;AccountName=...;AccountKey=...'
  loadtest azure --dry-run
  loadtest azure
  loadtest azure --skip limits,kill --requests 20000`,
		Args: cobra.NoArgs,
		RunE: cli.Command(f.run),
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	o := &f.options
	flags.BoolVar(&o.DryRun, "dry-run", false, "only say what would be done")
	flags.Int64Var(&o.Requests, "requests", realaccounts.DefaultRequests(),
		"the most requests, of all processes and with the removing")
	flags.StringSliceVar(&f.skip, "skip", nil,
		"`PARTS` to leave out, of "+strings.Join(realaccounts.Parts, ","))
	flags.IntVar(&o.Tasks, "tasks", 3000, "tasks of each of the two runs of the pump")
	flags.DurationVar(&o.Older, "older", realaccounts.DefaultOlder,
		"remove what other runs have left if they began so long ago")
	flags.StringVar(&f.out, "out", filepath.Join("out", "azure"),
		"the `DIR` for the report and what the binaries write")
	flags.StringVar(&o.Distributor, "distributor", sibling("distributor"),
		"the distributor's `BINARY`")
	flags.StringVar(&o.Processor, "processor", sibling("processor"), "the processor's `BINARY`")
	f.console.Add(cmd, 5*time.Second)
	return cmd
}

func (f *azureFlags) run(cmd *cobra.Command) error {
	o := &f.options
	accounts, err := realaccounts.FromEnvironment(os.Getenv)
	if errors.Is(err, realaccounts.ErrNotConfigured) {
		// As it is: what stands in an error is taken for one that may hold a secret.
		fmt.Fprintf(cmd.ErrOrStderr(), "%v\n", err)
		return cli.Reported(cli.Usage("%w", err))
	}
	if err != nil {
		return cli.Usage("%w", err)
	}
	o.Accounts = accounts
	if o.Parts, err = f.parts(); err != nil {
		return err
	}
	if o.Tasks < 100 || o.Tasks > 1_000_000 {
		return cli.Usage("--tasks: %d is out of range; use 100 to 1000000", o.Tasks)
	}
	if least := realaccounts.LeastRequests; o.Requests < least {
		return cli.Usage("--requests: %d are too few; use %d or more", o.Requests, least)
	}
	console, err := f.console.Console()
	if err != nil {
		return err
	}
	o.Log, o.Out, o.Dir = console.Log, cmd.OutOrStdout(), f.out
	report, err := realaccounts.Run(cmd.Context(), *o)
	if report == nil {
		return err
	}
	return errors.Join(f.write(cmd.OutOrStdout(), report), cli.WasInterrupted(cmd.Context()),
		report.Verdict())
}

// parts are those that were not left out.
func (f *azureFlags) parts() ([]string, error) {
	for _, part := range f.skip {
		if !slices.Contains(realaccounts.Parts, part) {
			return nil, cli.Usage("--skip: %q is no part; use some of %s", part,
				strings.Join(realaccounts.Parts, ","))
		}
	}
	parts := slices.DeleteFunc(slices.Clone(realaccounts.Parts), func(part string) bool {
		return slices.Contains(f.skip, part)
	})
	if len(parts) == 0 {
		return nil, cli.Usage("--skip leaves out every part")
	}
	return parts, nil
}

// write writes the report, and says where it is.
func (f *azureFlags) write(out io.Writer, report *realaccounts.Report) error {
	text, err := report.JSON()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(f.out, 0o755); err != nil {
		return err
	}
	path := filepath.Join(f.out, "report.md")
	err = errors.Join(
		writeFile(path, report.Markdown(), 0o644),
		writeFile(filepath.Join(f.out, "report.json"), text, 0o644),
	)
	if err == nil {
		fmt.Fprintf(out, "%s\nthe report is in %s\n", report.Summary(), path)
	}
	return err
}
