package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/queuepump/queuepump/internal/proof"
)

// must ends a test with an error.
var must = proof.Must

// hostile is a name as a stranger might choose it.
const hostile = `</text></svg><script src="https://evil.example/x.js">alert('1')</script>&"'` + "\x1b[31m"

// sample is a result in which everything occurs.
func sample(scenario string, factor float64) *Result {
	at := func(v float64) *float64 { return new(v * factor) }
	l := Latency{100, at(0.02), at(0.01), at(0.05), at(0.1), at(0.2), at(0.3)}
	r := &Result{
		Format: Format, Scenario: scenario, Against: Simulated, Workload: "loadtest-0123abcd", Started: time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC), Seconds: 3,
		Settings: []Setting{{"processors", "2"}, {hostile, hostile}}, Limits: Limits{Queue: 2000, Account: 20000, GetCost: 32},
		Phases: []Phase{
			{Name: "warm-up", To: 1, Processors: 2, Accounts: 2, Sent: 10, Put: 10, Taken: 10, Handled: 10 * factor, Use: 0.5, Requests: 30, FromSend: l},
			{Name: "dark", From: 1, To: 3, Processors: 2, Accounts: 2, Offered: new(100.0), Sent: 100, Put: 100, Taken: 90, Handled: 90 * factor, Use: 0.7, Requests: 300, Throttled: 3, Failed: 1, FromSchedule: l, FromSend: l},
		},
		Groups:   []Group{{Name: hostile, Sent: 5, Handled: 5, First: 1, Last: 2, FromSchedule: l, FromSend: l}},
		Events:   []Event{{1, hostile + " is dark"}},
		Accounts: []Account{{Name: "alpha", Queues: 2, Limit: 4000, Units: 100, Peak: 200, Put: 100, Taken: 90, Requests: 290, Throttled: 3}, {Name: hostile, Queues: 2, Limit: 4000}},
		Series: Series{
			Interval: 1, Sent: []float64{10, 100, 100}, Handled: []float64{10 * factor, 90, 90}, Put: []float64{10, 100, 100}, Taken: []float64{10, 90, 90},
			Throttled: []float64{0, 3, 0}, Failed: []float64{0, 1, 0}, ScheduleP50: []*float64{nil, at(0.01), at(0.02)}, ScheduleP99: []*float64{at(0), nil, at(3)},
			SendP50: []*float64{at(0.01), at(0.01), at(0.01)}, SendP99: []*float64{nil, nil, nil}, MemoryBytes: []float64{1 << 20, 2 << 20, 2 << 20},
			AccountUnits: []Line{{"alpha", []float64{1, 2, 3}}, {hostile, []float64{0, 0, 0}}},
		},
		Curve:    &Curve{Of: "accounts", Unit: "tasks/s", Limit: hostile, P99: FromSend, Points: []Point{{1, 300 * factor, new(333.0), at(1)}, {2, 600, nil, nil}}},
		Tasks:    Tasks{Sent: 210, WarmUp: 10, Unsent: 3, Handled: 210, Messages: 210, Duplicates: 1, Strangers: 2, Finishing: 4},
		Findings: []Finding{{"throttled", 0.01, "share", "What was refused.", -1}, {hostile, 3 * factor, "s", hostile, -1}, {"rate", 100 * factor, "tasks/s", "Fast.", 1}},
		Machine:  Machine{CPUs: 2, OS: "linux/amd64", Go: "go1.26", Version: "v1", CPUSeconds: new(2.0), PeakBytes: 5 << 20},
		Trouble:  []string{hostile},
	}
	return r
}

func TestAResultIsReadAsItWasWritten(t *testing.T) {
	want := sample("account-dark", 1)
	var b bytes.Buffer
	must(t, want.Write(&b))
	got, err := Read(&b)
	must(t, err)
	proof.Same(t, cmp.Diff(want, got), "")
}

