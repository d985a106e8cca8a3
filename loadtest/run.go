package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/queuepump/queuepump/internal/cli"
	"github.com/queuepump/queuepump/internal/configfile"
	"github.com/queuepump/queuepump/internal/logs"
	"github.com/queuepump/queuepump/loadtest/report"
	"github.com/queuepump/queuepump/loadtest/scenario"
	"github.com/queuepump/queuepump/loadtest/simserver"
	"github.com/queuepump/queuepump/pump"
)

// runFlags are the flags of `loadtest run`.
type runFlags struct {
	config   string
	virtual  bool
	simulate simserver.Accounts
	pack     int
	warmUp   time.Duration
	delivery string
	out      string
	json     bool
	console  cli.ConsoleFlags
	options  scenario.Options
}

func runCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run SCENARIO",
		Short: "Put load on accounts, simulated or real, and measure what they give",
		Long: `Put load on storage accounts through the pump and measure what they give. One
distributor and several processors run inside this program, so that one clock
measures the time from when a task was due until its handling began. Scenarios:

` + scenarioHelp() + `
Accounts are simulated by a process beside this one, over TCP and with the limits that
Microsoft publishes, unless --config names real ones. With --virtual everything is in
virtual time: a request takes 5 ms there and less than 0.1 ms of a CPU here, so that one
machine shows what a hundred accounts would give, and nothing else that runs on it
disturbs the result. Have at least as many queues as processors: several that share
one queue are slow by nature.

On real accounts the test uses queues and a table of its own, loadtest-ID-* and
loadtestID, and removes them at the end, also when it is stopped. It touches nothing
else there, but it competes for the same limits and it costs money: a message is about
three requests.

A task is a message unless --pack says otherwise, because what accounts limit is
messages. With --pack 0 messages are filled as the pump does it by default; then it is
mostly this machine that is measured. Rates are even, and a task is due when the
schedule says so, whatever became of those before it.

The report is printed, and saved as JSON in the --out directory: "loadtest report" shows and
compares what was saved, and writes it as a page with plots (--html). The status is 0 if every task
was handled, however fast.

` + cli.ExitCodes,
		Example: `  # what four simulated accounts give on this machine
  loadtest run saturate

  # the same of ten accounts at published limits, in virtual time
  loadtest run saturate --virtual --accounts 10 --queues 1 --duration 20s

  # up to what rate latencies hold, on the accounts of a configuration
  loadtest run ramp --config pump.yaml --rate 3000

  # what it costs to lose one account for a minute
  loadtest run account-dark --config pump.yaml --rate 500

  # full messages, tasks that take 5 ms each
  loadtest run soak --pack 0 --rate 20000 --handler-time 5ms --concurrency 128 --duration 10m

  # how much more do more processors handle
  loadtest run scale-out --over processors --processors 8`,
		Args: cli.OneArgument,
		RunE: func(cmd *cobra.Command, args []string) error {
			return cli.Command(func(cmd *cobra.Command) error { return f.run(cmd, args[0]) })(cmd, nil)
		},
		ValidArgs: scenario.Names(),
	}
	f.add(cmd)
	return cmd
}

// add adds the flags to a command.
func (f *runFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.config, "config", "", "load the real accounts of the configuration `FILE`")
	flags.BoolVar(&f.virtual, "virtual", false, "simulate in virtual time")
	f.simulate.AddFlags(flags)
	o := &f.options
	flags.DurationVar(&o.Duration, "duration", 0, "how long to measure (default: as listed above)")
	flags.DurationVar(&f.warmUp, "warm-up", 15*time.Second,
		"how long the load runs before the measurement; 0 for no warm-up")
	flags.Float64Var(&o.Rate, "rate", 0,
		"how many tasks a second are due (default: half of what the accounts give from put to delete; "+
			"in ramp all of it; not in saturate and scale-out)")
	flags.IntVar(&o.Processors, "processors", 0,
		"how many processors, or how many in the end "+
			"(default 2; in scale-out 4 with --over processors, and 1 if it begins with one queue)")
	flags.IntVar(&o.Concurrency, "concurrency", 0,
		"how many tasks each of them handles at once (default 64; 16 with --over processors)")
	flags.DurationVar(&o.HandlerTime, "handler-time", 0,
		"how long a task takes (default 0; 20ms with --over processors)")
	flags.IntVar(&f.pack, "pack", 1, "the most tasks in a message; 0 for as many as fit")
	flags.DurationVar(&o.Linger, "linger", 50*time.Millisecond,
		"how long a task waits for others to fill its message")
	flags.IntVar(&o.TaskBytes, "task-bytes", 130, "the size of a task")
	flags.IntVar(&o.Keys, "keys", 100_000, "how many keys the tasks have")
	flags.Float64Var(&o.HotShare, "hot-share", 0,
		"the share of the tasks with one and the same key (default: 0.5 in hot-key)")
	flags.StringVar(&o.Over, "over", "",
		"what scale-out adds: accounts or processors (default accounts)")
	flags.StringVar(&o.Account, "account", "",
		"the `NAME` of the account that goes dark or is drained (default: the last one)")
	flags.StringVar(&f.delivery, "delivery", "",
		"at-least-once or once (default: what the configuration says, else at-least-once)")
	flags.StringVar(&f.out, "out", "out", "the `DIR` for the saved report")
	flags.BoolVar(&f.json, "json", false, "print the report as JSON")
	f.console.Add(cmd, 5*time.Second)
}

