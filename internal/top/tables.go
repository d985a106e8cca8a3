package top

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/queuepump/queuepump/internal/cli"
	"github.com/queuepump/queuepump/internal/page"
	"github.com/queuepump/queuepump/pump/accounts"
	"github.com/queuepump/queuepump/pump/status"
)

// tab is one table.
type tab struct {
	name    string
	columns []column
	lines   func(*model) []line
	none    string // what is said where there is no line
}

// column is one of a table. Where the screen is too narrow, spare columns go first, then the texts
// that may be cut are cut. Then further columns go, those of the highest rank first. A column
// without a rank always stays.
type column struct {
	title string
	right bool
	cut   bool
	spare bool
	rank  int
}

// line is one of a table: its cells, and by what it is sorted.
type line struct {
	cells []string
	by    []float64 // NaN: by the text of the cell
	alarm bool
}

const quarantineTab = "quarantine"

var tabs = []tab{
	{"accounts", []column{
		{title: "ACCOUNT"},
		{title: "STATE", rank: 4},
		{title: "OF ITS LIMIT"},
		{title: "LAST 20 MIN", spare: true},
		{title: "MESSAGES", right: true, rank: 3},
		{title: "VISIBLE", right: true},
		{title: "IN FLIGHT", right: true, rank: 2},
		{title: "OLDEST", right: true, rank: 1},
		{title: "THROTTLED", right: true, rank: 5},
		{title: "QUARANTINE", right: true, rank: 6},
		{title: "", cut: true},
	}, accountLines, "no account is known"},
	{"queues", []column{
		{title: "ACCOUNT"},
		{title: "QUEUE"},
		{title: "MESSAGES", right: true, rank: 1},
		{title: "VISIBLE", right: true},
		{title: "IN FLIGHT", right: true},
		{title: "OLDEST", right: true},
		{title: "", cut: true},
	}, queueLines, "no queue was read yet"},
	{"processes", []column{
		{title: "INSTANCE", cut: true},
		{title: "ROLE", rank: 3},
		{title: "HOST", cut: true, rank: 2},
		{title: "SEGMENTS", right: true},
		{title: "TASKS/S", right: true},
		{title: "S/TASK", right: true, rank: 4},
		{title: "BUSY", right: true},
		{title: "THROTTLED", right: true, rank: 5},
		{title: "BEAT", right: true, rank: 1},
		{title: "", cut: true},
	}, processLines, "no process is running"},
	{"runs", []column{
		{title: "RUN"},
		{title: "STATE"},
		{title: "SENT", right: true, rank: 1},
		{title: "DONE", right: true},
		{title: "LEFT", right: true},
		{title: "PROGRESS"},
		{title: "TASKS/S", right: true},
		{title: "TIME LEFT", right: true},
		{title: "", cut: true},
	}, runLines, "no run is known"},
	{quarantineTab, []column{
		{title: "CAUSE"},
		{title: "MESSAGES", right: true},
		{title: "TASKS", right: true},
		{title: "STUCK", right: true, rank: 1},
		{title: "FOR EXAMPLE", cut: true},
	}, causeLines, "nothing is in quarantine"},
	{"keys", []column{
		{title: "KEY OR GATE", cut: true},
		{title: "STATE"},
		{title: "BY", cut: true},
		{title: "SINCE", right: true},
		{title: "WAITING", right: true, rank: 1},
	}, keyLines, "no key has a claim, and there is no gate"},
	{"problems", []column{
		{title: "WHAT NEEDS SOMEBODY"},
	}, problemLines, "no problem is known; distributor doctor looks closer"},
	{"money", []column{
		{title: "OPERATION"},
		{title: "TO", rank: 1},
		{title: "A MINUTE", right: true},
		{title: "COST A MINUTE", right: true},
		{title: "TODAY", right: true},
		{title: "COST TODAY", right: true},
	}, moneyLines, "what kinds of requests were made today is not known"},
}

var text = math.NaN()

func accountLines(m *model) (lines []line) {
	for i := range m.status.Accounts {
		a := &m.status.Accounts[i]
		part, note := 0.0, a.Dark
		if a.Limit > 0 {
			part = a.Demand / a.Limit
		}
		if note == "" && a.State == accounts.Unused {
			note = "not used by the workload"
		}
		poison, poisonBy := "?", -1.0
		if a.Poison != nil {
			poison, poisonBy = count(*a.Poison), float64(*a.Poison)
		}
		d := depthOf(a.Depth)
		lines = append(lines, line{
			cells: []string{
				a.Name, a.State, bar(part, 10), m.past.line(a.Name), d.messages, d.visible,
				d.inFlight, d.oldest, count(int64(a.Throttled)), poison, note,
			},
			by: []float64{
				text, text, part, part, float64(a.Messages), float64(a.Visible),
				float64(a.InFlight), d.age, float64(a.Throttled), poisonBy, text,
			},
			alarm: a.Dark != "",
		})
	}
	return lines
}

