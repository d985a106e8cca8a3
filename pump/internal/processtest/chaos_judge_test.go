package processtest

import (
	"encoding/json"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/internal/ledger"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
)

// complete reports whether each run is closed, or all that it was sealed with is done.
func (c *chaos) complete() bool {
	c.sealed = c.list()
	progress, err := ledger.ReadProgress(c.t.Context(), c.table, "test", len(c.sealed[0].Sealed))
	must(c.t, err)
	for _, r := range c.sealed {
		if r.State == workload.RunClosed {
			continue
		}
		p := progress[r.ID]
		if r.State != workload.RunSealed || p == nil || !slices.Equal(p.Done, r.Sealed) {
			return false
		}
	}
	return true
}

// requireComplete checks that no run broke and nothing is left in quarantine.
func (c *chaos) requireComplete() {
	c.t.Helper()
	for _, r := range c.sealed {
		if r.State != workload.RunSealed && r.State != workload.RunClosed || int(r.Tasks) != c.each {
			c.t.Errorf("run %v is %s with %d tasks, want %d: %s", r.ID, r.State, r.Tasks, c.each, r.Note)
		}
	}
	proof.Same(c.t, c.inQuarantine(), 0, "messages are in quarantine")
}

// inQuarantine counts what is in quarantine, in all accounts.
func (c *chaos) inQuarantine() int64 { return c.held("test-poison") }

// held counts what is in queues of these names, in all accounts.
func (c *chaos) held(queues ...string) (all int64) {
	c.t.Helper()
	for _, name := range c.names {
		for _, queue := range queues {
			n, err := c.account(name).Queue(queue).Count(c.t.Context())
			if err != nil && !storage.Is(err, storage.Missing) {
				c.t.Fatal(err)
			}
			all += n
		}
	}
	return all
}

// counted is a line of `distributor counts --json`.
type counted struct {
	Key   string
	Count int64
	Sum   json.Number
}

// requireState checks the reducer's state against the tasks themselves.
func (c *chaos) requireState() {
	c.t.Helper()
	want := map[string][2]int64{}
	for line := range strings.Lines(readText(c.t, c.input)) {
		var task struct {
			City string
			N    any
		}
		must(c.t, json.Unmarshal([]byte(line), &task))
		n, is := task.N.(float64)
		if !is {
			continue
		}
		v, runs := want[task.City], int64(len(c.sealed))
		want[task.City] = [2]int64{v[0] + runs, v[1] + runs*int64(n)}
	}
	have := c.state()
	maps.DeleteFunc(have, func(city string, _ [2]int64) bool { return isSideCity(city) })
	for _, key := range slices.Sorted(maps.Keys(want)) {
		proof.Same(c.t, have[key], want[key], "count and sum: lost, or done twice", key)
	}
	proof.Same(c.t, len(have), len(want), "keys")
}

// state is what the reducer has: count and sum by city.
func (c *chaos) state() map[string][2]int64 {
	c.t.Helper()
	out, err := exec.Command(filepath.Join(bin, "distributor"), "counts", "--config", c.config, "--json").Output()
	must(c.t, err)
	have := map[string][2]int64{}
	for line := range strings.Lines(string(out)) {
		var s counted
		if err := json.Unmarshal([]byte(line), &s); err != nil {
			c.t.Fatalf("%q: %v", line, err)
		}
		sum, err := s.Sum.Int64()
		if err != nil {
			c.t.Fatalf("%q: %v", line, err)
		}
		have[s.Key] = [2]int64{s.Count, sum}
	}
	return have
}
