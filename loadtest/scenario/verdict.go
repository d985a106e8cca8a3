package scenario

import (
	"fmt"
	"slices"

	"github.com/dustin/go-humanize"

	"github.com/queuepump/queuepump/loadtest/report"
)

// answers finds the scenario's figures in what was measured.
type answers struct {
	*report.Result
	t *test
}

// answer adds the findings: those of the scenario, then those of every one.
func (t *test) answer(r *report.Result) {
	a := &answers{r, t}
	if len(r.Phases) == len(t.plan.phases) && !t.cut {
		t.plan.answer(a)
	}
	a.common()
}

func (a *answers) find(
	name string, value float64, unit string, better int, format string, args ...any,
) {
	a.Findings = append(a.Findings, report.Finding{
		Name: name, Value: value, Unit: unit, Better: better, Text: fmt.Sprintf(format, args...),
	})
}

// Units of findings.
const (
	share          = "share"
	seconds        = "s"
	tasksASecond   = "tasks/s"
	messagesSecond = "messages/s"
	factor         = "x"
)

func (a *answers) common() {
	var requests, throttled, control int64
	for _, x := range a.Accounts {
		requests, throttled, control = requests+x.Requests, throttled+x.Throttled, control+x.Control
	}
	if requests > 0 {
		a.find("throttled", float64(throttled)/float64(requests), share, -1,
			"Of %s requests to queues, the share that the accounts refused as too many. "+
				"The pump slows down and tries again, so nothing is lost by it.",
			humanize.Comma(requests))
	}
	if a.Tasks.Handled > 0 {
		a.find("requests for a thousand tasks", 1000*float64(requests)/float64(a.Tasks.Handled), "", -1,
			"Put, get, delete and whatever else was asked of queues, for each thousand tasks that were "+
				"handled; %s requests to the control table are not in it.",
			humanize.Comma(control))
		a.find("handled twice", float64(a.Tasks.Duplicates)/float64(a.Tasks.Handled), share, -1,
			"Tasks that were delivered again, as after a lost answer or a stopped processor.")
	}
	if a.Tasks.Unsent > 0 {
		a.find("never taken", float64(a.Tasks.Unsent)/float64(a.Tasks.Unsent+a.Tasks.Sent), share, -1,
			"Tasks that were due by the schedule and that the distributor had not "+
				"taken when the load ended: more was offered than the accounts or this machine "+
				"take. They are in no latency.")
	}
	if c := a.Machine.CPUSeconds; c != nil && a.Seconds > 0 {
		cpus := float64(a.Machine.CPUs)
		used := *c / a.Seconds / cpus
		a.find("CPU used", used, share, 0,
			"Of the %d CPUs of this machine, the share that the load test itself used while load was on. "+
				"Above 80 %%, or if other programs had the rest, "+
				"this machine was the limit rather than the accounts.",
			a.Machine.CPUs)
	}
}

// counted are the phases after the warm-up.
func (a *answers) counted() []report.Phase {
	if a.t.o.WarmUp > 0 {
		return a.Phases[1:]
	}
	return a.Phases
}

// phase gives the phase of a name; the plan has made it.
func (a *answers) phase(name string) *report.Phase {
	return &a.Phases[slices.IndexFunc(a.Phases, func(p report.Phase) bool { return p.Name == name })]
}

func answerSaturate(a *answers) {
	put, take, both := a.phase("put"), a.phase("take"), a.phase("both")
	a.find("puts", put.Put, messagesSecond, 1,
		"Messages that the accounts took while nothing was read.")
	a.find("share of the limits, puts", put.Use, share, 1,
		"What was spent then of what the accounts give.")
	a.find("gets and deletes", take.Taken, messagesSecond, 1,
		"Messages that were got and deleted while nothing was put. "+
			"If fewer were waiting than the accounts give in that time, it is less than they give.")
	a.find("share of the limits, gets and deletes", take.Use, share, 1,
		"What was spent then of what the accounts give.")
	a.find("put to done", both.Handled, tasksASecond, 1,
		"Tasks that went all the way while both sides were at work.")
	a.find("share of the limits, both", both.Use, share, 1,
		"What was spent then of what the accounts give.")
}

