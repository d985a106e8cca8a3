package processtest

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/storage"
)

// crew is processors that share a workload.
type crew struct {
	w     *world
	table storage.Table
	hands []*hand
}

// hand is one of them: a process that writes what it does to a file of its own.
type hand struct {
	*process
	file     string
	instance string // as the cluster knows it
	admin    string
}

// crew starts n processors; args gives the arguments of each beyond the
// configuration. It returns when the cluster is settled.
func (w *world) crew(n int, args func(file string) []string) *crew {
	w.t.Helper()
	c := &crew{w: w, table: w.account("account1").Table(row.TableName)}
	writeText(w.t, w.path("none.jsonl"), "")
	start(w.t, "distributor", "run", "--config", w.config, "--input", w.path("none.jsonl"), "--quiet").succeeds() // makes the workload
	dir := w.t.TempDir()
	for i := range n {
		file := filepath.Join(dir, fmt.Sprintf("%02d.jsonl", i))
		all := append([]string{"run", "--config", w.config, "--json", "--quiet"}, args(file)...)
		c.hands = append(c.hands, &hand{process: start(w.t, "processor", all...), file: file})
	}
	c.settled()
	return c
}

// settled waits until the segments are shared among all hands as planned, and
// nothing has changed for a while.
func (c *crew) settled() *cluster.View {
	c.w.t.Helper()
	var v *cluster.View
	c.w.eventually("the cluster is settled", func() bool {
		before := c.view()
		if len(before.Processors()) != len(c.hands) || !before.Settled() {
			return false
		}
		time.Sleep(time.Second)
		v = c.view()
		return v.Settled() && slices.Equal(before.Owners, v.Owners)
	})
	for _, h := range c.hands {
		i := slices.IndexFunc(v.Members, func(m cluster.Member) bool {
			return strings.Contains(m.Instance, fmt.Sprintf("-%d-", h.cmd.Process.Pid))
		})
		if i < 0 {
			c.w.t.Fatalf("process %d is not among %v", h.cmd.Process.Pid, v.Processors())
		}
		h.instance, h.admin = v.Members[i].Instance, v.Members[i].Admin
	}
	return v
}

func (c *crew) view() *cluster.View {
	c.w.t.Helper()
	v, err := cluster.LoadView(c.w.t.Context(), c.table, "test")
	must(c.w.t, err)
	return v
}

// counts adds up what the hands have counted so far, as their admin ports say.
func (c *crew) counts() (sum processor.Summary) {
	c.w.t.Helper()
	for _, h := range c.hands {
		answer, err := http.Get("http://" + h.admin + "/state")
		must(c.w.t, err)
		var s processor.State
		err = json.NewDecoder(answer.Body).Decode(&s)
		_ = answer.Body.Close()
		if err != nil || s.Instance != h.instance {
			c.w.t.Fatalf("%s says it is %q, %v", h.instance, s.Instance, err)
		}
		d := s.Done
		sum.Handled += d.Handled
		sum.Envelopes += d.Envelopes
		sum.Passed += d.Passed
		sum.Forwarded += d.Forwarded
		sum.Released += d.Released
		sum.Failed += d.Failed
		sum.Lost += d.Lost
	}
	return sum
}

// did is what a hand has written of a run.
func (h *hand) did(run string) (tasks []done) {
	h.t.Helper()
	for _, d := range doneSoFar(h.t, h.file) {
		if d.Run == run {
			tasks = append(tasks, d)
		}
	}
	return tasks
}

func (c *crew) did(run string) (tasks []done) {
	for _, h := range c.hands {
		tasks = append(tasks, h.did(run)...)
	}
	return tasks
}

// distribute sends tasks, so many to a message.
func (w *world) distribute(tasks string, pack int) (s sent) {
	w.t.Helper()
	p := start(w.t, "distributor", "run", "--config", w.config, "--input", tasks, "--id", "id", "--pack", fmt.Sprint(pack), "--json", "--quiet")
	p.succeeds()
	p.summary(&s)
	return s
}

// finish waits until so many different tasks of a run that fit are done.
func (c *crew) finish(run string, n int, fits func(done) bool) {
	c.w.t.Helper()
	c.w.eventually(fmt.Sprintf("%d tasks are done", n), func() bool {
		have := map[string]bool{}
		for _, d := range c.did(run) {
			if fits(d) {
				have[d.identity()] = true
			}
		}
		return len(have) >= n
	})
}

func every(done) bool { return true }

// requireOwners checks that each task was handled by who owns its segment in both
// views, where that did not change in between, and counts those tasks.
func (c *crew) requireOwners(run string, before, after *cluster.View) (judged int) {
	c.w.t.Helper()
	for _, h := range c.hands {
		for _, d := range h.did(run) {
			if before.Owners[d.Segment] != after.Owners[d.Segment] {
				continue
			}
			judged++
			if owner := before.Owners[d.Segment].Instance; owner != h.instance {
				c.w.t.Errorf("task %s of segment %d of %s was handled by %s", d.ID, d.Segment, owner, h.instance)
			}
		}
	}
	return judged
}

// end stops all, which must end well.
func (c *crew) end() {
	c.w.t.Helper()
	for _, h := range c.hands {
		h.signal(syscall.SIGTERM)
	}
	for _, h := range c.hands {
		h.succeeds()
	}
}

// rate is how many of n tasks were done in a second.
func rate(n int, d time.Duration) float64 { return float64(n) / d.Seconds() }

var scale = flag.Bool("scale", false, "test at the size that the documentation speaks of, which takes minutes")

// sized gives a test's small size, or with -scale its full one.
func sized(small, full int) int {
	if *scale {
		return full
	}
	return small
}

// besideOthers lets a test run at the same time as others, unless it measures in earnest.
func besideOthers(t *testing.T) {
	if !*scale {
		t.Parallel()
	}
}
