package operate

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/queuepump/queuepump/internal/cli"
	"github.com/queuepump/queuepump/internal/configfile"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/quarantine"
	"github.com/queuepump/queuepump/pump/runs"
	"github.com/queuepump/queuepump/shardmap"
)

// peekFlags are the flags of `peek`.
type peekFlags struct {
	config, key, run, queue string
	segment, tasks          int
	raw, json               bool
}

// peekCommand is the command `peek` of either binary.
func peekCommand() *cobra.Command {
	var f peekFlags
	cmd := &cobra.Command{
		Use:   "peek",
		Short: "Show messages that wait, without taking them",
		Long: `Show the first 32 visible messages of each queue, unpacked. Nothing is taken and
nothing is hidden from the processors. The service shows no more than those 32. For each
queue and at the end the command says how many messages it cannot see, by the service's
approximate count. They are behind the first 32, or hidden: being handled, or put back
for later. Quarantine is shown by distributor quarantine.

What a terminal might obey is escaped, and long bodies are cut. --json prints each queue
as an object on a line of its own, with whole bodies. --raw writes the texts that no
distributor made, or that cannot be unpacked, as they are, a line break between them.`,
		Example: `  distributor peek --config pump.yaml
  distributor peek --config pump.yaml --key Oslo --tasks 0
  distributor peek --config pump.yaml --run 6f3a --segment 12
  distributor peek --config pump.yaml --raw >foreign.txt
  distributor peek --config pump.yaml --json | jq '.shown[].contents[].body'`,
		Args: cli.NoArguments(nil),
		RunE: cli.Command(f.show),
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	cli.ConfigFlag(cmd, &f.config)
	flags.StringVar(&f.key, "key", "", "only tasks of this key")
	flags.StringVar(&f.run, "run", "", "only tasks of this run, by its `ID` or the beginning of it")
	flags.IntVar(&f.segment, "segment", 0, "only tasks of this segment")
	flags.StringVar(&f.queue, "queue", "", "only this queue, as `ACCOUNT/QUEUE`")
	flags.IntVar(&f.tasks, "tasks", 3, "show at most `N` tasks of each message; 0 is all")
	flags.BoolVar(&f.raw, "raw", false,
		"write the texts that no distributor made, as they are, and nothing else")
	flags.BoolVar(&f.json, "json", false, "print each queue as a JSON object on a line of its own")
	return cmd
}

func (f *peekFlags) check(cmd *cobra.Command) error {
	switch {
	case f.raw && f.json:
		return cli.Usage("only one of --raw and --json can be given")
	case f.raw && f.run != "":
		return cli.Usage("--raw is about texts that no distributor made, which have no run")
	case f.tasks < 0:
		return cli.Usage("--tasks: %d is negative; use 0 for all", f.tasks)
	case cmd.Flags().Changed("segment") && (f.segment < 0 || f.segment >= shardmap.MaxSegments):
		return cli.Usage("--segment: %d is out of range; use 0 to %d", f.segment, shardmap.MaxSegments-1)
	}
	return nil
}

// filter is what the flags mean.
func (f *peekFlags) filter(cmd *cobra.Command, cfg pump.Config) (quarantine.PeekFilter, error) {
	filter := quarantine.PeekFilter{Foreign: f.raw, Queue: f.queue}
	if cmd.Flags().Changed("key") {
		filter.Key = []byte(f.key)
	}
	if cmd.Flags().Changed("segment") {
		filter.Segment = new(uint32(f.segment))
	}
	if f.run != "" {
		var err error
		if filter.Run, err = runs.Find(cmd.Context(), cfg, f.run); err != nil {
			return filter, err
		}
	}
	return filter, nil
}

func (f *peekFlags) show(cmd *cobra.Command) error {
	if err := f.check(cmd); err != nil {
		return err
	}
	file, err := configfile.Load(f.config)
	if err != nil {
		return err
	}
	filter, err := f.filter(cmd, file.Config)
	if err != nil {
		return cli.Explain(err, file)
	}
	out := bufio.NewWriter(cmd.OutOrStdout())
	var printing error
	raw := &apart{w: out}
	ctx := cmd.Context()
	sum, err := quarantine.Peek(ctx, file.Config, filter, func(q *quarantine.PeekedQueue) bool {
		switch {
		case f.json:
			printing = cli.PlainJSON(out, shownQueue(q))
		case f.raw:
			for _, m := range q.Shown {
				printing = raw.write(m.Text)
			}
		default:
			f.print(out, q, time.Now())
		}
		if printing == nil {
			printing = out.Flush()
		}
		return printing == nil
	})
	if err == nil && printing == nil {
		line := out
		if f.json || f.raw {
			line = bufio.NewWriter(cmd.ErrOrStderr())
		}
		printSum(line, sum)
		printing = line.Flush()
		if sum.Dark > 0 {
			err = fmt.Errorf("%s could not be looked at", cli.Plural(int64(sum.Dark), "queue"))
		}
	}
	if interrupted := cli.WasInterrupted(cmd.Context()); interrupted != nil && err != nil {
		return errors.Join(interrupted, err)
	}
	return errors.Join(printing, cli.Explain(err, file))
}

func printSum(w io.Writer, s quarantine.PeekedSum) {
	fmt.Fprintf(w, "%s: %s, %s seen, %s not seen; %s shown\n", cli.Plural(int64(s.Queues), "queue"),
		cli.Plural(s.Messages, "message"), humanize.Comma(int64(s.Seen)), humanize.Comma(s.Unseen),
		humanize.Comma(int64(s.Matching)))
}

// print prints a queue for people, unless it has nothing to show.
func (f *peekFlags) print(w io.Writer, q *quarantine.PeekedQueue, now time.Time) {
	if q.Dark == "" && len(q.Shown) == 0 {
		return
	}
	fmt.Fprintf(w, "%s/%s: ", cli.Plain(q.Account), cli.Plain(q.Queue))
	if q.Dark != "" {
		fmt.Fprintf(w, "not looked at: %s\n", cli.Plain(q.Dark))
	} else {
		fmt.Fprintf(w, "%s, %d seen, %s not seen\n", cli.Plural(q.Messages, "message"), q.Seen,
			humanize.Comma(q.Unseen))
	}
	for _, m := range q.Shown {
		f.message(w, m, now)
	}
}

func (f *peekFlags) message(w io.Writer, m *quarantine.Peeked, now time.Time) {
	age := max(now.Sub(m.Put), 0).Round(time.Second)
	what := "run " + m.Run
	switch {
	case m.Foreign:
		what = "foreign text"
	case m.Run == "" && m.Problem != "":
		what = "no envelope"
	case m.Run == "":
		what = "foreign text in an envelope"
	}
	if m.Segment != nil {
		what += fmt.Sprintf(", segment %d", *m.Segment)
	}
	tasks := cli.Plural(int64(m.Tasks), "task")
	if m.Matching < m.Tasks {
		tasks = fmt.Sprintf("%d of %s", m.Matching, tasks)
	}
	fmt.Fprintf(w, "  %s: %s, %s, put %v ago", what, tasks, cli.Bytes(int64(m.Bytes)), age)
	if m.Attempt > 0 {
		fmt.Fprintf(w, ", tried %d times", m.Attempt)
	}
	if m.Dequeued > 0 {
		fmt.Fprintf(w, ", delivered %d times", m.Dequeued)
	}
	fmt.Fprintf(w, ", id %s\n", cli.Plain(m.ID))
	switch {
	case m.Problem != "":
		fmt.Fprintf(w, "    cannot be unpacked: %s\n", cli.Plain(m.Problem))
	case m.Foreign:
		t := m.Contents[0]
		fmt.Fprintf(w, "    %s%s%s\n", shownKey(t.Key), quoted(t.Body), encoded(m))
		return
	}
	for i, t := range m.Contents {
		if f.tasks > 0 && i == f.tasks {
			fmt.Fprintf(w, "    and %s more\n", humanize.Comma(int64(len(m.Contents)-i)))
			return
		}
		name := fmt.Sprintf("n=%d", t.N)
		if t.ID != "" {
			name += " id=" + strconv.QuoteToGraphic(t.ID)
		}
		fmt.Fprintf(w, "    %s %s%s\n", name, shownKey(t.Key), quoted(t.Body))
	}
}

func shownKey(key []byte) string {
	if len(key) == 0 {
		return ""
	}
	return "key=" + strconv.QuoteToGraphic(string(key)) + " "
}

// encoded says that a foreign text is not its task's body.
func encoded(m *quarantine.Peeked) string {
	if bytes.Equal(m.Text, m.Contents[0].Body) {
		return ""
	}
	return " (the message is an encoding of it)"
}

// QueueLine is a line of `peek --json`.
type QueueLine struct {
	*quarantine.PeekedQueue
	Shown []PeekedLine `json:"shown"`
}

// PeekedLine is a message of a [QueueLine].
type PeekedLine struct {
	*quarantine.Peeked
	Contents []TaskLine `json:"contents"`
	// Text is the text of a foreign message, or of a message that cannot be unpacked.
	Text       *string `json:"text,omitempty"`
	TextBase64 []byte  `json:"textBase64,omitempty"`
}

func shownQueue(q *quarantine.PeekedQueue) QueueLine {
	line := QueueLine{PeekedQueue: q, Shown: []PeekedLine{}}
	for _, m := range q.Shown {
		ml := PeekedLine{Peeked: m, Contents: []TaskLine{}}
		if m.Foreign || m.Problem != "" {
			ml.Text, ml.TextBase64 = texts(m.Text)
		}
		for _, t := range m.Contents {
			ml.Contents = append(ml.Contents, shownTask(t.N, t.ID, "", t.Key, t.Body))
		}
		line.Shown = append(line.Shown, ml)
	}
	return line
}
