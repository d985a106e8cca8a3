package operate

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/queuepump/queuepump/internal/admin"
	"github.com/queuepump/queuepump/internal/cli"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/accounts"
	"github.com/queuepump/queuepump/pump/gates"
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

// head prints the heading: on one line if that is wide enough, else the workload's name and the
// time, and below them the line about its segments.
func (c screen) head(w io.Writer, s *status.Status, now time.Time) {
	const dot = " · "
	name, at, about := "workload "+plain(s.Workload), now.Format("15:04:05 MST"), ""
	if s.Segments > 0 {
		about = Join(
			dot, If(s.Delivery != string(pump.AtLeastOnce), plain(s.Delivery)),
			cli.Plural(int64(s.Segments), "segment")+If(s.Shared, " without owners"),
			fmt.Sprintf("map %d", s.MapVersion), If(!s.Shared, settled(s)))
	}
	about = Join(dot, about, some(s.Spilled, "sent elsewhere"))
	for _, name := range slices.Sorted(maps.Keys(s.Settings)) {
		about = Join(dot, about, plain(name+"="+s.Settings[name])+" is set")
	}
	if whole := Join(dot, name, about, at); about == "" || Width(whole) <= c.width {
		c.wrap(w, "", whole)
	} else {
		c.wrap(w, "", name+dot+at)
		c.wrap(w, "", about)
	}
	c.wrap(w, "", c.leadership(s, now))
	c.wrap(w, "", c.schedule(s, now))
	if s.PausedSince != nil {
		c.wrap(w, "", pausedText(s, now))
	}
	for i := range s.PausedParts {
		p := &s.PausedParts[i]
		c.wrap(w, "", fmt.Sprintf("PAUSED %s since %s by %s · go on with: distributor workload resume %s",
			plain(p.What()), timeText(p.Since, now), plain(p.By), plain(p.Flag())))
	}
	c.wrap(w, "", plain(admin.Spending(&s.Money)))
}

// pausedText says when and by which operator a workload was paused, and how far the pause has come.
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
		"on with: distributor workload resume",
		timeText(*s.PausedSince, now), plain(s.PausedBy), still, cli.Plural(int64(all), "processor"))
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

// leadership says which process distributes and when the next distribution is due. It shortens a
// long name if all then fits on one line.
func (c screen) leadership(s *status.Status, now time.Time) string {
	const dot = " · "
	d := s.Distribution
	leader, beat := "last leader ", ""
	switch {
	case d.Phase == "" || d.Phase == "none":
		return "" // a single distribution elects no leader
	case d.Phase == "unknown":
		return "whether a distributor is at work is not known"
	case d.Phase == "running" && d.Leader == "":
		leader = "the leader left its run to another"
	case d.Phase == "running":
		leader = "leader "
		if d.BeatAge != nil {
			beat = "beat " + ageText(*d.BeatAge) + " ago"
		}
	}
	next := Known(d.Next, func(next time.Time) string {
		wait := next.Sub(s.Time).Seconds()
		said := "next run in " + ageText(wait)
		if wait <= 0 {
			said = "next run due for " + ageText(-wait)
		}
		return said + " (" + timeText(next, now) + ")"
	}, "")
	rest := dot + Join(dot, beat, fmt.Sprintf("epoch %d", d.Epoch),
		If(d.Phase == "running" && d.Run != "", "run "+shortRun(d.Run)), next)
	room := max(c.width-Width(leader+rest), 16)
	return leader + CutMiddle(plain(d.Leader), room) + rest
}

// schedule says which run is that of the last due time; the runs below say what became of it.
func (c screen) schedule(s *status.Status, now time.Time) string {
	d := s.Distribution
	if d.Cron == "" {
		return ""
	}
	return "schedule " + plain(d.Cron) + Known(d.Due, func(at time.Time) string {
		return " · run " + shortRun(d.Run) + " is that of " + timeText(at, now)
	}, "")
}

// shortRun is enough of a run's id to tell it from others.
func shortRun(id string) string { return ansi.Truncate(plain(id), 12, "") }

