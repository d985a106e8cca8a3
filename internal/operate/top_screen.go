package operate

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/bubbles/help"
	"github.com/charmbracelet/x/ansi"

	"github.com/queuepump/queuepump/internal/admin"
	"github.com/queuepump/queuepump/internal/cli"
	"github.com/queuepump/queuepump/pump/accounts"
)

// styles are the looks of the parts. Colour alone never carries a meaning.
type styles struct {
	tone           map[string]ansi.Style
	title, chosen  ansi.Style
	columns, alarm ansi.Style
	faint          ansi.Style
	help           help.Styles
}

// stylesFor asks the environment what the terminal can show; NO_COLOR has it show no colour. All
// colours can be read on light and on dark.
func stylesFor() (s styles) {
	if os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return s
	}
	colour := func(n uint8) ansi.Style { return ansi.NewStyle().ForegroundColor(ansi.IndexedColor(n)) }
	bold, red := ansi.NewStyle().Bold(), colour(160)
	s = styles{
		tone: map[string]ansi.Style{
			admin.Good: colour(28).Bold(), admin.Quiet: bold, admin.Warn: colour(130).Bold(),
			admin.Bad: red.Bold(),
		},
		chosen: bold.Reverse(true), columns: bold, alarm: red, faint: colour(243),
	}
	s.title = s.faint
	h := &s.help
	h.ShortKey, h.FullKey = h.ShortKey.Bold(true), h.FullKey.Bold(true)
	h.ShortDesc, h.FullDesc = h.ShortDesc.Faint(true), h.FullDesc.Faint(true)
	h.ShortSeparator, h.FullSeparator = h.ShortDesc, h.FullDesc
	h.Ellipsis = h.ShortDesc
	return s
}

// signs stand before the headline.
var signs = map[string]string{admin.Good: "●", admin.Quiet: "○", admin.Warn: "▲", admin.Bad: "✖"}

// View draws the screen: the headline, the tables' names, one table, and the keys.
func (m *model) View() string {
	above := m.above()
	below := m.below()
	room := max(m.height-topLines(above)-topLines(below), 1)
	return m.clip(strings.Join([]string{above, m.table(room), below}, "\n"))
}

// clip cuts what is too large for the screen: a line more would scroll it.
func (m *model) clip(text string) string {
	all := strings.Split(text, "\n")
	all = all[:min(len(all), max(m.height, 1))]
	for i, l := range all {
		all[i] = ansi.Truncate(l, max(m.width, 1), "")
	}
	return strings.Join(all, "\n")
}

// within keeps the first shown line where the last line still fills the room.
func within(at, lines, room int) int { return max(0, min(at, lines-room)) }

func topLines(s string) int { return strings.Count(s, "\n") + 1 }

// room is how many lines of the table are on the screen.
func (m *model) room() int { return max(m.height-topLines(m.above())-topLines(m.below())-1, 1) }

func (m *model) above() string {
	h := m.seen.Headline
	held := ""
	if !m.held.IsZero() {
		held = "held since " + m.held.UTC().Format("15:04:05 MST") + ", nothing is read, p goes on"
	}
	switch {
	case h.Text != "":
	case held != "":
		h = admin.Headline{Text: "H" + held[1:], Tone: admin.Quiet}
	default:
		h = admin.Headline{Text: "Reading the workload", Tone: admin.Quiet}
	}
	headline := ansi.Wrap(signs[h.Tone]+" "+cli.Plain(h.Text), max(m.width, 1), "")
	// The table needs room too.
	if all, most := strings.Split(headline, "\n"), max(m.height/3, 1); len(all) > most {
		all = all[:most]
		all[most-1] = ansi.Truncate(all[most-1], max(m.width-1, 0), "") + "…"
		headline = strings.Join(all, "\n")
	}
	var parts []string
	for line := range strings.SplitSeq(headline, "\n") { // the screen is drawn by lines
		parts = append(parts, m.styles.tone[h.Tone].Styled(line))
	}
	if s := m.status; s != nil {
		parts = append(parts, m.styles.title.Styled(ansi.Truncate(m.about(held), m.width, "…")))
	}
	return strings.Join(append(parts, m.names()), "\n")
}

// nameMost is how much of a workload's name is shown if the line does not fit.
const nameMost = 20

