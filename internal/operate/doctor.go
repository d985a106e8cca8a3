package operate

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/queuepump/queuepump/internal/cli"
	"github.com/queuepump/queuepump/internal/configfile"
	"github.com/queuepump/queuepump/pump/doctor"
)

// doctorFlags are the flags of `doctor`.
type doctorFlags struct {
	config, out   string
	json, results bool
}

// doctorCommand is the command `doctor` of either binary.
func doctorCommand() *cobra.Command {
	var f doctorFlags
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Find what is wrong with configuration, accounts and processes",
		Long: `Find what is wrong, from this machine: the configuration, and whether it is what the
workload was made with; the credentials and rights of each account, tried on a queue
and a row of the command's own, which it removes, and on a blob if results are kept;
this machine's clock against the accounts'; what the names of the accounts resolve to;
the admin ports of the other processes; budgets that are cut; processors that are more
than the queues; segments without an owner; messages in queues of no map; a quarantine
that grows; ledgers that are half full; processes of different versions; and with --out
the room on a disk.

It looks twice, a beat apart, so it takes some 6 s; where an account does not answer
10 s at most. It prints nothing on standard output if nothing is wrong. Each finding
says what is wrong, how bad that is, and the command that mends it, or shows where to.

Exit status:
  0    nothing is wrong, or there are warnings only
  1    there is an error
  2    the command line is wrong
  130  ended by SIGINT, 143 by SIGTERM`,
		Example: `  distributor doctor --config pump.yaml
  processor doctor --config pump.yaml --out /data/results.jsonl
  distributor doctor --config pump.yaml --json | jq -r '.findings[].check'`,
		Args: cli.NoArguments(nil),
		RunE: cli.Command(f.run),
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	cli.ConfigFlag(cmd, &f.config)
	flags.StringVar(&f.out, "out", "",
		"look at the disk of this `PATH` too, as of processor run --out")
	flags.BoolVar(&f.results, "results", false,
		"try blobs before the first results are kept, as of processor run --results")
	flags.BoolVar(&f.json, "json", false, "print a JSON object")
	return cmd
}

func (f *doctorFlags) run(cmd *cobra.Command) error {
	path, _ := configfile.Path(f.config)
	o := doctor.Options{Out: f.out, Config: path, Results: f.results}
	var report *doctor.Report
	file, err := configfile.Load(f.config)
	if err == nil {
		o.Locate = file.Locate
		report = doctor.Check(cmd.Context(), file.Config, o)
	} else {
		report = doctor.Wrong(each(err), o)
	}
	if interrupted := cli.WasInterrupted(cmd.Context()); interrupted != nil {
		return interrupted
	}
	if f.json {
		err = cli.PlainJSON(cmd.OutOrStdout(), report)
	} else {
		err = printReport(cmd.OutOrStdout(), cmd.ErrOrStderr(), report)
	}
	if err == nil && report.Failed() {
		err = cli.Reported(errors.New("an error was found"))
	}
	return err
}

// each takes the mistakes of a file apart.
func each(err error) (all []error) {
	list, ok := errors.AsType[configfile.Errors](err)
	if !ok {
		return []error{err}
	}
	for _, e := range list {
		all = append(all, e)
	}
	return all
}

// printReport prints the findings for people; without a finding it says so on standard error.
func printReport(out, log io.Writer, r *doctor.Report) error {
	if len(r.Findings) == 0 {
		_, err := fmt.Fprintf(log, "nothing is wrong with %s and %s, as far as can be seen from here\n",
			cli.Plural(int64(len(r.Accounts)), "account"), processes(r.Processes))
		return err
	}
	var b bytes.Buffer
	for _, f := range r.Findings {
		about := f.Check
		if f.Subject != "" {
			about += " " + cli.Plain(f.Subject)
		}
		fmt.Fprintf(&b, "%s: %s: %s\n", f.Severity, about, cli.Plain(f.Problem))
		if f.Fix != "" {
			fmt.Fprintf(&b, "    fix: %s\n", cli.Plain(f.Fix))
		}
	}
	_, err := out.Write(b.Bytes())
	return err
}

func processes(n int) string {
	if n == 1 {
		return "1 process"
	}
	return humanize.Comma(int64(n)) + " processes"
}
