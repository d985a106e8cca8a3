package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
)

// The pump as operators use it: the distributor reads the file of lines, then one processor
// writes the results to a file (--out). Everything else is the default.

// idle is for how long the processor must have had nothing to do before it leaves.
const idle = 2 * time.Second

// BuildBinaries compiles the distributor and the processor into dir.
func BuildBinaries(ctx context.Context, dir string) error {
	for _, name := range []string{"distributor", "processor"} {
		cmd := exec.CommandContext(ctx, "go", "build", "-o", binaryOf(dir, name), module+"cmd/"+name)
		if msg, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("building the %s: %w\n%s", name, err, msg)
		}
	}
	return nil
}

func binaryOf(dir, name string) string { return filepath.Join(dir, name) }

// sent and done are what the binaries print at their ends, as far as it is of use here.
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

// runBinaries takes the lines through both binaries.
func runBinaries(ctx context.Context, dir string, j job) (m Measurement, err error) {
	delivery := pump.AtLeastOnce
	if j.Way == WrittenOnce {
		delivery = pump.Once
	}
	config, out := filepath.Join(dir, "pump.yaml"), filepath.Join(dir, "done.jsonl")
	if err := writeConfig(config, j.Accounts, delivery); err != nil {
		return m, err
	}
	if err := os.Remove(out); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return m, err
	}
	defer func() { _ = os.Remove(out) }() // as large as the input, twice
	m.Way, m.Over = j.Way, j.Over

	var s sent
	distributor := []string{
		"run", "--config", config, "--once", "--input", j.Input, "--key", "city", "--json", "--quiet",
	}
	m.Put, err = runJSON(ctx, &s, binaryOf(dir, "distributor"), distributor...)
	m.Tasks, m.Messages, m.Put.Seconds = s.Tasks, s.Envelopes, s.Seconds
	if err == nil && s.Tasks != int64(j.Tasks) {
		err = fmt.Errorf("%d lines became %d tasks", j.Tasks, s.Tasks)
	}
	if err != nil {
		return m, err
	}
	var d done
	processor := []string{
		"run", "--config", config, "--out", out, "--until-idle", idle.String(), "--json", "--quiet",
	}
	m.Take, err = runJSON(ctx, &d, binaryOf(dir, "processor"), processor...)
	m.Repeated, m.Take.Seconds = d.Handled-m.Tasks, d.Seconds-idle.Seconds()
	if err != nil {
		return m, err
	}
	return m, checkWritten(out, j, d)
}

// checkWritten compares what the processor says with what it was to do, and with what it wrote.
// It is at least once: on a machine so busy that leases end, some tasks come again.
func checkWritten(out string, j job, d done) error {
	if d.Handled < int64(j.Tasks) || j.Way == WrittenOnce && d.Recorded != int64(j.Tasks) {
		return fmt.Errorf("%d tasks were handled %d times, and %d recorded", j.Tasks, d.Handled,
			d.Recorded)
	}
	lines, err := countLines(out)
	if err == nil && lines < d.Handled {
		err = fmt.Errorf("%d tasks were handled and %d are in the file", d.Handled, lines)
	}
	return err
}

func countLines(path string) (n int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	b := make([]byte, 1<<20)
	for {
		got, err := f.Read(b)
		n += int64(bytes.Count(b[:got], []byte("\n")))
		if got == 0 {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}

// runJSON runs a binary on the client's core to its end and reads the JSON that it prints. The
// seconds by the clock are the binary's to say.
func runJSON(ctx context.Context, into any, name string, args ...string) (u Usage, err error) {
	c := ownCores()
	cmd := c.command(ctx, c.client, name, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return u, fmt.Errorf("%v: %w\n%s", cmd.Args, err, stderr.String())
	}
	if err := json.Unmarshal(stdout.Bytes(), into); err != nil {
		return u, fmt.Errorf("%v: its summary: %w", cmd.Args, err)
	}
	if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		u.PeakBytes = peakBytes(*usage)
	}
	u.CPUSeconds = (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
	return u, nil
}

// writeConfig writes a configuration of served accounts.
func writeConfig(path string, accounts []string, delivery pump.Delivery) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "workload: bench\ndelivery: %s\naccounts:\n", delivery)
	for _, c := range accounts {
		fmt.Fprintf(&b, "  - connectionString: %q\n", c)
	}
	return os.WriteFile(path, b.Bytes(), 0o600)
}

func simulatedAccounts(n int) (accounts []azsim.Account) {
	for i := range n {
		accounts = append(accounts, azsim.Account{Name: fmt.Sprintf("bench%02d", i)})
	}
	return accounts
}
