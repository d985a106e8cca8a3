package report

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/queuepump/queuepump/internal/cli"
)

// Comparison is two results figure by figure, or two sides of several results each.
type Comparison struct {
	Before Side     `json:"before"` // the first of its results
	After  Side     `json:"after"`
	Lines  []Change `json:"lines"`
	// Differing are the settings that are not the same, so that figures differ for that reason too.
	Differing []Differing `json:"differing"`
	// Warnings say for people why a change may not come from the program.
	Warnings []string `json:"warnings"`

	results [2]*Result // the first of each side
	sides   [2][]*Result
}

// Side names one of two results.
type Side struct {
	Runs     int       `json:"runs"` // how many results it is
	Scenario string    `json:"scenario"`
	Against  Against   `json:"against"`
	Started  time.Time `json:"started"`
	Version  string    `json:"version"`
}

// Change is a figure that both results have.
type Change struct {
	Name   string  `json:"name"`
	Unit   string  `json:"unit"`
	Before float64 `json:"before"` // the median of a side of several results
	After  float64 `json:"after"`
	// Relative is (after - before) / before; null if before is 0.
	Relative *float64 `json:"relative"`
	// Better is 1 if after is better and -1 if it is worse. It is 0 if the difference is no more than
	// noise, if that is not known, or if neither direction is good.
	Better int `json:"better"`
	// Noise is what differs by chance; null: one value of each side does not say.
	Noise *Noise `json:"noise"`
}

// Differing is a setting with another value in each.
type Differing struct {
	Name   string `json:"name"`
	Before string `json:"before"`
	After  string `json:"after"`
}

// Compare puts two results beside each other, or two sides with several results each, which are
// repeated runs of one test. All must be of one scenario. A figure is judged by how far its samples
// spread (see [Noise]).
func Compare(before, after []*Result) (*Comparison, error) {
	if len(before) == 0 || len(after) == 0 {
		return nil, errors.New("a side has no result")
	}
	for _, r := range slices.Concat(before, after) {
		if r.Scenario != before[0].Scenario {
			return nil, fmt.Errorf(
				"one is of scenario %q and the other of %q", plain(before[0].Scenario), plain(r.Scenario),
			)
		}
	}
	c := &Comparison{
		Before: sideOf(before), After: sideOf(after), Lines: []Change{}, Differing: []Differing{},
		Warnings: []string{}, results: [2]*Result{before[0], after[0]},
		sides: [2][]*Result{before, after},
	}
	for _, f := range before[0].Findings {
		c.add(f.Name, f.Unit, f.Better, func(r *Result) *float64 {
			if i := slices.IndexFunc(r.Findings, func(g Finding) bool {
				return g.Name == f.Name && g.Unit == f.Unit
			}); i >= 0 {
				return &r.Findings[i].Value
			}
			return nil
		}, nil)
	}
	for i := range before[0].Phases {
		name := before[0].Phases[i].Name
		for _, f := range phaseFigures {
			c.add(name+": "+f.name, f.unit, f.better, func(r *Result) *float64 {
				if p := r.phase(name); p != nil {
					return f.value(p)
				}
				return nil
			}, func(r *Result) []float64 {
				p := r.phase(name)
				if p == nil || f.series == nil {
					return nil
				}
				return parts(f.series(&r.Series), r.Series.Interval, p.From, p.To)
			})
		}
	}
	c.settings()
	c.warn()
	return c, nil
}

// phaseFigures are the figures of a phase that are compared.
var phaseFigures = []struct {
	name, unit string
	better     int
	value      func(*Phase) *float64
	series     func(*Series) []*float64
}{
	{
		"handled", "tasks/s", 1,
		func(p *Phase) *float64 { return &p.Handled },
		func(s *Series) []*float64 { return known(s.Handled) },
	},
	{"use", "share", 0, func(p *Phase) *float64 { return &p.Use }, nil},
	{
		"p50 from schedule", "s", -1,
		func(p *Phase) *float64 { return p.FromSchedule.P50 },
		func(s *Series) []*float64 { return s.ScheduleP50 },
	},
	{
		"p99 from schedule", "s", -1,
		func(p *Phase) *float64 { return p.FromSchedule.P99 },
		func(s *Series) []*float64 { return s.ScheduleP99 },
	},
	{
		"p99 from send", "s", -1,
		func(p *Phase) *float64 { return p.FromSend.P99 },
		func(s *Series) []*float64 { return s.SendP99 },
	},
}

