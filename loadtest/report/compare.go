package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Comparison is two results figure by figure.
type Comparison struct {
	Before Side     `json:"before"`
	After  Side     `json:"after"`
	Lines  []Change `json:"lines"`
	// Differing are the settings that are not the same, so that figures differ for that reason too.
	Differing []Differing `json:"differing"`

	results [2]*Result
}

// Side names one of two results.
type Side struct {
	Scenario string    `json:"scenario"`
	Against  Against   `json:"against"`
	Started  time.Time `json:"started"`
	Version  string    `json:"version"`
}

// Change is a figure that both results have.
type Change struct {
	Name   string  `json:"name"`
	Unit   string  `json:"unit"`
	Before float64 `json:"before"`
	After  float64 `json:"after"`
	// Relative is (after - before) / before; null if before is 0.
	Relative *float64 `json:"relative"`
	// Better is 1 if after is better, -1 if it is worse, 0 if they are within 2 % of each
	// other or neither way is good.
	Better int `json:"better"`
}

// Differing is a setting with another value in each.
type Differing struct {
	Name   string `json:"name"`
	Before string `json:"before"`
	After  string `json:"after"`
}

// alike is how far apart two figures may be and count as the same: what two runs of one
// test differ by.
const alike = 0.05

// Compare puts two results beside each other. They must be of one scenario.
func Compare(before, after *Result) (*Comparison, error) {
	if before.Scenario != after.Scenario {
		return nil, fmt.Errorf(
			"one is of scenario %q and the other of %q", plain(before.Scenario),
			plain(after.Scenario),
		)
	}
	c := &Comparison{
		Before:    before.side(),
		After:     after.side(),
		Lines:     []Change{},
		Differing: []Differing{},
		results:   [2]*Result{before, after},
	}
	for _, f := range before.Findings {
		if i := slices.IndexFunc(after.Findings, func(g Finding) bool { return g.Name == f.Name && g.Unit == f.Unit }); i >= 0 {
			c.add(f.Name, f.Unit, f.Value, after.Findings[i].Value, f.Better)
		}
	}
	for i := range before.Phases {
		p := &before.Phases[i]
		k := slices.IndexFunc(after.Phases, func(q Phase) bool { return q.Name == p.Name })
		if k < 0 {
			continue
		}
		q := &after.Phases[k]
		c.add(p.Name+": handled", "tasks/s", p.Handled, q.Handled, 1)
		c.add(p.Name+": use", "share", p.Use, q.Use, 0)
		c.addTime(p.Name+": p50 from schedule", p.FromSchedule.P50, q.FromSchedule.P50)
		c.addTime(p.Name+": p99 from schedule", p.FromSchedule.P99, q.FromSchedule.P99)
		c.addTime(p.Name+": p99 from send", p.FromSend.P99, q.FromSend.P99)
	}
	c.settings()
	return c, nil
}

func (r *Result) side() Side {
	return Side{r.Scenario, r.Against, r.Started, r.Machine.Version}
}

func (c *Comparison) addTime(name string, before, after *float64) {
	if before != nil && after != nil {
		c.add(name, "s", *before, *after, -1)
	}
}

func (c *Comparison) add(name, unit string, before, after float64, better int) {
	l := Change{Name: name, Unit: unit, Before: before, After: after}
	if before != 0 {
		l.Relative = new((after - before) / before)
	}
	switch {
	case before == after, l.Relative != nil && max(*l.Relative, -*l.Relative) <= alike:
	case after > before:
		l.Better = better
	default:
		l.Better = -better
	}
	c.Lines = append(c.Lines, l)
}

