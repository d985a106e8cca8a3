package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"syscall"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/queuepump/queuepump/internal/cli"
	"github.com/queuepump/queuepump/internal/configfile"
	"github.com/queuepump/queuepump/internal/handlers"
	"github.com/queuepump/queuepump/internal/operate"
	"github.com/queuepump/queuepump/internal/service"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/processor"
)

// runFlags are the flags of `processor run`.
type runFlags struct {
	around  operate.Surrounding
	json    bool
	console cli.ConsoleFlags
	work    workFlags
	options processor.Options
}

func run() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Take tasks and do them, until a signal or until there are none",
		Long: `Take tasks and do them, until a signal or, with --until-idle, until there are
none. Exactly one of --exec, --exec-each, --http, --out, --count-by and --discard
says what is done with a task; --out beside one of the first three keeps their results.
How a command or an endpoint is asked: processor help exec, http, out, count.

On the first signal the processor takes no more tasks, lets those that run finish for
--grace, puts back what was not started, and ends with status 0; with --until-idle with
130 or 143. --until-idle does not wait for tasks that come back after that time: make it
longer than --retry-max if it is to wait for every retry.
An endpoint that answers 429 or 503 and a child that is busy say "not now": that takes no
attempt, the task comes back within --retry-max, and fewer tasks are started until it is over.

With --gate the processor waits until an operator opens it ("distributor gate open NAME"). With
--min-interval a key is handled at most once in so long: other tasks of it are settled
without being handled and counted as skipped. Exit status: processor --help.`,
		Example: `  # write every task to a file, and leave when there are no more
  processor run --config pump.yaml --out done.jsonl --until-idle 5s

  # four long-lived workers, their results kept
  processor run --config pump.yaml --exec 'python3 worker.py' --children 4 --out results.jsonl

  # a process for each task, with a shell
  processor run --config pump.yaml \
      --exec-each 'sh -c "convert - jpg:- | upload \"$QUEUEPUMP_TASK_ID\""'

  # an HTTP endpoint with a token from the environment
  processor run --config pump.yaml --http https://worker.internal/task \
      --http-header 'Authorization: Bearer ${TOKEN}'

  # sums by city, each task exactly once if the configuration says "delivery: once"
  processor run --config pump.yaml --count-by city --sum amount --until-idle 5s

  # started now, at work when the gate is opened; no city more often than every eight hours
  processor run --config pump.yaml --exec ./fetch-city --gate morning --min-interval 8h

  # metrics for Prometheus on a port of the machine
  processor run --config pump.yaml --exec ./worker --admin :9090`,
		Args: cli.NoArguments(func(word string) string { return "--exec " + word }),
		RunE: cli.Command(f.run),
	}
	f.add(cmd)
	return cmd
}

func (f *runFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SortFlags = false
	cli.ConfigFlag(cmd, &f.around.Config)
	cli.TakesHangup(cmd)
	f.work.add(cmd)
	flags.DurationVar(&f.options.UntilIdle, "until-idle", 0,
		"leave after this long without a task (default: run until a signal)")
	flags.IntVar(&f.options.Concurrency, "concurrency", 0,
		"how many tasks are in work at once (default 256; with a command as many as "+
			"--children, with --out 64 or more)")
	flags.DurationVar(&f.options.Visibility, "visibility", 0,
		"for how long a taken message stays hidden unless renewed (default: it "+
			"follows how long messages take)")
	flags.DurationVar(&f.options.Grace, "grace", 30*time.Second,
		"how long running tasks may go on when the processor stops")
	flags.IntVar(&f.options.Retry.MaxAttempts, "max-attempts", 0,
		"how often a task is tried before it is quarantined; -1 for no limit (default 8)")
	flags.DurationVar(&f.options.Retry.MaxAge, "max-age", 0,
		"quarantine a task that fails when its message is older than that (default: no limit)")
	flags.DurationVar(&f.options.Retry.MaxBusy, "max-busy", 0,
		"quarantine a task still told \"not now\" this long after the first time (default 24h0m0s)")
	flags.DurationVar(&f.options.Retry.Base, "retry-base", 0,
		"the longest delay before the second attempt; it doubles with each (default: it "+
			"follows how long tasks take)")
	flags.DurationVar(&f.options.Retry.Max, "retry-max", 0,
		"the longest delay before any attempt (default 10m0s)")
	flags.BoolVar(&f.options.Make, "make-workload", false,
		"make the workload and its queues if no distributor has, for tasks of other programs alone")
	flags.StringVar(&f.options.Gate, "gate", "",
		"wait at the gate `NAME` before the first task is taken")
	flags.DurationVar(&f.options.MinInterval, "min-interval", 0,
		"handle a key at most once in this time (default: no limit)")
	flags.Float64Var(&f.options.MaxRate, "max-rate", 0,
		"start at most this many tasks a second, all processors together; the same "+
			"in all (default: no limit)")
	flags.IntVar(&f.options.PerKey.Concurrent, "per-key-concurrent", 0,
		"have at most this many tasks of a key in work at once (default: as configured)")
	flags.Func("per-key-rate", "start at most so many tasks of a key, `RATE` as 10/s or 90/m "+
		"(default: as configured)", f.options.PerKey.SetRate)
	flags.DurationVar(&f.options.Beat, "beat", 0,
		"how often the processor says that it lives; the same in all processes "+
			"of a workload (default 5s)")
	flags.DurationVar(&f.options.Lease, "lease", 0,
		"after how long without such a sign others take its segments over; the same in all "+
			"processes (default 4 x --beat)")
	flags.StringVar(&f.around.Admin, "admin", "",
		"where /readyz, /metrics and /debug/pprof/ are, `ADDR` as host:port, or off "+
			"(default: as configured, or a free port of loopback)")
	flags.BoolVar(&f.json, "json", false, "print the summary as a JSON object")
	f.console.Add(cmd, 5*time.Second)
	cli.Seldom(cmd, "keep-env", "out-patience", "visibility", "grace", "max-age", "max-busy",
		"retry-base", "make-workload", "beat", "lease")
}

