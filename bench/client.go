package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// Way is how tasks go from a file of lines through queues and back.
type Way string

// The ways that are compared.
const (
	Rival Way = "azqueue" // the rival: one task a message
	Floor Way = "floor"   // gzip, base64 and back, as the pump compresses
	// default packing, a handler that reads each task
	Reading Way = "pump, handler in Go"
	PackOne Way = "pump, one task a message" // the same, for consumers that are no pump
	// default packing, both binaries, processor --out
	Written     Way = "pump, results in a file"
	WrittenOnce Way = "pump, results in a file, once" // the same with delivery: once
)

// Where the accounts are that a way uses.
const (
	OverTCP   = "TCP"
	InProcess = "in process" // a simulator in the client's own process, its CPU left out
	Nowhere   = ""           // the floor needs none
)

// job is what a client process is to do.
type job struct {
	Way      Way      `json:"way"`
	Over     string   `json:"over"`
	Accounts []string `json:"accounts"` // connection strings of OverTCP
	Input    string   `json:"input"`    // file of lines
	Tasks    int      `json:"tasks"`    // that many lines of it
	Pack     int      `json:"pack"`
	Profiles string   `json:"profiles"` // directory to leave CPU profiles in; empty: none
}

// Measurement is what a way took for its tasks.
type Measurement struct {
	Way   Way    `json:"way"`
	Over  string `json:"over"` // OverTCP, InProcess or Nowhere
	Tasks int64  `json:"tasks"`
	// Messages that the tasks were put as.
	Messages int64 `json:"messages"`
	// Repeated is how many tasks were handled once more, because a lease ended.
	Repeated int64 `json:"repeated,omitempty"`
	// Put is from the first line to the last acknowledged message, Take from the
	// first get to the last delete. Of the floor they are compressing and decompressing.
	// Of the binaries they are the distributor's process and the processor's, from start to end.
	Put  Usage `json:"put"`
	Take Usage `json:"take"`
	// Requests that the simulator served, by operation, those to tables too.
	Requests map[string]int64 `json:"requests,omitempty"`
	// Connections that were made to it.
	Connections int64 `json:"connections,omitempty"`
}

// TotalRequests is the sum over operations.
func (m Measurement) TotalRequests() (n int64) {
	for _, c := range m.Requests {
		n += c
	}
	return n
}

// CPUPerTask is the client's CPU time for a task on its whole way, in seconds.
func (m Measurement) CPUPerTask() float64 {
	return (m.Put.CPUSeconds + m.Take.CPUSeconds) / float64(m.Tasks)
}

// TasksPerCPU is how many tasks a CPU-second of the client takes through their whole way.
func (m Measurement) TasksPerCPU() float64 { return 1 / m.CPUPerTask() }

// AllocsPerTask is how many allocations a task cost on its whole way; 0 where that is not known.
func (m Measurement) AllocsPerTask() float64 {
	return float64(m.Put.Allocs+m.Take.Allocs) / float64(m.Tasks)
}

// RequestsPerThousand is requests per thousand tasks.
func (m Measurement) RequestsPerThousand() float64 {
	return 1000 * float64(m.TotalRequests()) / float64(m.Tasks)
}

// sentRate and doneRate are tasks a second, by the clock.
func (m Measurement) sentRate() float64 { return float64(m.Tasks) / m.Put.Seconds }
func (m Measurement) doneRate() float64 { return float64(m.Tasks) / m.Take.Seconds }

// client is the role of a client: it does the one job that it reads.
func client(ctx context.Context, in io.Reader, out io.Writer) error {
	var j job
	if err := json.NewDecoder(in).Decode(&j); err != nil {
		return err
	}
	m, err := j.run(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", j.Way, err)
	}
	m.Way, m.Over = j.Way, j.Over
	return json.NewEncoder(out).Encode(m)
}

func (j job) run(ctx context.Context) (Measurement, error) {
	switch j.Way {
	case Rival:
		return runRival(ctx, j)
	case Floor:
		return runFloor(ctx, j)
	case PackOne:
		j.Pack = 1
		return runPump(ctx, j)
	case Reading:
		return runPump(ctx, j)
	}
	return Measurement{}, fmt.Errorf("no client does %q", j.Way)
}

// readLines reads the first n lines of a file, without their ends.
func readLines(path string, n int) ([]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	lines := make([]string, 0, n)
	in := bufio.NewScanner(f)
	for len(lines) < n && in.Scan() {
		lines = append(lines, strings.Clone(in.Text()))
	}
	if err := in.Err(); err != nil {
		return nil, err
	}
	if len(lines) < n {
		return nil, fmt.Errorf("%s has %d lines, %d are needed", path, len(lines), n)
	}
	return slices.Clip(lines), nil
}