// held says whether a phase took the offered load: at least 98 % of it, and without a queue so long
// that a task waited for longer than two seconds at the 99th percentile.
func held(p *report.Phase) bool {
	return p.Offered != nil && p.Handled >= 0.98**p.Offered && p.FromSchedule.P99 != nil &&
		*p.FromSchedule.P99 <= 2
}

func answerRamp(a *answers) {
	best := 0.0
	curve := &report.Curve{
		Of: "tasks a second offered", Unit: tasksASecond, Limit: "what was offered",
		P99: report.FromSchedule,
	}
	steps := a.counted()
	for i := range steps {
		p := &steps[i]
		if held(p) {
			best = max(best, *p.Offered)
		}
		curve.Points = append(curve.Points, report.Point{
			X: *p.Offered, Value: p.Handled, Limit: p.Offered, P99: p.FromSchedule.P99,
		})
	}
	a.Curve = curve
	a.find("highest rate that held", best, tasksASecond, 1,
		"The highest step of which at least 98 %% was handled "+
			"and 99 of 100 tasks began within 2 s of when they were due; 0: none.")
	first := steps[0].FromSchedule
	if first.P99 != nil {
		a.find("p99 at the lowest step", *first.P99, seconds, -1,
			"99 of 100 tasks began within this time of when they were due, at a tenth of the rate.")
	}
}

func answerSoak(a *answers) {
	n := len(a.Series.MemoryBytes)
	if n < 3 {
		return
	}
	third := func(i int) float64 { return median(a.Series.MemoryBytes[n*i/3 : n*(i+1)/3]) }
	if first := third(0); first > 0 {
		a.find("growth of memory", third(2)/first, factor, 0,
			"The median of the heap in use in the last third of the time, divided by that in the first. "+
				"About 1 is flat; a leak shows as more with each hour. "+
				"Below 0.7 means that the start was the busiest part.")
	}
	a.kept("first third")
	a.kept("last third")
}

// kept says how a phase with a schedule went.
func (a *answers) kept(name string) {
	p := a.phase(name)
	if p.Offered != nil && *p.Offered > 0 {
		a.find("rate kept, "+name, p.Handled / *p.Offered, share, 1,
			"Tasks handled a second, of those that were due. Above 1 it caught up with "+
				"what was left from before.")
	}
	if p.FromSchedule.P99 != nil {
		a.find("p99, "+name, *p.FromSchedule.P99, seconds, -1,
			"99 of 100 tasks began within this time of when they were due.")
	}
}

func answerBurst(a *answers) {
	var took, half []float64
	for _, g := range a.Groups[min(1, len(a.Groups)):] {
		took = append(took, g.Last-g.First)
		if g.FromSchedule.P50 != nil {
			half = append(half, *g.FromSchedule.P50)
		}
	}
	if len(took) == 0 {
		return
	}
	a.find("a burst takes", median(took), seconds, -1,
		"From when all of a burst's tasks were due until the handling of the last one began; "+
			"the median of %d bursts of %s tasks.",
		len(took), humanize.Comma(a.Groups[len(a.Groups)-1].Sent))
	a.find("the slowest burst", slices.Max(took), seconds, -1,
		"The same of the burst that took longest.")
	a.find("half of a burst", median(half), seconds, -1,
		"After how long half of a burst's tasks had begun; the median of the bursts.")
	if r := a.Groups[0].FromSchedule.P99; r != nil && a.Groups[0].Name == "other tasks" {
		a.find("p99 of the tasks between", *r, seconds, -1,
			"99 of 100 tasks that were no part of a burst began within this time of when they were due.")
	}
}

func answerHotKey(a *answers) {
	for _, g := range a.Groups {
		if g.FromSchedule.P99 != nil {
			a.find("p99, "+g.Name, *g.FromSchedule.P99, seconds, -1,
				"99 of 100 of these tasks began within this time of when they were due. "+
					"All tasks of one key belong to one segment and have one queue as their home.")
		}
	}
	a.kept("second half")
}

// recovered is the time after at until the rate was at 97 % of the due rate for two intervals; -1:
// never.
func (a *answers) recovered(at, due float64) float64 {
	want := 0.97 * due
	h, step := a.Series.Handled, a.Series.Interval
	for i := range h {
		end := float64(i+1) * step
		if end-step < at-step/2 {
			continue
		}
		if h[i] >= want && (i+1 == len(h) || h[i+1] >= want) {
			return max(end-at, 0)
		}
	}
	return -1
}

