// Package report holds the result of a load test. It shows it as text, as JSON that can be read
// back, and as one HTML page that needs nothing from elsewhere, and it shows two results beside
// each other.
//
//	result.go    the model, its JSON, and what is refused when it is read
//	text.go      for the terminal
//	explain.go   what each figure means, in one place for text and page
//	compare.go   two results, figure by figure
//	page.go      the page; figures.go says what is drawn in it, plots.js draws it
package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Format is the version of the JSON form that this package writes and reads.
const Format = 1

// Result is what a load test found out.
type Result struct {
	Format   int       `json:"format"`
	Scenario string    `json:"scenario"`
	Against  Against   `json:"against"`
	Workload string    `json:"workload"`
	Started  time.Time `json:"started"`
	// Seconds is how long load was put on, with warming up before and without finishing
	// after; in virtual time if the test was in it.
	Seconds  float64   `json:"seconds"`
	Settings []Setting `json:"settings"`
	Limits   Limits    `json:"limits"`
	Phases   []Phase   `json:"phases"`
	Groups   []Group   `json:"groups,omitempty"`
	Events   []Event   `json:"events,omitempty"`
	Accounts []Account `json:"accounts"`
	Series   Series    `json:"series"`
	Curve    *Curve    `json:"curve,omitempty"`
	Tasks    Tasks     `json:"tasks"`
	Findings []Finding `json:"findings"`
	Machine  Machine   `json:"machine"`
	// Trouble is why the test is not what it was meant to be: interrupted, given up.
	Trouble []string `json:"trouble,omitempty"`
}

// Against says what a load test ran against.
type Against string

// What a load test can run against.
const (
	Simulated Against = "simulated" // accounts that this machine serves, over TCP
	Real      Against = "accounts"  // those of a configuration
	Virtual   Against = "virtual"   // simulated accounts in virtual time
)

// Setting is one of the options of the test.
type Setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Limits are what the accounts are taken to give, in units a second. A put, a
// delete and a renewal are a unit each; a get is one a message, or one (GetCost).
type Limits struct {
	Queue   float64 `json:"queue"`   // of one queue
	Account float64 `json:"account"` // of one account
	GetCost int     `json:"getCost"` // of a get of 32 messages: 32, or 1
}

// Phase is a part of the test with one kind of load.
type Phase struct {
	Name       string  `json:"name"`
	From       float64 `json:"from"` // seconds
	To         float64 `json:"to"`
	Processors int     `json:"processors"`
	Accounts   int     `json:"accounts"` // that the workload uses
	// Offered is how many tasks a second the schedule has; null: as many as are taken.
	Offered *float64 `json:"offeredPerSecond"`
	Sent    float64  `json:"sentPerSecond"`    // tasks that the distributor took
	Put     float64  `json:"putPerSecond"`     // messages that were put
	Taken   float64  `json:"takenPerSecond"`   // messages that were got
	Handled float64  `json:"handledPerSecond"` // tasks whose handling began
	// Use is the spent part of what the accounts give, from 0 to 1.
	Use          float64 `json:"use"`
	Requests     int64   `json:"requests"`  // to queues
	Throttled    int64   `json:"throttled"` // of those, the ones that were refused as too many
	Failed       int64   `json:"failed"`    // of those, the ones that failed otherwise
	FromSchedule Latency `json:"fromSchedule"`
	FromSend     Latency `json:"fromSend"`
}

// Latency is the time until a task's handling began, in seconds. All but Count are
// null if there was none.
type Latency struct {
	Count int64    `json:"count"`
	Mean  *float64 `json:"mean"`
	P50   *float64 `json:"p50"`
	P90   *float64 `json:"p90"`
	P99   *float64 `json:"p99"`
	P999  *float64 `json:"p999"`
	Max   *float64 `json:"max"`
}

// Group is a part of the tasks that is looked at by itself: the hot key, a burst.
type Group struct {
	Name         string  `json:"name"`
	Sent         int64   `json:"sent"`
	Handled      int64   `json:"handled"`
	First        float64 `json:"first"` // seconds: when the first of them was due
	Last         float64 `json:"last"`  // and when the handling of the last one began
	FromSchedule Latency `json:"fromSchedule"`
	FromSend     Latency `json:"fromSend"`
}

// Event is something that was done to the system under test.
type Event struct {
	At   float64 `json:"at"` // seconds
	Text string  `json:"text"`
}

