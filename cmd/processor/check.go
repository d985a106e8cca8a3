package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/cli"
	"github.com/queuepump/queuepump/internal/configfile"
	"github.com/queuepump/queuepump/internal/handlers"
	"github.com/queuepump/queuepump/internal/jsonline"
	"github.com/queuepump/queuepump/internal/taskline"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/source"
	"github.com/queuepump/queuepump/shardmap"
)

// checkFlags are the flags of `processor check`.
type checkFlags struct {
	work    workFlags
	input   string
	format  string
	foreign string
	// encoding of the text
	encoding string
	key, id  string
	comma    string
	limit    int
	json     bool
	console  cli.ConsoleFlags
}

func check() *cobra.Command {
	f := checkFlags{work: workFlags{children: 1, batch: 1, patience: time.Second}}
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Try a command or an endpoint on some lines, without any account",
		Long: `Try what does the work, on the lines of a file and without any account: each line
becomes a task, which goes through the very code that processor run uses, one after the
other. For each the outcome, the time and the result or the error are printed.

  done       the task would be settled
  failed     it would be tried again, with growing delay, and be quarantined in the end
  retry      it would be tried again after that time
  rejected   it would be quarantined at once
  untried    nothing can be said: the command cannot be started, or nothing listens there
  bad-line   no task can be made of the line

` + "`processor help exec`" + ` and http say how a task travels. What a command prints on standard
error goes to the log. No configuration is read, so a command gets all variables but those of
Azure's credentials.

Exit status:
  0    every task was done
  1    some were not
  2    the command line is wrong; nothing was done
  130  ended by SIGINT, 143 by SIGTERM`,
		Example: `  processor check --exec 'python3 worker.py' --input sample.jsonl
  processor check --exec-each ./convert.sh --input sample.csv --key customer
  distributor peek --raw | processor check --foreign auto --key city --exec ./work --input -
  head -n 20 tasks.jsonl | processor check --http http://127.0.0.1:8080/task --input - --json`,
		Args: cobra.NoArgs,
		RunE: cli.Command(f.run),
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.work.exec, "exec", "", "give the tasks to a long-lived child running `CMD`")
	flags.StringVar(&f.work.execEach, "exec-each", "", "run `CMD` once for each task")
	flags.StringVar(&f.work.http, "http", "", "post each task to `URL`")
	flags.StringVar(&f.input, "input", "", "read the lines of the file `F`, or of standard input (-)")
	flags.StringVar(&f.format, "format", "", cli.FormatHelp)
	flags.StringVar(&f.key, "key", "",
		"the `FIELD` or column that is the key (default: the whole line)")
	flags.StringVar(&f.id, "id", "", "the `FIELD` or column with your own name of the task")
	flags.StringVar(&f.foreign, "foreign", "",
		"take each line for a message of another program, in the `ENCODING` auto, base64 or text")
	flags.StringVar(&f.comma, "csv-separator", "", cli.CommaHelp)
	flags.StringVar(&f.encoding, "encoding", "", cli.EncodingHelp)
	flags.IntVar(&f.limit, "limit", 0, "at most `N` lines; 0 is all")
	flags.DurationVar(&f.work.timeout, "task-timeout", 5*time.Minute, "how long one task may take")
	flags.StringArrayVar(
		&f.work.headers,
		"http-header",
		nil,
		"a `HEADER` sent with --http, as 'Name: value'; ${VAR} is taken from the "+
			"environment; may be repeated",
	)
	flags.StringArrayVar(
		&f.work.keepEnv,
		"keep-env",
		nil,
		"an environment variable `NAME` that commands get although it is a credential; may be repeated",
	)
	flags.BoolVar(&f.json, "json", false, "print each outcome as a JSON object on a line of its own")
	f.console.Add(cmd, 5*time.Second)
	return cmd
}

func (f *checkFlags) check() error {
	if f.work.exec == "" && f.work.execEach == "" && f.work.http == "" {
		return cli.Usage("nothing says what to try; give --exec, --exec-each or --http")
	}
	switch {
	case f.input == "":
		return cli.Usage("nothing says what to try it on; give --input")
	case f.foreign != "" && !slices.Contains(jsonline.ForeignEncodings, f.foreign):
		return cli.Usage("--foreign: %q is not an encoding; use auto, base64 or text", f.foreign)
	case f.foreign != "" && (f.format != "" || f.id != ""):
		return cli.Usage("--foreign takes lines as they are, without --format and --id")
	case f.limit < 0:
		return cli.Usage("--limit: %d is negative; use 0 for all", f.limit)
	}
	return f.work.check()
}

