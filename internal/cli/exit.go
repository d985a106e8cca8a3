package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/queuepump/queuepump/internal/admin"
	"github.com/queuepump/queuepump/internal/configfile"
	"github.com/queuepump/queuepump/internal/logs"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/source"
	"github.com/queuepump/queuepump/pump/storage"
)

// The parts of a command's help that say how it ends: ExitCodes of any command, WaitExitCodes of
// one that may wait until a run's tasks are done, DeleteExitCodes of one that deletes step by step.
const (
	ExitCodes       = exitHead + exitTail
	WaitExitCodes   = exitHead + exitWait + exitTail
	DeleteExitCodes = exitHead + exitDelete + exitTail

	exitHead = `Exit status:
  0    done, or stopped by a signal where that is the way to stop
  1    failed
  2    the command line or the configuration is wrong; nothing was done
`
	exitWait = `  3    waited: every task is done or in quarantine, and some are in quarantine
  4    waited: stuck, tasks are missing; distributor runs repair puts them again
  6    waited: the time for it was over before the run was
`
	exitDelete = `  5    stopped half-way; the same command continues
`
	exitTail = `  130  ended by SIGINT, 143 by SIGTERM, before the work was complete
The first signal stops gracefully, a second one at once.`
)

const (
	exitFailure = 1
	exitUsage   = 2
	// ExitQuarantined and ExitStuck say how an awaited run ended.
	ExitQuarantined = 3
	ExitStuck       = 4
	// ExitHalfway: an irreversible change was begun and not completed; the same command goes on with
	// it.
	ExitHalfway = 5
	// ExitNotOver: the awaited run was not over in time.
	ExitNotOver = 6
)

// Status is an outcome of a command with its own exit status.
type Status struct {
	Code int
	Err  error
}

func (e *Status) Error() string { return e.Err.Error() }
func (e *Status) Unwrap() error { return e.Err }

// UsageError is a mistake in the command line.
type UsageError struct{ Err error }

func (e *UsageError) Error() string { return e.Err.Error() }
func (e *UsageError) Unwrap() error { return e.Err }

// Usage makes a UsageError.
func Usage(format string, args ...any) error {
	return &UsageError{fmt.Errorf(format, args...)}
}

// failure is an error of a command that was begun; what cobra finds before that is a mistake of
// usage.
type failure struct{ err error }

func (e *failure) Error() string { return e.err.Error() }
func (e *failure) Unwrap() error { return e.err }

// Reported makes an error that the log has already: it decides the exit status and is not printed
// again.
func Reported(err error) error { return &reported{err} }

type reported struct{ err error }

func (e *reported) Error() string { return e.err.Error() }
func (e *reported) Unwrap() error { return e.err }

// Command makes f the action of a command.
func Command(f func(cmd *cobra.Command) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		if err := f(cmd); err != nil {
			return &failure{err}
		}
		return nil
	}
}

// OneArgument is the Args of a command with one argument, which the last word of its Use names.
func OneArgument(cmd *cobra.Command, args []string) error {
	name := cmd.Use[strings.LastIndexByte(cmd.Use, ' ')+1:]
	switch len(args) {
	case 0:
		return Usage("%s is missing\nusage: %s", name, cmd.UseLine())
	case 1:
		return nil
	}
	return Usage("there is one %s, not %d\nusage: %s", name, len(args), cmd.UseLine())
}

// Run runs the program in this process, for tests, and gives its exit status and what it said of an
// error. What it prints goes to out.
func Run(ctx context.Context, root *cobra.Command, args []string, out io.Writer) (int, string) {
	var b strings.Builder
	prepare(root)
	root.SetArgs(args)
	root.SetOut(out)
	cmd, err := root.ExecuteContextC(ctx)
	if err != nil {
		report(&b, root, cmd, err)
	}
	return exitCode(err), b.String()
}

func prepare(root *cobra.Command) {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.Version = version(root)
	root.SetVersionTemplate("{{.Version}}\n")
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	if shells, _, err := root.Find([]string{"completion"}); err == nil {
		Group(shells) // it would show its help for a shell that it does not know
	}
	root.PersistentPreRunE = fromTwins
	explain(Group(root))
}

func report(w io.Writer, root, cmd *cobra.Command, err error) {
	if _, ok := errors.AsType[*reported](err); ok {
		return
	}
	// What was typed may also be a secret in the wrong place.
	lines := strings.Split(logs.Cleaned(err.Error()), "\n")
	lines = append(lines, twinsIn(cmd, err.Error())...)
	lines = append(lines, storage.Fix(err))
	if _, ok := errors.AsType[*failure](err); !ok {
		lines = append(lines, "see `"+cmd.CommandPath()+" --help`")
	}
	for _, line := range lines {
		if line = strings.TrimSpace(line); line != "" {
			fmt.Fprintf(w, "%s: %s\n", root.Name(), line)
		}
	}
}

func exitCode(err error) int {
	if err == nil {
		return 0
	}
	if i, ok := errors.AsType[*Interrupted](err); ok {
		return 128 + int(i.Signal)
	}
	if _, ok := errors.AsType[*failure](err); !ok {
		return exitUsage
	}
	if s, ok := errors.AsType[*Status](err); ok {
		return s.Code
	}
	_, usage := errors.AsType[*UsageError](err)
	_, file := errors.AsType[configfile.Errors](err)
	_, pinned := errors.AsType[*pump.MismatchError](err)
	_, address := errors.AsType[*admin.AddressError](err)
	if usage || file || pinned || address {
		return exitUsage
	}
	return exitFailure
}

// IsMistake reports whether err is a mistake in the command line or the configuration, after which
// nothing was done.
func IsMistake(err error) bool { return err != nil && exitCode(&failure{err}) == exitUsage }

// Explain adds to an error of the engine the place of its cause: a line of the configuration file,
// or a flag.
func Explain(err error, f *configfile.File) error {
	ce, ok := errors.AsType[*pump.ConfigError](err)
	if _, asked := errors.AsType[*storage.Error](err); asked && !ok && f.Found() != "" {
		return fmt.Errorf("%w\nthe configuration in use is %s", err, f.Found())
	}
	if _, bad := errors.AsType[*source.BadInput](err); bad {
		return fmt.Errorf("%w\n--on-bad-line skip leaves such lines out, quarantine puts them aside", err)
	}
	if !ok {
		return err
	}
	if f != nil && configfile.Has(ce.Field) {
		return f.Locate(err)
	}
	return Usage("--%s: %s; %s", strings.ReplaceAll(ce.Field, ".", "-"), ce.Problem, ce.Fix)
}

// Interrupted says that a signal ended a command before it was complete.
type Interrupted struct{ Signal syscall.Signal }

func (e *Interrupted) Error() string { return "ended by " + e.Signal.String() }

// NotEmpty refuses flags that were given without a text, such as by a script whose variable is not
// set.
func NotEmpty(cmd *cobra.Command, flags ...string) error {
	for _, f := range flags {
		if flag := cmd.Flags().Lookup(f); flag.Changed && flag.Value.String() == "" {
			return Usage("--%s is empty; give it a text, or leave it out", f)
		}
	}
	return nil
}

// Belong refuses flags that have no effect without another one. Given says whether that one is
// there.
func Belong(cmd *cobra.Command, to string, given bool, flags ...string) error {
	for _, f := range flags {
		if !given && cmd.Flags().Changed(f) {
			return Usage("--%s belongs to %s, and has no effect without it", f, to)
		}
	}
	return nil
}