// scenarioHelp lists the scenarios for the help.
func scenarioHelp() string {
	var b strings.Builder
	for _, s := range scenario.Scenarios() {
		fmt.Fprintf(&b, "  %-15s %s\n", s.Name, s.Asks)
		length := ""
		if s.Duration > 0 {
			length = fmt.Sprintf(" (%v)", s.Duration)
		}
		for _, line := range report.Wrap(s.Load+length, 62) {
			fmt.Fprintf(&b, "  %-15s %s\n", "", line)
		}
	}
	return b.String()
}

func (f *runFlags) check(cmd *cobra.Command, name string) error {
	f.options.Scenario = name
	switch {
	case f.virtual && f.config != "":
		return cli.Usage("--virtual and --config exclude each other: real accounts have real time")
	case f.pack < 0:
		return cli.Usage("--pack: %d is out of range; use 1 to 100000, or 0 for as many as fit", f.pack)
	case f.delivery != "" && f.delivery != string(pump.AtLeastOnce) && f.delivery != string(pump.Once):
		return cli.Usage("--delivery: %q is not a delivery mode; use at-least-once or once", f.delivery)
	case f.warmUp < 0:
		return cli.Usage("--warm-up: %v is out of range; use 0 or more", f.warmUp)
	}
	for _, name := range []string{"accounts", "queues", "limits", "seed"} {
		if f.config != "" && cmd.Flags().Changed(name) {
			return cli.Usage("--%s is for simulated accounts, and --config names real ones", name)
		}
	}
	// In the options zero stands for the default, on the command line it is a value.
	f.options.Pack, f.options.WarmUp = cmp.Or(f.pack, -1), cmp.Or(f.warmUp, -1)
	f.options.Delivery = pump.Delivery(f.delivery)
	return usage(f.simulate.Check())
}

func (f *runFlags) run(cmd *cobra.Command, name string) error {
	if err := f.check(cmd, name); err != nil {
		return err
	}
	console, err := f.console.Console()
	if err != nil {
		return err
	}
	ctx, end := console.Outlive(cmd.Context())
	defer end()
	if err := os.MkdirAll(f.out, 0o755); err != nil {
		return err
	}
	w, err := f.open(ctx, console)
	if err != nil {
		return err
	}
	defer w.close()
	var now atomic.Pointer[scenario.Progress]
	o := f.options
	warnings := newFewer(console.Log.Handler())
	o.Log, o.Version = slog.New(warnings), logs.Revision()
	o.Progress = func(p scenario.Progress) { now.Store(&p) }
	shown := show(console, &now)
	began := time.Now()
	r, err := w.run(ctx, o)
	shown()
	console.Done()
	warnings.rest(console.Log)
	if r == nil {
		return f.explain(ctx, err, w.file)
	}
	r.Started = began.UTC() // in a bubble it is another year
	saved, saveErr := f.save(r)
	if f.json {
		err = errors.Join(err, r.Write(cmd.OutOrStdout()))
	} else {
		err = errors.Join(err, r.Text(cmd.OutOrStdout()))
		if saveErr == nil {
			fmt.Fprintf(cmd.OutOrStdout(), "the report is in %s; as a page with plots: "+
				"loadtest report --html %s\n", saved, cli.Join(saved))
		}
	}
	return f.explain(ctx, errors.Join(err, saveErr), w.file)
}

// explain gives an error the place that its cause stands at.
func (f *runFlags) explain(ctx context.Context, err error, file *configfile.File) error {
	if err == nil {
		return nil
	}
	if o, ok := errors.AsType[*scenario.OptionError](err); ok {
		if o.Option == "scenario" {
			return cli.Usage("%s", o.Problem)
		}
		return cli.Usage("--%s: %s", o.Option, o.Problem)
	}
	if interrupted := cli.WasInterrupted(ctx); interrupted != nil {
		return interrupted
	}
	if file != nil {
		return cli.Explain(err, file)
	}
	return err
}

// save writes the report under a name that no earlier one has: two may begin in the same second.
func (f *runFlags) save(r *report.Result) (path string, err error) {
	var text bytes.Buffer
	if err := r.Write(&text); err != nil {
		return "", err
	}
	name := filepath.Join(f.out,
		fmt.Sprintf("loadtest-%s-%s", r.Scenario, r.Started.Format("20060102-150405")))
	path = name + ".json"
	taken, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL, 0o644)
	for n := 2; errors.Is(err, os.ErrExist); n++ {
		path = fmt.Sprintf("%s-%d.json", name, n)
		taken, err = os.OpenFile(path, os.O_CREATE|os.O_EXCL, 0o644)
	}
	if err != nil {
		return "", err
	}
	return path, errors.Join(taken.Close(), simserver.WriteFile(path, text.Bytes(), 0o644))
}

// show shows the progress, until the function that it gives is called. It stays outside of
// virtual time.
func show(console *cli.Console, now *atomic.Pointer[scenario.Progress]) (stop func()) {
	done, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-done:
				return
			}
			p := now.Load()
			if p == nil {
				console.Progress(0, 0, "preparing", "phase", "preparing")
				continue
			}
			waiting := p.Sent - p.Handled
			line := fmt.Sprintf("%s · %.0f of %.0f s · %s handled, %s/s · %s waiting · %s throttled",
				p.Phase, p.Seconds, p.Of,
				humanize.Comma(p.Handled), humanize.Comma(int64(p.HandledPerLast)),
				humanize.Comma(waiting), humanize.Comma(p.Throttled))
			console.Progress(int64(min(p.Seconds, p.Of)*1000), int64(p.Of*1000), line,
				"phase", p.Phase, "seconds", int64(p.Seconds), "of", int64(p.Of), "sent", p.Sent,
				"handled", p.Handled, "perSecond", int64(p.HandledPerLast), "throttled", p.Throttled)
		}
	}()
	return func() {
		close(done)
		<-gone
	}
}
