package bench

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/queuepump/queuepump/pump"
)

// Soak is both binaries at work on a steady stream of tasks for a long time, while their
// memory is watched. The distributor reads a pipe, so it seals messages by age, and the processor
// has many that are not full.
type Soak struct {
	Dir      string        // for binaries and the configuration
	For      time.Duration // how long tasks come
	Rate     int           // tasks a second
	Every    time.Duration // between looks at the memory
	Delivery string        // empty for the default
	Log      func(string)  // told of each look; it may be nil
}

// SoakResult is what was seen.
type SoakResult struct {
	Provenance
	Rate        int          `json:"rate"`
	Delivery    string       `json:"delivery"`
	Tasks       int64        `json:"tasks"`
	Distributor []MemoryLook `json:"distributor"`
	Processor   []MemoryLook `json:"processor"`
}

// MemoryLook is one look at the memory of a process.
type MemoryLook struct {
	At       float64 `json:"at"`       // seconds since both were ready
	Resident int64   `json:"resident"` // bytes
	Live     int64   `json:"live"`     // bytes of the heap right after a garbage collection
}

// soakIdle is how long the processor waits for more before it leaves: longer than any
// pause of a machine that has other work.
const soakIdle = 5 * time.Second

// Run soaks. That a task was lost is an error; that the memory grew is told by [SoakResult.Flat].
func (s Soak) Run(ctx context.Context) (r SoakResult, err error) {
	r = SoakResult{Provenance: here("make soak", ""), Rate: s.Rate, Delivery: s.Delivery}
	if err := BuildBinaries(ctx, s.Dir); err != nil {
		return r, err
	}
	server, at, err := startSimulator(ctx, simulated{Accounts: pumpAccounts})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, server.end()) }()
	config := filepath.Join(s.Dir, "pump.yaml")
	delivery := cmp.Or(pump.Delivery(s.Delivery), pump.AtLeastOnce)
	if err := writeConfig(config, at.ConnectionStrings, delivery); err != nil {
		return r, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the processes that are left after an error

	input, lines := io.Pipe()
	out, err := startWatched(
		ctx, "distributor", input, binaryOf(s.Dir, "distributor"), "run", "--config", config,
		"--input", "-", "--key", "city", "--json", "--quiet",
	)
	if err == nil {
		err = out.ready(ctx) // the processor waits for the workload no longer than soakIdle
	}
	if err != nil {
		return r, err
	}
	back, err := startWatched(
		ctx, "processor", nil, binaryOf(s.Dir, "processor"), "run", "--config", config, "--out",
		os.DevNull, "--until-idle", soakIdle.String(), "--json", "--quiet",
	)
	if err != nil {
		return r, err
	}
	enough, fed := make(chan struct{}), make(chan error, 1)
	go func() { fed <- errors.Join(s.feed(ctx, lines, enough), lines.Close()) }()
	if err := back.ready(ctx); err != nil {
		return r, err
	}
	began := time.Now()
	for range int(s.For / s.Every) {
		time.Sleep(time.Until(began.Add(time.Duration(len(r.Processor)+1) * s.Every)))
		if err := s.look(ctx, &r, time.Since(began), out, back); err != nil {
			return r, err
		}
	}
	close(enough) // not before the last look, or there would be no process to look at
	if err := <-fed; err != nil {
		return r, errors.Join(err, out.failure(), back.failure())
	}
	var put sent
	var handled done
	if err := errors.Join(out.finish(&put), back.finish(&handled)); err != nil {
		return r, err
	}
	r.Tasks, r.Seconds = handled.Handled, time.Since(began).Seconds()
	if handled.Handled < put.Tasks { // at least once: on a busy machine some come again
		err = fmt.Errorf("%d tasks were sent and %d handled", put.Tasks, handled.Handled)
	}
	return r, err
}

