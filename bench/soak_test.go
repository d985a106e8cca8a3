package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
)

var (
	soakFor      = flag.Duration("soak.for", 0, "soak for so long, and judge the memory of the binaries")
	soakRate     = flag.Int("soak.rate", 20_000, "how many tasks a second are soaked with")
	soakDelivery = flag.String("soak.delivery", string(pump.AtLeastOnce), "the delivery of the soak")
	soakWrite    = flag.Bool("soak.write", false, "write what the soak came to into RESULTS.md")
)

// look is one look at the memory of a process, in bytes: what is resident, and what is live of its
// heap right after a garbage collection.
type look struct{ resident, live int64 }

// watched is a binary that runs, with an admin port.
type watched struct {
	name           string
	cmd            *exec.Cmd
	stdout, stderr bytes.Buffer
	admin          string
	ended          chan error
	looks          []look
}

// TestSoak has both binaries work on a steady stream of tasks and looks at their memory. The
// distributor reads a pipe, so it seals messages by age, and the processor has many that are not
// full. Without -soak.for it takes some seconds, and does not judge processes that are so young.
func TestSoak(t *testing.T) {
	proof.Only(t)
	length, rate, every := *soakFor, *soakRate, 5*time.Second
	if length == 0 {
		length, rate, every = 4*time.Second, 5000, 500*time.Millisecond
	}
	buildBinaries(t)
	_, at := startSimulator(t, simulated{Accounts: pumpAccounts})
	config := filepath.Join(t.TempDir(), "pump.yaml")
	writeConfig(t, config, at.ConnectionStrings, pump.Delivery(*soakDelivery))
	input, lines := io.Pipe()
	out := start(t, "distributor", input, "--config", config, "--input", "-", "--key", "city")
	out.ready(t) // the processor waits for the workload no longer than it may be idle
	// It may be idle for longer than any pause of a machine that has other work.
	back := start(t, "processor", nil, "--config", config, "--out", os.DevNull, "--until-idle", "5s")
	enough, fed := make(chan struct{}), make(chan error, 1)
	go func() { fed <- errors.Join(feed(lines, rate, enough), lines.Close()) }()
	back.ready(t)
	began := time.Now()
	for n := range int(length / every) {
		time.Sleep(time.Until(began.Add(time.Duration(n+1) * every)))
		for _, p := range []*watched{out, back} {
			l := p.look(t)
			p.looks = append(p.looks, l)
			t.Logf("%4.0f s  %-11s %4d MiB resident, %4d live", time.Since(began).Seconds(), p.name, l.resident>>20, l.live>>20)
		}
	}
	close(enough) // not before the last look, or there would be no process to look at
	must(t, <-fed)
	var put sent
	var handled done
	out.finish(t, &put)
	back.finish(t, &handled)
	if handled.Handled < put.Tasks || put.Tasks < 1000 { // at least once: on a busy machine some come again
		t.Errorf("%d tasks were sent and %d handled", put.Tasks, handled.Handled)
	}
	if *soakFor == 0 {
		return
	}
	text := soaked(handled.Handled, time.Since(began), out, back)
	fmt.Print(text)
	must(t, errors.Join(out.flat(), back.flat()))
	if *soakWrite {
		old, err := os.ReadFile("RESULTS.md")
		if err == nil {
			text, err = replaceBetween(string(old), "<!-- make soak -->", "<!-- end of make soak -->", text)
		}
		if err = errors.Join(err, os.WriteFile("RESULTS.md", []byte(text), 0o644)); err != nil {
			t.Error(err)
		}
	}
}

