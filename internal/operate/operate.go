package operate

import (
	"context"
	"errors"
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/queuepump/queuepump/internal/cli"
	"github.com/queuepump/queuepump/internal/configfile"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/runs"
)

// operation is what all commands that look at a workload or change it share.
type operation struct {
	config string
	json   bool

	file    *configfile.File
	cfg     pump.Config
	trouble *trouble
}

func (o *operation) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SortFlags = false
	cli.ConfigFlag(cmd, &o.config)
	flags.BoolVar(&o.json, "json", false, "print a JSON object")
}

// run makes an action of the command: it reads the configuration, and errors name their place in
// it.
func (o *operation) run(
	f func(cmd *cobra.Command, args []string) error,
) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		return cli.Command(func(cmd *cobra.Command) error {
			var err error
			if o.file, err = configfile.Load(o.config); err != nil {
				return err
			}
			o.config, _ = configfile.Path(o.config)
			o.cfg = o.file.Config
			o.cfg.Log = slog.New(slog.DiscardHandler) // commands print what they have to say
			o.trouble = &trouble{}
			o.trouble.watch(&o.cfg)
			ctx, hopeless := o.trouble.endHopeless(cmd.Context())
			cmd.SetContext(ctx)
			err = f(cmd, args)
			if cause := hopeless(); cause != nil && err != nil {
				err = cause
			}
			err = cli.Explain(err, o.file)
			if interrupted := cli.WasInterrupted(cmd.Context()); interrupted != nil && err != nil {
				return errors.Join(interrupted, err)
			}
			return err
		})(cmd, nil)
	}
}

// tell prints what was done, as JSON or as a text.
func (o *operation) tell(out io.Writer, done any, text string) error {
	if o.json {
		return printJSON(out, done)
	}
	_, err := io.WriteString(out, text)
	return err
}

// reporting is an operation that says on standard error how far it is.
type reporting struct {
	operation
	flags   cli.ConsoleFlags
	console *cli.Console
}

func (r *reporting) run(
	f func(cmd *cobra.Command, args []string) error,
) func(*cobra.Command, []string) error {
	return r.operation.run(func(cmd *cobra.Command, args []string) (err error) {
		if r.console, err = r.flags.Console(); err != nil {
			return err
		}
		r.cfg.Log = r.console.Log
		return f(cmd, args)
	})
}

// findRun finds the run that an argument (RUN) or a flag (--run) means.
func findRun(ctx context.Context, cfg pump.Config, name, text string) (pump.RunID, error) {
	id, err := runs.Find(ctx, cfg, text)
	if ce, ok := errors.AsType[*pump.ConfigError](err); ok && ce.Field == "run" {
		return id, cli.Usage("%s: %s; %s", name, ce.Problem, ce.Fix)
	}
	return id, err
}

// callCommand is a command that makes one call and prints the outcome, as JSON or as a text.
func callCommand[C any](
	use, short, long, example string, arguments cobra.PositionalArgs,
	call func(*cobra.Command, pump.Config, []string) (C, error), text func(C) string,
) *cobra.Command {
	var o operation
	cmd := &cobra.Command{
		Use: use, Short: short, Long: long, Example: example, Args: arguments,
		RunE: o.run(func(cmd *cobra.Command, args []string) error {
			c, err := call(cmd, o.cfg, args)
			if err != nil {
				return err
			}
			return o.tell(cmd.OutOrStdout(), c, text(c)+"\n")
		}),
	}
	o.add(cmd)
	return cmd
}
