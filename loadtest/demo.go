package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/queuepump/queuepump/internal/cli"
	"github.com/queuepump/queuepump/loadtest/scenario"
	"github.com/queuepump/queuepump/loadtest/simserver"
)

// demoFlags are the flags of `loadtest demo`.
type demoFlags struct {
	simulate               simserver.Accounts
	files                  string
	input, key, exec, each string
	processors             int
	out                    string
	distributor, processor string
	stall                  time.Duration
	console                cli.ConsoleFlags
}

func demoCommand() *cobra.Command {
	var f demoFlags
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Try the whole pump on simulated accounts and check the result",
		Long: `Try the whole pump: simulated accounts are served, and one distributor and
several processors run on them as separate processes, the binaries that a user
deploys. Afterwards every task is accounted for.

With --files, each regular file under the directory is a task, the work is its
SHA-256, and the results are compared with hashes computed directly. With
--input, the tasks are the lines of a file of JSON Lines, CSV or plain lines,
and the work is --exec (see ` + "`processor run --help`" + `), --exec-each, or only
to write them down.

The report is printed and written to run.json in the --out directory, beside the
configuration and the processors' results. The status is 0 only if every task
was handled: none was lost, none quarantined, and no result is wrong.

` + cli.ExitCodes,
		Example: `  loadtest demo --files "$(go env GOROOT)/src"
  loadtest demo --input tasks.jsonl --key city --exec 'python3 worker.py'`,
		Args: cobra.NoArgs,
		RunE: cli.Command(f.run),
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.files, "files", "", "hash every regular file under `DIR`")
	flags.StringVar(&f.input, "input", "", "take the tasks from `FILE`")
	flags.StringVar(&f.key, "key", "", "with --input: the `FIELD` that tasks are segmented by")
	flags.StringVar(&f.exec, "exec", "",
		"with --input: give the tasks to long-lived children running `CMD`")
	flags.StringVar(&f.each, "exec-each", "", "with --input: run `CMD` for each task")
	f.simulate.AddFlags(flags)
	f.simulate.AddWorkload(flags)
	flags.IntVar(&f.processors, "processors", 2, "how many processors")
	flags.StringVar(&f.out, "out", "out", "the `DIR` for the report and the results")
	flags.StringVar(&f.distributor, "distributor", sibling("distributor"),
		"the distributor's `BINARY`")
	flags.StringVar(&f.processor, "processor", sibling("processor"), "the processor's `BINARY`")
	flags.DurationVar(&f.stall, "stall", 90*time.Second, "give up when nothing has moved for so long")
	f.console.Add(cmd, 500*time.Millisecond)
	return cmd
}

func (f *demoFlags) check() error {
	switch {
	case (f.files == "") == (f.input == ""):
		return cli.Usage("give either --files or --input")
	case f.files != "" && (f.key != "" || f.exec != "" || f.each != ""):
		return cli.Usage("--key, --exec and --exec-each belong to --input")
	case f.exec != "" && f.each != "":
		return cli.Usage("--exec and --exec-each exclude each other")
	case f.processors < 1 || f.processors > 100:
		return cli.Usage("--processors: %d is out of range; use 1 to 100", f.processors)
	}
	return usage(f.simulate.Check())
}

func (f *demoFlags) run(cmd *cobra.Command) error {
	if err := f.check(); err != nil {
		return err
	}
	console, err := f.console.Console()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(f.out, 0o755); err != nil {
		return err
	}
	// The report of an earlier run must not be taken for this one's.
	path := filepath.Join(f.out, "run.json")
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	t := &trial{flags: f, console: console, work: "write down", began: time.Now()}
	r, err := t.run(cmd.Context())
	console.Done()
	if err != nil {
		return errors.Join(err, writeReport(path, t.failed(err)))
	}
	if err := writeReport(path, r); err != nil {
		return err
	}
	r.print(cmd.OutOrStdout())
	fmt.Fprintf(cmd.OutOrStdout(), "the report is in %s\n", path)
	return r.verdict()
}

// trial is one run of the whole pump.
type trial struct {
	flags   *demoFlags
	console *cli.Console
	work    string // what is done with a task, in words

	simulation  *simserver.Served
	config      string   // path
	paths       []string // the files to hash
	results     *results
	quarantine  *quarantine
	distributor *process
	processors  []*process
	began       time.Time
	took        time.Duration

	summary    distributorSummary
	summaries  []processorSummary
	unfinished error // why not everything was handled
}

// run is the trial from end to end.
func (t *trial) run(ctx context.Context) (*accounting, error) {
	if err := t.prepare(); err != nil {
		return nil, err
	}
	defer t.simulation.Close()
	if err := t.pump(ctx); err != nil {
		return nil, err
	}
	return t.report()
}

