package operate

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/queuepump/queuepump/internal/cli"
	"github.com/queuepump/queuepump/internal/page"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/accounts"
	"github.com/queuepump/queuepump/pump/gates"
	"github.com/queuepump/queuepump/pump/runs"
	"github.com/queuepump/queuepump/pump/status"
)

// screen is what the status is drawn on.
type screen struct {
	width int
	// rows is how many lines of instances, accounts and keys each may be shown;
	// the others are summed up.
	rows int
	zone *time.Location
	// whole: no table is cut to the width, because no terminal shows it.
	whole bool
}

// draw prints the status.
func (c screen) draw(w io.Writer, s *status.Status) {
	now := s.Time.In(c.zone)
	c.head(w, s, now)
	for _, p := range s.Problems {
		c.wrap(w, "! ", plain(p))
	}
	c.runs(w, s, now)
	c.ends(w, s, now)
	c.instances(w, s)
	c.accounts(w, s)
	c.operations(w, s)
	c.gates(w, s, now)
	c.keys(w, s, now)
}

// head prints the heading: on one line if that is wide enough, else the workload's name
// and the time, and below them what is said of its segments.
func (c screen) head(w io.Writer, s *status.Status, now time.Time) {
	const dot = " · "
	name, at := "workload "+plain(s.Workload), now.Format("15:04:05 MST")
	var parts []string
	if s.Segments > 0 {
		segments := cli.Plural(int64(s.Segments), "segment")
		if s.Shared {
			segments += " without owners"
		}
		if s.Delivery != string(pump.AtLeastOnce) {
			parts = append(parts, plain(s.Delivery))
		}
		parts = append(parts, segments, fmt.Sprintf("map %d", s.MapVersion))
		if !s.Shared {
			parts = append(parts, settled(s))
		}
	}
	if s.Spilled > 0 {
		parts = append(parts, fmt.Sprintf("%s spilled", number(s.Spilled)))
	}
	about := strings.Join(parts, dot)
	switch whole := strings.Join(slices.Concat([]string{name}, parts, []string{at}), dot); {
	case about == "" || width(whole) <= c.width:
		c.wrap(w, "", whole)
	default:
		c.wrap(w, "", name+dot+at)
		c.wrap(w, "", about)
	}
	if text := c.leadership(s, now); text != "" {
		c.wrap(w, "", text)
	}
	if s.PausedSince != nil {
		c.wrap(w, "", pausedText(s, now))
	}
	for i := range s.Parked {
		c.wrap(w, "", parkedText(&s.Parked[i], now))
	}
	if text := plain(page.Spending(&s.Money)); text != "" {
		c.wrap(w, "", text)
	}
}

// pausedText says since when and by whom a workload is paused, and how far that has come.
func pausedText(s *status.Status, now time.Time) string {
	all, still := 0, 0
	for i := range s.Instances {
		if p := &s.Instances[i]; p.Role == "processor" && !p.Silent && p.Waiting == "" {
			all++
			if p.Paused {
				still++
			}
		}
	}
	return fmt.Sprintf("PAUSED since %s by %s · %d of %s without a task at work · go "+
		"on with: distributor resume",
		timeText(*s.PausedSince, now), plain(s.PausedBy), still, cli.Plural(int64(all), "processor"))
}

// parkedText says since when and by whom a run or a key is paused, and what is parked of it.
func parkedText(p *status.Parked, now time.Time) string {
	messages := ""
	if p.Messages != nil {
		messages = fmt.Sprintf(" · %s parked", cli.Plural(*p.Messages, "message"))
	}
	if p.Returning != nil {
		return fmt.Sprintf("%s comes home since %s%s", plain(p.What()),
			timeText(*p.Returning, now), messages)
	}
	return fmt.Sprintf("PAUSED %s since %s by %s%s · go on with: distributor resume %s",
		plain(p.What()), timeText(p.Since, now), plain(p.By), messages, plain(p.Flag()))
}