// soaked is the part of RESULTS.md that shows the soak.
func soaked(tasks int64, took time.Duration, all ...*watched) string {
	rows := [][]string{{"process", "resident", "then", "most", "live", "then"}}
	mib := func(v float64) string { return fmt.Sprintf("%.1f", v/(1<<20)) }
	for _, p := range all {
		before, after := p.halves(resident)
		liveBefore, liveAfter := p.halves(live)
		rows = append(rows, []string{p.name, mib(before), mib(after), mib(p.most()), mib(liveBefore), mib(liveAfter)})
	}
	return fmt.Sprintf("`make soak`, commit %s, %s: %s tasks at %s a second through both binaries, %s, in %.0f s.\nMedians over the two halves of the time after its first "+
		"quarter, in MiB; \"live\" is the heap after a garbage collection.\n\n%s",
		os.Getenv("COMMIT"), time.Now().Format(time.DateOnly), humanize.Comma(tasks), humanize.Comma(int64(*soakRate)), *soakDelivery, took.Seconds(), table(rows...))
}

// feed writes lines at the rate, a hundredth of a second's at a time, until it is enough. It catches
// up where it is behind.
func feed(w io.Writer, rate int, enough <-chan struct{}) error {
	rng := rand.New(rand.NewPCG(1, 0))
	var b []byte
	began, written := time.Now(), 0
	for {
		due := int(float64(rate) * time.Since(began).Seconds())
		for b = b[:0]; written < due && len(b) < 1<<20; written++ {
			b = appendLine(b, written, rng)
		}
		if _, err := w.Write(b); err != nil {
			return err
		}
		select {
		case <-enough:
			return nil
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func start(t *testing.T, name string, in io.ReadCloser, args ...string) *watched {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	w := &watched{name: name, admin: l.Addr().String(), ended: make(chan error, 1)}
	args = append([]string{"run", "--json", "--quiet", "--admin", w.admin}, args...)
	w.cmd = exec.CommandContext(t.Context(), filepath.Join(dir, name), args...)
	if w.cmd.Stdout, w.cmd.Stderr = &w.stdout, &w.stderr; in != nil {
		w.cmd.Stdin = in
	}
	must(t, errors.Join(l.Close(), w.cmd.Start()))
	go func() {
		w.ended <- w.cmd.Wait()
		if in != nil {
			_ = in.Close() // who writes to a process that is gone is told
		}
	}()
	return w
}

// get asks the admin port until it answers with status 200.
func (w *watched) get(t *testing.T, path string) string {
	t.Helper()
	for {
		resp, err := http.Get("http://" + w.admin + path)
		if err == nil {
			text, err := io.ReadAll(resp.Body)
			if err = errors.Join(err, resp.Body.Close()); err == nil && resp.StatusCode == http.StatusOK {
				return string(text)
			}
		}
		select {
		case err := <-w.ended:
			t.Fatalf("the %s has ended: %v\n%s", w.name, err, w.stderr.String())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (w *watched) ready(t *testing.T) { t.Helper(); w.get(t, "/readyz") }

// finish waits for the end and reads the summary.
func (w *watched) finish(t *testing.T, into any) {
	t.Helper()
	if err := errors.Join(<-w.ended, json.Unmarshal(w.stdout.Bytes(), into)); err != nil {
		t.Fatalf("the %s: %v\n%s", w.name, err, w.stderr.String())
	}
}

func (w *watched) look(t *testing.T) (l look) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", w.cmd.Process.Pid))
	if err != nil {
		t.Skipf("the memory of a process is known on Linux: %v", err)
	}
	pages, err := strconv.ParseInt(strings.Fields(string(text) + " 0 0")[1], 10, 64)
	must(t, err)
	l.resident = pages * int64(os.Getpagesize())
	if l.live, err = heapAlloc(w.get(t, "/debug/pprof/heap?gc=1&debug=1")); err != nil {
		t.Fatal(err)
	}
	return l
}

// heapAlloc finds the size of the heap in a heap profile's text.
func heapAlloc(profile string) (int64, error) {
	_, text, ok := strings.Cut(profile, "\n# HeapAlloc = ")
	if !ok {
		return 0, errors.New("the heap profile does not say how large the heap is")
	}
	text, _, _ = strings.Cut(text, "\n")
	return strconv.ParseInt(text, 10, 64)
}

func resident(l look) int64 { return l.resident }
func live(l look) int64     { return l.live }

// halves are the medians of f over the two halves of what follows the first quarter of the looks, in
// which pools fill and the pump finds its pace.
func (w *watched) halves(f func(look) int64) (before, after float64) {
	var values []float64
	for _, l := range w.looks[len(w.looks)/4:] {
		values = append(values, float64(f(l)))
	}
	return median(values[:len(values)/2]), median(values[len(values)/2:])
}

func (w *watched) most() (m float64) {
	for _, l := range w.looks {
		m = max(m, float64(l.resident))
	}
	return m
}

// flat is an error if the memory grew or was too much. Memory is flat if it is not more in the last
// half of the time than in the half before, but for what it varies by: messages in hand, and pages
// that the garbage collector has not given back.
func (w *watched) flat() error {
	const growth, slack, mostMiB = 1.05, 4 << 20, 512
	if len(w.looks) < 8 {
		return fmt.Errorf("the memory of the %s was looked at %d times, which says nothing", w.name, len(w.looks))
	}
	var errs []error
	for what, f := range map[string]func(look) int64{"resident memory": resident, "live heap": live} {
		if before, after := w.halves(f); after > before*growth+slack {
			errs = append(errs, fmt.Errorf("the %s of the %s grew from %.1f to %.1f MiB", what, w.name, before/(1<<20), after/(1<<20)))
		}
	}
	if m := w.most() / (1 << 20); m > mostMiB {
		errs = append(errs, fmt.Errorf("the %s had %.0f MiB resident, want at most %d", w.name, m, mostMiB))
	}
	return errors.Join(errs...)
}

// looksOver are n looks over the time 0 to 1.
func looksOver(n int, resident, live func(at float64) float64) (ls []look) {
	for i := range n {
		at := float64(i) / float64(n)
		ls = append(ls, look{int64(resident(at) * (1 << 20)), int64(live(at) * (1 << 20))})
	}
	return ls
}

func TestMemoryThatGrowsIsNotFlat(t *testing.T) {
	steady := func(float64) float64 { return 100 }
	for name, c := range map[string]struct {
		resident, live func(float64) float64
		says           string // "" if it is flat
	}{
		"steady":                        {steady, steady, ""},
		"grows while it warms up":       {func(at float64) float64 { return 100 * min(4*at, 1) }, steady, ""},
		"up and down":                   {func(at float64) float64 { return 100 + 40*math.Sin(200*at) }, steady, ""},
		"shrinks":                       {func(at float64) float64 { return 200 - 100*at }, steady, ""},
		"resident memory leaks":         {func(at float64) float64 { return 100 + 60*at }, steady, "the resident memory of the p grew"},
		"live heap leaks":               {steady, func(at float64) float64 { return 20 + 20*at }, "the live heap of the p grew"},
		"leaks under the collector":     {func(at float64) float64 { return 100 + 60*at + 40*math.Sin(200*at) }, steady, "the resident memory of the p grew"},
		"does not grow and is too much": {func(float64) float64 { return 600 }, steady, "the p had 600 MiB resident, want at most 512"},
	} {
		err := (&watched{name: "p", looks: looksOver(120, c.resident, c.live)}).flat()
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
	proof.Says(t, (&watched{looks: looksOver(3, steady, steady)}).flat(), "was looked at 3 times, which says nothing")
}

func TestTheHeapIsFoundInAProfilesText(t *testing.T) {
	if n, err := heapAlloc("heap profile: 1: 2 [3: 4] @ heap/1048576\n\n# runtime.MemStats\n# Alloc = 7\n# HeapAlloc = 123456\n# HeapSys = 9\n"); n != 123456 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	for _, text := range []string{"", "HeapAlloc = 5\n", "\n# HeapAlloc = many\n"} {
		if n, err := heapAlloc(text); err == nil {
			t.Errorf("%q says %d", text, n)
		}
	}
}
