package operate

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/cli"
	"github.com/queuepump/queuepump/pump/quarantine"
)

func quarantineCommand(short string, sub ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "quarantine",
		Short: short,
		Long: `Tasks that were rejected, failed too often, ended their processes or could not be
read are in quarantine: a queue WORKLOAD-poison in each account, with the cause. These
commands look at all accounts of the configuration at once, drained ones too.

` + aboutHiding + `

Causes:
  rejected, attempts, age, not-now  the handler said so, failed too often or for too long, or was
                                    told "not now" for too long
  state-full                        its reducer's state had no room for it for an hour
  no-body                           the blob with its body is gone, or has other bytes
  ends-process                      its processes died, or were not heard of again
  truncated, corrupt, bomb          the message cannot be unpacked
  unknown-run, other-workload       no processor of this workload may do it
  run-ended, run-expired            its run has ended, or its rows are gone; redriven it is done
                                    (with --again where its rows are gone)
  bad-line                          no task could be made of a line (see
                                    --on-bad-line of distributor run)`,
	}
	return cli.Group(cmd, sub...)
}

const aboutHiding = `Messages are taken to be looked at, for five minutes at most, and put back
before the command ends, also by Ctrl-C. Another command that looks at the same time sees
only the others. Messages that a killed command had taken are there again after five minutes.`

// which says which messages are meant.
type which struct {
	reporting
	causes []string
	key    string
	since  string
	until  string
	runID  string
	ids    []string
	limit  int
}

func (w *which) addFlags(cmd *cobra.Command, limit int) {
	w.add(cmd)
	flags := cmd.Flags()
	flags.Lookup("json").Usage = "print each message as a JSON object on a line of its own"
	flags.StringSliceVar(&w.causes, "cause", nil,
		"only what is there for this `REASON`; may be given several times")
	flags.StringVar(&w.key, "key", "",
		"only tasks of this key; others in the same message stay as they are")
	flags.StringVar(&w.since, "since", "",
		"only what was last tried at or after this `TIME`: 2h (ago), 2006-01-02, "+
			"2006-01-02 15:04, RFC 3339")
	flags.StringVar(&w.until, "until", "", "only what was last tried before this `TIME`")
	flags.StringVar(&w.runID, "run", "", "only tasks of this run, by its `ID` or the beginning of it")
	flags.StringSliceVar(&w.ids, "id", nil,
		"only the message with this `ID`; may be given several times")
	flags.IntVar(&w.limit, "limit", limit, "at most `N` messages; 0 is all")
	w.flags.Add(cmd, 10*time.Second)
}

// causes are the reasons for which a message may be in quarantine.
var causes = []string{
	codec.ReasonRejected, codec.ReasonAttempts, codec.ReasonAge, codec.ReasonNotNow,
	codec.ReasonStateFull, codec.ReasonNoBody, codec.ReasonEndsProcess, codec.ReasonTruncated,
	codec.ReasonCorrupt, codec.ReasonBomb, codec.ReasonUnknownRun, codec.ReasonRunExpired,
	codec.ReasonRunEnded, codec.ReasonOtherWorkload, codec.ReasonBadLine,
}

// filter is what the flags mean.
func (w *which) filter(cmd *cobra.Command, now time.Time) (f quarantine.Filter, err error) {
	f = quarantine.Filter{Reasons: w.causes, IDs: w.ids, Limit: w.limit}
	if w.limit < 0 {
		return f, cli.Usage("--limit: %d is negative; use 0 for all", w.limit)
	}
	for _, c := range w.causes {
		if !slices.Contains(causes, c) { // otherwise a slip would look like an empty quarantine
			return f, cli.Usage("--cause: nothing is in quarantine for %q; the causes are %s", c,
				strings.Join(causes, ", "))
		}
	}
	if cmd.Flags().Changed("key") {
		f.Key = []byte(w.key)
	}
	if w.runID != "" {
		if f.Run, err = findRun(cmd.Context(), w.cfg, "--run", w.runID); err != nil {
			return f, err
		}
	}
	if f.Since, err = when("since", w.since, now); err != nil {
		return f, err
	}
	f.Until, err = when("until", w.until, now)
	return f, err
}

