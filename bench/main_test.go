package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
)

var (
	dirFlag = flag.String("bench.dir", "", "keep inputs and binaries in this directory")
	pinFlag = flag.Bool("bench.pin", false, "give client and simulator a core each, by taskset")
)

// serves is set in the environment of the process that is the simulator.
const serves = "QUEUEPUMP_BENCH_SERVES"

// dir is where inputs and binaries are.
var dir string

func TestMain(m *testing.M) {
	if os.Getenv(serves) != "" {
		if err := serve(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "bench: the simulator:", err)
			os.Exit(1)
		}
		return
	}
	flag.Parse()
	if *pinFlag {
		if err := ownCore(); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
	}
	code := 1
	if err := workDir(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
	} else {
		code = m.Run()
	}
	if *dirFlag == "" {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

func workDir() (err error) {
	if *dirFlag == "" {
		dir, err = os.MkdirTemp("", "queuepump-bench-")
		return err
	}
	if dir, err = filepath.Abs(*dirFlag); err != nil {
		return err
	}
	return os.MkdirAll(dir, 0o755)
}

// cores are those that the simulator and the client have; none: neither is pinned. This process
// passes them on to itself in the environment, as it starts again on its own core.
var cores = strings.Fields(os.Getenv("QUEUEPUMP_BENCH_CORES"))

// The places of both in cores.
const (
	serverCore = iota
	clientCore
)

// ownCore lets this process start again on a core of its own, and says where it and the simulator
// are. That takes two cores that this process may use, and taskset.
func ownCore() error {
	text, _ := os.ReadFile("/proc/self/status") // there is none but on Linux
	allowed := coreList(string(text))
	taskset, err := exec.LookPath("taskset")
	switch {
	case len(cores) > 0:
		fmt.Printf("placement: client on core %s, simulator on core %s\n", cores[clientCore], cores[serverCore])
	case err != nil || len(allowed) < 2:
		fmt.Println("placement: client and simulator share cores, for want of taskset or of a second core")
	default:
		args := append([]string{"taskset", "--cpu-list", allowed[1]}, os.Args...)
		return syscall.Exec(taskset, args, append(os.Environ(), "QUEUEPUMP_BENCH_CORES="+strings.Join(allowed[:2], " ")))
	}
	return nil
}

// coreList finds the cores that a process may use in what Linux says of it: "0-3,8".
func coreList(status string) (list []string) {
	_, text, _ := strings.Cut(status, "\nCpus_allowed_list:")
	text, _, _ = strings.Cut(text, "\n")
	for part := range strings.SplitSeq(strings.TrimSpace(text), ",") {
		from, to, isRange := strings.Cut(part, "-")
		first, err := strconv.Atoi(from)
		last := first
		if isRange && err == nil {
			last, err = strconv.Atoi(to)
		}
		for n := first; n <= last && err == nil; n++ {
			list = append(list, fmt.Sprint(n))
		}
	}
	return list
}

func TestTheCoresOfAProcessAreThoseThatItMayUse(t *testing.T) {
	for text, want := range map[string]string{"0-1": "0 1", "2-3,8": "2 3 8", "5": "5", "": "", "x-2": ""} {
		status := "Name:\tx\nCpus_allowed_list:\t" + text + "\nMems_allowed_list:\t0-3\n"
		proof.Same(t, strings.Join(coreList(status), " "), want, text)
	}
}

// pinned is a command that has a core of its own, if cores are to be pinned.
func pinned(ctx context.Context, n int, name string, args ...string) *exec.Cmd {
	if len(cores) > 0 {
		args = append([]string{"--cpu-list", cores[n], name}, args...)
		name = "taskset" // it becomes the command: the process id is the same
	}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	return cmd
}

// usage is what a piece of work took.
type usage struct {
	cpu, seconds float64 // user and system, of all threads; by the clock
	allocs       uint64  // 0 of the binaries: not known
	peak         int64   // bytes: the most that the process has had resident so far
}

// forgetPeak lets what is measured next begin with the memory that this process has now. On Linux a
// child inherits the peak of the process that starts it: without this the binaries would have that
// of the lines which another way had in memory.
func forgetPeak() {
	debug.FreeOSMemory()
	_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) // there is none but on Linux
}

// metered does some work in this process and says what it took.
func metered(tb testing.TB, work func() error) usage {
	tb.Helper()
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	spent, began := processUsage(), time.Now()
	must(tb, work())
	now := processUsage()
	u := usage{cpu: now.cpu - spent.cpu, seconds: time.Since(began).Seconds(), peak: now.peak}
	runtime.ReadMemStats(&after)
	u.allocs = after.Mallocs - before.Mallocs
	return u
}

func processUsage() usage {
	var r syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r) // fails only for a who that does not exist
	return usageOf(r)
}

func usageOf(r syscall.Rusage) (u usage) {
	u.cpu = float64(r.Utime.Sec+r.Stime.Sec) + float64(r.Utime.Usec+r.Stime.Usec)/1e6
	if u.peak = int64(r.Maxrss); runtime.GOOS != "darwin" {
		u.peak <<= 10
	}
	return u
}

// runJSON runs a binary, reads the summary that it prints, and says what its process took.
func runJSON(tb testing.TB, into any, name string, args ...string) usage {
	tb.Helper()
	cmd := pinned(tb.Context(), clientCore, name, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		tb.Fatalf("%v: %v\n%s", cmd.Args, err, stderr.String())
	}
	if err := json.Unmarshal(stdout.Bytes(), into); err != nil {
		tb.Fatalf("%v: its summary: %v", cmd.Args, err)
	}
	r, _ := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	return usageOf(*r)
}