func answerDark(a *answers) {
	a.kept("before")
	a.kept("dark")
	a.kept("after")
	if s := a.recovered(a.phase("dark").To, *a.phase("after").Offered); s >= 0 {
		a.find("recovery", s, seconds, -1,
			"After the account was back, how long until 97 %% of what was due was handled "+
				"in two intervals running.")
	}
	if n := len(a.Accounts); n > 1 {
		a.find("accounts left", float64(n-1)/float64(n), share, 0,
			"What the accounts that were not dark give, of all.")
	}
}

func answerRolling(a *answers) {
	a.kept("before")
	a.kept("restarts")
	a.kept("after")
	if m := a.phase("restarts").FromSchedule.Max; m != nil {
		a.find("longest delay, restarts", *m, seconds, -1,
			"The longest time from when a task was due until it began, while processors were replaced.")
	}
}

func answerScaleOut(a *answers) {
	curve := &report.Curve{Of: a.t.o.Over, Unit: tasksASecond, P99: report.FromSend}
	perMessage := float64(max(a.t.o.Pack, 1))
	if a.t.o.Pack < 0 && a.Tasks.Messages > 0 {
		perMessage = float64(a.Tasks.Sent) / float64(a.Tasks.Messages)
	}
	curve.Limit = "what the accounts give from put to delete"
	// Phases come in pairs: one to settle, one that counts.
	steps := a.counted()
	for i := 1; i < len(steps); i += 2 {
		p := &steps[i]
		pt := report.Point{X: float64(p.Accounts), Value: p.Handled, P99: p.FromSend.P99}
		if l := a.Limits.EndToEnd(limitOf(a.t.meters[:p.Accounts])) * perMessage; l > 0 {
			pt.Limit = new(l)
		}
		if a.t.o.Over == OverProcessors {
			pt.X = float64(p.Processors)
			if h := a.t.o.HandlerTime.Seconds(); h > 0 {
				curve.Limit = "what the accounts or the handlers give, whichever is less"
				handlers := float64(p.Processors*a.t.o.Concurrency) / h
				if pt.Limit == nil || handlers < *pt.Limit {
					pt.Limit = new(handlers)
				}
			}
		}
		curve.Points = append(curve.Points, pt)
	}
	a.Curve = curve
	first, last := curve.Points[0], curve.Points[len(curve.Points)-1]
	if first.Value > 0 && last.X > first.X {
		a.find("efficiency", last.Value/first.Value/(last.X/first.X), share, 1,
			"Tasks a second of %.0f %s, divided by %.0f times those of %.0f. 1 is a straight line.", last.X,
			a.t.o.Over, last.X/first.X, first.X)
	}
	a.find("rate at the end", last.Value, tasksASecond, 1, "With %.0f %s.", last.X, a.t.o.Over)
	if last.Limit != nil {
		a.find("share of the limit at the end", last.Value / *last.Limit, share, 1, "Of %s.", curve.Limit)
	}
}

func answerDrain(a *answers, m *meter) {
	a.kept("before")
	a.kept("draining")
	a.kept("drained")
	a.kept("added")
	i := slices.IndexFunc(a.Series.AccountUnits, func(l report.Line) bool { return l.Name == m.name })
	use := func(p *report.Phase) float64 {
		var sum float64
		n := 0
		for k, v := range a.Series.AccountUnits[i].Values {
			if end := float64(k+1) * a.Series.Interval; end > p.From+a.Series.Interval/2 &&
				end <= p.To+a.Series.Interval/2 {
				sum, n = sum+v, n+1
			}
		}
		return sum / float64(max(n, 1))
	}
	if before := use(a.phase("before")); before > 0 {
		a.find("use of the drained account", use(a.phase("drained"))/before, share, -1,
			"What was asked of %s while it was drained, of what was asked of it before. Its "+
				"queues are still looked at.",
			m.name)
		a.find("use of the added account", use(a.phase("added"))/before, share, 1,
			"The same after it was added again.")
	}
}

func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(v))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}