func queueLines(m *model) (lines []line) {
	for i := range m.status.Accounts {
		a := &m.status.Accounts[i]
		for j := range a.ByQueue {
			q := &a.ByQueue[j]
			d := depthOf(q.Depth)
			lines = append(lines, line{
				cells: []string{a.Name, q.Queue, d.messages, d.visible, d.inFlight, d.oldest, q.Dark},
				by: []float64{
					text, text, float64(q.Messages), float64(q.Visible), float64(q.InFlight), d.age, text,
				},
				alarm: q.Dark != "",
			})
		}
	}
	return lines
}

func processLines(m *model) (lines []line) {
	for i := range m.status.Instances {
		p := &m.status.Instances[i]
		seconds, busy := "", ""
		if p.Seconds > 0 {
			seconds = fmt.Sprintf("%.3g", p.Seconds)
		}
		if p.Busy > 0 {
			busy = percent(p.Busy)
		}
		lines = append(lines, line{
			cells: []string{
				p.Instance, p.Role, p.Host, count(int64(p.Segments)), rate(p.Rate), seconds, busy,
				count(int64(p.Throttled)), age(p.BeatAge), processNote(p),
			},
			by: []float64{
				text, text, text, float64(p.Segments), p.Rate, p.Seconds, p.Busy, float64(p.Throttled),
				p.BeatAge, text,
			},
			alarm: p.Silent || p.Trouble != "",
		})
	}
	return lines
}

func processNote(p *status.Instance) string {
	var notes []string
	for _, n := range []struct {
		is   bool
		text string
	}{
		{p.Silent, "silent"},
		{p.Paused, "paused"},
		{p.Draining, "stops"},
		{p.Waiting != "", "waits at gate " + p.Waiting},
		{p.Trouble != "", p.Trouble},
	} {
		if n.is {
			notes = append(notes, n.text)
		}
	}
	return strings.Join(notes, ", ")
}

func runLines(m *model) (lines []line) {
	for i := range m.seen.Runs {
		r := &m.seen.Runs[i]
		sent, done, left, progress := "?", count(int64(r.Handled)), "", ""
		sentBy, doneBy, leftBy, part := -1.0, float64(r.Handled), -1.0, -1.0
		if r.Sent != nil {
			sent, sentBy = count(int64(*r.Sent)), float64(*r.Sent)
			if r.AtLeast {
				sent = "≥" + sent
			}
		}
		if e := r.Exact; e != nil {
			done, doneBy = count(int64(e.Done)), float64(e.Done)
			if e.Remaining != nil {
				left, leftBy = count(int64(*e.Remaining)), float64(*e.Remaining)
			}
			if e.Percent != nil {
				part = *e.Percent / 100
				progress = bar(part, 10)
			}
		}
		speed, over, speedBy, overBy := "", "", -1.0, math.Inf(1)
		if r.PerSecond != nil {
			speed, speedBy = rate(*r.PerSecond), *r.PerSecond
		}
		if r.SecondsLeft != nil {
			over, overBy = span(*r.SecondsLeft), *r.SecondsLeft
		}
		lines = append(lines, line{
			cells: []string{
				r.ID[:min(12, len(r.ID))], r.State, sent, done, left, progress, speed, over, runNote(&r.Run),
			},
			by:    []float64{text, text, sentBy, doneBy, leftBy, part, speedBy, overBy, text},
			alarm: r.State == "broken",
		})
	}
	return lines
}

func runNote(r *status.Run) string {
	var notes []string
	if n := r.Quarantined; n > 0 {
		notes = append(notes, count(int64(n))+" in quarantine")
	}
	if n := r.Dropped; n > 0 {
		notes = append(notes, count(int64(n))+" dropped")
	}
	if r.Note != "" {
		notes = append(notes, r.Note)
	}
	return strings.Join(notes, ", ")
}

func causeLines(m *model) (lines []line) {
	if m.causes == nil {
		return nil
	}
	for _, c := range m.causes.List {
		lines = append(lines, line{
			cells: []string{
				cmp.Or(c.Cause, "unknown"), count(int64(c.Messages)), count(int64(c.Tasks)),
				count(int64(c.Stuck)), c.Detail,
			},
			by: []float64{text, float64(c.Messages), float64(c.Tasks), float64(c.Stuck), text},
		})
	}
	if len(lines) == 0 {
		return nil // none says why
	}
	also := func(what, why string) {
		lines = append(lines, line{
			cells: []string{what, "", "", "", why},
			by:    []float64{text, -1, -1, -1, text},
			alarm: true,
		})
	}
	if len(m.causes.Dark) > 0 {
		also("not known", "of "+strings.Join(m.causes.Dark, ", "))
	}
	if m.causes.Problem != "" {
		also("cannot be read", m.causes.Problem)
	}
	return lines
}