func TestWhatIsNoResultIsRefused(t *testing.T) {
	change := func(f func(*Result)) string {
		r := sample("soak", 1)
		f(r)
		var b bytes.Buffer
		must(t, r.Write(&b))
		return b.String()
	}
	for name, tt := range map[string]struct{ text, want string }{
		"no JSON":           {"hello", "not a result"},
		"another object":    {`{"tasks": {"sent": 3}}`, "not a result"},
		"an empty object":   {`{}`, "not a result"},
		"another format":    {change(func(r *Result) { r.Format = 2 }), "format 2"},
		"a short list":      {change(func(r *Result) { r.Series.SendP99 = r.Series.SendP99[:2] }), "damaged"},
		"a long line":       {change(func(r *Result) { r.Series.AccountUnits[0].Values = make([]float64, 9) }), "damaged"},
		"no interval":       {change(func(r *Result) { r.Series.Interval = 0 }), "damaged"},
		"no such accounts":  {change(func(r *Result) { r.Phases[1].Accounts = -1 }), "damaged"},
		"a phase backwards": {change(func(r *Result) { r.Phases[1].To = 0 }), "damaged"},
		"off the scale":     {change(func(r *Result) { r.Curve.Points[0].Value = 1e300 }), "damaged"},
		"less than nothing": {change(func(r *Result) { r.Series.Handled[1] = -1 }), "damaged"},
		"a name of a field": {`{"format": 1, "scenario": 7}`, "not a result"},
	} {
		proof.Says(t, proof.ErrOf(Read(strings.NewReader(tt.text))), tt.want, name)
	}
	proof.Says(t, proof.ErrOf(Read(io.LimitReader(zeros{}, maxFile+10))), "larger",
		"a file without end")
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

func TestTextShowsNoControlCharactersAndExplainsEveryFigure(t *testing.T) {
	r := sample(hostile, 1)
	var b bytes.Buffer
	must(t, r.Text(&b))
	c, err := Compare([]*Result{r}, []*Result{sample(hostile, 2)})
	must(t, err)
	must(t, c.Text(&b))
	text := b.String()
	if strings.ContainsRune(text, '\x1b') {
		t.Error("an escape sequence is shown")
	}
	for _, want := range []string{"What was refused.", "throttled: 1 %", "210 tasks sent in 210 messages, 10 of them to warm up; 210 handled, 0 lost, 1 handled twice; 3 due but never taken; 2 tasks of another program; the last one 4 s after the load ended", "as taken"} {
		proof.Has(t, text, want)
	}
	for _, l := range legend {
		proof.Has(t, text, l.Name, "the column's explanation")
	}
}

func TestEveryColumnIsExplainedOrSpeaksForItself(t *testing.T) {
	r := sample("soak", 1)
	var explained strings.Builder
	for _, l := range legend {
		explained.WriteString(l.Name + ", ")
	}
	plainWords := []string{"phase", "group", "account", "accounts", "queues", "processors", "from", "to", "limit/s", "sent", "handled", "put", "taken", "requests", "failed", "first due", "last begun", "tasks begun"}
	for _, tb := range []table{r.phaseRows(), r.latencyRows(), r.groupRows(), r.accountRows()} {
		for i, h := range tb.Header {
			if !strings.Contains(explained.String(), h) && !slices.Contains(plainWords, h) {
				t.Errorf("the column %s is not explained", h)
			}
			for _, row := range tb.Rows {
				proof.Same(t, len(row), len(tb.Header), "under", h, "column", i, "cells under … names")
			}
		}
	}
}

func TestEveryLineOfAPlotIsNamedOnceAboveIt(t *testing.T) {
	type key struct {
		name   string
		colour int
		dashed bool
	}
	var got []key
	for _, f := range drawn(sample("soak", 1).charts()...) {
		if strings.HasPrefix(f.Title, "Time until") {
			for _, l := range f.Lines {
				got = append(got, key{l.Name, l.Colour, l.Dashed})
			}
		}
		if len(f.Lines) == 0 {
			t.Errorf("no line of %q is named", f.Title)
		}
	}
	// Nothing is known of the 99th percentile from send.
	want := []key{{"p50 from schedule", 0, false}, {"p99 from schedule", 1, false}, {"p50 from send", 2, true}}
	proof.Alike(t, want, got)
}

// A browser has no number for infinity, and a file may hold any: such a value is a gap.
func TestAValueWithoutAPlaceOnAnAxisIsAGap(t *testing.T) {
	one, far := 1.0, math.MaxFloat64
	l, some := trace{Name: "a", X: []float64{0, far, 2, 3}, Y: []*float64{&one, &one, &far, nil}}.drawn()
	if !some || !slices.Equal(l.X, []float64{0, 2, 3}) || l.Y[0] != &one || l.Y[1] != nil || l.Y[2] != nil {
		t.Errorf("%v %+v", some, l)
	}
	if l, some := (trace{X: []float64{1}, Y: []*float64{&far}}).drawn(); some {
		t.Errorf("there is nothing to be drawn of %+v", l)
	}
}

func TestASecretInANameIsNotShown(t *testing.T) {
	r := sample("soak", 1)
	r.Trouble = []string{"put https://a.queue.core.windows.net/q?sv=1&sig=abcdef: refused"}
	var b bytes.Buffer
	must(t, r.Text(&b))
	if strings.Contains(b.String(), "abcdef") {
		t.Error("a signature is shown")
	}
}

func TestTwoResultsAreComparedFigureByFigure(t *testing.T) {
	before, after := sample("account-dark", 1), sample("account-dark", 2)
	after.Settings[0].Value = "4"
	after.Against = Virtual
	c, err := Compare([]*Result{before}, []*Result{after})
	must(t, err)
	got := map[string]Change{}
	for _, l := range c.Lines {
		got[l.Name] = l
	}
	for name, l := range got {
		if l.Better != 0 || l.Noise != nil {
			t.Errorf("%s is judged by one value of each side: %+v", name, l)
		}
		proof.Same(t, l.judged(), "not judged", "of", name, "with one value a side, it is said to be")
	}
	for _, name := range []string{"throttled", hostile, "rate", "dark: handled", "dark: p99 from schedule", "dark: use"} {
		if _, ok := got[name]; !ok {
			t.Errorf("%s is missing", name)
		}
	}
	if l := got["rate"]; l.Before != 100 || l.After != 200 || *l.Relative != 1 {
		t.Errorf("%+v", l)
	}
	proof.Same(t, cmp.Diff([]Differing{{"against", titles[Simulated], titles[Virtual]}, {"processors", "2", "4"}}, c.Differing), "")
	var b bytes.Buffer
	must(t, json.NewEncoder(&b).Encode(c))
	proof.Says(t, proof.ErrOf(Compare([]*Result{before}, []*Result{sample("soak", 1)})), "soak", "two scenarios")
}

func TestManyAccountsAreThreeLines(t *testing.T) {
	r := sample("soak", 1)
	r.Accounts, r.Series.AccountUnits = nil, nil
	for i := range 20 {
		name := fmt.Sprint("account", i)
		r.Accounts = append(r.Accounts, Account{Name: name, Limit: 100})
		r.Series.AccountUnits = append(r.Series.AccountUnits, Line{name, []float64{float64(i), 50, 100}})
	}
	c := r.use()
	if len(c.Lines) != 3 || *c.Lines[0].Y[0] != 19 || *c.Lines[2].Y[0] != 0 || math.Abs(*c.Lines[1].Y[0]-9.5) > 1e-9 {
		t.Errorf("%+v", c.Lines)
	}
}

func TestNumbersAreWrittenToBeRead(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 1: "1", 12.345: "12.3", 1234567: "1,234,567", 0.01234: "0.0123", 123.6: "124", -5: "-5", 999.7: "1,000"} {
		proof.Same(t, number(v), want, v)
	}
	for v, want := range map[float64]string{0: "0.0 %", 0.5: "50.0 %", 0.0123: "1.2 %", 0.00005: "0.005 %", 1: "100.0 %"} {
		proof.Same(t, percent(v), want, v)
	}
	for v, want := range map[float64]string{0: "0", 0.0000015: "1.5 µs", 0.25: "250 ms", 3: "3 s", 3600: "1h0m0s"} {
		proof.Same(t, duration(v), want, v)
	}
}
