package bench

import (
	"cmp"
	"fmt"
	"math"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/queuepump/queuepump/pump"
)

// Figure is one of the numbers that the pump is held to, or that stand beside them.
type Figure struct {
	Name   string  // short, the same in every version, so that versions can be compared
	What   string  // for people
	Value  float64 // in Unit
	Unit   string
	Wanted Bound
}

// Bound is what a figure must keep to. The zero Bound is none.
type Bound struct {
	AtLeast, AtMost float64 // 0: no bound
}

func (b Bound) String() string {
	switch {
	case b.AtLeast != 0:
		return "at least " + number(b.AtLeast)
	case b.AtMost != 0:
		return "at most " + number(b.AtMost)
	}
	return ""
}

// Kept reports whether the figure keeps to its bound. It is judged as it is shown.
func (f Figure) Kept() bool {
	v := shown(f.Value)
	return (f.Wanted.AtLeast == 0 || v >= f.Wanted.AtLeast) && (f.Wanted.AtMost == 0 || v <= f.Wanted.AtMost)
}

// What `once` may cost beside at-least-once.
const (
	mostExtraPercent = 2.0
	leastThroughput  = 0.9
)

// mostMemory is what either binary may need, whatever the size of the input.
const mostMemory = 512 << 20

// Figures are computed from what was measured; those for which it was not measured are left out.
func (r *Results) Figures() (figures []Figure) {
	add := func(f Figure, measured bool) {
		if measured {
			figures = append(figures, f)
		}
	}
	compare := func(f Figure, of func() (float64, bool)) {
		v, ok := of()
		f.Value = v
		add(f, ok)
	}
	perTask, tasksPerCPU := Measurement.CPUPerTask, func(m Measurement) float64 { return 1 / m.CPUPerTask() }

	compare(Figure{Name: "packed/floor", What: "default settings: CPU per task, distributor and processor together, beside bare gzip, base64, gunzip of the same bytes by the quickest package", Unit: "x", Wanted: Bound{AtMost: 2}},
		func() (float64, bool) { return r.ratio(Packed, InProcess, Floor, Nowhere, perTask) })
	compare(Figure{Name: "packed/standard floor", What: "the same beside the standard library's gzip", Unit: "x"},
		func() (float64, bool) { return r.ratio(Packed, InProcess, StandardFloor, Nowhere, perTask) })
	compare(Figure{Name: "batches/floor", What: "the same with a handler that takes the tasks of a message at once", Unit: "x"},
		func() (float64, bool) { return r.ratio(PackedBatches, InProcess, Floor, Nowhere, perTask) })
	compare(Figure{Name: "packed requests", What: "default settings: requests per thousand tasks", Unit: "", Wanted: Bound{AtMost: 4}},
		func() (float64, bool) { return r.typical(Packed, InProcess, Measurement.RequestsPerThousand) })
	compare(Figure{Name: "packed/plain SDK", What: "default settings over TCP: tasks per CPU-second of the client beside the plain SDK's", Unit: "x", Wanted: Bound{AtLeast: 60}},
		func() (float64, bool) { return r.ratio(Packed, OverTCP, PlainSDK, OverTCP, tasksPerCPU) })
	compare(Figure{Name: "packed/plain workers", What: "the same beside 64 workers with the plain SDK", Unit: "x"},
		func() (float64, bool) { return r.ratio(Packed, OverTCP, PlainWorkers, OverTCP, tasksPerCPU) })
	compare(Figure{Name: "pack 1/tuned SDK", What: "one task a message over TCP: messages per CPU-second of the client beside the SDK with a tuned pool", Unit: "x", Wanted: Bound{AtLeast: 1.5}},
		func() (float64, bool) { return r.ratio(PackOne, OverTCP, TunedSDK, OverTCP, tasksPerCPU) })
	compare(Figure{Name: "pack 1/tuned workers", What: "the same beside 64 workers with the tuned SDK", Unit: "x"},
		func() (float64, bool) { return r.ratio(PackOne, OverTCP, TunedWorkers, OverTCP, tasksPerCPU) })
	compare(Figure{Name: "pack 1/plain SDK, TLS", What: "one task a message over TLS: messages per CPU-second of the client beside the plain SDK's", Unit: "x", Wanted: Bound{AtLeast: 3}},
		func() (float64, bool) { return r.ratio(PackOne, OverTLS, PlainSDK, OverTLS, tasksPerCPU) })
	compare(Figure{Name: "pack 1/plain workers, TLS", What: "the same beside 64 workers with the plain SDK", Unit: "x"},
		func() (float64, bool) { return r.ratio(PackOne, OverTLS, PlainWorkers, OverTLS, tasksPerCPU) })
	compare(Figure{Name: "pack 1/tuned SDK, TLS", What: "the same beside the SDK with a tuned pool", Unit: "x"},
		func() (float64, bool) { return r.ratio(PackOne, OverTLS, TunedSDK, OverTLS, tasksPerCPU) })
	compare(Figure{Name: "pack 1/tuned workers, TLS", What: "the same beside 64 workers with the tuned SDK", Unit: "x"},
		func() (float64, bool) { return r.ratio(PackOne, OverTLS, TunedWorkers, OverTLS, tasksPerCPU) })
	return append(figures, r.binaries()...)
}

