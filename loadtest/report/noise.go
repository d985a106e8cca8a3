package report

import (
	"fmt"
	"math"

	"golang.org/x/perf/benchmath"
)

// Noise says how far apart two sides of a figure are by chance. Its samples are the whole runs of
// each side if there are enough of them, else parts of the runs: neighbouring seconds are too alike
// to be separate samples, so they are taken together.
type Noise struct {
	Of     string `json:"of"`     // "runs", or "parts" of them
	Before Spread `json:"before"` // the median and its interval
	After  Spread `json:"after"`
	// P is how likely samples this far apart are if both sides are alike (Mann-Whitney's U test,
	// which assumes nothing of how they are spread).
	P float64 `json:"p"`
}

// Spread is a median with its interval of 95 % confidence, or of as much as few samples allow.
type Spread struct {
	Samples int     `json:"samples"`
	Median  float64 `json:"median"`
	Low     float64 `json:"low"`
	High    float64 `json:"high"`
	// Confidence is how surely the median lies there: of four samples 0.875 at most.
	Confidence float64 `json:"confidence"`
}

// What the samples are.
const (
	ofRuns  = "runs"
	ofParts = "parts"
)

const (
	// enough is the least number of samples of each side that lets the test find a significant
	// change: with four each the most that it can say is p = 0.03.
	enough = 4
	// partsMost is how many parts a phase is divided into at most, and partSeconds how long one is at
	// least: queues and leases carry what happened in one second into the next ones.
	partsMost   = 12
	partSeconds = 5.0
	// significance is how small P must be, and tells what differs by more than chance.
	significance = 0.05
	confidence   = 0.95
)

// noiseOf compares samples; nil: there are too few.
func noiseOf(of string, before, after []float64) *Noise {
	if len(before) < enough || len(after) < enough {
		return nil
	}
	b := benchmath.NewSample(before, &benchmath.DefaultThresholds)
	a := benchmath.NewSample(after, &benchmath.DefaultThresholds)
	spread := func(s *benchmath.Sample) Spread {
		sum := benchmath.AssumeNothing.Summary(s, confidence)
		low, high, sure := sum.Lo, sum.Hi, sum.Confidence
		if math.IsInf(low, 0) || math.IsInf(high, 0) { // so few samples have no such interval
			low, high = s.Values[0], s.Values[len(s.Values)-1]
			// All samples lie on one side of the median with a chance of one half each.
			sure = 1 - math.Pow(2, 1-float64(len(s.Values)))
		}
		return Spread{len(s.Values), sum.Center, low, high, sure}
	}
	n := &Noise{
		Of: of, Before: spread(b), After: spread(a), P: benchmath.AssumeNothing.Compare(b, a).P,
	}
	if math.IsNaN(n.P) { // all values are the same
		n.P = 1
	}
	return n
}

// parts are the means of equally long parts of a phase, in the order of time.
func parts(values []*float64, interval, from, to float64) (means []float64) {
	if interval <= 0 {
		return nil
	}
	first, last := int(math.Ceil(from/interval-1e-9)), min(int(to/interval+1e-9), len(values))
	if last <= first {
		return nil
	}
	size := max(int(math.Ceil(partSeconds/interval)), (last-first+partsMost-1)/partsMost)
	for at := first; at+size <= last; at += size {
		sum, n := 0.0, 0
		for _, v := range values[at : at+size] {
			if v != nil {
				sum, n = sum+*v, n+1
			}
		}
		if n > 0 {
			means = append(means, sum/float64(n))
		}
	}
	return means
}

// verdict is 1 if after is better, -1 if it is worse, and 0 if the difference is no more than noise
// or neither direction is good. Without samples that say how large the noise is, nothing is judged.
func (n *Noise) verdict(better int) int {
	switch {
	case n == nil || n.P >= significance || n.Before.Median == n.After.Median:
		return 0
	case n.After.Median > n.Before.Median:
		return better
	}
	return -better
}

// words say what the noise is.
func (n *Noise) words(unit string) string {
	if n == nil {
		return fmt.Sprintf("not known: fewer than %d values a side", enough)
	}
	side := func(s Spread) string { return quantity(s.Low, unit) + " to " + quantity(s.High, unit) }
	about := fmt.Sprintf("%d and %d %s, p = %.2g", n.Before.Samples, n.After.Samples, n.Of, n.P)
	if sure := min(n.Before.Confidence, n.After.Confidence); sure < confidence {
		about += fmt.Sprintf(", %.0f %% sure only", 100*sure)
	}
	return fmt.Sprintf("%s; %s (%s)", side(n.Before), side(n.After), about)
}
