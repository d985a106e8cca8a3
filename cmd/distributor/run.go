package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/queuepump/queuepump/internal/cli"
	"github.com/queuepump/queuepump/internal/configfile"
	"github.com/queuepump/queuepump/internal/operate"
	"github.com/queuepump/queuepump/internal/service"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/source"
)

// runFlags are the flags of `distributor run`.
type runFlags struct {
	around    operate.Surrounding
	once      bool
	json      bool
	onBadLine string
	wait      bool
	waiting   pump.WaitOptions
	source    cli.SourceFlags
	console   cli.ConsoleFlags
	options   distributor.Options
}

func run() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Read tasks and send them",
		Long: `Read tasks and send them to the queues of the workload, which are made if they
are not there.

` + cli.SourceHelp + `

With --once (the default) the source is sent once, whatever other distributors
do: several of them each send all of their source. Running the command again is
a new run that sends everything again; your own --id tells repeats.

With --name the command may be given as often as you like: after a crash it goes
on where the run stopped, beside another process it says who sends (or, with
--wait, waits), and after the run was sent it puts nothing and ends with status 0.
Another source under the name is refused with status 2. In delivery: once no task
is done twice; else what was put since the last checkpoint, of about a second, is.
Standard input and commands must give the same text from its start again.

With --every any number of distributors, started alike on several machines,
send it again and again: whenever a distribution is due, one of them makes it,
and when that one dies another continues from its last checkpoint. That needs a
source that can be read again: standard input is refused, and a run over a
command, or over files that have changed meanwhile, is broken off and begun anew.

With --cron they send it at the due times of a schedule, by the clock of the control
account and in the time zone of --timezone. Each due time has one run, whichever leader
makes it. If no distributor lived then, the latest one missed is made when one lives
again (--missed once), or none is (--missed skip). While a distribution is under way, the
next due time waits.

On the first signal the distributor reads no more, sends what it has read, and
ends: with --every or --cron with status 0, as another goes on; with --once with status
130 or 143, because the run is not complete.

With --wait the command goes on after sending until every task is done or in
quarantine, which the ledger of a workload with delivery: once knows exactly. When tasks
are missing and every queue is empty, it says what is stuck and how to repair it. A signal
ends the waiting and not the run; distributor runs wait RUN waits on.

Every distributor has an admin port, on loopback unless --admin says otherwise,
where /readyz, /metrics and /debug/pprof/ are.

` + cli.WaitExitCodes,
		Example: `  # once, segmented by a field
  distributor run --config pump.yaml --once --input tasks.jsonl --key city

  # and until all of it is done
  distributor run --config pump.yaml --input tasks.jsonl --key city --wait

  # many compressed files, bad lines put aside, the summary for a script
  distributor run --config pump.yaml --input 'part-*.csv.gz' --key customer \
      --on-bad-line quarantine --json

  # the nightly run: give it again after whatever happened
  distributor run --config pump.yaml --name nightly-2026-11-27 --input tasks.jsonl --key city

  # each file of a tree is a task
  distributor run --config pump.yaml --files /data/images

  # every minute, on several machines
  distributor run --config pump.yaml --every 60s --input /shared/tasks.jsonl --key city

  # at six on weekdays
  distributor run --config pump.yaml --cron '0 6 * * 1-5' --timezone Europe/Oslo \
      --input /shared/tasks.jsonl --key city

  # from a pipe
  zcat tasks.gz | distributor run --config pump.yaml --input - --key city`,
		Args: cli.NoArguments(func(word string) string { return "--input " + word }),
		RunE: cli.Command(f.run),
	}
	f.add(cmd)
	return cmd
}

