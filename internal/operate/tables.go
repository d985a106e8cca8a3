package operate

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/queuepump/queuepump/internal/admin"
	"github.com/queuepump/queuepump/internal/cli"
	"github.com/queuepump/queuepump/pump/accounts"
	"github.com/queuepump/queuepump/pump/status"
)

// tab is one table.
type tab struct {
	name    string
	columns []Column
	lines   func(*model) []line
	none    string // the text in place of lines if there are none
}

// cutTo is the least width of a column that may be cut.
const cutTo = 14

// line is one of a table.
type line struct {
	cells []cell
	alarm bool
}

// cell is a text and the number that sorts it; NaN: the text itself does.
type cell struct {
	text string
	by   float64
}

func text(s string) cell { return cell{s, math.NaN()} }

func topNumber[T int | int64 | uint64](n T) cell { return cell{count(int64(n)), float64(n)} }

// unknown is less than every number.
func unknown(s string) cell { return cell{s, -1} }

const quarantineTab = "quarantine"

var tabs = []tab{
	{"accounts", Columns(
		Left("ACCOUNT"), Left("STATE").Ranked(4), Left("OF ITS LIMIT"),
		Column{Title: "LAST 20 MIN", Spare: true}, Right("MESSAGES").Ranked(3),
		Right("VISIBLE"), Right("IN FLIGHT").Ranked(2), Right("OLDEST").Ranked(1),
		Right("THROTTLED").Ranked(5), Right("QUARANTINE").Ranked(6),
		Short("", cutTo),
	), accountLines, "no account is known"},
	{"queues", Columns(
		Left("ACCOUNT"), Left("QUEUE"), Right("MESSAGES").Ranked(1),
		Right("VISIBLE"), Right("IN FLIGHT"), Right("OLDEST"),
		Short("", cutTo),
	), queueLines, "no queue was read yet"},
	{"processes", Columns(
		Short("INSTANCE", cutTo), Left("ROLE").Ranked(3),
		Short("HOST", cutTo).Ranked(2), Right("SEGMENTS"), Right("TASKS/S"),
		Right("S/TASK").Ranked(4), Right("BUSY"), Right("THROTTLED").Ranked(5),
		Right("BEAT").Ranked(1), Short("", cutTo),
	), processLines, "no process is running"},
	{"runs", Columns(
		Left("RUN"), Left("STATE"), Right("SENT").Ranked(1), Right("DONE"),
		Right("LEFT"), Left("PROGRESS"), Right("TASKS/S"),
		Right("TIME LEFT"), Short("", cutTo),
	), runLines, "no run is known"},
	{quarantineTab, Columns(
		Left("CAUSE"), Right("MESSAGES"), Right("TASKS"),
		Right("STUCK").Ranked(1), Short("FOR EXAMPLE", cutTo),
	), causeLines, "nothing is in quarantine"},
	{"keys", Columns(
		Short("KEY OR GATE", cutTo), Left("STATE"), Short("BY", cutTo),
		Right("SINCE"), Right("WAITING").Ranked(1),
	), keyLines, "no key has a claim, and there is no gate"},
	{"problems", Columns(
		Left("WHAT NEEDS SOMEBODY"),
	), problemLines, "no problem is known; distributor doctor looks closer"},
	{"money", Columns(
		Left("OPERATION"), Left("TO").Ranked(1), Right("A MINUTE"),
		Right("COST A MINUTE"), Right("TODAY"), Right("COST TODAY"),
	), moneyLines, "what kinds of requests were made today is not known"},
}

func accountLines(m *model) (lines []line) {
	for i := range m.status.Accounts {
		a := &m.status.Accounts[i]
		part := 0.0
		if a.Limit > 0 {
			part = a.Demand / a.Limit
		}
		note := cmp.Or(a.Dark, If(a.State == accounts.Unused, "not used by the workload"))
		lines = append(lines, line{slices.Concat(
			[]cell{text(a.Name), text(a.State), {bar(part, 10), part}, {m.past.line(a.Name), part}},
			depthCells(a.Depth), []cell{
				topNumber(a.Throttled), Known(a.Poison, topNumber[int64], unknown("?")), text(note),
			},
		), a.Dark != ""})
	}
	return lines
}

func queueLines(m *model) (lines []line) {
	for i := range m.status.Accounts {
		a := &m.status.Accounts[i]
		for j := range a.ByQueue {
			q := &a.ByQueue[j]
			lines = append(lines, line{slices.Concat(
				[]cell{text(a.Name), text(q.Queue)}, depthCells(q.Depth), []cell{text(q.Dark)},
			), q.Dark != ""})
		}
	}
	return lines
}

// depthCells are messages, visible, in flight, and the age of the oldest.
func depthCells(d status.Depth) []cell {
	visible, inFlight := topNumber(d.Visible), topNumber(d.InFlight)
	if d.Bounds {
		visible.text, inFlight.text = "≥"+visible.text, "≤"+inFlight.text
	}
	return []cell{topNumber(d.Messages), visible, inFlight, Known(d.Oldest, aged, unknown(""))}
}

