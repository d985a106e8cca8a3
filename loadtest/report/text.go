package report

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/dustin/go-humanize"

	"github.com/queuepump/queuepump/internal/cli"
	"github.com/queuepump/queuepump/internal/logs"
)

// titles names what a test ran against.
var titles = map[Against]string{
	Simulated: "simulated accounts over TCP on this machine",
	Real:      "the accounts of a configuration",
	Virtual:   "simulated accounts in virtual time",
}

// Text writes the result for a terminal.
func (r *Result) Text(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s on %s, %s\n", plain(r.Scenario), against(r.Against),
		r.Started.Format(time.RFC3339))
	var settings []string
	for _, s := range r.Settings {
		settings = append(settings, plain(s.Name)+" "+plain(s.Value))
	}
	fmt.Fprintf(&b, "%s\n", strings.Join(settings, " · "))
	for _, s := range r.Trouble {
		fmt.Fprintf(&b, "! %s\n", plain(s))
	}
	fmt.Fprintln(&b)
	section(&b, r.phaseRows())
	section(&b, r.latencyRows())
	if len(r.Events) > 0 {
		for _, e := range r.Events {
			fmt.Fprintf(&b, "%s: %s\n", moment(e.At), plain(e.Text))
		}
		fmt.Fprintln(&b)
	}
	if len(r.Groups) > 0 {
		section(&b, r.groupRows())
	}
	if r.Curve != nil {
		section(&b, r.Curve.rows())
	}
	section(&b, r.accountRows())
	fmt.Fprintln(&b, "COLUMNS")
	for _, l := range legend {
		described(&b, l.Name, l.Text)
	}
	fmt.Fprintln(&b, "\nFOUND") // last, where it is still seen when the rest has scrolled away
	for _, f := range r.Findings {
		described(&b, plain(f.Name)+": "+plain(f.shown()), plain(f.Text))
	}
	fmt.Fprintf(&b, "\n%s\n", r.account())
	_, err := io.WriteString(w, b.String())
	return err
}

// plain is a text of the result fit for a terminal: a file may come from anywhere.
func plain(s string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsPrint(c) {
			return c
		}
		return '?'
	}, logs.Cleaned(s))
}

func against(a Against) string {
	if t, ok := titles[a]; ok {
		return t
	}
	return "unknown accounts"
}

// account accounts for every task in a sentence.
func (r *Result) account() string {
	t := r.Tasks
	s := fmt.Sprintf("%s sent in %s", cli.Plural(t.Sent, "task"), cli.Plural(t.Messages, "message"))
	if t.WarmUp > 0 {
		s += fmt.Sprintf(", %s of them to warm up", humanize.Comma(t.WarmUp))
	}
	s += fmt.Sprintf("; %s handled, %s lost, %s handled twice", number(float64(t.Handled)),
		number(float64(t.Lost)), number(float64(t.Duplicates)))
	if t.Unsent > 0 {
		s += fmt.Sprintf("; %s due but never taken", number(float64(t.Unsent)))
	}
	if t.Strangers > 0 {
		s += fmt.Sprintf("; %s of another program", cli.Plural(t.Strangers, "task"))
	}
	if t.Finishing >= 1 {
		s += fmt.Sprintf("; the last one %s after the load ended", duration(t.Finishing))
	}
	return s
}

// textWidth is how wide a paragraph is.
const textWidth = 100

// described writes a term and what it means, in lines that can be read.
func described(b *strings.Builder, term, text string) {
	fmt.Fprintf(b, "  %s\n", term)
	for _, line := range Wrap(text, textWidth-6) {
		fmt.Fprintf(b, "      %s\n", line)
	}
}

// Wrap breaks a text into lines of at most so many characters, but for a longer word.
func Wrap(text string, width int) (lines []string) {
	line := ""
	for word := range strings.FieldsSeq(text) {
		longer := strings.TrimPrefix(line+" "+word, " ")
		if line != "" && utf8.RuneCountInString(longer) > width {
			lines, longer = append(lines, line), word
		}
		line = longer
	}
	return append(lines, line)
}

// table is rows of cells under a header. Names in it come from outside.
type table struct {
	Header []string
	Rows   [][]string
}

func section(b *strings.Builder, t table) {
	if len(t.Rows) == 0 {
		return
	}
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, strings.ToUpper(strings.Join(t.Header, "\t")))
	for _, row := range t.Rows {
		for i, c := range row {
			if i > 0 {
				fmt.Fprint(w, "\t")
			}
			fmt.Fprint(w, plain(c))
		}
		fmt.Fprintln(w)
	}
	_ = w.Flush() // to a strings.Builder
	fmt.Fprintln(b)
}

func (r *Result) phaseRows() table {
	t := table{
		Header: []string{
			"phase", "from", "to", "processors", "accounts", "offered/s", "sent/s", "put/s", "taken/s",
			"handled/s", "use", "throttled",
		},
	}
	for _, p := range r.Phases {
		offered := "as taken"
		if p.Offered != nil {
			offered = number(*p.Offered)
		}
		t.Rows = append(t.Rows, []string{
			p.Name, moment(p.From), moment(p.To), strconv.Itoa(p.Processors), strconv.Itoa(p.Accounts),
			offered, number(p.Sent), number(p.Put), number(p.Taken), number(p.Handled), percent(p.Use),
			ratio(p.Throttled, p.Requests),
		})
	}
	return t
}