func keyLines(m *model) (lines []line) {
	since := func(at time.Time) (string, float64) {
		seconds := m.status.Time.Sub(at).Seconds()
		return age(seconds), seconds
	}
	for i := range m.status.Gates {
		g := &m.status.Gates[i]
		state, ago, by := "gate, closed", "", -1.0
		if g.Open {
			state = "gate, open"
		}
		if g.Since != nil {
			ago, by = since(*g.Since)
		}
		lines = append(lines, line{
			cells: []string{g.Name, state, g.By, ago, count(int64(g.Waiting))},
			by:    []float64{text, text, text, by, float64(g.Waiting)},
		})
	}
	for i := range m.status.Keys {
		k := &m.status.Keys[i]
		state, at := "done", k.Start
		switch {
		case k.Running:
			state = "running"
		case k.Failed:
			state = "failed"
		}
		if k.Stop != nil {
			at = *k.Stop
		}
		ago, by := since(at)
		lines = append(lines, line{
			cells: []string{k.Key, state, k.Instance, ago, ""}, by: []float64{text, text, text, by, -1},
			alarm: k.Failed,
		})
	}
	return lines
}

func moneyLines(m *model) (lines []line) {
	for _, o := range page.ByCost(m.status.Money.Operations) {
		k := page.KindOf(&o)
		perMinute, cost := -1.0, -1.0
		if o.PerMinute != nil {
			perMinute, cost = *o.PerMinute, *o.CostPerMinute
		}
		lines = append(lines, line{
			cells: []string{
				k.Operation, k.To, k.PerMinute, k.CostPerMinute, count(int64(o.Requests)), k.Cost,
			},
			by: []float64{text, text, perMinute, cost, float64(o.Requests), o.Cost},
		})
	}
	return lines
}

func problemLines(m *model) (lines []line) {
	for _, p := range m.status.Problems {
		lines = append(lines, line{cells: []string{p}, by: []float64{text}, alarm: true})
	}
	return lines
}

// depth is a [status.Depth] in words.
type depth struct {
	messages, visible, inFlight, oldest string
	age                                 float64
}

func depthOf(d status.Depth) depth {
	t := depth{
		messages: count(d.Messages), visible: count(d.Visible), inFlight: count(d.InFlight), age: -1,
	}
	if d.Bounds {
		t.visible, t.inFlight = "≥"+t.visible, "≤"+t.inFlight
	}
	if d.Oldest != nil {
		t.oldest, t.age = age(*d.Oldest), *d.Oldest
	}
	return t
}

func count(n int64) string { return humanize.Comma(n) }

func percent(part float64) string { return fmt.Sprintf("%.0f %%", 100*part) }

// bar shows a part of a whole as a number and as a bar; where both are cut, the number stays.
func bar(part float64, width int) string {
	if math.IsNaN(part) || part < 0 {
		return ""
	}
	full := min(int(math.Round(part*float64(width))), width)
	number := fmt.Sprintf("%.0f%%", 100*part)
	return fmt.Sprintf("%4s ", number) + strings.Repeat("█", full) + strings.Repeat("░", width-full)
}

func rate(perSecond float64) string {
	switch {
	case perSecond >= 10:
		return count(int64(math.Round(perSecond)))
	case perSecond > 0:
		return fmt.Sprintf("%.1f", perSecond)
	}
	return "0"
}

func age(seconds float64) string { return span(max(seconds, 0)) }

// span is a time in the two units that say most of it.
func span(seconds float64) string {
	d := time.Duration(min(seconds, 1e9) * float64(time.Second)).Round(time.Second)
	days := int(d / (24 * time.Hour))
	hours, minutes := int(d.Hours())%24, int(d.Minutes())%60
	switch {
	case days > 0:
		return fmt.Sprintf("%dd %dh", days, hours)
	case hours > 0:
		return fmt.Sprintf("%dh %dm", hours, minutes)
	case minutes > 0:
		return fmt.Sprintf("%dm %ds", minutes, int(d.Seconds())%60)
	}
	return fmt.Sprintf("%ds", int(d.Seconds()))
}

// chosen are the lines of a tab as its view wants them. Texts come from rows and queues: a terminal
// must not obey them.
func chosen(t tab, v view, m *model) []line {
	if m.status == nil {
		return nil
	}
	lines := t.lines(m)
	for i := range lines {
		for j, cell := range lines[i].cells {
			lines[i].cells[j] = cli.Plain(cell)
		}
	}
	if want := strings.ToLower(v.filter); want != "" {
		lines = slices.DeleteFunc(lines, func(l line) bool {
			return !strings.Contains(strings.ToLower(strings.Join(l.cells, " ")), want)
		})
	}
	if at := v.sort - 1; at >= 0 {
		slices.SortStableFunc(lines, func(a, b line) int {
			if math.IsNaN(a.by[at]) {
				return cmp.Compare(a.cells[at], b.cells[at])
			}
			return cmp.Compare(b.by[at], a.by[at]) // what is most needs looking at
		})
	}
	if v.reversed {
		slices.Reverse(lines)
	}
	return lines
}