// binaries are the figures of the passages through both binaries.
func (r *Results) binaries() (figures []Figure) {
	least, once := r.through(string(pump.AtLeastOnce)), r.through(string(pump.Once))
	if len(least) == 0 {
		return nil
	}
	tasks := humanize.Comma(least[0].Handled)
	sent := func(t Through) float64 { return float64(t.Sent.Tasks) / t.Sent.Seconds }
	done := func(t Through) float64 { return float64(t.Handled) / t.Seconds }
	figures = append(figures,
		Figure{Name: "distributor tasks/s", What: tasks + " tasks through the distributor, over TCP", Value: over(least, median, sent), Unit: "tasks/s"},
		Figure{Name: "processor tasks/s", What: tasks + " tasks through one processor, over TCP", Value: over(least, median, done), Unit: "tasks/s"},
		Figure{Name: "distributor memory", What: "peak memory of the distributor", Value: over(least, highest, func(t Through) float64 { return float64(t.Sent.PeakBytes) / (1 << 20) }), Unit: "MiB", Wanted: Bound{AtMost: mostMemory >> 20}},
		Figure{Name: "processor memory", What: "peak memory of the processor", Value: over(least, highest, func(t Through) float64 { return float64(t.PeakBytes) / (1 << 20) }), Unit: "MiB", Wanted: Bound{AtMost: mostMemory >> 20}},
	)
	if len(once) == 0 {
		return figures
	}
	requests := func(t Through) float64 { return float64(t.Requests) }
	cpu := func(t Through) float64 { return t.CPUSeconds }
	return append(figures,
		Figure{Name: "once requests", What: "`once` beside at-least-once: more requests, of both binaries", Value: 100 * (over(once, median, requests)/over(least, median, requests) - 1), Unit: "%", Wanted: Bound{AtMost: mostExtraPercent}},
		Figure{Name: "once throughput", What: "`once` beside at-least-once: throughput of the processor", Value: over(once, median, done) / over(least, median, done), Unit: "x", Wanted: Bound{AtLeast: leastThroughput}},
		Figure{Name: "once CPU", What: "`once` beside at-least-once: CPU of the processor", Value: over(once, median, cpu) / over(least, median, cpu), Unit: "x"},
		Figure{Name: "once memory", What: "`once`: peak memory of the processor", Value: over(once, highest, func(t Through) float64 { return float64(t.PeakBytes) / (1 << 20) }), Unit: "MiB", Wanted: Bound{AtMost: mostMemory >> 20}},
	)
}

func (r *Results) through(delivery string) (ts []Through) {
	for _, t := range r.Binaries {
		if t.Delivery == delivery {
			ts = append(ts, t)
		}
	}
	return ts
}

// over is what f says of several results, made one.
func over[T any](results []T, one func([]float64) float64, f func(T) float64) float64 {
	var values []float64
	for _, r := range results {
		values = append(values, f(r))
	}
	return one(values)
}

func highest(values []float64) float64 {
	most := math.Inf(-1)
	for _, v := range values {
		most = max(most, v)
	}
	return most
}

// shown is v as it is printed: three significant digits, and whole where it has more before the point.
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