// latencyHeader names the columns of percentiles.
var latencyHeader = []string{
	"from schedule: p50", "p90", "p99", "p99.9", "max", "from send: p50", "p90", "p99", "p99.9",
	"max",
}

func percentiles(schedule, send *Latency) (cells []string) {
	for _, l := range []*Latency{schedule, send} {
		for _, v := range []*float64{l.P50, l.P90, l.P99, l.P999, l.Max} {
			cells = append(cells, optional(v))
		}
	}
	return cells
}

func (r *Result) latencyRows() table {
	t := table{Header: append([]string{"phase", "tasks begun"}, latencyHeader...)}
	for i := range r.Phases {
		if p := &r.Phases[i]; p.FromSend.Count > 0 {
			t.Rows = append(t.Rows, append([]string{p.Name, number(float64(p.FromSend.Count))},
				percentiles(&p.FromSchedule, &p.FromSend)...))
		}
	}
	return t
}

func (r *Result) groupRows() table {
	t := table{
		Header: append([]string{"group", "sent", "handled", "first due", "last begun"}, latencyHeader...),
	}
	for i := range r.Groups {
		g := &r.Groups[i]
		t.Rows = append(t.Rows, append([]string{
			g.Name, number(float64(g.Sent)), number(float64(g.Handled)), moment(g.First), moment(g.Last),
		}, percentiles(&g.FromSchedule, &g.FromSend)...))
	}
	return t
}

func (c *Curve) rows() table {
	t := table{Header: []string{c.Of, c.Unit, "limit", "share", "p99 " + c.P99}}
	for _, p := range c.Points {
		limit, share := "", ""
		if p.Limit != nil && *p.Limit > 0 {
			limit, share = number(*p.Limit), percent(p.Value / *p.Limit)
		}
		t.Rows = append(t.Rows, []string{number(p.X), number(p.Value), limit, share, optional(p.P99)})
	}
	return t
}

func (r *Result) accountRows() table {
	t := table{
		Header: []string{
			"account", "queues", "limit/s", "spent/s", "use", "peak/s", "put", "taken", "requests",
			"throttled", "failed", "control",
		},
	}
	for _, a := range r.Accounts {
		limit, use := "", ""
		if a.Limit > 0 {
			limit, use = number(a.Limit), percent(a.Units/a.Limit)
		}
		t.Rows = append(t.Rows, []string{
			a.Name, strconv.Itoa(a.Queues), limit, number(a.Units), use, number(a.Peak),
			number(float64(a.Put)), number(float64(a.Taken)), number(float64(a.Requests)),
			number(float64(a.Throttled)), number(float64(a.Failed)), number(float64(a.Control)),
		})
	}
	return t
}

func (r *Result) findingRows() table {
	t := table{Header: []string{"found", "", "which is"}}
	for _, f := range r.Findings {
		t.Rows = append(t.Rows, []string{f.Name, f.shown(), f.Text})
	}
	return t
}

// shown is the figure with its unit.
func (f Finding) shown() string { return quantity(f.Value, f.Unit) }

func quantity(v float64, unit string) string {
	switch unit {
	case "share":
		return percent(v)
	case "s":
		return duration(v)
	case "":
		return number(v)
	default:
		return number(v) + " " + unit
	}
}

// number writes a number with about three digits that count.
func number(v float64) string {
	switch abs := max(v, -v); {
	case abs >= 1e15 || v != v:
		return strconv.FormatFloat(v, 'g', 4, 64)
	case abs >= 100 || v == float64(int64(v)):
		return humanize.Comma(int64(math.Round(v)))
	case abs >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	default:
		return strconv.FormatFloat(v, 'g', 3, 64)
	}
}

func percent(v float64) string {
	if v != 0 && max(v, -v) < 0.0995 {
		return strconv.FormatFloat(100*v, 'g', 2, 64) + " %"
	}
	return strconv.FormatFloat(100*v, 'f', 1, 64) + " %"
}

func ratio(part, whole int64) string {
	if whole == 0 {
		return ""
	}
	return percent(float64(part) / float64(whole))
}

// duration writes seconds in the unit that suits.
func duration(s float64) string {
	switch {
	case s == 0:
		return "0"
	case s < 1e-3:
		return number(s*1e6) + " µs"
	case s < 1:
		return number(s*1e3) + " ms"
	case s < 120:
		return number(s) + " s"
	default:
		return time.Duration(s * float64(time.Second)).Round(time.Second).String()
	}
}

// moment writes a time of the test to a tenth of a second.
func moment(s float64) string {
	return strconv.FormatFloat(math.Round(10*s)/10, 'f', -1, 64) + " s"
}

func optional(s *float64) string {
	if s == nil {
		return ""
	}
	return duration(*s)
}
