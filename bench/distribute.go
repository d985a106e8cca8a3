package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/queuepump/queuepump/loadtest/azsim"
)

// Distribution is one run of the distributor binary over made-up lines, into
// simulated accounts over TCP.
type Distribution struct {
	Binary   string // path of the distributor
	Dir      string // where input and configuration are written
	Lines    int    // of WriteLines; 0 if the input is another
	Accounts int
	Queues   int // of each account; 0 leaves it to the distributor's default
	// Delivery is the workload's mode; empty for the default.
	Delivery string
}

// DistributionResult is what the distributor printed at its end, and what the
// operating system says of its process.
type DistributionResult struct {
	Tasks     int64                       `json:"tasks"`
	Envelopes int64                       `json:"envelopes"`
	BytesIn   int64                       `json:"bytesIn"`
	BytesSent int64                       `json:"bytesSent"`
	Requests  map[string]map[string]int64 `json:"requests"`
	Throttled int64                       `json:"throttled"`
	Seconds   float64                     `json:"seconds"`

	PeakBytes  int64   `json:"peakBytes"`  // resident memory
	CPUSeconds float64 `json:"cpuSeconds"` // user and system
}

// TotalRequests is the sum over accounts and operations.
func (r DistributionResult) TotalRequests() int64 { return total(r.Requests) }

func total(requests map[string]map[string]int64) (n int64) {
	for _, ops := range requests {
		for _, c := range ops {
			n += c
		}
	}
	return n
}

// BuildBinary compiles a command of this module into dir and returns its path.
func BuildBinary(ctx context.Context, pkg, dir string) (string, error) {
	out := filepath.Join(dir, filepath.Base(pkg))
	cmd := exec.CommandContext(ctx, "go", "build", "-o", out, pkg)
	if msg, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s: %w\n%s", pkg, err, msg)
	}
	return out, nil
}

// Run makes the input, serves the accounts without limits, and runs the binary
// with its default settings.
func (d Distribution) Run(ctx context.Context) (r DistributionResult, err error) {
	config, done, err := d.serve(ctx)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, done()) }()
	return d.distribute(ctx, config)
}

// serve makes the input, the accounts, and the configuration that names them. The accounts are in
// a process of their own, not in this one: on Linux the peak memory of a new process is at least
// what its parent had when it was started.
func (d Distribution) serve(ctx context.Context) (config string, done func() error, err error) {
	if d.Lines > 0 {
		if err := writeInput(d.input(), d.Lines); err != nil {
			return "", nil, err
		}
	}
	server, err := startChild(ctx, roleSimulator)
	if err != nil {
		return "", nil, err
	}
	var at served
	if err := server.ask(simulated{Accounts: d.Accounts}, &at); err != nil {
		return "", nil, err
	}
	config = filepath.Join(d.Dir, "pump.yaml")
	if err := os.WriteFile(config, d.config(at.ConnectionStrings), 0o600); err != nil {
		return "", nil, errors.Join(err, server.end())
	}
	return config, server.end, nil
}

func (d Distribution) input() string { return inputOf(d.Dir, d.Lines) }

func (d Distribution) distribute(ctx context.Context, config string) (r DistributionResult, err error) {
	p, err := runJSON(ctx, &r, d.Binary, "run", "--config", config, "--once", "--input", d.input(), "--key", "city", "--json", "--quiet")
	if err == nil && r.Tasks != int64(d.Lines) {
		err = fmt.Errorf("%d lines became %d tasks", d.Lines, r.Tasks)
	}
	r.PeakBytes, r.CPUSeconds = p.peakBytes, p.cpuSeconds
	return r, err
}

// spent is what the operating system says of a process that has ended.
type spent struct {
	peakBytes  int64
	cpuSeconds float64
}

// runJSON runs a binary to its end and reads the JSON that it prints.
func runJSON(ctx context.Context, into any, name string, args ...string) (s spent, err error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return s, fmt.Errorf("%v: %w\n%s", cmd.Args, err, stderr.String())
	}
	if err := json.Unmarshal(stdout.Bytes(), into); err != nil {
		return s, fmt.Errorf("%v: its summary: %w", cmd.Args, err)
	}
	if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		s.peakBytes = peakBytes(*usage)
	}
	s.cpuSeconds = (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
	return s, nil
}

func (d Distribution) config(connectionStrings []string) []byte {
	var b strings.Builder
	b.WriteString("workload: bench\naccounts:\n")
	for _, c := range connectionStrings {
		fmt.Fprintf(&b, "  - connectionString: %q\n", c)
		if d.Queues > 0 {
			fmt.Fprintf(&b, "    queues: %d\n", d.Queues)
		}
	}
	if d.Delivery != "" {
		fmt.Fprintf(&b, "delivery: %s\n", d.Delivery)
	}
	return []byte(b.String())
}

func simulatedAccounts(n int) (accounts []azsim.Account) {
	for i := range n {
		accounts = append(accounts, azsim.Account{Name: fmt.Sprintf("bench%02d", i)})
	}
	return accounts
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