func (c screen) runs(w io.Writer, s *status.Status, now time.Time) {
	t := Table{Columns: Columns(
		Left("RUN"), Left("STATE"), Short("MODE", 4), Left("STARTED"),
		Right("SENT"), Right("HANDLED"), Right("DONE"), Right("LEFT"),
		Right("%"), Short("NOTE", 8))}
	for _, r := range s.Runs {
		sent := Known(r.Sent, number[uint64], "?")
		if r.Sent != nil && r.AtLeast {
			sent = "≥" + sent
		}
		handled, done, left, percent, poison := number(r.Handled), "", "", "", r.Quarantined
		if e := r.Exact; e != nil { // the processors' count of deliveries would only raise questions
			handled, done, poison = "", number(e.Done), e.Quarantined
			left = Known(e.Remaining, number[uint64], "")
			percent = Known(e.Percent, percentText, "")
		}
		note := notes(
			r.Name, r.Note, some(poison, "quarantined"), some(r.Failed, "failed"),
			some(r.Retried, "retried"), some(r.Duplicates, "twice"), some(r.Skipped, "skipped"),
			some(r.Results, fmt.Sprintf("results, %.1f MiB", float64(r.ResultBytes)/(1<<20))),
		)
		t.Add(shortRun(r.ID), plain(r.State), plain(r.Mode), timeText(r.Started, now),
			sent, handled, done, left, percent, note)
	}
	c.section(w, &t)
}

// ends are runs that no distributor continues, and what holds their ends back: the queue that is
// read least far is the same for all of them.
func (c screen) ends(w io.Writer, s *status.Status, now time.Time) {
	t := Table{Columns: Columns(
		Left("ENDING"), Left("STATE"), Left("LAST SIGN"), Left("NOT BEFORE"),
		Short("WAITS FOR", 8),
	)}
	for _, e := range s.Ends.Runs {
		waits := "a quiet time"
		if e.WaitsFor == "reading" {
			waits = "the queues to be read"
		}
		t.Add(shortRun(e.ID), plain(e.State), timeText(e.LastSign, now),
			timeText(e.NotBefore, now), waits)
	}
	c.section(w, &t)
	if rest := s.Ends.Waiting - len(s.Ends.Runs); rest > 0 {
		c.wrap(w, "", fmt.Sprintf("and %s more", cli.Plural(int64(rest), "run")))
	}
	if s.Ends.HeldBackBy != "" {
		behind := Known(s.Ends.BehindSeconds, func(seconds float64) string {
			return ": messages may wait there for " + ageText(seconds)
		}, "")
		c.wrap(w, "", "held back by "+plain(s.Ends.HeldBackBy)+behind+
			"; distributor runs end RUN ends a run now")
	}
}

// percentText never says 100 of less than all.
func percentText(p float64) string {
	if p >= 100 {
		return "100"
	}
	return fmt.Sprintf("%.1f", math.Floor(10*p)/10)
}

// notes joins the notes that are not empty.
func notes(all ...string) string { return plain(Join(", ", all...)) }

// some is a number with its noun, or empty for 0.
func some[T int | int64 | uint64](n T, of string) string {
	if n == 0 {
		return ""
	}
	return number(n) + " " + of
}

func (c screen) instances(w io.Writer, s *status.Status) {
	list(c, w, Columns(
		Middle("INSTANCE", 16), Right("RANK"), Right("SEGMENTS"),
		Right("TASKS"), Right("RATE"), Right("BEAT"), Short("NOTE", 8),
	), s.Instances, func(i status.Instance) []string {
		rank := plain(i.Role)
		switch {
		case i.Rank != nil && !i.Silent:
			rank = fmt.Sprint(*i.Rank)
		case i.Role == "distributor":
			rank = "dist"
		case i.Role == "processor":
			rank = "-"
		}
		// A silent instance no longer holds what it held, and no longer works as fast as it did.
		segments := If(i.Role == "processor" && !s.Shared && !i.Silent, number(i.Segments))
		rate := If(!i.Silent, rateText(i.Rate))
		return []string{
			plain(i.Instance), rank, segments, number(i.Tasks), rate, ageText(i.BeatAge), instanceNote(i),
		}
	}, "instance", func(rest []status.Instance) string {
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
		return fmt.Sprintf(": %s segments, %s tasks, %s, %s in trouble%s",
			number(sum.Segments), number(sum.Tasks), rateText(sum.Rate), number(troubled),
			If(silent > 0, ", "+number(silent)+" silent"))
	})
}

