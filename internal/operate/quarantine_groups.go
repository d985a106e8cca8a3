package operate

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/queuepump/queuepump/pump/quarantine"
)

// alike are messages in quarantine of one cause, whose texts differ only in numbers.
type alike struct {
	cause, why             string // as in the first of them
	messages, tasks, stuck int64
	last                   time.Time
	keys, ids              names
}

// groups holds the messages by cause and text.
type groups map[string]*alike

var numerals = regexp.MustCompile(`[0-9]+`)

func (g groups) add(m *quarantine.Message) {
	key := m.Reason + "\n" + numerals.ReplaceAllString(m.Detail, "0")
	a := g[key]
	if a == nil {
		a = &alike{cause: m.Reason, why: m.Detail, keys: names{}, ids: names{}}
		g[key] = a
	}
	a.messages++
	a.tasks += int64(m.Matching)
	if m.Problem != "" {
		a.stuck++
	}
	if last := *cmp.Or(m.Last, &m.Put); last.After(a.last) {
		a.last = last
	}
	namesIn(m, a.keys, a.ids)
}

// table has a line a group, the largest first.
func (g groups) table(day func(time.Time) string) *Table {
	t := &Table{Columns: Columns(
		Left("CAUSE"), Right("MESSAGES"), Right("TASKS"), Left("LAST"),
		Short("KEYS", 8), Short("IDS", 8), Left("NOTE"), Short("WHY", 16),
	)}
	all := slices.SortedFunc(maps.Values(g), func(a, b *alike) int {
		return cmp.Or(cmp.Compare(b.messages, a.messages), cmp.Compare(a.cause+a.why, b.cause+b.why))
	})
	for _, a := range all {
		t.Add(cmp.Or(plain(a.cause), "?"), number(a.messages), number(a.tasks), day(a.last),
			a.keys.text(3), a.ids.text(3),
			If(a.stuck > 0, humanize.Comma(a.stuck)+" stuck"), plain(a.why))
	}
	return t
}

// names are different keys, or ids, of tasks.
type names map[string]bool

func (s names) add(name []byte) {
	if len(name) > 0 {
		s[plain(strings.ToValidUTF8(string(name), "\uFFFD"))] = true
	}
}

// text is the first few names, and how many others there are.
func (s names) text(most int) string {
	all := slices.Sorted(maps.Keys(s))
	if len(all) <= most {
		return strings.Join(all, " ")
	}
	return fmt.Sprintf("%s +%d", strings.Join(all[:most], " "), len(all)-most)
}

// namesIn adds the keys and ids of the tasks that are meant.
func namesIn(m *quarantine.Message, keys, ids names) {
	tasks, err := m.Open()
	if err != nil {
		return
	}
	for _, t := range tasks {
		keys.add(t.Key)
		ids.add([]byte(t.ID))
	}
}
