package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"
)

// Results are everything that one `make bench` measured, as it was measured: what
// follows from it (see [Results.Figures]) is computed when it is shown.
type Results struct {
	Provenance
	Runs   []Measured `json:"runs"`   // in the order in which they were made
	Stages []Stage    `json:"stages"` // benchmarks of single parts
	Before *Before    `json:"before,omitempty"`
}

// Before is what the results before these came to, to be shown beside them.
type Before struct {
	Commit  string             `json:"commit"`
	Began   time.Time          `json:"began"`
	Figures map[string]float64 `json:"figures"` // by name
}

// After makes older results those that these are compared with. Those of the same commit are
// the same measurement made again: then it is what they were compared with.
func (r *Results) After(older *Results) {
	switch {
	case older == nil:
	case older.Commit == r.Commit:
		r.Before = older.Before
	default:
		r.Before = &Before{Commit: older.Commit, Began: older.Began, Figures: map[string]float64{}}
		for _, f := range older.Figures() {
			r.Before.Figures[f.Name] = f.Value
		}
	}
}

// Measured is a Measurement of a round. Ratios are taken within a round.
type Measured struct {
	Round int `json:"round"`
	Measurement
}

// Stage is one benchmark of a part.
type Stage struct {
	Package string             `json:"package"` // without the module's path
	Name    string             `json:"name"`    // without "Benchmark" and the number of processors
	Values  map[string]float64 `json:"values"`  // by unit, as `go test -bench` prints it
}

// ReadResults reads a file that Write wrote. That there is none is no error: the
// results are nil.
func ReadResults(path string) (*Results, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r := new(Results)
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// Write writes the results to a file.
func (r *Results) Write(path string) error {
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// of are the measurements of a way, in the order of rounds.
func (r *Results) of(way Way, over string) (ms []Measured) {
	for _, m := range r.Runs {
		if m.Way == way && m.Over == over {
			ms = append(ms, m)
		}
	}
	return ms
}

// typical is the median over the rounds of what f says of a way; false if it was not measured.
func (r *Results) typical(way Way, over string, f func(Measurement) float64) (float64, bool) {
	var values []float64
	for _, m := range r.of(way, over) {
		values = append(values, f(m.Measurement))
	}
	return median(values), len(values) > 0
}

// most is the highest over the rounds of what f says of some ways; false if none was measured.
func (r *Results) most(ways []Way, f func(Measurement) float64) (v float64, ok bool) {
	for _, m := range r.Runs {
		if slices.Contains(ways, m.Way) {
			v, ok = max(v, f(m.Measurement)), true
		}
	}
	return v, ok
}

// pair is two ways that are compared, and where their accounts are.
type pair struct {
	way       Way
	over      string
	other     Way
	otherOver string
}

// ratio is the median over the rounds of what f says of the first of a pair, divided by what it
// says of the other in the same round; false if no round has both.
func (r *Results) ratio(p pair, f func(Measurement) float64) (float64, bool) {
	var values []float64
	for _, a := range r.of(p.way, p.over) {
		for _, b := range r.of(p.other, p.otherOver) {
			if a.Round == b.Round {
				values = append(values, f(a.Measurement)/f(b.Measurement))
			}
		}
	}
	return median(values), len(values) > 0
}

// median is the middle value, of an even number the mean of the two in the middle; 0 of none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	v := slices.Sorted(slices.Values(values))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}
