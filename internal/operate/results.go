package operate

import (
	"bufio"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/queuepump/queuepump/internal/cli"
	"github.com/queuepump/queuepump/pump/runs"
)

type resultsFlags struct {
	reporting
	options runs.ResultsOptions
	since   string
}

func resultsCommand() *cobra.Command {
	var f resultsFlags
	cmd := &cobra.Command{
		Use:   "results RUN",
		Short: "Print the results of a run that were kept in blobs",
		Long: `Print the results of a run that processors with --results have kept: a JSON line for each
task that is done, in no order; standard error says how many. With "delivery: once" each task has
one line, with at-least-once one that was done twice may have two, which --distinct leaves out.
Of a run that is not over, what is kept so far is printed. A missing or damaged object is named,
the others are printed, and the status is 1. An interrupted command says where --from goes on.`,
		Example: `  distributor results 0123456789ab --config pump.yaml > all.jsonl`,
		Args:    cli.OneArgument,
		RunE:    f.run(func(cmd *cobra.Command, args []string) error { return f.print(cmd, args[0]) }),
	}
	f.add(cmd)
	f.flags.Add(cmd, 10*time.Second)
	flags := cmd.Flags()
	flags.Lookup("json").Usage = "say at the end what was read as a JSON object"
	flags.StringVar(&f.since, "since", "", "only results kept since a `TIME`, or for so long: 2h")
	flags.BoolVar(&f.options.Distinct, "distinct", false, "one line a task in at-least-once, too")
	flags.StringVar(&f.options.From, "from", "", "go on at the `PLACE` that was printed")
	return cmd
}

func (f *resultsFlags) print(cmd *cobra.Command, id string) error {
	var err error
	if f.options.Since, err = when("since", f.since, time.Now()); err != nil {
		return err
	}
	run, err := findRun(cmd.Context(), f.cfg, "RUN", id)
	if err != nil {
		return err
	}
	f.options.Progress = func(r runs.ResultsRead) {
		f.console.Progress(int64(r.Results), 0, r.String(), "results", r.Results, "bytes", r.Bytes)
	}
	out := bufio.NewWriterSize(cmd.OutOrStdout(), 1<<16)
	read, err := runs.Results(cmd.Context(), f.cfg, run, f.options, func(line []byte) error {
		_, err := out.Write(line)
		return err
	})
	f.console.Done()
	if e := out.Flush(); e != nil { // else the same may be in err
		read.Place, err = "", e
	}
	if read.State == "" {
		return err
	}
	if f.json {
		return errors.Join(err, printJSON(cmd.ErrOrStderr(), read))
	}
	cmd.PrintErrln(read.String())
	return err
}
