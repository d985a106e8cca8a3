package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/net/http/httpguts"

	"github.com/queuepump/queuepump/internal/cli"
	"github.com/queuepump/queuepump/internal/configfile"
	"github.com/queuepump/queuepump/internal/handlers"
	"github.com/queuepump/queuepump/pump"
)

// workFlags say what is done with a task.
type workFlags struct {
	exec, execEach, http, out string
	discard, results          bool
	countBy, sum              string

	children int
	batch    int
	timeout  time.Duration
	headers  []string
	patience time.Duration
	keepEnv  []string

	// Set before handler is called.
	connections int  // to keep open to --http
	claims      bool // a task in work holds its key (--min-interval)
}

func (f *workFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.exec, "exec", "", "give tasks to long-lived children running `CMD`")
	flags.StringVar(&f.execEach, "exec-each", "", "run `CMD` once for each task")
	flags.StringVar(&f.http, "http", "", "post each task to `URL`")
	flags.StringVar(&f.out, "out", "", "append each task, or its result, to `FILE` as a JSON line")
	flags.BoolVar(&f.results, "results", false,
		"keep the results in blobs of the accounts, for: distributor results RUN")
	flags.StringVar(&f.countBy, "count-by", "", "count tasks by the `FIELD` of their bodies")
	flags.StringVar(&f.sum, "sum", "", "with --count-by: add up the `FIELD` of their bodies, exactly")
	flags.BoolVar(&f.discard, "discard", false,
		"settle every task of every run at once, doing nothing "+
			"(for measuring; \"distributor runs end RUN --drop\" throws one run away)")
	flags.IntVar(&f.children, "children", runtime.GOMAXPROCS(0),
		"how many processes --exec and --exec-each run at once")
	flags.IntVar(&f.batch, "batch", 1, "give a child of --exec up to `N` tasks at once")
	flags.DurationVar(&f.timeout, "task-timeout", 5*time.Minute,
		"how long one task, or batch, may take with --exec, --exec-each and --http")
	flags.StringArrayVar(&f.headers, "http-header", nil,
		"a `HEADER` sent with --http, as 'Name: value'; ${VAR} is taken from the "+
			"environment; may be repeated")
	flags.StringArrayVar(&f.keepEnv, "keep-env", nil,
		"an environment variable `NAME` that commands get "+
			"although it is a credential or the configuration's; may be repeated")
	flags.DurationVar(&f.patience, "out-patience", 30*time.Second,
		"how long writing --out may fail, with nothing settled, before the processor stops with status 1")
}

// belongings are flags that have no effect without one of some others.
var belongings = map[string][]string{
	"children":     {"exec", "exec-each"},
	"batch":        {"exec"},
	"task-timeout": {"exec", "exec-each", "http"},
	"keep-env":     {"exec", "exec-each"},
	"http-header":  {"http"},
	"out-patience": {"out"},
	"results":      {"exec", "exec-each", "http"},
	"sum":          {"count-by"},
}

// effective refuses given flags that have no effect.
func effective(flags *pflag.FlagSet) error {
	for _, name := range slices.Sorted(maps.Keys(belongings)) {
		to := belongings[name]
		if !flags.Changed(name) || slices.ContainsFunc(to, flags.Changed) {
			continue
		}
		return cli.Usage("--%s has no effect without --%s", name, strings.Join(to, " or --"))
	}
	if flags.Changed("discard") {
		for _, name := range []string{
			"max-attempts", "max-age", "max-busy", "retry-base", "retry-max", "concurrency",
		} {
			if flags.Changed(name) {
				return cli.Usage("--%s has no effect with --discard, which starts no task", name)
			}
		}
	}
	return nil
}

func (f *workFlags) check() error {
	ways := 0
	for _, is := range []bool{
		f.exec != "", f.execEach != "", f.http != "", f.countBy != "", f.discard,
	} {
		if is {
			ways++
		}
	}
	switch {
	case f.sum != "" && f.countBy == "":
		return cli.Usage("--sum needs --count-by: a sum belongs to the value that is counted by")
	case ways == 0 && f.out == "":
		return cli.Usage("nothing says what to do with a task; " +
			"give --exec, --exec-each, --http, --out, --count-by or --discard")
	case ways > 1:
		return cli.Usage("only one of --exec, --exec-each, --http, --count-by and --discard can be given")
	case f.results && f.out != "":
		return cli.Usage("only one of --results and --out can be given")
	case f.discard && f.out != "":
		return cli.Usage("--discard has nothing to write to --out")
	case f.countBy != "" && f.out != "":
		return cli.Usage("--count-by has nothing to write to --out; `distributor " +
			"counts` shows what was counted")
	case f.children < 1 || f.children > 10_000:
		return cli.Usage("--children: %d is out of range; use 1 to 10000", f.children)
	case f.batch < 1 || f.batch > 10_000:
		return cli.Usage("--batch: %d is out of range; use 1 to 10000", f.batch)
	case f.timeout <= 0:
		return cli.Usage("--task-timeout: %v is out of range; use more than 0", f.timeout)
	case f.patience <= 0:
		return cli.Usage("--out-patience: %v is out of range; use more than 0", f.patience)
	case len(f.headers) > 0 && f.http == "":
		return cli.Usage("--http-header needs --http")
	}
	return nil
}

