package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/source"
)

// must ends a test with an error.
var must = proof.Must

// measured is what a way of tasks to the queues and back took.
type measured struct {
	tasks, messages int64
	// out is from the first line to the last acknowledged message, back from the first get to the
	// last delete. Of the floor they are compressing and decompressing. Of the binaries they are the
	// distributor's process and the processor's, from start to end.
	out, back             usage
	requests, connections int64 // that the simulator served, those to tables too
}

// served asks the simulator what it has served.
func (m *measured) served(server *child) {
	at := server.ask(struct{}{})
	for _, n := range at.Requests {
		m.requests += n
	}
	m.connections = at.Connections
}

// ways are what is measured. Those that are compared stand together; each takes some seconds of CPU,
// over which the garbage collector comes often enough to count. The binaries get more tasks, because
// what they do at their beginnings and ends is in their time.
var ways = []struct {
	name         string
	tasks, short int
	run          func(testing.TB, int) measured
}{
	{"Floor", 2_000_000, 1_000_000, runFloor},
	{"Handler", 2_000_000, 1_000_000, runHandler},
	{"Rival", 10_000, 5_000, runRival},
	{"OneAMessage", 10_000, 5_000, runOne},
	{"File", 4_000_000, 1_000_000, runFile},
	{"FileOnce", 4_000_000, 1_000_000, runFileOnce},
}

func BenchmarkWay(b *testing.B) {
	for _, w := range ways {
		b.Run(w.name, func(b *testing.B) {
			tasks := w.tasks
			if testing.Short() {
				tasks = w.short
			}
			for b.Loop() {
				forgetPeak()
				w.run(b, tasks).report(b)
			}
		})
	}
}

// report says what was measured by names that [figures] and benchstat read.
func (m measured) report(b *testing.B) {
	n := float64(m.tasks)
	for unit, v := range map[string]float64{
		"ns/op":         0, // of all together it says nothing
		"tasks":         n,
		"tasks/message": n / float64(m.messages),
		"out-cpu-ns":    1e9 * m.out.cpu / n, "back-cpu-ns": 1e9 * m.back.cpu / n,
		"cpu-ns/task":    1e9 * (m.out.cpu + m.back.cpu) / n,
		"requests/ktask": 1000 * float64(m.requests) / n, "connections": float64(m.connections),
		"allocs/task": float64(m.out.allocs+m.back.allocs) / n,
		"out-tasks/s": n / m.out.seconds, "back-tasks/s": n / m.back.seconds,
		"out-MiB": float64(m.out.peak >> 20), "back-MiB": float64(m.back.peak >> 20),
	} {
		b.ReportMetric(v, unit)
	}
}

// quiet is how long a processor waits for more tasks before it leaves, which is not counted.
const quiet = 2 * time.Second

func runHandler(tb testing.TB, tasks int) measured { return runPump(tb, tasks, pumpAccounts, 0) }
func runOne(tb testing.TB, tasks int) measured     { return runPump(tb, tasks, 1, 1) }

// runPump is the library with a handler that reads each task.
func runPump(tb testing.TB, tasks, accounts, pack int) (m measured) {
	input := inputOf(tb, tasks)
	server, at := startSimulator(tb, simulated{Accounts: accounts, Latency: latency})
	cfg := pump.Config{Workload: "bench", Log: slog.New(slog.DiscardHandler)}
	for _, a := range at.ConnectionStrings {
		cfg.Accounts = append(cfg.Accounts, pump.Account{ConnectionString: a})
	}
	m.out = metered(tb, func() error {
		d, err := distributor.New(cfg, source.JSONLines(input, "city"), distributor.Options{Pack: pack})
		if err != nil {
			return err
		}
		s, err := d.Run(tb.Context())
		m.tasks, m.messages = s.Tasks, s.Envelopes
		return err
	})
	var h reading
	m.back = metered(tb, func() error {
		p, err := processor.New(cfg, &h, processor.Options{UntilIdle: quiet})
		if err == nil {
			_, err = p.Run(tb.Context())
		}
		return err
	})
	m.back.seconds -= quiet.Seconds()
	must(tb, h.check(input, int64(tasks)))
	m.served(server)
	return m
}

// reading is a handler that reads each task and keeps the sum of the checksums.
type reading struct {
	tasks atomic.Int64
	sum   atomic.Uint64
}

func (r *reading) Handle(_ context.Context, t *pump.Task) error {
	r.sum.Add(xxhash.Sum64(t.Body))
	r.tasks.Add(1)
	return nil
}

// check compares what was read with the input. It is at least once: on a machine so busy that
// leases end, some tasks come again, and the sum says nothing.
func (r *reading) check(input string, tasks int64) error {
	read := r.tasks.Load()
	if read < tasks {
		return fmt.Errorf("%d of %d tasks were handled", read, tasks)
	}
	if read > tasks {
		return nil
	}
	text, err := os.ReadFile(input)
	if err != nil {
		return err
	}
	want := uint64(0)
	for line := range bytes.Lines(text) {
		want += xxhash.Sum64(bytes.TrimSuffix(line, []byte("\n")))
	}
	if r.sum.Load() != want {
		return errors.New("the bodies of the tasks are not the lines")
	}
	return nil
}

func runFile(tb testing.TB, tasks int) measured     { return runBinaries(tb, tasks, pump.AtLeastOnce) }
func runFileOnce(tb testing.TB, tasks int) measured { return runBinaries(tb, tasks, pump.Once) }