func processLines(m *model) (lines []line) {
	for i := range m.status.Instances {
		p := &m.status.Instances[i]
		lines = append(lines, line{[]cell{
			text(p.Instance), text(p.Role), text(p.Host), topNumber(p.Segments), speed(p.Rate),
			{If(p.Seconds > 0, fmt.Sprintf("%.3g", p.Seconds)), p.Seconds},
			{If(p.Busy > 0, fmt.Sprintf("%.0f %%", 100*p.Busy)), p.Busy},
			topNumber(p.Throttled), aged(p.BeatAge), text(Join(
				", ", If(p.Silent, "silent"), If(p.Paused, "paused"),
				If(p.Draining, "stops"), If(p.Waiting != "", "waits at gate "+p.Waiting),
				p.Trouble,
			)),
		}, p.Silent || p.Trouble != ""})
	}
	return lines
}

func runLines(m *model) (lines []line) {
	for i := range m.seen.Runs {
		r := &m.seen.Runs[i]
		none, done := unknown(""), topNumber(r.Handled)
		left, progress := none, none
		sent := Known(r.Sent, topNumber[uint64], unknown("?"))
		if r.Sent != nil && r.AtLeast {
			sent.text = "≥" + sent.text
		}
		if e := r.Exact; e != nil {
			done, left = topNumber(e.Done), Known(e.Remaining, topNumber[uint64], none)
			progress = Known(e.Percent, func(percent float64) cell {
				return cell{bar(percent/100, 10), percent}
			}, none)
		}
		over := Known(r.SecondsLeft, func(seconds float64) cell {
			return cell{span(seconds), seconds}
		}, cell{"", math.Inf(1)})
		lines = append(lines, line{[]cell{
			text(r.ID[:min(12, len(r.ID))]), text(r.State), sent, done, left, progress,
			Known(r.PerSecond, speed, none), over, text(Join(
				", ", If(r.Quarantined > 0, count(int64(r.Quarantined))+" in quarantine"),
				If(r.Dropped > 0, count(int64(r.Dropped))+" dropped"), r.Note,
			)),
		}, r.State == "broken"})
	}
	return lines
}

func causeLines(m *model) (lines []line) {
	if m.causes == nil {
		return nil
	}
	for _, c := range m.causes.List {
		lines = append(lines, line{cells: []cell{
			text(cmp.Or(c.Cause, "unknown")), topNumber(c.Messages), topNumber(c.Tasks), topNumber(c.Stuck),
			text(c.Detail),
		}})
	}
	if len(lines) == 0 {
		return nil // none says why
	}
	also := func(what, why string) {
		none := unknown("")
		lines = append(lines, line{[]cell{text(what), none, none, none, text(why)}, true})
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
	since := func(at time.Time) cell { return aged(m.status.Time.Sub(at).Seconds()) }
	for i := range m.status.Gates {
		g := &m.status.Gates[i]
		state := cmp.Or(If(g.Open, "gate, open"), "gate, closed")
		lines = append(lines, line{cells: []cell{
			text(g.Name), text(state), text(g.By), Known(g.Since, since, unknown("")),
			topNumber(g.Waiting),
		}})
	}
	for i := range m.status.Keys {
		k := &m.status.Keys[i]
		state := cmp.Or(If(k.Running, "running"), If(k.Failed, "failed"), "done")
		lines = append(lines, line{[]cell{
			text(k.Key), text(state), text(k.Instance), since(*cmp.Or(k.Stop, &k.Start)), unknown(""),
		}, k.Failed})
	}
	return lines
}

func moneyLines(m *model) (lines []line) {
	for _, o := range admin.ByCost(m.status.Money.Operations) {
		k := admin.KindOf(&o)
		perMinute, cost := unknown(k.PerMinute), unknown(k.CostPerMinute)
		if o.PerMinute != nil {
			perMinute.by, cost.by = *o.PerMinute, *o.CostPerMinute
		}
		lines = append(lines, line{cells: []cell{
			text(k.Operation), text(k.To), perMinute, cost, topNumber(o.Requests), {k.Cost, o.Cost},
		}})
	}
	return lines
}

func problemLines(m *model) (lines []line) {
	for _, p := range m.status.Problems {
		lines = append(lines, line{[]cell{text(p)}, true})
	}
	return lines
}

func count(n int64) string { return humanize.Comma(n) }

// bar shows a part of a whole as a number and as a bar; if the column is cut, the number stays.
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

func speed(perSecond float64) cell { return cell{rate(perSecond), perSecond} }

func aged(seconds float64) cell { return cell{span(max(seconds, 0)), seconds} }

// span is a time in its two largest units.
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

// chosen are the lines of a tab in the order and selection of its view. Texts come from rows and
// queues: a terminal must not obey them.
func chosen(t tab, v view, m *model) []line {
	if m.status == nil {
		return nil
	}
	lines := t.lines(m)
	for i := range lines {
		for j := range lines[i].cells {
			c := &lines[i].cells[j]
			c.text = cli.Plain(c.text)
		}
	}
	if want := strings.ToLower(v.filter); want != "" {
		lines = slices.DeleteFunc(lines, func(l line) bool {
			return !strings.Contains(strings.ToLower(strings.Join(l.texts(), " ")), want)
		})
	}
	if at := v.sort - 1; at >= 0 {
		slices.SortStableFunc(lines, func(l, r line) int {
			a, b := l.cells[at], r.cells[at]
			if math.IsNaN(a.by) {
				return cmp.Compare(a.text, b.text)
			}
			return cmp.Compare(b.by, a.by) // the largest values need a look first
		})
	}
	if v.reversed {
		slices.Reverse(lines)
	}
	return lines
}

func (l line) texts() []string {
	texts := make([]string, len(l.cells))
	for i, c := range l.cells {
		texts[i] = c.text
	}
	return texts
}