// Account is what was asked of one account.
type Account struct {
	Name      string  `json:"name"`
	Queues    int     `json:"queues"`
	Limit     float64 `json:"limit"` // units a second
	Units     float64 `json:"unitsPerSecond"`
	Peak      float64 `json:"peak"` // units a second, in the busiest interval
	Put       int64   `json:"put"`  // messages
	Taken     int64   `json:"taken"`
	Requests  int64   `json:"requests"` // to queues
	Throttled int64   `json:"throttled"`
	Failed    int64   `json:"failed"`
	Control   int64   `json:"control"` // requests to the table
}

// Series is what happened in each interval. All lists are equally long; the i-th
// interval ends at (i+1) x Interval.
type Series struct {
	Interval     float64    `json:"interval"`         // seconds
	Sent         []float64  `json:"sentPerSecond"`    // tasks
	Handled      []float64  `json:"handledPerSecond"` // tasks
	Put          []float64  `json:"putPerSecond"`     // messages
	Taken        []float64  `json:"takenPerSecond"`   // messages
	Throttled    []float64  `json:"throttledPerSecond"`
	Failed       []float64  `json:"failedPerSecond"`
	ScheduleP50  []*float64 `json:"fromScheduleP50"` // seconds; null: none was handled
	ScheduleP99  []*float64 `json:"fromScheduleP99"`
	SendP50      []*float64 `json:"fromSendP50"`
	SendP99      []*float64 `json:"fromSendP99"`
	MemoryBytes  []float64  `json:"memoryBytes"` // of the process: the heap in use
	AccountUnits []Line     `json:"accountUnits"`
}

// Line is a series of one account, in units a second.
type Line struct {
	Name   string    `json:"name"`
	Values []float64 `json:"values"`
}

// Curve says how the output depends on the amount of something.
type Curve struct {
	// what there is more and more of: "accounts", "processors", "tasks a second offered"
	Of     string  `json:"of"`
	Unit   string  `json:"unit"` // of the values
	Limit  string  `json:"limitIs"`
	P99    string  `json:"p99Is"` // which latency: FromSchedule or FromSend
	Points []Point `json:"points"`
}

// The moments from which a latency is measured.
const (
	FromSchedule = "from schedule"
	FromSend     = "from send"
)

// Point is a point of a Curve.
type Point struct {
	X     float64  `json:"x"`
	Value float64  `json:"value"`
	Limit *float64 `json:"limit"` // what Curve.Limit says; null: not known
	P99   *float64 `json:"p99"`   // what Curve.P99 says, in seconds; null: nothing was handled
}

// Tasks accounts for every task.
type Tasks struct {
	Sent   int64 `json:"sent"`
	WarmUp int64 `json:"warmUp"` // of those, the ones that were sent to warm up
	// due by the schedule, and not taken by the distributor before the end
	Unsent     int64 `json:"unsent"`
	Handled    int64 `json:"handled"`
	Lost       int64 `json:"lost"`
	Duplicates int64 `json:"duplicates"` // handled again
	Strangers  int64 `json:"strangers"`  // tasks of others in the queues
	Messages   int64 `json:"messages"`   // that the sent tasks were put in
	// seconds from the end of the load until the last was handled
	Finishing float64 `json:"finishing"`
}

// Finding is one figure that answers what the scenario asks.
type Finding struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"` // "share" for one between 0 and 1
	Text  string  `json:"text"` // what it means
	// Better says which way is good: 1 more, -1 less, 0 neither.
	Better int `json:"better"`
}

// Machine is where the load came from.
type Machine struct {
	CPUs    int    `json:"cpus"`
	OS      string `json:"os"`
	Go      string `json:"go"`
	Version string `json:"version"`
	// CPUSeconds is what the process used while load was on; null in virtual time, and where it
	// cannot be learned.
	CPUSeconds *float64 `json:"cpuSeconds"`
	PeakBytes  float64  `json:"peakBytes"` // the most heap in use
}

// maxFile bounds what is read: a day of seconds with a hundred accounts is far smaller.
const maxFile = 64 << 20