func instanceNote(i status.Instance) string {
	if i.Silent {
		return "silent" // its last words are from another time
	}
	told := some(i.NotNow, `told "not now"`)
	if i.NotNowSince != nil {
		told += " since " + i.NotNowSince.Format("15:04:05 MST")
	}
	held := ""
	if k := i.KeysOver; k.Keys > 0 {
		held = fmt.Sprintf("%s over limits: %s tasks wait up to %v", cli.Plural(int64(k.Keys), "key"),
			number(k.Tasks), time.Duration(k.WaitSeconds)*time.Second)
	}
	return notes(If(i.Draining, "stopping"), If(i.Waiting != "", "waits at "+i.Waiting),
		i.Trouble, told, held, some(i.Throttled, "throttled"))
}

func (c screen) accounts(w io.Writer, s *status.Status) {
	list(c, w, Columns(
		Short("ACCOUNT", 16), Right("QUEUES"), Right("VISIBLE"),
		Right("IN FLIGHT"), Right("OLDEST"), Right("BUDGET"),
		Short("NOTE", 8),
	), s.Accounts, func(a status.Account) []string { return accountCells(a, s.Time) },
		"account", func(rest []status.Account) string {
			var sum status.Account
			dark := 0
			for _, a := range rest {
				sum.Queues += a.Queues
				sum.Messages += a.Messages
				if a.Dark != "" {
					dark++
				}
			}
			return fmt.Sprintf(": %s queues, %s messages, %s not read",
				number(sum.Queues), number(sum.Messages), number(dark))
		})
}

func accountCells(a status.Account, now time.Time) []string {
	last := ""
	if a.Last != nil {
		last = fmt.Sprintf("%s messages at %s", number(a.Last.Messages), timeText(a.Last.Time, now))
	}
	poison := func(n int64) string { return some(n, "quarantined") }
	note := notes(If(a.Dark != "", "not read"), If(a.State != accounts.Active, a.State),
		last, Known(a.Poison, poison, ""), some(a.Throttled, "throttled"))
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
	cells[4] = Known(a.Oldest, ageText, "")
	if a.Limit > 0 {
		cells[5] = fmt.Sprintf("%.0f%%", 100*a.Demand/a.Limit)
	}
	return cells
}

// operations are the kinds of requests of the day, those first that cost most.
func (c screen) operations(w io.Writer, s *status.Status) {
	list(c, w, Columns(
		Short("OPERATION", 9), Left("TO"), Right("A MINUTE"),
		Right("COST A MINUTE"), Right("TODAY"), Right("COST TODAY"),
	), admin.ByCost(s.Money.Operations), func(o status.MoneyOperation) []string {
		k := admin.KindOf(&o)
		return []string{
			plain(k.Operation), k.To, k.PerMinute, k.CostPerMinute, number(o.Requests), k.Cost,
		}
	}, "operation", func(rest []status.MoneyOperation) string {
		requests, cost := uint64(0), 0.0
		for _, o := range rest {
			requests, cost = requests+o.Requests, cost+o.Cost
		}
		return fmt.Sprintf(": %s requests today, %s", number(requests), admin.Price(cost))
	})
}

func (c screen) gates(w io.Writer, s *status.Status, now time.Time) {
	cells := func(g gates.Status) []string { return gateCells(g, now) }
	list(c, w, gateColumns, s.Gates, cells, "", nil)
}

var gateColumns = Columns(
	Short("GATE", 8), Left("STATE"), Left("SINCE"), Middle("BY", 8),
	Right("WAITING"),
)

func gateCells(g gates.Status, now time.Time) []string {
	state := cmp.Or(If(g.Open, "open"), "closed")
	since := Known(g.Since, func(t time.Time) string { return timeText(t, now) }, "")
	return []string{plain(g.Name), state, since, plain(g.By), number(g.Waiting)}
}

func (c screen) keys(w io.Writer, s *status.Status, now time.Time) {
	list(c, w, Columns(
		Short("KEY", 8), Left("START"), Left("STOP"), Middle("BY", 8),
	), s.Keys, func(k status.Key) []string {
		at := func(t time.Time) string { return timeText(t, now) }
		stop := cmp.Or(If(k.Running, "running"), Known(k.Stop, at, ""))
		return []string{plain(k.Key), at(k.Start), stop, plain(k.Instance)}
	}, "key", func(rest []status.Key) string {
		running := 0
		for _, k := range rest {
			if k.Running {
				running++
			}
		}
		return fmt.Sprintf(", %s running", number(running))
	})
}
