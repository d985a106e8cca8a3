package bench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dustin/go-humanize"
)

// Suite says what to measure. All of it is optional.
type Suite struct {
	Dir    string // for input and binaries
	Rounds int    // how often Runs are made, one after the other
	Runs   []Run
	// Profiles is a directory to leave CPU profiles of the clients in; empty: none.
	Profiles string
	// StageTime is how long each benchmark of a part runs.
	StageTime time.Duration
	// Command and Note go into the results.
	Command, Note string
	// Log is told of each measurement. It may be nil.
	Log func(string)
}

// Full is what `make bench` measures: some ten minutes.
func Full() Suite {
	return Suite{
		Rounds: 5, Runs: compared(2_000_000, 4_000_000, 10_000), StageTime: 100 * time.Millisecond,
	}
}

// Quick is all of it in a minute, with less to average over.
func Quick() Suite {
	return Suite{
		Rounds: 1, Runs: compared(1_000_000, 1_000_000, 5_000), StageTime: 20 * time.Millisecond,
	}
}

// compared are the runs of a round. Benchmarks that are compared stand together; each takes some
// seconds of CPU, over which the garbage collector comes often enough to count. The binaries get
// more tasks, because what they do at their beginnings and ends is in their time.
func compared(packed, binaries, single int) []Run {
	return []Run{
		{Way: Floor, Over: Nowhere, Tasks: packed},
		{Way: Reading, Over: InProcess, Tasks: packed},
		{Way: Reading, Over: OverTCP, Tasks: packed},
		{Way: Rival, Over: OverTCP, Tasks: single},
		{Way: PackOne, Over: OverTCP, Tasks: single},
		{Way: Written, Over: OverTCP, Tasks: binaries},
		{Way: WrittenOnce, Over: OverTCP, Tasks: binaries},
	}
}

// Measure makes all measurements.
func (s Suite) Measure(ctx context.Context) (*Results, error) {
	r := &Results{Provenance: here(s.Command, s.Note)}
	r.Placement, r.Rival = ownCores().String(), rivalVersion()
	if slices.ContainsFunc(s.Runs, Run.byBinaries) {
		if err := BuildBinaries(ctx, s.Dir); err != nil {
			return nil, err
		}
	}
	for round := range s.Rounds {
		for _, run := range s.Runs {
			run.Profiles = s.Profiles
			m, err := Measure(ctx, s.Dir, run)
			if err != nil {
				return nil, err
			}
			r.Runs = append(r.Runs, Measured{round + 1, m})
			s.log("%d/%d  %s", round+1, s.Rounds, m)
		}
	}
	if s.StageTime > 0 {
		s.log("benchmarks of the parts, %v each", s.StageTime)
		var err error
		if r.Stages, err = runStages(ctx, s.StageTime); err != nil {
			return nil, err
		}
	}
	r.Seconds = time.Since(r.Began).Seconds()
	return r, nil
}

func (s Suite) log(format string, args ...any) {
	if s.Log != nil {
		s.Log(fmt.Sprintf(format, args...))
	}
}

// String is the measurement on one line.
func (m Measurement) String() string {
	line := fmt.Sprintf(
		"%-30s %-10s %9s tasks  %7s us of CPU a task (%s + %s)  "+
			"%7s requests a thousand  %s connections  %.1f s + %.1f s  %d + %d MiB",
		m.Way, m.Over, humanize.Comma(m.Tasks), number(1e6*m.CPUPerTask()),
		number(1e6*m.Put.CPUSeconds/float64(m.Tasks)),
		number(1e6*m.Take.CPUSeconds/float64(m.Tasks)), number(m.RequestsPerThousand()),
		humanize.Comma(m.Connections), m.Put.Seconds, m.Take.Seconds, m.Put.PeakBytes>>20,
		m.Take.PeakBytes>>20,
	)
	if m.Repeated > 0 {
		line += fmt.Sprintf("  %d handled again", m.Repeated)
	}
	return line
}