// settings finds what was not the same: the settings, what it ran against, the limits.
func (c *Comparison) settings() {
	differ := func(name, before, after string) {
		if before != after {
			c.Differing = append(c.Differing, Differing{name, before, after})
		}
	}
	b, a := c.results[0], c.results[1]
	differ("against", against(b.Against), against(a.Against))
	differ("limits", b.Limits.String(), a.Limits.String())
	differ("machine", count(int64(b.Machine.CPUs), "CPU"), count(int64(a.Machine.CPUs), "CPU"))
	value := func(r *Result, name string) string {
		if i := slices.IndexFunc(r.Settings, func(s Setting) bool { return s.Name == name }); i >= 0 {
			return r.Settings[i].Value
		}
		return "default"
	}
	for _, s := range b.Settings {
		differ(s.Name, s.Value, value(a, s.Name))
	}
	for _, s := range a.Settings {
		if !slices.ContainsFunc(b.Settings, func(o Setting) bool { return o.Name == s.Name }) {
			differ(s.Name, "default", s.Value)
		}
	}
}

// String gives the limits in words.
func (l Limits) String() string {
	if l.Queue <= 0 && l.Account <= 0 {
		return "not known"
	}
	return fmt.Sprintf("%s a queue, %s an account, a get of 32 costs %d", number(l.Queue), number(l.Account), l.GetCost)
}

func (c *Comparison) rows() table {
	t := table{header: []string{"figure", "before", "after", "change", ""}}
	for _, l := range c.Lines {
		change, verdict := "", map[int]string{1: "better", -1: "worse"}[l.Better]
		if l.Relative != nil {
			change = percent(*l.Relative)
			if *l.Relative > 0 {
				change = "+" + change
			}
		}
		t.rows = append(
			t.rows,
			[]string{l.Name, quantity(l.Before, l.Unit), quantity(l.After, l.Unit), change, verdict},
		)
	}
	return t
}

func (c *Comparison) differing() table {
	t := table{header: []string{"not the same", "before", "after"}}
	for _, d := range c.Differing {
		t.rows = append(t.rows, []string{d.Name, d.Before, d.After})
	}
	return t
}

// words say what is compared.
func (c *Comparison) words() string {
	side := func(s Side) string {
		return fmt.Sprintf("%s (%s, queuepump %s)", s.Started.Format(time.RFC3339), against(s.Against), s.Version)
	}
	return fmt.Sprintf(
		"%s: before %s, after %s; figures within %.0f %% of each other count as the same",
		c.Before.Scenario, side(c.Before), side(c.After), 100*alike,
	)
}

// Text writes the comparison for a terminal.
func (c *Comparison) Text(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n", plain(c.words()))
	section(&b, c.differing())
	section(&b, c.rows())
	_, err := io.WriteString(w, b.String())
	return err
}

// HTML writes the comparison as one page, like [Result.HTML].
func (c *Comparison) HTML(w io.Writer, draw Draw) error {
	d := pageData{
		Title:    "Two load tests: " + c.Before.Scenario,
		Intro:    c.words(),
		Sentence: "Lines of the plots: before is dashed",
	}
	if len(c.Differing) > 0 {
		d.Sections = append(d.Sections, sectionOf("Not the same", c.differing()))
	}
	d.Sections = append(d.Sections, sectionOf("Figures", c.rows()))
	for _, of := range []struct {
		title, text, y string
		log            bool
		values         func(*Series) []*float64
	}{
		{"Handled", "Tasks whose handling began.", "tasks/s", false, func(s *Series) []*float64 { return known(s.Handled) }},
		{"p99 from schedule", "The time within which 99 % of the tasks of an interval began, since they were due.", "", true, func(s *Series) []*float64 { return s.ScheduleP99 }},
		{"p99 from send", "The same, since the distributor took them.", "", true, func(s *Series) []*float64 { return s.SendP99 }},
		{"Throttled", "Requests to queues that an account refused as too many.", "requests/s", false, func(s *Series) []*float64 { return known(s.Throttled) }},
	} {
		ch := &chart{
			title:   of.title,
			text:    of.text,
			x:       "seconds",
			y:       of.y,
			log:     of.log,
			seconds: of.log,
			atZero:  !of.log,
		}
		for i, name := range []string{"before", "after"} {
			s := &c.results[i].Series
			ch.curves = append(ch.curves, curve{name: name, xs: s.ends(), ys: of.values(s), dashed: i == 0})
		}
		f, err := ch.draw(draw)
		if err != nil {
			return err
		}
		if f.SVG != "" {
			d.Figures = append(d.Figures, f)
		}
	}
	return page.Execute(w, d)
}
