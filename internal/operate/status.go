package operate

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/queuepump/queuepump/internal/admin"
	"github.com/queuepump/queuepump/internal/cli"
	"github.com/queuepump/queuepump/pump/status"
)

// statusFlags are the flags of `distributor status`.
type statusFlags struct {
	operation
	watch   time.Duration
	width   int
	options status.Options
}

func statusCommand() *cobra.Command {
	var f statusFlags
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what the workload is doing",
		Long: `Show in the first line how the workload stands and what holds it back, and below it
the leader, the last runs, the processes, the accounts and what else needs an operator,
on one screen. Everything is read from the workload's rows and queues; no process is
asked, and an account that does not answer in time is shown as not read.

  SENT       tasks of the run; ≥ as far as is known while it goes on, ? if nothing is
  HANDLED    tasks handled, by what the processors have noted; a task that is
             delivered again counts again
  DONE LEFT  the same exactly, each task once: with delivery: once, instead of
  %          HANDLED. What is in quarantine is in the note, and not in LEFT
  VISIBLE    messages that a get would bring now. The service counts visible and
  IN FLIGHT  hidden messages together, and shows 32 of the visible ones. Where
             more are visible, only bounds are known: at least ≥ are visible,
             at most ≤ are in flight, which is being handled, or put back for later
  ENDING     runs that no distributor continues, with delivery: once: until each ends it
             takes room in the ledger. It ends when the queues are read beyond the LAST SIGN
             of it and then nothing of it is met for a quiet time, NOT BEFORE a time
  OLDEST     age of the oldest visible message that was shown
  BUDGET     what all processes would ask of the account now, as a part of its limit;
             without those that wait at a gate or have only just come
  silent     no beat for longer than a lease: dead, or cut off. Its segments count
             as without an owner; others take them when they have seen the same

With --json the names are stable and all is there that the screen leaves out.`,
		Example: `  distributor status --config pump.yaml
  distributor status --config pump.yaml --json | jq '.accounts[] | {name, messages}'`,
		Args: cobra.MaximumNArgs(1),
		RunE: f.run(func(cmd *cobra.Command, args []string) error { return f.show(cmd, args) }),
	}
	f.add(cmd)
	flags := cmd.Flags()
	flags.DurationVar(&f.watch, "watch", 0, "show it again and again, every 2s or in the time given")
	flags.Lookup("watch").NoOptDefVal = "2s"
	cli.Seldom(cmd, "watch")
	addReading(cmd, &f.options, 5)
	flags.IntVar(&f.width, "width", 0,
		"how wide the screen is (default: as the terminal; in a pipe nothing is cut)")
	return cmd
}

func (f *statusFlags) check(cmd *cobra.Command, args []string) error {
	watching := cmd.Flags().Changed("watch")
	if len(args) == 1 { // --watch 10s: a flag with an optional value takes none after a space
		d, err := time.ParseDuration(args[0])
		if !watching || err != nil {
			return cli.Usage("%q is not understood; did you mean --watch 2s?", args[0])
		}
		f.watch = d
	}
	switch {
	case watching && f.watch < 100*time.Millisecond:
		return cli.Usage("--watch: %v is out of range; use 100ms or more", f.watch)
	case f.width != 0 && f.width < 40:
		return cli.Usage("--width: %d is out of range; use 40 or more", f.width)
	}
	return checkReading(f.options)
}

// addReading adds the flags that bound a reading of the status.
func addReading(cmd *cobra.Command, o *status.Options, runs int) {
	cmd.Flags().IntVar(&o.Runs, "runs", runs, "how many of the last runs to show")
	cmd.Flags().IntVar(&o.Keys, "keys", 100, "how many keys with claims to look at")
	cmd.Flags().DurationVar(&o.Timeout, "timeout", 10*time.Second,
		"how long to wait for accounts that do not answer")
}

