package operate

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/queuepump/queuepump/internal/cli"
	"github.com/queuepump/queuepump/pump/quarantine"
)

// showing is `quarantine show`.
type showing struct {
	which
	body  bool
	tasks int
}

func quarantineShow() *cobra.Command {
	var s showing
	cmd := &cobra.Command{
		Use:   "show [ID]...",
		Short: "Show messages in quarantine, with their tasks",
		Long: `Show messages in quarantine, by their ids or by what the flags say: the whole cause,
whether they can be redriven, and their tasks. What a terminal might obey is
escaped, and long bodies are cut.

--body writes the bodies as they are, a line break between them; of a message that
cannot be unpacked it writes the message. --json has bodies whole as well.

` + aboutHiding,
		Example: `  distributor quarantine show --config pump.yaml 5f0e4a1c-2f83-4f0b-9d55-0a8d5c3e7f11
  distributor quarantine show --config pump.yaml --cause rejected --limit 3
  distributor quarantine show --config pump.yaml --key Oslo --limit 0 --body >oslo.jsonl`,
		RunE: s.run(func(cmd *cobra.Command, args []string) error {
			s.ids = append(s.ids, args...)
			return s.show(cmd)
		}),
	}
	s.addFlags(cmd, 10)
	cmd.Flags().IntVar(&s.tasks, "tasks", 20, "show at most `N` tasks of each message; 0 is all")
	cmd.Flags().BoolVar(&s.body, "body", false,
		"write the bodies of the tasks as they are, and nothing else")
	return cmd
}

func (s *showing) show(cmd *cobra.Command) error {
	switch {
	case s.body && s.json:
		return cli.Usage("only one of --body and --json can be given")
	case s.tasks < 0:
		return cli.Usage("--tasks: %d is negative; use 0 for all", s.tasks)
	}
	now := time.Now()
	f, err := s.filter(cmd, now)
	if err != nil {
		return err
	}
	q, err := s.open(cmd)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(cmd.OutOrStdout())
	n, bodies := 0, &apart{w: out}
	var printing error
	err = q.List(cmd.Context(), f, func(m *quarantine.Message) bool {
		n++
		tasks, e := m.Open()
		switch {
		case s.body:
			if e != nil {
				tasks = []quarantine.Task{{Body: m.Text()}}
			}
			for _, t := range tasks {
				printing = bodies.write(t.Body)
			}
		case s.json:
			printing = printJSON(out, shownMessage(m, tasks))
		default:
			if n > 1 {
				fmt.Fprintln(out)
			}
			s.one(out, m, tasks, e, now)
		}
		return printing == nil
	})
	s.console.Done()
	if n == 0 && err == nil && !s.body && !s.json {
		fmt.Fprintln(out, "nothing in quarantine matches")
	}
	if n == 0 && err == nil && len(s.ids) > 0 {
		err = errors.New("no message in quarantine has that id; another command may " +
			"be looking at it just now")
	}
	if !s.body && !s.json && s.limit > 0 && n == s.limit {
		fmt.Fprintf(out, "\nthe first %s; --limit says how many\n", cli.Plural(int64(n), "message"))
	}
	return errors.Join(printing, out.Flush(), err)
}

// one prints a message for people.
func (s *showing) one(
	w io.Writer, m *quarantine.Message, tasks []quarantine.Task, err error, now time.Time,
) {
	line := Facts(w, 11)
	line("message", plain(m.ID)+" in account "+plain(m.Account))
	line("cause", cmp.Or(plain(m.Reason), "not known")+
		If(m.Detail != "", ": "+strconv.Quote(m.Detail)))
	at := func(t *time.Time) string {
		return Known(t, func(t time.Time) string { return timeText(t, now) }, "at an unknown time")
	}
	line("tried", fmt.Sprintf("%s, first %s, last %s, by %s",
		times(m.Attempts), at(m.First), at(m.Last), plain(m.Instance)))
	line("quarantined", timeText(m.Put, now))
	if m.Run != "" {
		line("run", fmt.Sprintf("%s, segment %d, generation %d", m.Run, *m.Segment, m.Generation))
	}
	line("stuck", If(m.Problem != "", "cannot be redriven: "+plain(m.Problem)))
	if err != nil {
		line("tasks", fmt.Sprintf("%d, which cannot be read: %s", m.Tasks, plain(err.Error())))
		return
	}
	if m.Matching < m.Tasks {
		line("tasks", fmt.Sprintf("%d of %d", m.Matching, m.Tasks))
	} else {
		line("tasks", humanize.Comma(int64(m.Tasks)))
	}
	for i, t := range tasks {
		if s.tasks > 0 && i == s.tasks {
			fmt.Fprintf(w, "  and %s more\n", humanize.Comma(int64(len(tasks)-i)))
			return
		}
		name := fmt.Sprintf("n=%d", t.N)
		if t.Foreign != "" {
			name = "from " + strconv.Quote(t.Foreign)
		}
		name += If(t.ID != "", " id="+strconv.Quote(t.ID)) +
			If(len(t.Key) > 0, " key="+strconv.Quote(string(t.Key)))
		fmt.Fprintf(w, "  %s\n    %s\n", name, quoted(t.Body))
	}
}

func times(n uint32) string {
	if n == 1 {
		return "once"
	}
	return humanize.Comma(int64(n)) + " times"
}

// MessageLine is a line of `quarantine show --json`: a message with its tasks.
type MessageLine struct {
	*quarantine.Message
	Contents []TaskLine `json:"contents,omitempty"`
	// Text is the message as it is, if it cannot be unpacked.
	Text []byte `json:"text,omitempty"`
}

func shownMessage(m *quarantine.Message, tasks []quarantine.Task) MessageLine {
	line := MessageLine{Message: m}
	if tasks == nil {
		line.Text = m.Text()
	}
	for _, t := range tasks {
		line.Contents = append(line.Contents, shownTask(t.N, t.ID, t.Foreign, t.Key, t.Body))
	}
	return line
}
