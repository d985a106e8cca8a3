package processtest

import (
	"bufio"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/pump/runs"
)

// answering is an endpoint that answers each task with some 2 KB.
func answering(t *testing.T) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		part := rand.Text()
		fmt.Fprintf(w, `{"answer":%q}`, strings.Repeat(part+" half of it repeats ", 2000/(len(part)+20)))
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// sends distributes n tasks in a world of mode once.
func sends(t *testing.T, n int) (w *world, run string) {
	w = newWorld(t, 3, 2)
	appendText(t, w.config, "delivery: once\n")
	writeTasks(t, w.path("tasks.jsonl"), n)
	return w, w.distribute(w.path("tasks.jsonl"), 50).Run
}

// used is the CPU time that a process took.
func used(p *process) time.Duration {
	return p.cmd.ProcessState.UserTime() + p.cmd.ProcessState.SystemTime()
}

// peak gives the memory that a process has taken at most, in KiB, when it has ended. (What wait says
// of it includes the memory of its parent.)
func peak(p *process) (kib int) {
	for ; !p.ended(); time.Sleep(20 * time.Millisecond) {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
		if _, after, is := strings.Cut(string(text), "VmHWM:"); is {
			_, _ = fmt.Sscan(after, &kib)
		}
	}
	return kib
}

// TestResultsOutliveKill9: three processors are killed in turn, and the command gives the result of
// each task once.
func TestResultsOutliveKill9(t *testing.T) {
	besideOthers(t)
	if runtime.GOOS != "linux" {
		t.Skip("it measures by what Linux says of a process")
	}
	n := sized(6000, 1_000_000)
	w, run := sends(t, n)
	url := answering(t)
	work := func() *process {
		return start(t, "processor", "run", "--config", w.config, "--http", url, "--results", "--concurrency", "64",
			"--visibility", "5s", "--beat", "1s")
	}
	began := time.Now()
	all := []*process{work(), work(), work()}
	over := make(chan struct{})
	waits := start(t, "distributor", "runs", "wait", run, "--config", w.config, "--stuck-after", "1h", "--quiet")
	go func() { <-waits.done; close(over) }()
	kills := 0
	for at, going := 0, true; going; at = (at + 1) % len(all) {
		select {
		case <-over:
			going = false
		case <-time.After(time.Duration(sized(2, 15)) * time.Second):
			all[at].kill()
			kills++
			all[at] = work()
		}
	}
	waits.succeeds()
	took := time.Since(began)
	for _, p := range all {
		p.until("it listens to signals", func() bool { return strings.Contains(p.log.String(), "msg=processing") })
		stop(p)
	}
	puts := w.sim.Stats().Count("", "PutBlob")
	t.Logf("%d tasks in %v under %d kills: %.2f puts of blobs a thousand tasks, %.2f a second", n,
		took.Round(time.Second), kills, 1000*float64(puts)/float64(n), float64(puts)/took.Seconds())
	if most := 2*float64(n)/1000 + 3*took.Seconds() + 6*float64(kills+3); float64(puts) > most {
		t.Errorf("%d puts of blobs, want %.0f at most", puts, most)
	}
	requireResults(t, w, run, n)
}

// requireResults reads all results of a run.
func requireResults(t *testing.T, w *world, run string, n int) {
	t.Helper()
	file, err := os.Create(w.path("all.jsonl"))
	must(t, err)
	defer file.Close()
	cmd := exec.Command(filepath.Join(bin, "distributor"), "results", run, "--config", w.config, "--json", "--quiet")
	cmd.Stdout = file
	began := time.Now()
	p := startAs(t, "distributor", cmd)
	memory := peak(p)
	p.succeeds()
	var read runs.ResultsRead
	must(t, json.Unmarshal([]byte(p.log.String()), &read))
	t.Logf("%d MiB of results in %d objects are read in %v, with %v of CPU and %d MiB", read.Bytes>>20,
		read.Objects, time.Since(began).Round(time.Millisecond), used(p), memory>>10)
	must(t, errOf(file.Seek(0, 0)))
	have := map[[2]uint64]bool{}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		var segment, at uint64
		_, identity, _ := strings.Cut(lines.Text(), `,"segment":`)
		if _, err := fmt.Sscanf(identity, `%d,"n":%d,`, &segment, &at); err != nil || have[[2]uint64{segment, at}] {
			t.Fatalf("a result twice, or not whole: %.200s, %v", lines.Text(), err)
		}
		have[[2]uint64{segment, at}] = true
	}
	if len(have) != n || read.Results != uint64(n) || lines.Err() != nil {
		t.Errorf("%d of %d tasks have a result: %+v", len(have), n, read)
	}
	if memory > 64<<10 && !raceEnabled { // the race detector keeps several bytes for each in use
		t.Errorf("reading took %d MiB", memory>>10)
	}
}

// TestResultsCostLittleMoreThanAFile compares the CPU of --results with that of --out, with -scale.
func TestResultsCostLittleMoreThanAFile(t *testing.T) {
	if !*scale {
		t.Skip("it measures: give -scale")
	}
	const n = 100_000
	took := map[string]time.Duration{}
	for _, way := range []string{"--out", "--results"} {
		w, _ := sends(t, n)
		args := []string{"run", "--config", w.config, "--http", answering(t), "--concurrency", "64", "--until-idle", "2s", "--quiet", way}
		if way == "--out" {
			args = append(args, w.path("out.jsonl"))
		}
		p := start(t, "processor", args...)
		p.succeeds()
		took[way] = used(p)
	}
	more := took["--results"].Seconds() / took["--out"].Seconds()
	t.Logf("CPU of %d tasks: %v, %.2f x", n, took, more)
	if more > 1.3 {
		t.Errorf("%.2f x the CPU of --out", more)
	}
}