// checkReading checks the flags that bound a reading of the status.
func checkReading(o status.Options) error {
	switch {
	case o.Runs < 1 || o.Runs > 1000:
		return cli.Usage("--runs: %d is out of range; use 1 to 1000", o.Runs)
	case o.Keys < 1 || o.Keys > 10_000:
		return cli.Usage("--keys: %d is out of range; use 1 to 10000", o.Keys)
	case o.Timeout < 100*time.Millisecond:
		return cli.Usage("--timeout: %v is out of range; use 100ms or more", o.Timeout)
	}
	return nil
}

func (f *statusFlags) show(cmd *cobra.Command, args []string) error {
	if err := f.check(cmd, args); err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	if f.watch == 0 {
		s, err := status.Read(cmd.Context(), f.cfg, f.options)
		if s == nil {
			return err
		}
		if e := f.print(out, s, err); e != nil {
			return e
		}
		return err
	}
	return f.watching(cmd.Context(), out)
}

// watchRate bounds the requests a second of watching: the watcher of a thousand queues would
// otherwise use up the budget of the workers.
const watchRate = 100

// watching shows the status until a signal comes.
func (f *statusFlags) watching(ctx context.Context, out io.Writer) error {
	next := time.Now()
	for {
		s, err := status.Read(ctx, f.cfg, f.options)
		switch {
		case ctx.Err() != nil:
			return nil
		case s == nil:
			return err
		}
		if err := f.redraw(out, s, err); err != nil {
			return err
		}
		pause := max(f.watch, time.Duration(s.Requests)*time.Second/watchRate)
		if next = next.Add(pause); time.Until(next) <= 0 {
			next = time.Now()
		}
		t := time.NewTimer(time.Until(next))
		select {
		case <-ctx.Done():
			t.Stop()
			return nil
		case <-t.C:
		}
	}
}

// Status is what `status` prints with --json.
type Status struct {
	Headline admin.Headline `json:"headline"`
	*status.Status
}

// redraw writes over the last screen on a terminal, and below it elsewhere. The error is that of
// reading the status.
func (f *statusFlags) redraw(out io.Writer, s *status.Status, of error) error {
	_, height, terminal := size(out)
	if f.json || !terminal {
		if err := f.print(out, s, of); err != nil || f.json {
			return err
		}
		_, err := fmt.Fprintln(out)
		return err
	}
	var b bytes.Buffer
	if err := f.print(&b, s, of); err != nil {
		return err
	}
	lines := strings.SplitAfter(b.String(), "\n")
	lines = lines[:min(len(lines), max(height-1, 1))]
	// From the top, each line to its end, then the rest below: this does not flicker.
	text := strings.ReplaceAll(strings.Join(lines, ""), "\n", "\x1b[K\n")
	_, err := io.WriteString(out, "\x1b[H"+text+"\x1b[J")
	return err
}

func (f *statusFlags) print(out io.Writer, s *status.Status, of error) error {
	headline := admin.HeadlineOf(s, of)
	if f.json {
		return printJSON(out, Status{headline, s})
	}
	c := screen{width: 80, rows: 20, zone: time.Local, whole: true}
	if width, height, terminal := size(os.Stdout); terminal {
		c.width, c.whole = max(width, 40), false
		if f.watch > 0 {
			// Runs, gates and the lines above them take about half of a small terminal.
			c.rows = max(3, (height-14)/2)
		}
	}
	if f.width > 0 {
		c.width, c.whole = f.width, false
	}
	var b bytes.Buffer
	if c.whole {
		fmt.Fprintln(&b, plain(headline.Text)) // for programs it is one line
	} else {
		c.wrap(&b, "", plain(headline.Text))
	}
	c.draw(&b, s)
	_, err := out.Write(b.Bytes())
	return err
}

func size(out io.Writer) (width, height int, terminal bool) {
	file, ok := out.(*os.File)
	if !ok {
		return 0, 0, false
	}
	width, height, err := term.GetSize(int(file.Fd()))
	return width, height, err == nil && width > 0
}