// runBinaries is both binaries, with default packing and processor --out.
func runBinaries(tb testing.TB, tasks int, delivery pump.Delivery) (m measured) {
	buildBinaries(tb)
	input := inputOf(tb, tasks)
	server, at := startSimulator(tb, simulated{Accounts: pumpAccounts, Latency: latency})
	config, out := filepath.Join(dir, "pump.yaml"), filepath.Join(dir, "done.jsonl")
	writeConfig(tb, config, at.ConnectionStrings, delivery)
	if err := os.Remove(out); err != nil && !errors.Is(err, fs.ErrNotExist) {
		tb.Fatal(err)
	}
	defer func() { _ = os.Remove(out) }() // as large as the input, twice
	var s sent
	m.out = runJSON(tb, &s, filepath.Join(dir, "distributor"), "run", "--config", config, "--once",
		"--input", input, "--key", "city", "--json", "--quiet")
	m.tasks, m.messages, m.out.seconds = s.Tasks, s.Envelopes, s.Seconds
	var d done
	m.back = runJSON(tb, &d, filepath.Join(dir, "processor"), "run", "--config", config, "--out", out,
		"--until-idle", quiet.String(), "--json", "--quiet")
	m.back.seconds = d.Seconds - quiet.Seconds()
	lines := countLines(tb, out)
	if m.tasks != int64(tasks) || d.Handled < m.tasks || lines < d.Handled ||
		delivery == pump.Once && d.Recorded != m.tasks {
		tb.Fatalf("%d lines became %d tasks, which were handled %d times, %d recorded, and %d are in the file",
			tasks, m.tasks, d.Handled, d.Recorded, lines)
	}
	m.served(server)
	return m
}

// The summaries of the binaries.
type (
	sent struct {
		Tasks, Envelopes int64
		Seconds          float64
	}
	done struct {
		Handled, Recorded int64
		Seconds           float64
	}
)

func buildBinaries(tb testing.TB) {
	tb.Helper()
	for _, name := range []string{"distributor", "processor"} {
		cmd := exec.CommandContext(tb.Context(), "go", "build", "-o", filepath.Join(dir, name), "../cmd/"+name)
		if msg, err := cmd.CombinedOutput(); err != nil {
			tb.Fatalf("building the %s: %v\n%s", name, err, msg)
		}
	}
}

func writeConfig(tb testing.TB, path string, accounts []string, delivery pump.Delivery) {
	tb.Helper()
	var b bytes.Buffer
	fmt.Fprintf(&b, "workload: bench\ndelivery: %s\naccounts:\n", delivery)
	for _, c := range accounts {
		fmt.Fprintf(&b, "  - connectionString: %q\n", c)
	}
	must(tb, os.WriteFile(path, b.Bytes(), 0o600))
}

func countLines(tb testing.TB, path string) (n int64) {
	tb.Helper()
	f, err := os.Open(path)
	must(tb, err)
	defer func() { _ = f.Close() }()
	for b := make([]byte, 1<<20); ; {
		got, err := f.Read(b)
		if n += int64(bytes.Count(b[:got], []byte("\n"))); errors.Is(err, io.EOF) {
			return n
		} else if err != nil {
			tb.Fatal(err)
		}
	}
}

// Each way takes all tasks there and back (it fails if it does not), and is measured: with the CPU
// of the client and the requests and connections that the simulator saw.
func TestEachWayBringsAllTasksBackAndIsMeasured(t *testing.T) {
	proof.Only(t)
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			m := w.run(t, min(w.short, 20_000)/20)
			if m.tasks == 0 || m.out.cpu <= 0 || m.back.cpu <= 0 || m.out.seconds <= 0 || m.back.seconds <= 0 ||
				m.out.peak < 1<<20 || m.back.peak < 1<<20 || m.messages < 1 || m.messages > m.tasks {
				t.Errorf("%+v", m)
			}
			if w.name != "Floor" && (m.requests < m.messages || m.connections < 1) {
				t.Errorf("the simulator saw %d requests and %d connections", m.requests, m.connections)
			}
			if single := w.name == "Rival" || w.name == "OneAMessage"; single && m.messages != m.tasks {
				t.Errorf("%d messages for %d tasks", m.messages, m.tasks)
			}
		})
	}
}

// The handlers of both notice that a body is not what was put.
func TestABodyThatIsNotTheLineIsNoticed(t *testing.T) {
	input := filepath.Join(t.TempDir(), "tasks.jsonl")
	must(t, os.WriteFile(input, []byte("one\ntwo\n"), 0o600))
	for body, says := range map[string]bool{"two": false, "tow": true} {
		var r reading
		for _, b := range []string{"one", body} {
			must(t, r.Handle(t.Context(), &pump.Task{Body: []byte(b)}))
		}
		if err := r.check(input, 2); (err != nil) != says {
			t.Errorf("%s: %v", body, err)
		}
	}
	var r reading
	proof.Says(t, r.check(input, 2), "0 of 2 tasks were handled")
	if checksum([]string{"one", "two"}) != checksum([]string{"two", "one"}) ||
		checksum([]string{"one"}) == checksum([]string{"eno"}) {
		t.Error("the rival's sum depends on the order of lines, or not on their bytes")
	}
}
