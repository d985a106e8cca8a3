package processtest

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump/internal/ledger"
	"github.com/queuepump/queuepump/pump/internal/workload"
)

// Small runs beside those that are counted, for the operator to end. A client of its own sends
// each, and each task has a city of its own, so that it is known of every one of them how often it
// had its effect.

const (
	sideTasks = 120
	// sideRate makes the sending last, so that some runs end while they are open.
	sideRate  = 120
	sidePause = 3000 // ms
)

// sideRun is a run that the operator ends.
type sideRun struct {
	n      int // of its input
	client *exec.Cmd
	gone   chan struct{} // closed when the client has ended
	id     codec.RunID
}

// sideCity is the city of a side run's task.
func sideCity(run, task int) string { return fmt.Sprintf("side-%d-%d", run, task) }

// isSide reports whether a run is one of a client, not of the leaders whose runs are counted.
func isSide(r workload.Run) bool { return r.Mode == "once" }

// sideRuns sends small runs, and ends them with or without dropping what is left.
func (o *operator) sideRuns(ctx context.Context) {
	for n := 0; ctx.Err() == nil; n++ {
		s := o.send(n)
		o.sides = append(o.sides, s)
		if o.roll(4) == 0 {
			time.AfterFunc(time.Duration(o.roll(sidePause))*time.Millisecond, s.kill)
		}
		if o.await(ctx, s) {
			o.pause(ctx, time.Duration(o.roll(sidePause))*time.Millisecond)
			o.endRun(ctx, s.id, o.roll(3) == 0)
		}
		o.pause(ctx, time.Duration(o.roll(sidePause))*time.Millisecond)
	}
	for _, s := range o.sides {
		s.kill()
		<-s.gone
	}
}

// send starts the client of a run.
func (o *operator) send(n int) *sideRun {
	var b strings.Builder
	for i := range sideTasks {
		fmt.Fprintf(&b, `{"city":%q,"id":%[1]q,"n":1}`+"\n", sideCity(n, i))
	}
	input := o.path(fmt.Sprintf("side-%d.jsonl", n))
	writeText(o.t, input, b.String())
	args := append([]string{"run", "--config", o.configs[o.roll(len(o.configs))], "--input", input, "--key", "id", "--pack", "3", "--max-rate", fmt.Sprint(sideRate), "--quiet"}, chaosLease...)
	s := &sideRun{n: n, client: exec.Command(filepath.Join(bin, "distributor"), args...), gone: make(chan struct{})}
	if err := s.client.Start(); err != nil {
		o.t.Errorf("a client: %v", err)
		close(s.gone)
		return s
	}
	go func() {
		defer close(s.gone)
		_ = s.client.Wait() // it was killed, its run was ended, or the service was too bad
	}()
	return s
}

func (s *sideRun) kill() {
	if s.client.Process != nil {
		_ = s.client.Process.Signal(syscall.SIGKILL)
	}
}

// made reports whether the client of a side run made a run.
func (s *sideRun) made(r workload.Run) bool {
	return s.client.Process != nil && strings.Contains(r.Instance, fmt.Sprintf("-%d-", s.client.Process.Pid))
}

// await waits until the client of a run has made its row, and is false if it never will.
func (o *operator) await(ctx context.Context, s *sideRun) bool {
	for ctx.Err() == nil {
		ended := false
		select {
		case <-s.gone:
			ended = true
		default:
		}
		runs, err := o.runs.List(ctx, 20)
		i := slices.IndexFunc(runs, s.made)
		switch {
		case i >= 0:
			s.id = runs[i].ID
			return true
		case ended && err == nil:
			return false
		}
		o.pause(ctx, 50*time.Millisecond)
	}
	return false
}

// endRun gives the command until it has its effect, or the run is done before.
func (o *operator) endRun(ctx context.Context, id codec.RunID, drop bool) {
	args := []string{"runs", "end", id.String()}
	if drop {
		args = append(args, "--drop")
	}
	for ctx.Err() == nil && !o.command(ctx, 20*time.Second, args...) {
		run, err := o.runs.Get(ctx, id)
		if err == nil && run.State == workload.RunClosed {
			return
		}
		o.pause(ctx, 200*time.Millisecond)
	}
}

// requireSides checks what became of the runs that the operator ended, when all queues and the
// quarantine are empty: no task had its effect twice, exactly those had it which are recorded as
// done, and of a run that was sealed each other one went to quarantine, or was to be dropped.
func (o *operator) requireSides() {
	o.t.Helper()
	all, err := o.runs.List(o.t.Context(), 10_000)
	must(o.t, err)
	all = slices.DeleteFunc(all, func(r workload.Run) bool { return !isSide(r) })
	var ids []codec.RunID
	for _, r := range all {
		ids = append(ids, r.ID)
	}
	progress, err := ledger.ReadProgress(o.t.Context(), o.table, "test", len(o.sealed[0].Sealed), ids...)
	must(o.t, err)
	have := o.state()
	for _, r := range all {
		i := slices.IndexFunc(o.sides, func(s *sideRun) bool { return s.made(r) })
		if i < 0 {
			o.t.Errorf("run %v of %s was made by no client", r.ID, r.Instance)
			continue
		}
		o.requireSide(r, o.sides[i].n, progress[r.ID], have)
	}
	for city := range have {
		if isSideCity(city) {
			o.t.Errorf("%s was counted, and is of no run", city)
		}
	}
}

// requireSide checks one run, and takes its cities out of what the reducer has.
func (o *operator) requireSide(r workload.Run, n int, p *ledger.RunProgress, have map[string][2]int64) {
	o.t.Helper()
	handled := uint64(0)
	for i := range sideTasks {
		city := sideCity(n, i)
		switch v := have[city]; v {
		case [2]int64{0, 0}:
		case [2]int64{1, 1}:
			handled++
		default:
			o.t.Errorf("%s of run %v, which is %s, has count and sum %d, want 1 at most: done twice", city, r.ID, r.State, v)
		}
		delete(have, city)
	}
	var done, quarantined uint64
	if p != nil {
		done, quarantined = sumOf(p.Done), sumOf(p.Quarantined)
	}
	if r.State == workload.RunClosed { // the ledger may have forgotten it
		done, quarantined = r.Tasks-r.Rest, r.Rest
	}
	what := string(r.State)
	if r.Drop {
		what += " and dropped"
	}
	if r.Sealed != nil {
		what += ", sealed"
	}
	o.ends[what]++
	o.endsLeft[what] += r.Tasks - min(done, r.Tasks)
	switch {
	case handled != done:
		o.t.Errorf("run %v, %s: %d tasks had their effect, and %d are recorded as done", r.ID, what, handled, done)
	case r.Sealed == nil:
	case r.Tasks != sideTasks:
		o.t.Errorf("run %v, %s, has %d tasks, want %d", r.ID, what, r.Tasks, sideTasks)
	case done+quarantined > r.Tasks, !r.Drop && done+quarantined != r.Tasks:
		o.t.Errorf("run %v, %s: of %d tasks %d are done and %d in quarantine", r.ID, what, r.Tasks, done, quarantined)
	}
}

func isSideCity(city string) bool { return strings.HasPrefix(city, "side-") }

func sumOf(counts []uint64) (n uint64) {
	for _, c := range counts {
		n += c
	}
	return n
}
