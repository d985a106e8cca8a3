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

// Latency is how long a simulated request over TCP or TLS takes before it is answered: of the
// order of what Azure's take within a region. It is no CPU time; it is why 64 goroutines
// have 64 requests under way, more than the SDK's pool keeps connections for.
const Latency = 5 * time.Millisecond

// pumpAccounts is how many simulated accounts the packed pump stripes over; one task a
// message goes to a single account, as the SDK's do.
const pumpAccounts = 4

// Measure makes one measurement in processes of its own: a client, and a simulator beside it
// if the way needs one. Input is written into dir and left there for the next.
func Measure(ctx context.Context, dir string, r Run) (m Measurement, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s over %s: %w", r.Way, r.Over, err)
		}
	}()
	j := job{Way: r.Way, Over: r.Over, Tasks: r.Tasks, Input: inputOf(dir, r.Tasks), Profiles: r.Profiles}
	if err := writeInput(j.Input, r.Tasks); err != nil {
		return m, err
	}
	if r.Over == InProcess || r.Over == Nowhere {
		return runClient(ctx, j)
	}
	server, err := startChild(ctx, roleSimulator)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, server.end()) }()
	what := simulated{Accounts: 1, Latency: Latency, Secure: r.Over == OverTLS}
	if r.Way == Packed || r.Way == PackedBatches {
		what.Accounts = pumpAccounts
	}
	var at, after served
	if err := server.ask(what, &at); err != nil {
		return m, err
	}
	j.Accounts = at.ConnectionStrings
	var environ []string
	if what.Secure {
		file := filepath.Join(dir, "certificate.pem")
		if err := os.WriteFile(file, at.Certificate, 0o600); err != nil {
			return m, err
		}
		environ = append(environ, "SSL_CERT_FILE="+file) // so that default options trust it
	}
	if m, err = runClient(ctx, j, environ...); err != nil {
		return m, err
	}
	if err := server.ask(struct{}{}, &after); err != nil {
		return m, err
	}
	m.Requests, m.Connections = after.Requests, after.Connections
	return m, nil
}

func runClient(ctx context.Context, j job, environ ...string) (m Measurement, err error) {
	c, err := startChild(ctx, roleClient, environ...)
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
