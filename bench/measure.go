package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// Run is one measurement to be made.
type Run struct {
	Way   Way
	Over  string // see Measurement
	Tasks int
	// Profiles is a directory to leave CPU profiles of the client in; empty: none.
	Profiles string
}

// name is the way, and where the accounts are.
func (r Run) name() string {
	if r.Over == Nowhere {
		return string(r.Way)
	}
	return string(r.Way) + ", " + r.Over
}

// byBinaries reports whether the two binaries do it instead of a client.
func (r Run) byBinaries() bool { return r.Way == Written || r.Way == WrittenOnce }

// Latency is how long a simulated request over TCP takes before it is answered: of the
// order of what Azure's take within a region. It is no CPU time; it is why 64 goroutines
// have 64 requests under way.
const Latency = 5 * time.Millisecond

// pumpAccounts is how many simulated accounts the packed pump stripes over; one task a
// message goes to a single account, as the rival's do.
const pumpAccounts = 4

// Measure makes one measurement. A client, and a simulator beside it if the way needs one, are
// processes of their own. Dir holds the binaries, of [BuildBinaries], and the input, which is
// written there and left for the next.
func Measure(ctx context.Context, dir string, r Run) (m Measurement, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s: %w", r.name(), err)
		}
	}()
	j := job{
		Way: r.Way, Over: r.Over, Tasks: r.Tasks, Input: inputOf(dir, r.Tasks), Profiles: r.Profiles,
	}
	if err := writeInput(j.Input, r.Tasks); err != nil {
		return m, err
	}
	if r.Over != OverTCP {
		return runClient(ctx, j)
	}
	what := simulated{Accounts: pumpAccounts, Latency: Latency}
	if r.Way == PackOne || r.Way == Rival {
		what.Accounts = 1
	}
	server, at, err := startSimulator(ctx, what)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, server.end()) }()
	j.Accounts = at.ConnectionStrings
	if r.byBinaries() {
		m, err = runBinaries(ctx, dir, j)
	} else {
		m, err = runClient(ctx, j)
	}
	if err != nil {
		return m, err
	}
	var after served
	if err := server.ask(struct{}{}, &after); err != nil {
		return m, err
	}
	m.Requests, m.Connections = after.Requests, after.Connections
	return m, nil
}

func runClient(ctx context.Context, j job) (m Measurement, err error) {
	c, err := startChild(ctx, roleClient)
	if err != nil {
		return m, err
	}
	if err := c.ask(j, &m); err != nil {
		return m, err
	}
	return m, c.end()
}

func inputOf(dir string, lines int) string {
	return filepath.Join(dir, fmt.Sprintf("tasks-%d.jsonl", lines))
}

// writeInput makes the file of n lines unless it is there.
func writeInput(path string, n int) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(WriteLines(f, n, 1), f.Close())
}