// add adds the flags to a command.
func (f *runFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SortFlags = false
	cli.ConfigFlag(cmd, &f.around.Config)
	cli.TakesHangup(cmd)
	flags.BoolVar(&f.once, "once", false, "send the source once (the default)")
	flags.StringVar(&f.options.Name, "name", "",
		"the run's `NAME`, with which this command may be given again: it goes on where the run stopped")
	flags.DurationVar(&f.options.Every, "every", 0,
		"send the source again, this long after the last sending ended, by one of all distributors")
	flags.StringVar(&f.options.Cron, "cron", "",
		"send the source at the due times of a `SCHEDULE`, such as '0 6 * * 1-5' or @daily, by one of "+
			"all distributors")
	flags.StringVar(&f.options.Timezone, "timezone", "",
		"the time `ZONE` of --cron, such as Europe/Oslo (default UTC)")
	flags.StringVar(&f.options.Missed, "missed", "",
		"what to do about due times at which no distributor lived, the `POLICY`: once (make the latest) "+
			"or skip (default once)")
	flags.BoolVar(&f.wait, "wait", false,
		"wait until every task is done or in quarantine; needs delivery: once")
	operate.WaitFlags(cmd, &f.waiting, "wait-timeout")
	f.source.Add(cmd)
	flags.StringVar(&f.onBadLine, "on-bad-line", "fail",
		"what to do with a line that cannot be a task, the `POLICY`: fail, skip or quarantine")
	cli.BlobAboveFlag(cmd, &f.options.BlobAbove)
	flags.IntVar(&f.options.Pack, "pack", 0, "the most tasks in a message (default: as many as fit)")
	flags.DurationVar(&f.options.SealAge, "seal-age", 0,
		"the longest that a task waits for others to fill its message "+
			"(default 1s for pipes and commands, else no limit)")
	flags.Float64Var(&f.options.MaxRate, "max-rate", 0,
		"read at most this many tasks a second from the source (default: no limit)")
	flags.DurationVar(&f.options.Grace, "grace", 0,
		"how long to go on sending what was read after a signal (default 20s)")
	flags.DurationVar(&f.options.Beat, "beat", 0,
		"how often the distributor says that it lives, and a leader that it leads; "+
			"the same in all processes of a workload (default 5s)")
	flags.DurationVar(&f.options.Lease, "lease", 0,
		"after how long without a beat it counts as dead, and another leads; the same in all "+
			"processes (default 4 x --beat)")
	flags.StringVar(&f.around.Admin, "admin", "",
		"where the admin port listens, `ADDR` as host:port, or off "+
			"(default: what the configuration says, or a free port of loopback)")
	flags.BoolVar(&f.json, "json", false,
		"print the summary as a JSON object; with --every or --cron one for each distribution")
	f.console.Add(cmd, 5*time.Second)
	cli.Seldom(cmd, "stuck-after", "keep-env", "max-line", "pack", "seal-age", "grace", "beat",
		"lease")
}

// repeats reports whether a leader sends the source again and again.
func (f *runFlags) repeats() bool { return f.options.Every > 0 || f.options.Cron != "" }

func (f *runFlags) run(cmd *cobra.Command) error {
	by := "--every"
	if f.options.Cron != "" {
		by = "--cron"
	}
	if f.once && (f.options.Every != 0 || f.options.Cron != "") {
		return cli.Usage("--once and %s exclude each other", by)
	}
	if err := cli.NotEmpty(cmd, "name", "cron"); err != nil {
		return err
	}
	if cmd.Flags().Changed("every") && f.options.Every <= 0 {
		return cli.Usage("--every: %v is out of range; use more than 0", f.options.Every)
	}
	if flag := f.source.ReadsStdin(); f.repeats() && flag != "" {
		return cli.Usage("%s: %s is standard input, which can be read only once, "+
			"and the second distribution would find nothing; name a file, or leave %[1]s out", by, flag)
	}
	if err := cli.Belong(cmd, "--wait", f.wait, "stuck-after", "wait-timeout"); err != nil {
		return err
	}
	src, err := f.source.Source()
	if err != nil {
		return err
	}
	console, file, err := f.around.Load("distributor", &f.console)
	if err != nil {
		return err
	}
	f.options.OnBadLine = distributor.BadLine(f.onBadLine)
	if f.wait {
		f.waiting.Progress = operate.WaitProgress(console)
		f.options.Wait = &f.waiting
	}
	// Before the port is opened: after a mistake nothing is done.
	if _, err := distributor.New(file.Config, src, f.options); err != nil {
		return cli.Explain(err, file)
	}
	if err := f.open(); err != nil {
		return err
	}
	defer f.around.Port.Close() // after everything else: it shows how the distributor stops
	ctx, end := console.Outlive(cmd.Context())
	defer end()
	return f.distribute(ctx, cmd.OutOrStdout(), console, file, src)
}

// open opens what surrounds a distributor that runs.
func (f *runFlags) open() error {
	err := f.around.Begin(cmp.Or(f.options.Grace, 20*time.Second), func() {})
	if err != nil {
		return err
	}
	return f.around.Open()
}

