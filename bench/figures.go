package bench

import (
	"cmp"
	"fmt"
	"math"
	"strings"

	"github.com/dustin/go-humanize"
)

// Figure is one of the numbers that the pump is held to, or that stand beside them.
type Figure struct {
	Name   string  // short, the same in every version, so that versions can be compared
	What   string  // for people
	Value  float64 // in Unit
	Unit   string
	Wanted Bound
	Brief  string // how README.md says it; empty: it does not
}

// Bound is what a figure must keep to. The zero Bound is none.
type Bound struct {
	AtLeast, AtMost float64 // 0: no bound
	Aim             float64 // what is wanted beyond the bound; 0: nothing
}

func (b Bound) String() string {
	var text string
	switch {
	case b.AtLeast != 0:
		text = "at least " + number(b.AtLeast)
	case b.AtMost != 0:
		text = "at most " + number(b.AtMost)
	}
	if b.Aim != 0 {
		text += ", aim " + number(b.Aim)
	}
	return text
}

// Kept reports whether the figure keeps to its bound. Both are judged as they are shown.
func (f Figure) Kept() bool {
	v := shown(f.Value)
	return (f.Wanted.AtLeast == 0 || v >= shown(f.Wanted.AtLeast)) &&
		(f.Wanted.AtMost == 0 || v <= f.Wanted.AtMost)
}

// These bound the memory that the binaries may need, whatever the size of the input.
const (
	mostDistributor = 512 << 20
	mostProcessor   = 192 << 20
)

// leastSingle is what a task a message may cost: as much as with the rival is the aim, and 15 %
// more is the limit. Of the transports only net/http keeps the contract of package storage (each
// call is one request, answers are bounded, contexts end them), so the requests cost what the
// rival's cost, and the pump has to keep leases and owners besides.
const leastSingle = 1 / 1.15

// Figures are computed from what was measured; those for which it was not measured are left out.
func (r *Results) Figures() (figures []Figure) {
	add := func(v float64, measured bool, f Figure) {
		if f.Value = v; measured {
			figures = append(figures, f)
		}
	}
	ratio := func(p pair, of func(Measurement) float64, f Figure) {
		f.Unit = "x"
		v, ok := r.ratio(p, of)
		add(v, ok, f)
	}
	ratio(pair{Written, OverTCP, Rival, OverTCP}, Measurement.TasksPerCPU, Figure{
		Name: "written/rival", Wanted: Bound{AtLeast: 50, Aim: 60},
		What: "default packing, results written to a file: tasks per CPU-second, " +
			"distributor and processor together, beside azqueue's",
		Brief: "tasks per CPU-second beside azqueue's, a message a task: results written to a file",
	})
	ratio(pair{Reading, OverTCP, Rival, OverTCP}, Measurement.TasksPerCPU, Figure{
		Name: "reading/rival", Wanted: Bound{AtLeast: 55},
		What:  "the same with a handler in Go that reads each task",
		Brief: "the same with a handler in Go that reads each task",
	})
	ratio(pair{Reading, InProcess, Floor, Nowhere}, Measurement.CPUPerTask, Figure{
		Name: "reading/floor", Wanted: Bound{AtMost: 3.8},
		What: "that handler: CPU per task, beside bare gzip, base64, gunzip of the same bytes by " +
			"the same library and level",
	})
	v, ok := r.typical(Reading, OverTCP, Measurement.RequestsPerThousand)
	add(v, ok, Figure{
		Name: "requests", Wanted: Bound{AtMost: 2.5},
		What: "requests per thousand tasks", Brief: "requests per thousand tasks",
	})
	ratio(pair{WrittenOnce, OverTCP, Written, OverTCP}, Measurement.doneRate, Figure{
		Name: "once throughput", Wanted: Bound{AtLeast: 0.9},
		What:  "`once`: throughput of the processor beside at-least-once",
		Brief: "`once` beside at-least-once: throughput of the processor",
	})
	ratio(
		pair{WrittenOnce, OverTCP, Written, OverTCP},
		func(m Measurement) float64 { return m.Take.CPUSeconds },
		Figure{
			Name: "once CPU", What: "`once`: CPU of the processor beside at-least-once",
		},
	)
	ratio(pair{PackOne, OverTCP, Rival, OverTCP}, Measurement.TasksPerCPU, Figure{
		Name: "single/rival", Wanted: Bound{AtLeast: leastSingle, Aim: 1},
		What:  "one task a message: messages per CPU-second beside azqueue's",
		Brief: "messages per CPU-second beside azqueue's, with one task a message",
	})
	return append(figures, r.binaries()...)
}