// about is the line below the headline. It is cut at the end, so what matters most comes first:
// that the figures are old, the workload, what the day has cost, and its cap.
func (m *model) about(held string) string {
	s := m.status
	name := cli.Plain(s.Workload)
	first, rest := admin.SpendingFirst(&s.Money)
	at := s.Time.UTC().Format("15:04:05 MST")
	var said, now []string
	switch {
	case held != "":
		said, now = []string{held}, []string{at}
	case m.err != nil:
		said = []string{"this is what was known at " + at}
	default:
		every := fmt.Sprintf(
			"every %s at %s requests", m.every.Round(100*time.Millisecond), count(s.Requests),
		)
		now = []string{at, every}
	}
	line := func(name string) string {
		parts := slices.Concat(said, []string{"workload " + name}, first, now, []string{s.Delivery}, rest)
		return strings.Join(parts, " · ")
	}
	if text := cli.Plain(line(name)); ansi.StringWidth(text) <= m.width {
		return text
	}
	return cli.Plain(line(ansi.Truncate(name, nameMost, "…")))
}

// names are the names of the tables, with the shown one marked.
func (m *model) names() string {
	list := make([]string, len(tabs))
	for i, t := range tabs {
		name := fmt.Sprintf("%d %s", i+1, t.name)
		if i == m.tab {
			list[i] = m.styles.chosen.Styled("[" + name + "]")
		} else {
			list[i] = m.styles.title.Styled(name)
		}
	}
	text := strings.Join(list, " ")
	if ansi.StringWidth(text) > m.width { // only the one that is shown
		return m.styles.chosen.Styled(
			ansi.Truncate(fmt.Sprintf("[%d %s]", m.tab+1, tabs[m.tab].name), m.width, "…"),
		)
	}
	return text
}

func (m *model) below() string {
	v := m.views[m.tab]
	switch {
	case m.typing:
		return ansi.Truncate(m.filter.View(), m.width, "")
	case m.help.ShowAll:
		return m.help.View(m.keys)
	}
	var chosen []string
	if v.filter != "" {
		chosen = append(chosen, "filter: "+cli.Plain(v.filter))
	}
	if v.sort > 0 {
		title := cmp.Or(tabs[m.tab].columns[v.sort-1].Title, "note")
		chosen = append(chosen, "sorted by "+strings.ToLower(title))
	}
	text := m.help.View(m.keys)
	if len(chosen) > 0 {
		text = m.styles.faint.Styled(strings.Join(chosen, " · ")) + "  " + text
	}
	return ansi.Truncate(text, m.width, "…")
}

// table draws the table that is chosen, in so many lines with its titles.
func (m *model) table(room int) string {
	t, v := tabs[m.tab], &m.views[m.tab]
	list := chosen(t, *v, m)
	v.at = within(v.at, len(list), room-1)
	if len(list) == 0 {
		return fill([]string{m.styles.faint.Styled(ansi.Truncate(m.none(t, *v), m.width, "…"))}, room)
	}
	shown := list[v.at:min(len(list), v.at+max(room-1, 1))]
	all := Table{Columns: t.columns, Sorted: v.sort, Strict: true}
	for _, l := range list {
		all.Add(l.texts()...)
	}
	titles, draw := all.Fit(m.width)
	out := []string{m.styles.columns.Styled(titles)}
	for i, l := range shown {
		text := draw(all.Rows[v.at+i])
		if l.alarm {
			text = m.styles.alarm.Styled(text)
		}
		out = append(out, text)
	}
	return fill(out, room)
}

// allRead reports whether it is known of each account how much is in quarantine.
func (m *model) allRead() bool {
	for i := range m.status.Accounts {
		if a := &m.status.Accounts[i]; a.State != accounts.Unused && a.Poison == nil {
			return false
		}
	}
	return true
}

// none says why a table is empty.
func (m *model) none(t tab, v view) string {
	switch {
	case m.status == nil:
		return "no figures yet"
	case v.filter != "":
		return "nothing matches " + cli.Plain(v.filter) + "; esc takes the filter away"
	case t.name == quarantineTab && m.causes == nil && !m.held.IsZero():
		return "quarantine was not looked into before the figures were held"
	case t.name == quarantineTab && m.causes == nil:
		return "looking into quarantine"
	case t.name == quarantineTab && m.causes.Problem != "":
		return "quarantine cannot be seen: " + cli.Plain(m.causes.Problem)
	case t.name == quarantineTab && m.causes.Messages > 0:
		return count(m.causes.Messages) + " messages are in quarantine; none of them is visible now"
	case t.name == quarantineTab && len(m.causes.Dark) > 0:
		return "nothing is in quarantine in the accounts that answer; not known of " +
			cli.Plain(strings.Join(m.causes.Dark, ", "))
	case t.name == quarantineTab && !m.allRead():
		return "nothing is in quarantine in what was read so far"
	}
	return t.none
}

func fill(out []string, room int) string {
	for len(out) < room {
		out = append(out, "")
	}
	return strings.Join(out[:room], "\n")
}