func (f *runFlags) distribute(
	ctx context.Context, out io.Writer, console *cli.Console, file *configfile.File, src source.Source,
) error {
	port := f.around.Port
	cfg, exported, err := f.around.Surrounded()
	if err != nil {
		return err
	}
	defer exported()
	if port != nil { // without a port no scraper sees the metrics
		cfg.Sample = file.Admin.SampleEvery()
	}
	o := f.options
	o.Progress = operate.SendProgress(console)
	f.source.Hide(src, file)
	ctx, unread := context.WithCancelCause(ctx)
	defer unread(nil)
	f.around.Stop = func() { unread(&cli.Interrupted{Signal: syscall.SIGTERM}) }
	var printing error
	o.OnRun = func(s distributor.Summary, err error) {
		console.Done()
		if e := f.print(out, s, err); e != nil && printing == nil {
			printing = fmt.Errorf("the summary cannot be printed: %w", e)
			unread(printing) // no more go to the reader of summaries
		}
	}
	d, err := distributor.New(cfg, src, o)
	if err != nil {
		return cli.Explain(err, file)
	}
	service.LimitMemory(ctx, d.Memory, f.source.RunsCommand(), console.Log)
	port.ShowDistributor(d, d.State)
	f.around.Reloads(nil, d.Reload)
	summary, err := service.Run(ctx, &f.around.Supervised, service.Distributor(d), d)
	console.Done()
	switch {
	case err == nil || f.repeats() || summary.Run == (pump.RunID{}):
	case f.options.Name != "" && summary.Completion == nil: // the distributor has said it
	case summary.Completion != nil && summary.Completion.State != pump.RunWaiting:
	case summary.Completion != nil:
		console.Log.Info("the run is sent, and processors go on with it", "run", summary.Run,
			"to_wait", "distributor runs wait "+summary.Run.String())
	default:
		console.Log.Warn("this run is not continued; running the command again is a new run, "+
			"which sends everything again",
			"run", summary.Run)
	}
	if interrupted := cli.WasInterrupted(ctx); interrupted != nil {
		if f.repeats() && err == nil {
			return printing
		}
		// The signal caused all that went wrong after it.
		if err != nil {
			console.Log.Warn("stopped before the end", "error", err)
		}
		return interrupted
	}
	return errors.Join(operate.Outcome(summary.Completion, cli.Explain(err, file)), printing)
}

// print prints the result of a distribution, or the result up to its failure. A distribution that
// did not begin has none.
func (f *runFlags) print(out io.Writer, s distributor.Summary, err error) error {
	if err != nil && s.Run == (pump.RunID{}) {
		return nil
	}
	if f.json {
		return cli.PlainJSON(out, s)
	}
	var b bytes.Buffer
	if s.Again != "" && s.Envelopes == 0 {
		fmt.Fprintf(&b, "run %s of the name %s was sent before and is %s: %s; nothing was put\n",
			s.Run, f.options.Name, s.Again, cli.Plural(s.Tasks, "task"))
	} else if err != nil && s.Completion == nil {
		fmt.Fprintf(&b, "run %s: stopped after %.1f s: %s read, %s sent\n",
			s.Run, s.Seconds, cli.Plural(s.Tasks, "task"), cli.Plural(s.Envelopes, "message"))
	} else {
		fmt.Fprintf(&b, "run %s: %s in %s (%.1f a message) in %.1f s (%s/s)\n",
			s.Run, cli.Plural(s.Tasks, "task"), cli.Plural(s.Envelopes, "message"),
			float64(s.Tasks)/float64(max(s.Envelopes, 1)), s.Seconds,
			humanize.Comma(int64(float64(s.Tasks)/max(s.Seconds, 1e-3))))
	}
	fmt.Fprintf(&b, "%s read, %s sent", cli.Bytes(s.BytesIn), cli.Bytes(s.BytesSent))
	for _, n := range []struct {
		count int64
		thing string
		what  string
	}{
		{s.Skipped, "bad line", "skipped"},
		{s.Quarantined, "bad line", "quarantined"},
		{s.Resent, "message", "sent again after an unclear answer"},
	} {
		if n.count > 0 {
			fmt.Fprintf(&b, ", %s %s", cli.Plural(n.count, n.thing), n.what)
		}
	}
	if s.Resumed {
		fmt.Fprint(&b, "; continued from another distributor's checkpoint")
	}
	fmt.Fprintln(&b)
	if why := smallMessages(&s, f.options.Pack); why != "" {
		fmt.Fprintln(&b, why)
	}
	if err == nil { // after a failure they do not matter
		cli.Requests(&b, s.Requests, s.Throttled, s.Tasks)
	}
	if s.Completion != nil {
		operate.PrintCompletion(&b, s.Completion)
	}
	_, err = out.Write(b.Bytes())
	return err
}

// fewTasks is the average number of tasks in a message below which a run is told of, if many more
// would have fitted.
const fewTasks = 64

// smallMessages says why a run's messages hold few tasks if you did not ask for that.
func smallMessages(s *distributor.Summary, pack int) string {
	if pack > 0 || s.Envelopes < 2 || s.Tasks >= fewTasks*s.Envelopes ||
		s.BytesSent/s.Envelopes > 16<<10 {
		return ""
	}
	return "a message holds the tasks of one segment, and a segment had few of them: " +
		"more tasks in a run, or fewer segments in the configuration, make fuller messages"
}
