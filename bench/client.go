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

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
)

// Way is how tasks go from a file of lines through queues and back.
type Way string

// The ways that are compared.
const (
	PlainSDK      Way = "plain SDK"                // (a): one task a message, waves of 64 goroutines, the SDK's default options
	TunedSDK      Way = "tuned SDK"                // (b): the same, with a pool for 64 connections
	PlainWorkers  Way = "plain SDK, workers"       // (a) by 64 workers instead of waves
	TunedWorkers  Way = "tuned SDK, workers"       // (b) by 64 workers instead of waves
	Floor         Way = "floor"                    // (c): gzip, base64 and back, as the pump compresses
	StandardFloor Way = "floor, standard library"  // the same with the standard library's gzip
	Packed        Way = "pump"                     // default settings
	PackedBatches Way = "pump, batch handler"      // the handler takes a message's tasks at once
	PackOne       Way = "pump, one task a message" // as for consumers that are no pump
)

// Where the accounts are that a way uses.
const (
	OverTCP   = "TCP"
	OverTLS   = "TLS"
	InProcess = "in process" // a simulator in the client's own process, its CPU left out
	Nowhere   = ""           // the floors need none
)

// job is what a client process is to do.
type job struct {
	Way      Way      `json:"way"`
	Over     string   `json:"over"`
	Accounts []string `json:"accounts"` // connection strings of OverTCP and OverTLS
	Input    string   `json:"input"`    // file of lines
	Tasks    int      `json:"tasks"`    // that many lines of it
	Pack     int      `json:"pack"`
	Batch    bool     `json:"batch"`
	Profiles string   `json:"profiles"` // directory to leave CPU profiles in; empty: none
}

// Measurement is what a client process took for its tasks.
type Measurement struct {
	Way   Way    `json:"way"`
	Over  string `json:"over"` // OverTCP, OverTLS, InProcess or Nowhere
	Tasks int64  `json:"tasks"`
	// Messages that the tasks were put as.
	Messages int64 `json:"messages"`
	// Repeated is how many tasks were handled once more, because a lease ended.
	Repeated int64 `json:"repeated,omitempty"`
	// Put is from the first line to the last acknowledged message, Take from the
	// first get to the last delete. Of a floor they are compressing and decompressing.
	Put       Usage `json:"put"`
	Take      Usage `json:"take"`
	PeakBytes int64 `json:"peakBytes"` // of the process, resident
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

// AllocsPerTask is how many allocations a task cost on its whole way.
func (m Measurement) AllocsPerTask() float64 {
	return float64(m.Put.Allocs+m.Take.Allocs) / float64(m.Tasks)
}

// RequestsPerThousand is requests per thousand tasks.
func (m Measurement) RequestsPerThousand() float64 {
	return 1000 * float64(m.TotalRequests()) / float64(m.Tasks)
}

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
	m.Way, m.Over, m.PeakBytes = j.Way, j.Over, peakMemory()
	return json.NewEncoder(out).Encode(m)
}

func (j job) run(ctx context.Context) (Measurement, error) {
	switch j.Way {
	case PlainSDK:
		return runSDK(ctx, j, &azqueue.ClientOptions{}, true)
	case TunedSDK:
		return runSDK(ctx, j, tunedOptions(), true)
	case PlainWorkers:
		return runSDK(ctx, j, &azqueue.ClientOptions{}, false)
	case TunedWorkers:
		return runSDK(ctx, j, tunedOptions(), false)
	case Floor:
		return runFloor(ctx, j, sameGzip)
	case StandardFloor:
		return runFloor(ctx, j, standardGzip)
	case PackOne:
		j.Pack = 1
		return runPump(ctx, j)
	case PackedBatches:
		j.Batch = true
		return runPump(ctx, j)
	case Packed:
		return runPump(ctx, j)
	}
	return Measurement{}, fmt.Errorf("there is no way %q", j.Way)
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