func (f *runFlags) run(cmd *cobra.Command) error {
	if err := f.work.check(); err != nil {
		return err
	}
	if err := f.checkRanges(cmd); err != nil {
		return err
	}
	console, file, err := f.around.Load("processor", &f.console)
	if err != nil {
		return err
	}
	keyed := &f.options.PerKey
	keyed.Concurrent = cmp.Or(keyed.Concurrent, file.PerKey.Concurrent)
	keyed.Rate = cmp.Or(keyed.Rate, file.PerKey.Rate)
	if err := f.check(file); err != nil {
		return err
	}
	// Before --out is opened: after a mistake nothing is made.
	if err := f.around.Begin(f.options.Grace, handlers.KillChildren); err != nil {
		return err
	}
	f.limitMemory(cmd.Context(), console)
	ctx, end := console.Outlive(cmd.Context())
	defer end()
	// A handler that cannot work ends the run by a separate context, so that this end is told from a
	// signal.
	ctx, broken := context.WithCancelCause(ctx)
	defer broken(nil)
	f.around.Stop = func() { broken(&cli.Interrupted{Signal: syscall.SIGTERM}) }
	f.work.connections, f.work.claims = f.options.Concurrency, f.options.MinInterval > 0
	h, err := f.work.handler(ctx, file, console.Log, func(err error) {
		console.Log.Error("the processor stops", "error", err)
		broken(&brokenError{err})
	})
	if err != nil {
		return err
	}
	if err := f.around.Open(); err != nil {
		return errors.Join(err, h.close())
	}
	defer f.around.Port.Close() // after everything else: it shows how the processor stops
	var gone quarantined
	file.Config.Hooks.Quarantine = gone.add
	err = errors.Join(f.process(ctx, cmd.OutOrStdout(), console, file, h), h.close())
	var failures []string
	if h.failures != nil {
		failures = h.failures()
	}
	gone.warn(console.Log, file.Config.Workload, failures)
	return err
}

// checkRanges refuses values that flags may not have, alone and together.
func (f *runFlags) checkRanges(cmd *cobra.Command) error {
	if cmd.Flags().Changed("gate") && f.options.Gate == "" {
		return cli.Usage("--gate: the gate has no name")
	}
	if cmd.Flags().Changed("min-interval") && f.options.MinInterval <= 0 {
		return cli.Usage("--min-interval: %v is out of range; use more than 0, or "+
			"leave it out for no limit",
			f.options.MinInterval)
	}
	if cmd.Flags().Changed("max-rate") && f.options.MaxRate == 0 {
		return cli.Usage("--max-rate: 0 is out of range; use more than 0, or leave it out for no limit")
	}
	if f.options.MaxRate > 0 && f.work.discard {
		return cli.Usage("--max-rate: --discard starts no task, so there is nothing to limit; " +
			"use --out /dev/null to take tasks at a rate")
	}
	if cmd.Flags().Changed("max-age") && f.options.Retry.MaxAge <= 0 {
		return cli.Usage("--max-age: %v is out of range; use more than 0, or leave it out for no limit",
			f.options.Retry.MaxAge)
	}
	if cmd.Flags().Changed("until-idle") && f.options.UntilIdle <= 0 {
		return cli.Usage("--until-idle: %v is out of range; use more than 0, or leave it "+
			"out to run until a signal",
			f.options.UntilIdle)
	}
	return effective(cmd.Flags())
}