// prepare does what comes before any process runs.
func (t *trial) prepare() error {
	f := t.flags
	var outs []string
	for i := range f.processors {
		path := filepath.Join(f.out, fmt.Sprintf("results-%d.jsonl", i+1))
		if err := os.RemoveAll(path); err != nil {
			return err // the results of an earlier run would be counted
		}
		outs = append(outs, path)
	}
	t.results = newResults(outs...)
	if f.files != "" {
		root, err := filepath.Abs(f.files)
		if err != nil {
			return err
		}
		f.files = root
		if t.paths, err = regularFiles(root); err != nil {
			return cli.Usage("--files: %w", err)
		}
	}
	var err error
	if t.simulation, err = f.simulate.Serve("127.0.0.1"); err != nil {
		return usage(err)
	}
	if t.quarantine, err = newQuarantine(t.simulation, f.simulate.Workload); err != nil {
		return errors.Join(err, t.simulation.Close())
	}
	t.config = filepath.Join(f.out, "pump.yaml")
	if err = t.simulation.WriteConfig(t.config); err != nil {
		return errors.Join(err, t.simulation.Close())
	}
	return nil
}

// regularFiles lists the files independently of the distributor, whose own list is on trial.
func regularFiles(root string) ([]string, error) {
	var paths []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			paths = append(paths, path)
		}
		return err
	})
	return paths, err
}

// pump starts the processes, waits until every task is handled, and stops them.
func (t *trial) pump(ctx context.Context) error {
	defer func() {
		for _, p := range append([]*process{t.distributor}, t.processors...) {
			if p != nil {
				p.stop(10 * time.Second)
			}
		}
	}()
	t.console.Log.Info("simulated accounts are served", "accounts", t.flags.simulate.Count,
		"queues", t.flags.simulate.Queues, "limits", t.flags.simulate.Limits, "config", t.config)
	t.began = time.Now()
	if err := t.start(); err != nil {
		return err
	}
	if err := t.watch(ctx); err != nil {
		return err
	}
	t.took = time.Since(t.began)
	t.console.Log.Info("stopping the processors and checking the results")
	for _, p := range t.processors {
		p.stop(time.Minute)
		var s processorSummary
		if err := p.summary(&s); err != nil {
			return err
		}
		t.summaries = append(t.summaries, s)
	}
	if err := t.results.read(); err != nil {
		return err
	}
	return t.quarantine.read(ctx)
}

func (t *trial) start() error {
	f := t.flags
	common := []string{
		"run", "--config", t.config, "--json", "--log-format", "json", "--progress-every", "200ms",
	}
	args := append(common[:len(common):len(common)], "--once")
	if f.files != "" {
		args = append(args, "--files", f.files)
	} else {
		args = append(args, "--input", f.input)
		if f.key != "" {
			args = append(args, "--key", f.key)
		}
	}
	var err error
	if t.distributor, err = startProcess("distributor", t.console.Log, f.distributor,
		args...); err != nil {
		return err
	}
	work, err := t.workArgs()
	if err != nil {
		return err
	}
	for i := range f.processors {
		args := append(common[:len(common):len(common)], "--out", t.results.files[i].path,
			"--retry-max", "5s")
		p, err := startProcess(fmt.Sprintf("processor %d", i+1), t.console.Log, f.processor,
			append(args, work...)...)
		if err != nil {
			return err
		}
		t.processors = append(t.processors, p)
	}
	return nil
}

// workArgs are the flags that tell a processor what to do.
func (t *trial) workArgs() ([]string, error) {
	f := t.flags
	switch {
	case f.files != "":
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		t.work = "SHA-256 of each file"
		return []string{"--exec", cli.Join(self, "sha256-worker")}, nil
	case f.exec != "":
		t.work = f.exec
		return []string{"--exec", f.exec}, nil
	case f.each != "":
		t.work = f.each
		return []string{"--exec-each", f.each}, nil
	}
	return nil, nil
}

// watch shows the progress until every task has been handled or quarantined,
// nothing moves any more, or something fails.
func (t *trial) watch(ctx context.Context) error {
	var speed cli.Rate
	moved, before := time.Now(), int64(-1)
	for {
		if err := scenario.Sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
		if err := t.results.read(); err != nil {
			return err
		}
		for _, p := range t.processors {
			if p.ended() {
				return errors.Join(p.failure(), fmt.Errorf("%s has ended before the work", p.name))
			}
		}
		sent, total := t.distributor.value("tasks"), int64(len(t.paths))
		if t.distributor.ended() {
			if err := t.distributor.summary(&t.summary); err != nil {
				return err
			}
			sent, total = t.summary.Tasks, t.summary.Tasks
		}
		handled, quarantined := int64(t.results.handled()), t.quarantined()
		line := fmt.Sprintf("%s sent · %s handled · %s",
			humanize.Comma(sent), humanize.Comma(handled), speed.Per(handled))
		t.console.Progress(handled, total, line,
			"sent", sent, "handled", handled, "quarantined", quarantined,
			"seconds", strconv.FormatFloat(time.Since(t.began).Seconds(), 'f', 1, 64))
		if t.distributor.ended() && handled+quarantined >= total {
			// The counts suffice, but a task may be in them twice.
			if quarantined > 0 {
				if err := t.quarantine.read(ctx); err != nil {
					return err
				}
			}
			if t.lost() == 0 {
				return nil
			}
		}
		if now := sent + handled + quarantined; now != before {
			moved, before = time.Now(), now
		}
		if time.Since(moved) > t.flags.stall {
			t.unfinished = fmt.Errorf("%w (%v)", errStalled, t.flags.stall)
			return nil // the report says what is missing
		}
	}
}

// quarantined is how often the processors say they quarantined a task.
func (t *trial) quarantined() int64 {
	var n int64
	for _, p := range t.processors {
		n += p.value("quarantined")
	}
	return n
}