// when reads a time as people write it: in the local zone, or as how long ago it was.
func when(flag, s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if days, ok := strings.CutSuffix(s, "d"); ok {
		if n, err := strconv.ParseUint(days, 10, 16); err == nil {
			return now.AddDate(0, 0, -int(n)), nil
		}
	}
	if d, err := time.ParseDuration(s); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	for _, layout := range []string{
		time.RFC3339, time.DateTime, "2006-01-02 15:04", "2006-01-02T15:04", time.DateOnly,
	} {
		if t, err := time.ParseInLocation(layout, s, now.Location()); err == nil {
			return t, nil
		}
	}
	return time.Time{}, cli.Usage("--%s: %q is not a time; "+
		"use 90m, 2h or 3d for so long ago, 2006-01-02, 2006-01-02 15:04 or RFC 3339", flag, s)
}

// open opens the quarantine, with its log on the console.
func (w *which) open(cmd *cobra.Command) (*quarantine.Quarantine, error) {
	defer w.saySlow(w.console.Log)()
	return quarantine.Open(cmd.Context(), w.cfg)
}

// counted adds messages up, for the last line.
type counted struct {
	messages, tasks, stuck int64
	reasons                map[string]int64
}

func (c *counted) add(m *quarantine.Message) {
	if c.reasons == nil {
		c.reasons = map[string]int64{}
	}
	c.messages++
	c.tasks += int64(m.Matching)
	if m.Problem != "" {
		c.stuck++
	}
	c.reasons[cmp.Or(m.Reason, "no cause")] += int64(m.Matching)
}

func (c *counted) what() string {
	return cli.Plural(c.messages, "message") + " with " + cli.Plural(c.tasks, "task")
}

func (c *counted) why() string {
	var parts []string
	for _, r := range slices.Sorted(maps.Keys(c.reasons)) {
		parts = append(parts, fmt.Sprintf("%s %s", plain(r), humanize.Comma(c.reasons[r])))
	}
	return strings.Join(parts, ", ")
}

func quarantineList() *cobra.Command {
	var w which
	var each bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List what is in quarantine, by cause",
		Long: `List what is in quarantine, by cause and text: how many messages and tasks there are, of
which keys and ids, and when the last came. Texts that differ in numbers alone are one.
--each lists each message, with how often and by whom it was tried. ` + "`quarantine show`" + `
shows their tasks.

` + aboutHiding,
		Example: `  distributor quarantine list --config pump.yaml
  distributor quarantine list --config pump.yaml --cause attempts --since 2h --each
  distributor quarantine list --config pump.yaml --json | jq -r .reason | sort | uniq -c`,
		Args: cli.NoArguments(nil),
		RunE: w.run(func(cmd *cobra.Command, _ []string) error { return w.list(cmd, each) }),
	}
	w.addFlags(cmd, 0)
	cmd.Flags().BoolVar(&each, "each", false, "a line for each message")
	return cmd
}