// settled is how the segments are given out.
func settled(s *status.Status) string {
	switch {
	case s.Settled:
		return "settled"
	case !slices.ContainsFunc(s.Instances, func(i status.Instance) bool {
		return i.Rank != nil && !i.Silent
	}):
		return "no processor"
	}
	return "settling"
}

// leadership is who distributes and when the next distribution is due. A long name is
// shortened as far as that makes all fit on one line.
func (c screen) leadership(s *status.Status, now time.Time) string {
	const dot = " · "
	d := s.Distribution
	leader := "last leader "
	var parts []string
	switch {
	case d.Phase == "" || d.Phase == "none":
		return "" // who sends once elects no leader
	case d.Phase == "unknown":
		return "whether a distributor is at work is not known"
	case d.Phase == "running" && d.Leader == "":
		leader = "the leader left its run to another"
	case d.Phase == "running":
		leader = "leader "
		if d.BeatAge != nil {
			parts = append(parts, "beat "+ageText(*d.BeatAge)+" ago")
		}
	}
	parts = append(parts, fmt.Sprintf("epoch %d", d.Epoch))
	if d.Phase == "running" && d.Run != "" {
		parts = append(parts, "run "+shortRun(d.Run))
	}
	if d.Next != nil {
		if wait := d.Next.Sub(s.Time); wait > 0 {
			parts = append(parts, "next run in "+ageText(wait.Seconds()))
		} else {
			parts = append(parts, "next run due for "+ageText(-wait.Seconds()))
		}
		parts[len(parts)-1] += " (" + timeText(*d.Next, now) + ")"
	}
	rest := dot + strings.Join(parts, dot)
	return leader + cutMiddle(plain(d.Leader), max(c.width-width(leader)-width(rest), 16)) + rest
}

// shortRun is enough of a run's id to tell it from others.
func shortRun(id string) string { return head(plain(id), 12) }

func (c screen) runs(w io.Writer, s *status.Status, now time.Time) {
	t := table{columns: []column{
		{title: "RUN"},
		{title: "STATE"},
		{title: "MODE", shrink: 4},
		{title: "STARTED"},
		{title: "SENT", right: true},
		{title: "HANDLED", right: true},
		{title: "DONE", right: true},
		{title: "LEFT", right: true},
		{title: "%", right: true},
		{title: "NOTE", shrink: 8},
	}}
	for _, r := range s.Runs {
		sent := "?"
		if r.Sent != nil {
			sent = number(*r.Sent)
			if r.AtLeast {
				sent = "≥" + sent
			}
		}
		handled, done, left, percent, poison := number(r.Handled), "", "", "", r.Quarantined
		if e := r.Exact; e != nil {
			handled, done, left, percent = exactCells(e)
			poison = e.Quarantined
		}
		note := notes(
			r.Note, some(poison, "quarantined"), some(r.Failed, "failed"), some(r.Retried, "retried"),
			some(r.Duplicates, "twice"), some(r.Skipped, "skipped"),
		)
		t.add(shortRun(r.ID), plain(r.State), plain(r.Mode), timeText(r.Started, now),
			sent, handled, done, left, percent, note)
	}
	c.section(w, &t)
}

// ends are runs that no distributor continues, and what holds their ends back: the queue that is
// read least far is one for all of them.
func (c screen) ends(w io.Writer, s *status.Status, now time.Time) {
	t := table{columns: []column{
		{title: "ENDING"},
		{title: "STATE"},
		{title: "LAST SIGN"},
		{title: "NOT BEFORE"},
		{title: "WAITS FOR", shrink: 8},
	}}
	for _, e := range s.Ends.Runs {
		waits := "a quiet time"
		if e.WaitsFor == "reading" {
			waits = "the queues to be read"
		}
		t.add(shortRun(e.ID), plain(e.State), timeText(e.LastSign, now),
			timeText(e.NotBefore, now), waits)
	}
	c.section(w, &t)
	if rest := s.Ends.Waiting - len(s.Ends.Runs); rest > 0 {
		c.wrap(w, "", fmt.Sprintf("and %s more", cli.Plural(int64(rest), "run")))
	}
	if s.Ends.HeldBackBy != "" {
		text := "held back by " + plain(s.Ends.HeldBackBy)
		if s.Ends.BehindSeconds != nil {
			text += ": messages may wait there for " + ageText(*s.Ends.BehindSeconds)
		}
		c.wrap(w, "", text+"; distributor runs end RUN ends a run now")
	}
}