const (
	// maxBytes is the room for messages and their tasks: some hundred thousand tasks in hand, of 120
	// bytes each, and their messages.
	maxBytes = 64 << 20
	// memoryGoal is what the garbage collector works towards, unless GOMEMLIMIT or a control group
	// says otherwise. Some 100 MiB are in use at most: maxBytes and the lines of --out; the collector
	// lets that double. With the goal --out takes 165 to 175 MiB, and a machine of 512 MiB will do. It
	// is not a bound: a process that needs more gets it.
	memoryGoal = 160 << 20
)

// limitMemory sets what the garbage collector works towards.
func (f *runFlags) limitMemory(ctx context.Context, console *cli.Console) {
	goal := int64(memoryGoal)
	if f.work.countBy != "" {
		goal = 0 // we do not bound what is counted
	}
	children := f.work.exec != "" || f.work.execEach != ""
	service.LimitMemory(ctx, func() int64 { return goal }, children, console.Log)
}

// brokenError says that a handler cannot work.
type brokenError struct{ err error }

func (e *brokenError) Error() string { return e.err.Error() }
func (e *brokenError) Unwrap() error { return e.err }

// check finds mistakes before anything is made or opened, so that after a mistake nothing is done.
func (f *runFlags) check(file *configfile.File) error {
	var handler pump.Handler = pump.HandlerFunc(func(context.Context, *pump.Task) error { return nil })
	if f.work.countBy != "" {
		handler = handlers.CountBy(f.work.countBy, f.work.sum)
	}
	_, err := processor.New(file.Config, handler, f.processor())
	if ce, is := errors.AsType[*pump.ConfigError](err); is && ce.Field == "reducer" {
		return cli.Usage("--count-by: %s; %s", ce.Problem, ce.Fix)
	}
	return cli.Explain(err, file)
}

// warnInexact tells of counts that depend on how often a task is delivered.
func (f *runFlags) warnInexact(log *slog.Logger, delivery pump.Delivery) {
	if f.work.countBy != "" && delivery != pump.Once {
		log.Warn("a task that is delivered twice is counted twice, " +
			"because the workload delivers at least once; " +
			"for exact counts make a workload with delivery: once")
	}
}

// processor makes the options that the flags ask for, without those that suit the handler.
func (f *runFlags) processor() processor.Options {
	o := f.options
	o.Discard, o.Results, o.MaxBytes = f.work.discard, f.work.results, maxBytes
	// The handlers bound the time of a task themselves, from the beginning of its work: a task that
	// waits for a child or for a disk has not begun.
	o.Timeout, o.HandOver = -1, f.work.timeout
	o.Grace = cmp.Or(o.Grace, -1)
	return o
}

func (f *runFlags) process(
	ctx context.Context, out io.Writer, console *cli.Console, file *configfile.File, h *handler,
) error {
	cfg, exported, err := f.around.Surrounded()
	if err != nil {
		return err
	}
	defer exported()
	if f.around.Port != nil { // without a port no scraper sees the metrics
		cfg.Sample = file.Admin.SampleEvery()
	}
	o := f.processor()
	o.Concurrency = cmp.Or(o.Concurrency, h.concurrency)
	o.Progress, o.Amiss = progress(console), h.amiss
	if h.printsTo != nil {
		out = h.printsTo
	}
	f.warnInexact(console.Log, cfg.Delivery)
	p, err := processor.New(cfg, h.handler, o)
	if err != nil {
		return cli.Explain(err, file)
	}
	f.around.Port.ShowProcessor(p)
	f.around.Reloads(h.reopen, p.Reload)
	summary, err := service.Run(ctx, &f.around.Supervised, service.Processor(p), p)
	console.Done()
	if err = cli.Explain(err, file); cli.IsMistake(err) {
		return err // nothing was done to sum up
	}
	idle := time.Duration(0)
	if err == nil && ctx.Err() == nil {
		idle = o.UntilIdle // it left for that reason
	}
	_, broken := errors.AsType[*brokenError](context.Cause(ctx))
	switch {
	case f.json:
		err = errors.Join(err, cli.PlainJSON(out, summary))
	case broken && summary.Handled == 0: // the cause is what matters, and comes last
	default:
		err = errors.Join(err, printSummary(out, summary, idle))
	}
	if o.UntilIdle > 0 && summary.Retried+summary.NotNow > 0 {
		console.Log.Warn("tasks were put back for another attempt; "+
			"--until-idle does not wait for those that come back later than it",
			"retried", summary.Retried, "not_now", summary.NotNow)
	}
	if err != nil {
		return err
	}
	if b, ok := errors.AsType[*brokenError](context.Cause(ctx)); ok {
		return fmt.Errorf("the processor has stopped: %w%s", b, f.work.advice())
	}
	if o.UntilIdle > 0 {
		return cli.WasInterrupted(ctx)
	}
	return nil // stopped as intended
}