func (w *which) list(cmd *cobra.Command, each bool) error {
	now, out := time.Now(), cmd.OutOrStdout()
	f, err := w.filter(cmd, now)
	if err != nil {
		return err
	}
	q, err := w.open(cmd)
	if err != nil {
		return err
	}
	t := &Table{Columns: Columns(
		Short("CAUSE", 8), Right("TRIES"), Right("TASKS"), Left("FIRST"),
		Left("LAST"), Short("KEYS", 8), Short("IDS", 8), Short("WHY", 16),
		Middle("INSTANCE", 8), Middle("ACCOUNT", 8), Left("ID"),
		Left("NOTE"),
	)}
	day := func(t time.Time) string { return timeText(t, now) }
	var c counted
	var printing error
	byText := groups{}
	err = q.List(cmd.Context(), f, func(m *quarantine.Message) bool {
		c.add(m)
		if w.json {
			printing = printJSON(out, m)
			return printing == nil
		}
		w.console.Progress(c.messages, 0, "messages", "messages", c.messages)
		if !each {
			byText.add(m)
			return true
		}
		keys, ids := names{}, names{}
		namesIn(m, keys, ids)
		tasks := humanize.Comma(int64(m.Matching))
		if m.Matching < m.Tasks {
			tasks += " of " + humanize.Comma(int64(m.Tasks))
		}
		t.Add(cmp.Or(plain(m.Reason), "?"), number(int64(m.Attempts)), tasks,
			Known(m.First, day, ""), day(*cmp.Or(m.Last, &m.Put)), keys.text(1), ids.text(1),
			plain(m.Detail), plain(m.Instance), plain(m.Account), plain(m.ID),
			If(m.Problem != "", "stuck"))
		return true
	})
	w.console.Done()
	if w.json {
		return errors.Join(printing, err)
	}
	if !each {
		t = byText.table(day)
	}
	t.Write(out, screenWidth(out))
	switch {
	case c.messages == 0 && err == nil:
		_, printing = fmt.Fprintln(out, "nothing in quarantine matches")
	case c.messages > 0:
		_, printing = fmt.Fprintf(out, "%s: %s\n", c.what(), c.why())
		if c.stuck > 0 {
			fmt.Fprintf(out, "%s cannot be redriven (stuck); `quarantine show` says why\n",
				cli.Plural(c.stuck, "message"))
		}
	}
	return errors.Join(printing, err)
}

// moving is what redrive and drop share.
type moving struct {
	which
	dry   bool
	rate  float64
	yes   bool
	again bool
}

func (m *moving) addFlags(cmd *cobra.Command) {
	m.which.addFlags(cmd, 0)
	cmd.Flags().BoolVar(&m.dry, "dry-run", false, "only say what would be done")
	cmd.Flags().Float64Var(&m.rate, "rate", 0,
		"at most `N` messages a second (default: as fast as the budgets allow)")
}

func quarantineRedrive() *cobra.Command {
	var m moving
	cmd := &cobra.Command{
		Use:   "redrive",
		Short: "Put tasks back into their queues, to be tried again",
		Long: `Put tasks from quarantine back into their queues, where they are tried as if for the
first time. First mend what made them fail. With "delivery: once" a task that is
recorded as done is recognised and not done again.

A redrive that was killed, or not answered, may have put a task back and left it in
quarantine as well. A later redrive does not have that task done twice: the processor
recognises it. Where nothing says any more whether it was done, the task stays, and you
decide: drop it, or redrive it with --again. The same holds for a task whose run is over,
or whose run's row is gone after the retention or a restore: a copy may have done it.

What cannot be redriven stays, the command says why, and its exit status is 1. What
fails again while the command runs is not redriven again by it.

` + aboutHiding,
		Example: `  # what would be redriven, and then that
  distributor quarantine redrive --config pump.yaml --cause attempts --since 2h --dry-run
  distributor quarantine redrive --config pump.yaml --cause attempts --since 2h
  distributor quarantine redrive --config pump.yaml --key Oslo --rate 5`,
		Args: cli.NoArguments(nil),
		RunE: m.run(func(cmd *cobra.Command, _ []string) error {
			return m.move(cmd, quarantine.Redriven)
		}),
	}
	m.addFlags(cmd)
	cmd.Flags().BoolVar(&m.again, "again", false,
		"also what may have been done, by an interrupted redrive or by a copy, where that is not "+
			"known any more: it may be done twice")
	return cmd
}

func quarantineDrop() *cobra.Command {
	var m moving
	cmd := &cobra.Command{
		Use:   "drop",
		Short: "Give tasks in quarantine up for good",
		Long: `Delete tasks in quarantine for good. With "delivery: once" they count as done from
then on, so that their runs can be complete.

It asks before, unless --yes is given.

` + aboutHiding,
		Example: `  distributor quarantine drop --config pump.yaml --cause bad-line --dry-run
  distributor quarantine drop --config pump.yaml --id 5f0e4a1c-2f83-4f0b-9d55-0a8d5c3e7f11 --yes`,
		Args: cli.NoArguments(nil),
		RunE: m.run(func(cmd *cobra.Command, _ []string) error {
			return m.move(cmd, quarantine.Dropped)
		}),
	}
	m.addFlags(cmd)
	cmd.Flags().BoolVarP(&m.yes, "yes", "y", false, "do not ask")
	return cmd
}