// exactCells is how far a run is where that is known: then what the processors have
// counted, each delivery of a task, only raises questions.
func exactCells(e *runs.Progress) (handled, done, left, percent string) {
	done = number(e.Done)
	if e.Remaining != nil {
		left = number(*e.Remaining)
	}
	if e.Percent != nil {
		percent = percentText(*e.Percent)
	}
	return "", done, left, percent
}

// percentText never says 100 of what is less.
func percentText(p float64) string {
	if p >= 100 {
		return "100"
	}
	return fmt.Sprintf("%.1f", math.Floor(10*p)/10)
}

// notes joins what there is to say.
func notes(all ...string) string {
	all = slices.DeleteFunc(all, func(s string) bool { return s == "" })
	return plain(strings.Join(all, ", "))
}

// some is a number of something, or nothing.
func some[T int64 | uint64](n T, of string) string {
	if n == 0 {
		return ""
	}
	return number(n) + " " + of
}

func (c screen) instances(w io.Writer, s *status.Status) {
	t := table{columns: []column{
		{title: "INSTANCE", shrink: 16, cut: cutMiddle},
		{title: "RANK", right: true},
		{title: "SEGMENTS", right: true},
		{title: "TASKS", right: true},
		{title: "RATE", right: true},
		{title: "BEAT", right: true},
		{title: "NOTE", shrink: 8},
	}}
	shown := fold(len(s.Instances), c.rows)
	for _, i := range s.Instances[:shown] {
		rank := plain(i.Role)
		switch {
		case i.Rank != nil && !i.Silent:
			rank = fmt.Sprint(*i.Rank)
		case i.Role == "distributor":
			rank = "dist"
		case i.Role == "processor":
			rank = "-"
		}
		// A silent one no longer holds what it held, nor works as fast as it did.
		segments, rate := "", ""
		if i.Role == "processor" && !s.Shared && !i.Silent {
			segments = number(i.Segments)
		}
		if !i.Silent {
			rate = rateText(i.Rate)
		}
		t.add(plain(i.Instance), rank, segments, number(i.Tasks), rate, ageText(i.BeatAge),
			instanceNote(i))
	}
	c.section(w, &t)
	if rest := s.Instances[shown:]; len(rest) > 0 {
		var sum status.Instance
		troubled, silent := 0, 0
		for _, i := range rest {
			sum.Tasks += i.Tasks
			if i.Silent {
				silent++
				continue
			}
			sum.Segments += i.Segments
			sum.Rate += i.Rate
			if i.Trouble != "" {
				troubled++
			}
		}
		text := fmt.Sprintf("and %s more: %s segments, %s tasks, %s, %s in trouble",
			cli.Plural(int64(len(rest)), "instance"), number(sum.Segments), number(sum.Tasks),
			rateText(sum.Rate), number(troubled))
		if silent > 0 {
			text += ", " + some(int64(silent), "silent")
		}
		c.wrap(w, "", text)
	}
}

func instanceNote(i status.Instance) string {
	stopping, waits := "", ""
	if i.Silent {
		return "silent" // what it said last is of another time
	}
	if i.Draining {
		stopping = "stopping"
	}
	if i.Waiting != "" {
		waits = "waits at " + i.Waiting
	}
	told := some(i.NotNow, `told "not now"`)
	if i.NotNowSince != nil {
		told += " since " + i.NotNowSince.Format("15:04:05 MST")
	}
	return notes(stopping, waits, i.Trouble, told, some(i.Throttled, "throttled"))
}