// handler is a pump.Handler with its settings.
type handler struct {
	handler     pump.Handler    // nil to discard
	concurrency int             // that suits it; 0 for the default
	failures    func() []string // the first ones; may be nil
	closers     []func() error
	reopen      func()          // opens --out again; nil without --out
	amiss       []func() string // what keeps it from working; "": nothing
	printsTo    io.Writer       // where the summary goes; nil: to standard output
}

func (h *handler) close() error {
	var errs []error
	for _, c := range h.closers {
		errs = append(errs, c())
	}
	return errors.Join(errs...)
}

// handler makes the handler that the flags ask for. It calls broken when it turns out that it
// cannot work. The end of ctx means that the processor stops.
func (f *workFlags) handler(
	ctx context.Context, file *configfile.File, log *slog.Logger, broken func(error),
) (*handler, error) {
	h := &handler{}
	if f.discard {
		return h, nil
	}
	if f.countBy != "" {
		h.handler = handlers.CountBy(f.countBy, f.sum)
		return h, nil
	}
	w, err := f.worker(ctx, h, file, log, broken)
	if err != nil {
		return nil, err
	}
	if w != nil {
		noted := handlers.NewNoted(w)
		h.failures = noted.First
		w = noted
	}
	if f.out == "" {
		h.handler = handlers.Handler(w)
		return h, nil
	}
	out, err := handlers.OpenFile(f.out,
		handlers.FileOptions{Patience: f.patience, Broken: broken, Stopping: ctx.Done(), Log: log})
	if err != nil {
		return nil, errors.Join(err, h.close())
	}
	h.closers = append(h.closers, out.Close)
	h.reopen, h.amiss = out.Reopen, append(h.amiss, out.Amiss)
	if info, err := os.Stat(f.out); err == nil && handlers.IsStdout(info) {
		h.printsTo = os.Stderr // not between lines, and not over the first one
	}
	if w == nil {
		h.handler = out
		return h, nil
	}
	// More tasks than children, so that one fsync serves many: a task whose result waits for the disk
	// needs no child any more. But not if tasks that wait for a child would hold their keys meanwhile,
	// and after a crash for the whole interval.
	if h.concurrency > 0 && !f.claims {
		h.concurrency = max(64, 2*f.children)
	}
	h.handler = handlers.Recorded(w, out)
	return h, nil
}

// worker makes what does the work, nil if there is only --out.
func (f *workFlags) worker(
	ctx context.Context, h *handler, file *configfile.File, log *slog.Logger, broken func(error),
) (handlers.Worker, error) {
	switch {
	case f.exec != "":
		o, err := f.command(f.exec, file, log, broken)
		if err != nil {
			return nil, cli.Usage("--exec: %w", err)
		}
		w, err := handlers.NewExec(o)
		if err != nil {
			return nil, cli.Usage("--exec: %w", err)
		}
		h.concurrency = f.children
		h.closers = append(h.closers, w.Close)
		h.amiss = append(h.amiss, w.Amiss)
		return w, nil
	case f.execEach != "":
		o, err := f.command(f.execEach, file, log, broken)
		if err != nil {
			return nil, cli.Usage("--exec-each: %w", err)
		}
		w, err := handlers.NewExecEach(o)
		if err != nil {
			return nil, cli.Usage("--exec-each: %w", err)
		}
		h.concurrency = f.children
		h.amiss = append(h.amiss, w.Amiss)
		return w, nil
	case f.http != "":
		header, err := parseHeaders(f.headers)
		if err != nil {
			return nil, err
		}
		w, err := handlers.NewHTTP(handlers.HTTPOptions{
			URL: f.http, Header: header, Timeout: f.timeout, Concurrency: f.connections,
			Stopping: ctx.Done(), Log: log,
		})
		if err != nil {
			return nil, cli.Usage("--http: %w", err)
		}
		return w, nil
	}
	return nil, nil
}

func (f *workFlags) command(
	line string, file *configfile.File, log *slog.Logger, broken func(error),
) (handlers.CommandOptions, error) {
	argv, err := cli.Split(line)
	return handlers.CommandOptions{
		Argv: argv, Env: cli.ChildEnv(file, f.keepEnv), Children: f.children,
		Batch: f.batch, Timeout: f.timeout, Broken: broken, Log: log,
	}, err
}

// parseHeaders reads --http-header. Its errors hold no value, which may be a secret.
func parseHeaders(lines []string) (http.Header, error) {
	out := http.Header{}
	for i, line := range lines {
		name, value, found := strings.Cut(strings.TrimSpace(line), ":")
		// A name that no request takes would look like an endpoint that cannot be reached.
		if !found || !httpguts.ValidHeaderFieldName(name) {
			return nil, cli.Usage("--http-header: number %d is not a header; write 'Name: value'", i+1)
		}
		value, _, err := configfile.Expand(strings.TrimSpace(value), os.LookupEnv)
		if err != nil {
			return nil, cli.Usage("--http-header %s: %w", name, err)
		}
		if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
			return nil, cli.Usage("--http-header: number %d holds a character that a header must not", i+1)
		}
		out.Add(name, value)
	}
	return out, nil
}

// advice says how to find out why a command does not work. It leaves out the arguments, which may
// hold a secret.
func (f *workFlags) advice() string {
	line := cmp.Or(f.exec, f.execEach)
	argv, err := cli.Split(line)
	if line == "" || err != nil {
		return ""
	}
	return fmt.Sprintf("\nrun %q by hand, in the directory and with the user of the processor; "+
		"what it reads and prints: processor help exec", argv[0])
}