func (f *checkFlags) run(cmd *cobra.Command) error {
	if err := f.check(); err != nil {
		return err
	}
	console, err := f.console.Console()
	if err != nil {
		return err
	}
	src := &source.TextSource{
		Paths: []string{f.input}, Key: f.key, ID: f.id, Separator: f.comma,
		Encoding: f.encoding, Stdin: cmd.InOrStdin(),
	}
	if f.foreign != "" {
		src.Format, src.Key = source.FormatLines, ""
	} else if src.Format, err = cli.FormatOf(f.format, src.Paths); err != nil {
		return err
	}
	if err := src.Check(); err != nil {
		return cli.Explain(err, nil)
	}
	ctx, broken := context.WithCancelCause(cmd.Context())
	defer broken(nil)
	// An endpoint that cannot be reached gives a task back, as when a processor stops, and does not
	// hold it until the endpoint can be reached.
	stopped, stop := context.WithCancel(ctx)
	stop()
	h := &handler{}
	w, err := f.work.worker(stopped, h, &configfile.File{}, console.Log,
		func(err error) { broken(&brokenError{err}) })
	if err != nil {
		return err
	}
	sum, err := f.each(ctx, cmd.OutOrStdout(), src, w)
	if err = errors.Join(err, h.close()); err == nil && !f.json {
		_, err = fmt.Fprintln(cmd.OutOrStdout(), sum.String())
	}
	if interrupted := cli.WasInterrupted(cmd.Context()); interrupted != nil {
		return interrupted
	}
	if b, ok := errors.AsType[*brokenError](context.Cause(ctx)); ok {
		return b
	}
	if err == nil && sum.done < sum.tasks {
		err = cli.Reported(errors.New("not every task was done"))
	}
	return err
}

// The outcomes that this command itself tells apart; the others are those of [pump.OutcomeOf].
const (
	outcomeDone    = "done"
	outcomeUntried = "untried"
	outcomeBadLine = "bad-line"
)

// checkSum counts the results of all lines.
type checkSum struct {
	tasks, done int
	took        time.Duration
}

func (s checkSum) String() string {
	return fmt.Sprintf("%s tried, %d done, %d not, in %v", cli.Plural(int64(s.tasks), "task"),
		s.done, s.tasks-s.done, s.took.Round(time.Millisecond))
}

// each tries the lines one after the other.
func (f *checkFlags) each(
	ctx context.Context,
	out io.Writer,
	src source.Source,
	w handlers.Worker,
) (sum checkSum, err error) {
	reader, err := src.Open(ctx, nil)
	if err != nil {
		return sum, err
	}
	defer reader.Close()
	for n := 1; f.limit == 0 || n <= f.limit; n++ {
		record, err := reader.Next(ctx)
		if errors.Is(err, io.EOF) {
			return sum, nil
		}
		c := taskline.Checked{Line: n, Outcome: outcomeBadLine}
		if _, bad := errors.AsType[*source.BadInput](err); bad {
			c.Error = err.Error()
		} else if err != nil {
			return sum, err
		} else {
			began := time.Now()
			c = try(ctx, w, f.taskOf(record, n))
			took := time.Since(began)
			sum.took += took
			c.Line, c.Seconds = n, took.Round(time.Microsecond).Seconds()
		}
		if ctx.Err() != nil {
			return sum, nil // the task's error only says that it was given up
		}
		sum.tasks++
		if c.Outcome == outcomeDone {
			sum.done++
		}
		if err := f.print(out, &c); err != nil {
			return sum, err
		}
		if c.Outcome == outcomeUntried {
			return sum, errors.New("the rest was not tried: it would have said the same")
		}
	}
	return sum, nil
}

// taskOf makes the task that a distributor would make of the n-th record, without its run; or the
// task that a processor would make of the record as the text of a message.
func (f *checkFlags) taskOf(r source.Record, n int) *pump.Task {
	const segments = 256 // of a workload of one account
	if f.foreign != "" {
		key, body := jsonline.NewForeign(f.foreign, f.key).Read(r.Body)
		return &pump.Task{
			Segment: jsonline.ForeignSegment(r.Body, key, segments), Key: key, Body: body, Epoch: 1,
			Attempt: 1,
			Foreign: fmt.Sprintf("check/%d", n),
		}
	}
	return &pump.Task{
		Run: codec.RunID{15: 1}, Segment: shardmap.Segment(r.Key, segments), N: uint64(n - 1),
		Key: r.Key, ID: r.ID, Body: r.Body, Epoch: 1, Attempt: 1,
	}
}

func try(ctx context.Context, w handlers.Worker, t *pump.Task) (c taskline.Checked) {
	result, err := w.Work(ctx, t)
	outcome, after := pump.OutcomeOf(err)
	c.Outcome, c.Result = string(outcome), result
	if outcome == pump.OutcomeRetry || outcome == pump.OutcomeBusy {
		c.RetrySeconds = new(after.Seconds())
	}
	if err != nil {
		c.Error = err.Error()
	}
	return c
}

func (f *checkFlags) print(out io.Writer, c *taskline.Checked) error {
	if f.json {
		return cli.PlainJSON(out, c)
	}
	text := ""
	switch {
	case c.Error != "":
		text = strconv.QuoteToGraphic(c.Error)
	case len(c.Result) > 0:
		text = cli.Plain(cutText(string(c.Result)))
	}
	outcome := c.Outcome
	if c.RetrySeconds != nil {
		outcome += " in " + time.Duration(*c.RetrySeconds*float64(time.Second)).String()
	}
	_, err := fmt.Fprintf(out, "line %d: %s in %v  %s\n", c.Line, outcome,
		time.Duration(c.Seconds*float64(time.Second)), text)
	return err
}

// cutText is the beginning of a result.
func cutText(s string) string {
	const most = 400
	if len(s) <= most {
		return s
	}
	end := most
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "…"
}