func (r *Result) phase(name string) *Phase {
	if i := slices.IndexFunc(r.Phases, func(p Phase) bool { return p.Name == name }); i >= 0 {
		return &r.Phases[i]
	}
	return nil
}

func sideOf(results []*Result) Side {
	r := results[0]
	return Side{len(results), r.Scenario, r.Against, r.Started, r.Machine.Version}
}

// add compares a figure. Whole runs are its samples if each side has enough of them, otherwise
// parts of the runs, if it has a series.
func (c *Comparison) add(
	name, unit string, better int, value func(*Result) *float64, series func(*Result) []float64,
) {
	var runs, within [2][]float64
	for side, results := range c.sides {
		for _, r := range results {
			if v := value(r); v != nil {
				runs[side] = append(runs[side], *v)
			}
			if series != nil {
				within[side] = append(within[side], series(r)...)
			}
		}
	}
	if len(runs[0]) == 0 || len(runs[1]) == 0 {
		return
	}
	noise := noiseOf(ofRuns, runs[0], runs[1])
	if noise == nil {
		noise = noiseOf(ofParts, within[0], within[1])
	}
	l := Change{
		Name: name, Unit: unit, Before: median(runs[0]), After: median(runs[1]),
		Noise: noise, Better: noise.verdict(better),
	}
	if l.Before != 0 {
		l.Relative = new((l.After - l.Before) / l.Before)
	}
	c.Lines = append(c.Lines, l)
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// settings finds what differed between runs: the settings, their targets, the limits. Runs of one
// side must be alike too, or a difference looks like noise.
func (c *Comparison) settings() {
	differ := func(name string, value func(*Result) string) {
		var values [2][]string
		for side, results := range c.sides {
			for _, r := range results {
				if v := value(r); !slices.Contains(values[side], v) {
					values[side] = append(values[side], v)
				}
			}
		}
		if b, a := values[0], values[1]; len(b) > 1 || len(a) > 1 || b[0] != a[0] {
			c.Differing = append(c.Differing, Differing{name, strings.Join(b, ", "), strings.Join(a, ", ")})
		}
	}
	differ("against", func(r *Result) string { return against(r.Against) })
	differ("limits", func(r *Result) string { return r.Limits.String() })
	differ("machine", func(r *Result) string { return cli.Plural(int64(r.Machine.CPUs), "CPU") })
	differ("system", func(r *Result) string { return r.Machine.OS })
	differ("Go", func(r *Result) string { return r.Machine.Go })
	said := map[string]bool{}
	for _, r := range slices.Concat(c.sides[0], c.sides[1]) {
		for _, s := range r.Settings {
			if !said[s.Name] {
				said[s.Name] = true
				differ(s.Name, func(r *Result) string { return r.setting(s.Name) })
			}
		}
	}
}

func (r *Result) setting(name string) string {
	if i := slices.IndexFunc(r.Settings, func(s Setting) bool { return s.Name == name }); i >= 0 {
		return r.Settings[i].Value
	}
	return "default"
}

// warn says why a change may not come from the program.
func (c *Comparison) warn() {
	if n := len(c.Differing); n == 1 {
		c.Warnings = append(c.Warnings, "1 setting is not the same: a change may come from it")
	} else if n > 1 {
		c.Warnings = append(c.Warnings,
			fmt.Sprintf("%d settings are not the same: a change may come from them", n))
	}
	for side, results := range c.sides {
		for i, r := range results {
			for _, s := range r.Trouble {
				c.Warnings = append(c.Warnings,
					fmt.Sprintf("run %d %s: %s", i+1, []string{"before", "after"}[side], s))
			}
		}
	}
}

// String gives the limits in words.
func (l Limits) String() string {
	if l.Queue <= 0 && l.Account <= 0 {
		return "not known"
	}
	return fmt.Sprintf("%s a queue, %s an account, a get of 32 costs %d", number(l.Queue),
		number(l.Account), l.GetCost)
}

func (c *Comparison) rows() table {
	t := table{
		Header: []string{"figure", "before", "after", "change", "", "95 % interval of before; of after"},
	}
	for _, l := range c.Lines {
		change := ""
		if l.Relative != nil {
			change = percent(*l.Relative)
			if *l.Relative > 0 {
				change = "+" + change
			}
		}
		t.Rows = append(t.Rows, []string{
			l.Name, quantity(l.Before, l.Unit), quantity(l.After, l.Unit), change, l.judged(),
			l.Noise.words(l.Unit),
		})
	}
	return t
}

// judged says whether a change is real. A figure of only parts of the runs gives no verdict on two
// runs, so the page does not colour it.
func (l *Change) judged() string {
	switch {
	case l.Noise == nil:
		return "not judged"
	case l.Better > 0 && l.Noise.Of == ofRuns:
		return "better"
	case l.Better < 0 && l.Noise.Of == ofRuns:
		return "worse"
	case l.Better > 0:
		return "better by parts"
	case l.Better < 0:
		return "worse by parts"
	case l.Noise.P < significance && l.Noise.Before.Median != l.Noise.After.Median:
		return "differs"
	}
	return "within noise"
}

// judgedFigures counts the figures whose noise is known: each one can look changed by chance.
func (c *Comparison) judgedFigures() (n int) {
	for _, l := range c.Lines {
		if l.Noise != nil {
			n++
		}
	}
	return n
}

func (c *Comparison) differing() table {
	t := table{Header: []string{"not the same", "before", "after"}}
	for _, d := range c.Differing {
		t.Rows = append(t.Rows, []string{d.Name, d.Before, d.After})
	}
	return t
}

// words names what is compared.
func (c *Comparison) words() string {
	side := func(s Side) string {
		text := fmt.Sprintf("%s (%s, queuepump %s)", s.Started.Format(time.RFC3339), against(s.Against),
			s.Version)
		if s.Runs > 1 {
			text += fmt.Sprintf(" and %s more", cli.Plural(int64(s.Runs-1), "run"))
		}
		return text
	}
	text := fmt.Sprintf("%s: before %s, after %s; a change is judged by "+
		"Mann-Whitney's U test at p < %g",
		c.Before.Scenario, side(c.Before), side(c.After), significance)
	if n := c.judgedFigures(); n > 1 {
		text += fmt.Sprintf(": of %d figures that are judged, chance alone makes about %s look changed",
			n, number(significance*float64(n)))
	}
	if c.Before.Runs < enough || c.After.Runs < enough {
		text += fmt.Sprintf(". Parts of a run show how it went on, and not how far two "+
			"runs of one test are apart: repeat both %d times to know that", enough)
	}
	return text
}

// Text writes the comparison for a terminal.
func (c *Comparison) Text(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", plain(c.words()))
	for _, s := range c.Warnings {
		fmt.Fprintf(&b, "! %s\n", plain(s))
	}
	fmt.Fprintln(&b)
	section(&b, c.differing())
	section(&b, c.rows())
	_, err := io.WriteString(w, b.String())
	return err
}

// HTML writes the comparison as one page, like [Result.HTML].
func (c *Comparison) HTML(w io.Writer) error {
	d := pageData{
		Title:    "Two load tests: " + c.Before.Scenario,
		Intro:    c.words(),
		Trouble:  c.Warnings,
		Sentence: "Lines of the plots: before is dashed",
	}
	if len(c.Differing) > 0 {
		d.Sections = append(d.Sections, pageSection{"Not the same", c.differing(), ""})
	}
	d.Sections = append(d.Sections, pageSection{"Figures", c.rows(), "prose"})
	for _, of := range []struct {
		title, text, y string
		times          bool
		values         func(*Series) []*float64
	}{
		{
			"Handled", "Tasks whose handling began.", "tasks/s", false,
			func(s *Series) []*float64 { return known(s.Handled) },
		},
		{
			"p99 from schedule",
			"The time within which 99 % of the tasks of an interval began, since they were due.", "", true,
			func(s *Series) []*float64 { return s.ScheduleP99 },
		},
		{
			"p99 from send", "The same, since the distributor took them.", "", true,
			func(s *Series) []*float64 { return s.SendP99 },
		},
		{
			"Throttled", "Requests to queues that an account refused as too many.", "requests/s", false,
			func(s *Series) []*float64 { return known(s.Throttled) },
		},
	} {
		ch := &chart{Title: of.title, Text: of.text, X: "seconds", Y: of.y, Times: of.times}
		for i, name := range []string{"before", "after"} {
			s := &c.results[i].Series
			ch.Lines = append(ch.Lines, trace{Name: name, X: s.ends(), Y: of.values(s), Dashed: i == 0})
		}
		d.Figures = append(d.Figures, drawn(ch)...)
	}
	return page.Execute(w, d)
}