// feed writes lines at the rate, a hundredth of a second's at a time, until it is enough. Who is
// behind catches up.
func (s Soak) feed(ctx context.Context, w io.Writer, enough <-chan struct{}) error {
	rng := rand.New(rand.NewPCG(1, 0))
	var b []byte
	began, written := time.Now(), 0
	for {
		due := int(float64(s.Rate) * time.Since(began).Seconds())
		for b = b[:0]; written < due && len(b) < 1<<20; written++ {
			b = appendLine(b, written, rng)
		}
		if _, err := w.Write(b); err != nil {
			return err
		}
		select {
		case <-enough:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (s Soak) look(ctx context.Context, r *SoakResult, at time.Duration, out, back *watched) error {
	for _, p := range []struct {
		*watched
		into *[]MemoryLook
	}{{out, &r.Distributor}, {back, &r.Processor}} {
		l, err := p.look(ctx)
		if err != nil {
			return errors.Join(err, p.failure())
		}
		l.At = at.Seconds()
		*p.into = append(*p.into, l)
	}
	if s.Log != nil {
		d, p := r.Distributor[len(r.Distributor)-1], r.Processor[len(r.Processor)-1]
		s.Log(
			fmt.Sprintf(
				"%4.0f s  distributor %4d MiB resident, %4d live  processor %4d MiB resident, %4d live",
				at.Seconds(), d.Resident>>20, d.Live>>20, p.Resident>>20, p.Live>>20,
			),
		)
	}
	return nil
}

// watched is a binary that runs, with an admin port.
type watched struct {
	name           string
	cmd            *exec.Cmd
	stdout, stderr bytes.Buffer
	admin          string
	ended          chan struct{}
	err            error // how it ended; valid once ended is closed
}

func startWatched(
	ctx context.Context, name string, in io.Reader, path string, args ...string,
) (*watched, error) {
	admin, err := freeAddress()
	if err != nil {
		return nil, err
	}
	w := &watched{name: name, admin: admin, ended: make(chan struct{})}
	w.cmd = exec.CommandContext(ctx, path, append(args, "--admin", admin)...)
	w.cmd.Stdin, w.cmd.Stdout, w.cmd.Stderr = in, &w.stdout, &w.stderr
	if err := w.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		w.err = w.cmd.Wait()
		close(w.ended)
		if c, ok := in.(io.Closer); ok {
			_ = c.Close() // a writer to a process that is gone is told
		}
	}()
	return w, nil
}

// ready waits until the process says that it is: the port of one that has just been started is not
// open yet.
func (w *watched) ready(ctx context.Context) error {
	for {
		if err := w.failure(); err != nil {
			return err
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+w.admin+"/readyz", nil)
		if err != nil {
			return err
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			if err := resp.Body.Close(); err != nil || resp.StatusCode == http.StatusOK {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// freeAddress is an address on loopback that no process listens on just now.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// failure is how the process ended, nil if it has not.
func (w *watched) failure() error {
	select {
	case <-w.ended:
		return fmt.Errorf("the %s has ended: %v\n%s", w.name, w.err, w.stderr.String())
	default:
		return nil
	}
}

// finish waits for the end and reads the summary.
func (w *watched) finish(into any) error {
	if <-w.ended; w.err != nil {
		return w.failure()
	}
	if err := json.Unmarshal(w.stdout.Bytes(), into); err != nil {
		return fmt.Errorf("the summary of the %s: %w", w.name, err)
	}
	return nil
}

func (w *watched) look(ctx context.Context) (l MemoryLook, err error) {
	if l.Resident, err = residentMemory(w.cmd.Process.Pid); err != nil {
		return l, err
	}
	l.Live, err = liveHeap(ctx, w.admin)
	return l, err
}

// residentMemory is the memory that a process has resident. It is known on Linux only.
func residentMemory(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0, fmt.Errorf("/proc/%d/statm: %q", pid, text)
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize()), err
}

// liveHeap is what is left of a process's heap by a garbage collection, which it makes for that.
func liveHeap(ctx context.Context, admin string) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet,
		"http://"+admin+"/debug/pprof/heap?gc=1&debug=1", nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	text, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return 0, err
	}
	return heapAlloc(string(text))
}

// heapAlloc finds the size of the heap in a heap profile's text.
func heapAlloc(profile string) (int64, error) {
	for line := range strings.Lines(profile) {
		if size, ok := strings.CutPrefix(line, "# HeapAlloc = "); ok {
			return strconv.ParseInt(strings.TrimSpace(size), 10, 64)
		}
	}
	return 0, errors.New("the heap profile does not say how large the heap is")
}