func progress(console *cli.Console) func(processor.Summary) {
	var speed cli.Rate
	return func(s processor.Summary) {
		text := fmt.Sprintf("%s tasks · %s", humanize.Comma(s.Handled), speed.Per(s.Handled))
		if n := s.Failed + s.Rejected; n > 0 {
			text += fmt.Sprintf(" · %s failed", humanize.Comma(n))
		}
		if s.NotNow > 0 {
			text += fmt.Sprintf(` · %s told "not now"`, humanize.Comma(s.NotNow))
		}
		if s.Throttled > 0 {
			text += fmt.Sprintf(" · %s throttled", humanize.Comma(s.Throttled))
		}
		if s.Skipped > 0 {
			text += fmt.Sprintf(" · %s skipped", humanize.Comma(s.Skipped))
		}
		if s.Waiting != "" {
			text = fmt.Sprintf("waits at gate %s", s.Waiting)
			console.Progress(0, 0, text, "waiting", s.Waiting)
			return
		}
		attrs := cli.Nonzero("failed", s.Failed, "rejected", s.Rejected, "retried", s.Retried,
			"not_now", s.NotNow, "skipped", s.Skipped, "quarantined", s.Quarantined,
			"envelopes", s.Envelopes, "throttled", s.Throttled)
		console.Progress(s.Handled, 0, text, append([]any{"handled", s.Handled}, attrs...)...)
	}
}

// seconds is a time with two significant digits.
func seconds(s float64) time.Duration {
	d := time.Duration(s * float64(time.Second))
	switch {
	case d >= time.Minute:
		return d.Round(time.Second)
	case d >= time.Second:
		return d.Round(100 * time.Millisecond)
	default:
		return d.Round(time.Millisecond)
	}
}

// printSummary prints the summary for people. The rate leaves out the time at the end that was only
// spent waiting.
func printSummary(w io.Writer, s processor.Summary, idle time.Duration) error {
	var b bytes.Buffer
	busy := max(s.Seconds-idle.Seconds(), 1e-3)
	fmt.Fprintf(&b, "%s handled in %.1f s (%s/s), from %s", cli.Plural(s.Handled, "task"), busy,
		humanize.Comma(int64(float64(s.Handled)/busy)), cli.Plural(s.Envelopes, "message"))
	if idle > 0 {
		fmt.Fprintf(&b, "; then idle for %v", idle)
	}
	fmt.Fprintln(&b)
	for _, n := range []struct {
		count int64
		what  string
	}{
		{s.Failed, "failed"},
		{s.Rejected, "rejected"},
		{s.Retried, "put back for another attempt"},
		{s.NotNow, "told \"not now\", and put back without an attempt"},
		{s.Released, "put back without an attempt"},
		{s.Skipped, "skipped, because their key was begun less than --min-interval ago"},
		{s.Quarantined, "quarantined"},
		{s.Duplicates, "recognised as done before"},
		{s.Foreign, "put by another program"},
		{s.Passed, "messages released to their owners"},
		{s.Forwarded, "messages forwarded to their segments' queues"},
		{s.Lost, "messages whose lease was lost"},
	} {
		if n.count > 0 {
			fmt.Fprintf(&b, "  %s %s\n", humanize.Comma(n.count), n.what)
		}
	}
	if l := s.Latency; l.Tasks > 0 {
		fmt.Fprintf(&b,
			"half of the tasks began within %s of being ready to be put, 99%% within %s, all within %s\n",
			seconds(l.P50), seconds(l.P99), seconds(l.Max))
	}
	cli.Requests(&b, s.Requests, s.Throttled, s.Handled)
	_, err := w.Write(b.Bytes())
	return err
}