// move redrives or drops the messages that are meant, and tells the result.
func (m *moving) move(cmd *cobra.Command, outcome string) error {
	f, err := m.filter(cmd, time.Now())
	if err != nil {
		return err
	}
	if cmd.Flags().Changed("rate") && !(m.rate >= 0.01 && m.rate <= 1e6) {
		return cli.Usage("--rate: %v is out of range; use 0.01 to 1e6, or leave it out for no limit",
			m.rate)
	}
	if outcome == quarantine.Dropped && !m.yes && !m.dry && !terminal(cmd) {
		return confirm(cmd, "Tasks will be gone for good.")
	}
	q, err := m.open(cmd)
	if err != nil {
		return err
	}
	if outcome == quarantine.Dropped && !m.yes && !m.dry {
		if err := m.ask(cmd, q, f); err != nil {
			return err
		}
	}
	do := q.Redrive
	if outcome == quarantine.Dropped {
		do = q.Drop
	}
	var moved, kept counted
	var printing error
	out, total, began := cmd.OutOrStdout(), q.Count(cmd.Context()), time.Now()
	if f.Limit > 0 {
		total = min(total, int64(f.Limit))
	}
	options := quarantine.Options{Rate: m.rate, Dry: m.dry, Again: m.again}
	err = do(cmd.Context(), f, options, func(o quarantine.Outcome) bool {
		if o.Outcome == quarantine.Kept {
			kept.add(o.Message)
		} else {
			moved.add(o.Message)
		}
		switch {
		case m.json:
			printing = printJSON(out, o)
		case o.Outcome == quarantine.Kept && kept.messages <= 20:
			_, printing = fmt.Fprintf(out, "kept %s/%s (%s): %s\n",
				plain(o.Account), plain(o.ID), cli.Plural(int64(o.Tasks), "task"), plain(o.Problem))
		}
		seen := moved.messages + kept.messages
		text, left := timeLeft(seen, total, time.Since(began))
		m.console.Progress(seen, total, outcome+text, outcome, moved.messages, "kept", kept.messages,
			"of_at_most", total, "left", left)
		return printing == nil
	})
	m.console.Done()
	if !m.json {
		printing = errors.Join(printing, m.report(out, outcome, &moved, &kept))
	}
	if err == nil && kept.messages > 0 && !m.dry {
		err = fmt.Errorf("%s could not be %s", cli.Plural(kept.messages, "message"), outcome)
	}
	return errors.Join(printing, err)
}

// timeLeft is how long the rest takes at the speed until now; empty if that is not known. Total is
// all that is in quarantine, so with a filter it takes less.
func timeLeft(seen, total int64, took time.Duration) (text string, left time.Duration) {
	if seen <= 0 || seen >= total || took < time.Second {
		return "", 0
	}
	left = time.Duration(float64(took) / float64(seen) * float64(total-seen)).Round(time.Second)
	return fmt.Sprintf(" %s of at most %s, %v left", humanize.Comma(seen), humanize.Comma(total),
		left), left
}

// ask says how much would be dropped, and asks.
func (m *moving) ask(cmd *cobra.Command, q *quarantine.Quarantine, f quarantine.Filter) error {
	var c counted
	if err := q.List(cmd.Context(), f, func(m *quarantine.Message) bool {
		c.add(m)
		return true
	}); err != nil {
		return err
	}
	if c.messages == 0 {
		return nil
	}
	return confirm(cmd, fmt.Sprintf("%s (%s) will be gone for good.", c.what(), c.why()))
}

func (m *moving) report(w io.Writer, outcome string, moved, kept *counted) error {
	was, stays := "", " stay in quarantine"
	if m.dry {
		was, stays = "would be ", " would stay in quarantine"
	}
	text := Join("; ",
		If(moved.messages > 0, fmt.Sprintf("%s %s%s: %s", moved.what(), was, outcome, moved.why())),
		If(kept.messages > 0, kept.what()+stays))
	_, err := fmt.Fprintln(w, cmp.Or(text, "nothing in quarantine matches"))
	return err
}