// binaries are the figures of the binaries alone.
func (r *Results) binaries() (figures []Figure) {
	written := r.of(Written, OverTCP)
	if len(written) == 0 {
		return nil
	}
	tasks := humanize.Comma(written[0].Tasks)
	add := func(v float64, f Figure) {
		f.Value = v
		figures = append(figures, f)
	}
	typical := func(f func(Measurement) float64) float64 {
		v, _ := r.typical(Written, OverTCP, f)
		return v
	}
	mebibytes := func(f func(Measurement) Usage) float64 {
		v, _ := r.most([]Way{Written, WrittenOnce}, func(m Measurement) float64 {
			return float64(f(m).PeakBytes)
		})
		return v / (1 << 20)
	}
	add(mebibytes(func(m Measurement) Usage { return m.Take }), Figure{
		Name: "processor memory", Unit: "MiB", Wanted: Bound{AtMost: mostProcessor >> 20},
		What:  "most memory of `processor run --out`, both deliveries",
		Brief: "most memory of a processor that writes results",
	})
	add(mebibytes(func(m Measurement) Usage { return m.Put }), Figure{
		Name: "distributor memory", Unit: "MiB", Wanted: Bound{AtMost: mostDistributor >> 20},
		What: "most memory of the distributor", Brief: "most memory of a distributor",
	})
	add(typical(Measurement.sentRate), Figure{
		Name: "distributor tasks/s", Unit: "tasks/s",
		What:  tasks + " tasks through the distributor",
		Brief: tasks + " tasks through a distributor on one core",
	})
	add(typical(Measurement.doneRate), Figure{
		Name: "processor tasks/s", Unit: "tasks/s",
		What:  tasks + " tasks through one processor, results written to a file",
		Brief: "the same through a processor on one core",
	})
	return figures
}

// shown is v as it is printed: with three significant digits, and whole from 100 on.
func shown(v float64) float64 {
	if v == 0 || math.IsInf(v, 0) || math.IsNaN(v) {
		return v
	}
	places := max(2-int(math.Floor(math.Log10(math.Abs(v)))), 0)
	scale := math.Pow10(places)
	return math.Round(v*scale) / scale
}

// number prints v as shown: 0.0123, 1.23, 12.3, 123, 1,234,567.
func number(v float64) string {
	if v = shown(v); math.Abs(v) >= 1000 {
		return humanize.Comma(int64(v))
	}
	return fmt.Sprintf("%g", v)
}

// value prints the figure with its unit.
func (f Figure) value() string {
	if f.Unit == "x" || f.Unit == "" || f.Unit == "%" {
		return number(f.Value) + cmp.Or(map[string]string{"x": " x", "%": " %"}[f.Unit], "")
	}
	return number(f.Value) + " " + f.Unit
}

// Missed is an error that names the figures that miss what they are held to; nil if none does.
func (r *Results) Missed() error {
	var missed []string
	for _, f := range r.Figures() {
		if !f.Kept() {
			missed = append(missed, fmt.Sprintf("%s: %s, wanted %s", f.Name, f.value(), f.Wanted))
		}
	}
	if missed == nil {
		return nil
	}
	return fmt.Errorf("missed:\n%s", strings.Join(missed, "\n"))
}
