package bench

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/queuepump/queuepump/pump"
)

// Suite says what to measure. All of it is optional.
type Suite struct {
	Dir    string // for input and binaries
	Rounds int    // how often Runs are made, one after the other
	Runs   []Run
	// Profiles is a directory to leave CPU profiles of the clients in; empty: none.
	Profiles string
	// Binaries is how many tasks go through both binaries in each delivery mode, BinaryRounds times.
	Binaries, BinaryRounds int
	// StageTime is how long each benchmark of a part runs.
	StageTime time.Duration
	// Command and Note go into the results.
	Command, Note string
	// Log is told of each measurement. It may be nil.
	Log func(string)
}

// Full is what `make bench` measures: some ten minutes.
func Full() Suite {
	return Suite{Rounds: 3, Runs: compared(1), Binaries: 10_000_000, BinaryRounds: 3, StageTime: 100 * time.Millisecond}
}

// Quick is all of it in a minute or two, with less to average over.
func Quick() Suite {
	return Suite{Rounds: 1, Runs: compared(4), Binaries: 1_000_000, BinaryRounds: 1, StageTime: 20 * time.Millisecond}
}

// compared are the runs of a round. What is compared stands together; each takes some
// seconds of CPU, over which the garbage collector comes often enough to count.
func compared(divisor int) []Run {
	const packed, single, secure = 2_000_000, 10_000, 5_000
	return []Run{
		{Way: Floor, Over: Nowhere, Tasks: packed / divisor},
		{Way: StandardFloor, Over: Nowhere, Tasks: packed / divisor},
		{Way: Packed, Over: InProcess, Tasks: packed / divisor},
		{Way: PackedBatches, Over: InProcess, Tasks: packed / divisor},
		{Way: Packed, Over: OverTCP, Tasks: packed / divisor},
		{Way: PlainSDK, Over: OverTCP, Tasks: single / divisor},
		{Way: PlainWorkers, Over: OverTCP, Tasks: single / divisor},
		{Way: TunedSDK, Over: OverTCP, Tasks: single / divisor},
		{Way: PackOne, Over: OverTCP, Tasks: single / divisor},
		{Way: TunedWorkers, Over: OverTCP, Tasks: single / divisor},
		{Way: TunedWorkers, Over: OverTLS, Tasks: secure / divisor},
		{Way: TunedSDK, Over: OverTLS, Tasks: secure / divisor},
		{Way: PackOne, Over: OverTLS, Tasks: secure / divisor},
		{Way: PlainSDK, Over: OverTLS, Tasks: secure / divisor},
		{Way: PlainWorkers, Over: OverTLS, Tasks: secure / divisor},
	}
}

// Measure makes all measurements.
func (s Suite) Measure(ctx context.Context) (*Results, error) {
	r := &Results{Provenance: here(s.Command, s.Note)}
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
	if err := s.throughBinaries(ctx, r); err != nil {
		return nil, err
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

// throughBinaries measures the two delivery modes, turn by turn.
func (s Suite) throughBinaries(ctx context.Context, r *Results) error {
	if s.Binaries == 0 {
		return nil
	}
	p := Passage{Distribution: Distribution{Dir: s.Dir, Lines: s.Binaries, Accounts: pumpAccounts}}
	if err := p.build(ctx); err != nil {
		return err
	}
	for range s.BinaryRounds {
		for _, mode := range []string{string(pump.AtLeastOnce), string(pump.Once)} {
			p.Delivery = mode
			result, err := p.Run(ctx)
			if err != nil {
				return fmt.Errorf("%s: %w", mode, err)
			}
			r.Binaries = append(r.Binaries, Through{mode, result})
			s.log("both binaries, %s: %s", mode, result)
		}
	}
	return nil
}

func (s Suite) log(format string, args ...any) {
	if s.Log != nil {
		s.Log(fmt.Sprintf(format, args...))
	}
}

// build compiles both binaries into Dir.
func (p *Passage) build(ctx context.Context) (err error) {
	if p.Binary, err = BuildBinary(ctx, module+"cmd/distributor", filepath.Clean(p.Dir)); err != nil {
		return err
	}
	p.Processor, err = BuildBinary(ctx, module+"cmd/processor", filepath.Clean(p.Dir))
	return err
}

// String is the measurement on one line.
func (m Measurement) String() string {
	line := fmt.Sprintf("%-26s %-10s %9s tasks  %7s us of CPU a task (%s + %s)  %7s requests a thousand  %s connections  %.1f s + %.1f s",
		m.Way, m.Over, humanize.Comma(m.Tasks), number(1e6*m.CPUPerTask()),
		number(1e6*m.Put.CPUSeconds/float64(m.Tasks)), number(1e6*m.Take.CPUSeconds/float64(m.Tasks)),
		number(m.RequestsPerThousand()), humanize.Comma(m.Connections), m.Put.Seconds, m.Take.Seconds)
	if m.Repeated > 0 {
		line += fmt.Sprintf("  %d handled again", m.Repeated)
	}
	return line
}

// String is the result on one line.
func (r PassageResult) String() string {
	return fmt.Sprintf("%s tasks sent in %.1f s with %.1f s of CPU and %d MiB, done in %.1f s with %.1f s of CPU and %d MiB, %s requests",
		humanize.Comma(r.Handled), r.Sent.Seconds, r.Sent.CPUSeconds, r.Sent.PeakBytes>>20, r.Seconds, r.CPUSeconds, r.PeakBytes>>20, humanize.Comma(r.Requests))
}