// Write writes the JSON form.
func (r *Result) Write(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// Read reads what Write wrote. It refuses other formats, and lists that do not belong together.
func Read(from io.Reader) (*Result, error) {
	text, err := io.ReadAll(io.LimitReader(from, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxFile {
		return nil, fmt.Errorf("is larger than %d MiB", maxFile>>20)
	}
	var r Result
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, fmt.Errorf("is not a result of a load test: %w", err)
	}
	return &r, r.check()
}

// ReadFile reads a file that Write wrote; every error names it.
func ReadFile(path string) (*Result, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	r, err := Read(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// ReadSides reads the files of one or two sides; a side is a file, or several with commas between
// them: the runs of one repeated test.
func ReadSides(args []string) (sides [][]*Result, err error) {
	for _, arg := range args {
		var side []*Result
		given := map[string]bool{} // a run that counts twice makes noise look smaller than it is
		for path := range strings.SplitSeq(arg, ",") {
			if given[filepath.Clean(path)] {
				return nil, fmt.Errorf("%s is given twice on one side", path)
			}
			given[filepath.Clean(path)] = true
			r, err := ReadFile(path)
			if err != nil {
				return nil, err
			}
			side = append(side, r)
		}
		sides = append(sides, side)
	}
	if len(sides) == 1 && len(sides[0]) > 1 {
		return nil, errors.New("one side has several files: give two sides to compare them")
	}
	return sides, nil
}

func (r *Result) check() error {
	switch {
	case r.Format == 0 || r.Scenario == "":
		return errors.New("is not a result of a load test")
	case r.Format != Format:
		return fmt.Errorf("is of format %d, and this program reads %d", r.Format, Format)
	case !(r.Series.Interval > 0) && len(r.Series.Sent) > 0:
		return errors.New("is damaged: the interval of its series is not positive")
	}
	n := len(r.Series.Sent)
	s := &r.Series
	for name, l := range map[string]int{
		"handledPerSecond": len(s.Handled), "putPerSecond": len(s.Put), "takenPerSecond": len(s.Taken),
		"throttledPerSecond": len(s.Throttled), "failedPerSecond": len(s.Failed),
		"fromScheduleP50": len(s.ScheduleP50), "fromScheduleP99": len(s.ScheduleP99),
		"fromSendP50": len(s.SendP50), "fromSendP99": len(s.SendP99), "memoryBytes": len(s.MemoryBytes),
	} {
		if l != n {
			return fmt.Errorf("is damaged: %s has %d intervals and sentPerSecond %d", name, l, n)
		}
	}
	for _, l := range s.AccountUnits {
		if len(l.Values) != n {
			return fmt.Errorf(
				"is damaged: the units of an account have %d intervals and sentPerSecond %d",
				len(l.Values), n,
			)
		}
	}
	for i := range r.Phases {
		if p := &r.Phases[i]; p.Accounts < 0 || p.To < p.From {
			return fmt.Errorf(
				"is damaged: phase %d has %d accounts and is from %v to %v s", i+1, p.Accounts,
				p.From, p.To,
			)
		}
	}
	for _, v := range r.drawn() {
		if !(v >= 0 && v <= most) {
			return fmt.Errorf("is damaged: %v is out of range; what is drawn is from 0 to %v", v,
				float64(most))
		}
	}
	return nil
}

// most bounds the values that are drawn: larger than in any test, and small enough for a scale.
const most = 1e15

// drawn lists every number that stands in a plot.
func (r *Result) drawn() (all []float64) {
	known := func(values ...*float64) {
		for _, v := range values {
			if v != nil {
				all = append(all, *v)
			}
		}
	}
	s := &r.Series
	all = slices.Concat([]float64{s.Interval}, s.Sent, s.Handled, s.Put, s.Taken, s.Throttled,
		s.Failed, s.MemoryBytes)
	known(slices.Concat(s.ScheduleP50, s.ScheduleP99, s.SendP50, s.SendP99)...)
	for _, l := range s.AccountUnits {
		all = append(all, l.Values...)
	}
	for _, a := range r.Accounts {
		all = append(all, a.Limit)
	}
	for i := range r.Phases {
		p := &r.Phases[i]
		all = append(all, p.From, p.To)
		known(p.Offered)
	}
	for _, e := range r.Events {
		all = append(all, e.At)
	}
	if r.Curve != nil {
		for i := range r.Curve.Points {
			p := &r.Curve.Points[i]
			all = append(all, p.X, p.Value)
			known(p.Limit)
		}
	}
	return all
}

// Capacity is what all accounts together give, in units a second; 0: not known.
func (r *Result) Capacity() float64 {
	var sum float64
	for _, a := range r.Accounts {
		if a.Limit <= 0 || math.IsInf(a.Limit, 0) {
			return 0
		}
		sum += a.Limit
	}
	return sum
}

// perMessage is what a message costs that is put, got and deleted.
func (l Limits) perMessage() float64 {
	if l.GetCost > 1 {
		return 3
	}
	return 2 + 1.0/32
}

// EndToEnd is how many messages a second the accounts give from put to delete, if
// they give so many units; 0: not known.
func (l Limits) EndToEnd(units float64) float64 { return units / l.perMessage() }