func (c screen) accounts(w io.Writer, s *status.Status) {
	t := table{columns: []column{
		{title: "ACCOUNT", shrink: 16},
		{title: "QUEUES", right: true},
		{title: "VISIBLE", right: true},
		{title: "IN FLIGHT", right: true},
		{title: "OLDEST", right: true},
		{title: "BUDGET", right: true},
		{title: "NOTE", shrink: 8},
	}}
	shown := fold(len(s.Accounts), c.rows)
	for _, a := range s.Accounts[:shown] {
		t.add(accountCells(a, s.Time)...)
	}
	c.section(w, &t)
	if rest := s.Accounts[shown:]; len(rest) > 0 {
		var sum status.Account
		dark := 0
		for _, a := range rest {
			sum.Queues += a.Queues
			sum.Messages += a.Messages
			if a.Dark != "" {
				dark++
			}
		}
		c.wrap(w, "",
			fmt.Sprintf("and %s more: %s queues, %s messages, %s dark",
				cli.Plural(int64(len(rest)), "account"), number(sum.Queues), number(sum.Messages),
				number(dark)))
	}
}

func accountCells(a status.Account, now time.Time) []string {
	state, poison := "", ""
	if a.State != accounts.Active {
		state = a.State
	}
	if a.Dark != "" {
		state = notes("dark", state)
	}
	if a.Poison != nil {
		poison = some(*a.Poison, "quarantined")
	}
	if a.Last != nil {
		state = notes(state, fmt.Sprintf("%s messages at %s", number(a.Last.Messages),
			timeText(a.Last.Time, now)))
	}
	note := notes(state, poison, some(a.Throttled, "throttled"))
	cells := []string{plain(a.Name), number(a.Queues), "", "", "", "", note}
	if a.State == accounts.Unused {
		return cells
	}
	switch {
	case a.Dark != "":
		cells[2], cells[3] = "?", "?"
	case a.Bounds:
		cells[2], cells[3] = "≥"+number(a.Visible), "≤"+number(a.InFlight)
	default:
		cells[2], cells[3] = number(a.Visible), number(a.InFlight)
	}
	if a.Oldest != nil {
		cells[4] = ageText(*a.Oldest)
	}
	if a.Limit > 0 {
		cells[5] = fmt.Sprintf("%.0f%%", 100*a.Demand/a.Limit)
	}
	return cells
}

func (c screen) gates(w io.Writer, s *status.Status, now time.Time) {
	t := table{columns: gateColumns}
	for _, g := range s.Gates[:fold(len(s.Gates), c.rows)] {
		t.add(gateCells(g, now)...)
	}
	c.section(w, &t)
}

var gateColumns = []column{
	{title: "GATE", shrink: 8},
	{title: "STATE"},
	{title: "SINCE"},
	{title: "BY", shrink: 8, cut: cutMiddle},
	{title: "WAITING", right: true},
}

func gateCells(g gates.Status, now time.Time) []string {
	state, since := "closed", ""
	if g.Open {
		state = "open"
	}
	if g.Since != nil {
		since = timeText(*g.Since, now)
	}
	return []string{plain(g.Name), state, since, plain(g.By), number(g.Waiting)}
}

func (c screen) keys(w io.Writer, s *status.Status, now time.Time) {
	t := table{columns: []column{
		{title: "KEY", shrink: 8},
		{title: "START"},
		{title: "STOP"},
		{title: "BY", shrink: 8, cut: cutMiddle},
	}}
	shown := fold(len(s.Keys), c.rows)
	for _, k := range s.Keys[:shown] {
		stop := ""
		if k.Running {
			stop = "running"
		} else if k.Stop != nil {
			stop = timeText(*k.Stop, now)
		}
		t.add(plain(k.Key), timeText(k.Start, now), stop, plain(k.Instance))
	}
	c.section(w, &t)
	if rest := s.Keys[shown:]; len(rest) > 0 {
		running := 0
		for _, k := range rest {
			if k.Running {
				running++
			}
		}
		c.wrap(w, "", fmt.Sprintf("and %s more, %s running", cli.Plural(int64(len(rest)), "key"),
			number(running)))
	}
}
