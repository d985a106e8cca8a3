package admin

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/quarantine"
)

// quarantined is what is in quarantine, by cause.
type quarantined struct {
	// Messages is the number of all messages, by the counts of the queues. Shown is how many were
	// looked at: the first 32 of each account, because no request shows more without hiding them from
	// others.
	Messages int64        `json:"messages"`
	Shown    int          `json:"shown"`
	Groups   []causeGroup `json:"groups"`
	Dark     []string     `json:"dark"` // accounts whose messages are not known
	Error    string       `json:"error"`

	expected int // how many are shown if no other process holds any
}

// peekMost is how many messages of an account are looked at.
const peekMost = 32

// lookAgain is the time until the next look if no count changes: messages that another process
// holds come back, and so does an account that failed.
func (q *quarantined) lookAgain() time.Duration {
	switch {
	case q.Messages == 0:
		return math.MaxInt64
	case q.Error != "" || q.Shown < q.expected:
		return peekEvery
	}
	return peekAnyway
}

// causeGroup are the messages of one cause.
type causeGroup struct {
	Cause    string   `json:"cause"` // empty: it is not known
	Messages int      `json:"messages"`
	Tasks    int      `json:"tasks"`
	Stuck    int      `json:"stuck"` // messages that cannot be redriven
	Samples  []sample `json:"samples"`
}

// sample is one message in quarantine, without its tasks.
type sample struct {
	ID       string    `json:"id"`
	Account  string    `json:"account"`
	Detail   string    `json:"detail"`
	Instance string    `json:"instance"`
	Attempts uint32    `json:"attempts"`
	At       time.Time `json:"at"`
	Run      string    `json:"run"`
	Segment  *uint32   `json:"segment"`
	Tasks    int       `json:"tasks"`
	Problem  string    `json:"problem"`
}

// samplesShown is how many messages of a cause are shown, and textShown how many bytes of a text.
const (
	samplesShown = 3
	textShown    = 400
)

// peekQuarantine looks at the first messages in quarantine of the accounts that have some.
func peekQuarantine(
	ctx context.Context, cfg pump.Config, poison map[string]int64, ask func(context.Context) error,
) quarantined {
	out := quarantined{Groups: []causeGroup{}, Dark: []string{}}
	counts := map[string]int64{}
	for name, n := range poison {
		if n < 0 {
			out.Dark = append(out.Dark, name)
		} else if n > 0 {
			counts[name] = n
			out.Messages += n
			out.expected += int(min(n, peekMost))
		}
	}
	slices.Sort(out.Dark)
	if len(counts) == 0 {
		return out
	}
	messages, err := peekAt(ctx, cfg, counts, ask)
	if err != nil {
		out.Error, _, _ = strings.Cut(err.Error(), "\n")
	}
	out.Shown = len(messages)
	for _, m := range messages {
		at := slices.IndexFunc(out.Groups, func(g causeGroup) bool { return g.Cause == m.Reason })
		if at < 0 {
			at = len(out.Groups)
			out.Groups = append(out.Groups, causeGroup{Cause: m.Reason, Samples: []sample{}})
		}
		g := &out.Groups[at]
		g.Messages++
		g.Tasks += m.Tasks
		if m.Problem != "" {
			g.Stuck++
		}
		if len(g.Samples) < samplesShown {
			g.Samples = append(g.Samples, sampleOf(m))
		}
	}
	slices.SortFunc(out.Groups, func(a, b causeGroup) int {
		return cmp.Or(cmp.Compare(b.Messages, a.Messages), cmp.Compare(a.Cause, b.Cause))
	})
	return out
}

func peekAt(
	ctx context.Context, cfg pump.Config, counts map[string]int64, ask func(context.Context) error,
) ([]*quarantine.Message, error) {
	if err := ask(ctx); err != nil {
		return nil, err
	}
	q, err := quarantine.Open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return q.Peek(ctx, slices.Sorted(maps.Keys(counts)), ask)
}

func sampleOf(m *quarantine.Message) sample {
	return sample{
		ID: m.ID, Account: m.Account, Detail: shortened(m.Detail), Instance: m.Instance,
		Attempts: m.Attempts, At: *cmp.Or(m.Last, &m.Put), Run: m.Run, Segment: m.Segment,
		Tasks: m.Tasks, Problem: m.Problem,
	}
}

// taskShown is a task in quarantine, for a viewer who has the token.
type taskShown struct {
	Account string `json:"account"`
	ID      string `json:"id"` // of its message
	Key     string `json:"key"`
	Task    string `json:"task"`
	Body    string `json:"body"`
	Problem string `json:"problem"` // why it cannot be read
}

// tasksShown is how many tasks of a message are shown.
const tasksShown = 3

// pageTasksOf opens the first messages of a cause.
func pageTasksOf(messages []*quarantine.Message, cause string) []taskShown {
	out := []taskShown{}
	shown := 0
	for _, m := range messages {
		if m.Reason != cause || shown == samplesShown {
			continue
		}
		shown++
		tasks, err := m.Open()
		if err != nil {
			out = append(out, taskShown{Account: m.Account, ID: m.ID, Problem: err.Error()})
		}
		for _, t := range tasks[:min(len(tasks), tasksShown)] {
			out = append(out, taskShown{
				Account: m.Account, ID: m.ID, Key: shortened(string(t.Key)),
				Task: shortened(cmp.Or(t.ID, t.Foreign)), Body: shortened(string(t.Body)),
			})
		}
	}
	return out
}

// shortened is the beginning of a text that comes from outside.
func shortened(s string) string {
	if len(s) > textShown {
		s = strings.ToValidUTF8(s[:textShown], "") + "…"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
