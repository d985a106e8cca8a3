package report

import (
	"fmt"
	"math"
	"math/big"
	"slices"
	"sort"
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
	return &Noise{Of: of, Before: spreadOf(before), After: spreadOf(after), P: chance(before, after)}
}

// spreadOf takes the median's interval from the samples' order: each sample lies below the true
// median as a coin shows heads.
func spreadOf(samples []float64) Spread {
	x, n := slices.Sorted(slices.Values(samples)), len(samples)
	heads := func(k int) float64 {
		ways, _ := new(big.Int).Binomial(int64(n), int64(k)).Float64()
		return math.Ldexp(ways, -n)
	}
	// From the likeliest number on, the likelier neighbour is added until that is enough.
	low, high, sure := n/2, n/2+1, heads(n/2)
	for sure < confidence && low > 0 {
		if left, right := heads(low-1), heads(high); left >= right {
			low, sure = low-1, sure+left
		} else {
			high, sure = high+1, sure+right
		}
	}
	if low < 1 || high > n { // so few samples have no such interval
		// All samples lie on one side of the median with a chance of one half each.
		low, high, sure = 1, n, 1-math.Pow(2, 1-float64(n))
	}
	return Spread{n, (x[(n-1)/2] + x[n/2]) / 2, x[low-1], x[high-1], sure}
}

// exactly is the greatest side of which the p is counted out.
const exactly = 50

// chance is the p of Mann-Whitney's U test: if only chance decided which samples a has, how likely
// would the sum of its ranks be so far from the mean? Equal samples have the mean of their ranks.
func chance(a, b []float64) float64 {
	all := slices.Sorted(slices.Values(slices.Concat(a, b)))
	rank := func(v float64) int { // twice, so it is a whole number
		above := math.Nextafter(v, math.Inf(1))
		return 1 + sort.SearchFloat64s(all, v) + sort.SearchFloat64s(all, above)
	}
	n, mean := len(all), len(a)*(len(all)+1)
	off := -mean
	for _, v := range a {
		off += rank(v)
	}
	off = max(off, -off)
	if len(a) > exactly || len(b) > exactly { // it is near to a normal distribution
		var squares float64
		for _, v := range all {
			squares += math.Pow(float64(rank(v)-n-1), 2)
		}
		deviation := math.Sqrt(squares * float64(len(a)*len(b)) / float64(n*(n-1)))
		return math.Erfc(max(float64(off-1), 0) / max(deviation, 1) / math.Sqrt2)
	}
	// ways[k][sum] is in how many ways k of the samples have that sum of ranks.
	ways := make([][]float64, len(a)+1)
	for k := range ways {
		ways[k] = make([]float64, n*(n+1)+1)
	}
	ways[0][0] = 1
	for _, v := range all {
		r := rank(v)
		for k := len(a); k > 0; k-- {
			for sum := len(ways[k]) - 1; sum >= r; sum-- {
				ways[k][sum] += ways[k-1][sum-r]
			}
		}
	}
	so, total := 0.0, 0.0
	for sum, n := range ways[len(a)] {
		total += n
		if sum-mean >= off || mean-sum >= off {
			so += n
		}
	}
	return so / total
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
