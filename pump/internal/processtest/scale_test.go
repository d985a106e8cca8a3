package processtest

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/shardmap"
)

// toFile has a processor do nothing but write down what it is given.
func toFile(file string) []string { return []string{"--out", file} }

// realistic answers as a storage account of the same region does.
var realistic = azsim.Config{Seed: 1, Latency: 10 * time.Millisecond}

// TestScaleEachTaskIsHandledByTheOwnerOfItsSegment, by processes with fewer queues
// than there are of them, and with more. With more none ever gets what is another's.
func TestScaleEachTaskIsHandledByTheOwnerOfItsSegment(t *testing.T) {
	besideOthers(t)
	processes, n := sized(4, 16), sized(300, 4000)
	for _, c := range []struct{ accounts, queues int }{{1, 1}, {sized(2, 8), 4}} {
		t.Run(fmt.Sprintf("%d queues", c.accounts*c.queues), func(t *testing.T) {
			besideOthers(t)
			w := newWorldOf(t, realistic, c.accounts, c.queues)
			tasks := w.path("tasks.jsonl")
			writeTasks(t, tasks, n)
			crew := w.crew(processes, toFile)

			before, counted := crew.settled(), crew.counts()
			began := time.Now()
			run := w.distribute(tasks, 1)
			crew.finish(run.Run, n, every)
			took := time.Since(began)
			after, now := crew.settled(), crew.counts()
			crew.end()

			proof.Same(t, requireEachOnceNamed(t, crew.did(run.Run), n), 0, "tasks were handled again")
			if judged := crew.requireOwners(run.Run, before, after); judged < n/2 {
				t.Errorf("of %d tasks the segments of only %d kept their owners", n, judged)
			}
			passed, deliveries := now.Passed-counted.Passed, now.Envelopes-counted.Envelopes
			t.Logf("%d processes on %d queues: %d messages in %v, %.0f a second; %d deliveries, %d (%.0f %%) of them passed on",
				processes, c.accounts*c.queues, n, took.Round(time.Millisecond), rate(n, took), deliveries, passed, 100*float64(passed)/float64(deliveries))
			given := passed + now.Forwarded - counted.Forwarded + now.Released - counted.Released
			if slices.Equal(before.Owners, after.Owners) && c.accounts*c.queues >= processes && given != 0 {
				t.Errorf("%d messages or tasks were given back though each queue has one owner", given)
			}
			if c.queues == 1 && (passed == 0 || deliveries-passed < int64(n)) {
				t.Errorf("of %d deliveries of one queue's %d messages %d were passed on", deliveries, n, passed)
			}
			if c.queues == 1 {
				alone := throughputAlone(t, n)
				t.Logf("one process alone on that queue: %.0f a second, %.1f times as many as %d together", alone, alone/rate(n, took), processes)
			}
		})
	}
}

// throughputAlone is what a single process does of one queue, in messages a second.
func throughputAlone(t *testing.T, n int) float64 {
	w := newWorldOf(t, realistic, 1, 1)
	writeTasks(t, w.path("tasks.jsonl"), n)
	crew := w.crew(1, toFile)
	began := time.Now()
	run := w.distribute(w.path("tasks.jsonl"), 1)
	crew.finish(run.Run, n, every)
	took := time.Since(began)
	crew.end()
	requireEachOnceNamed(t, crew.did(run.Run), n)
	return rate(n, took)
}

// TestScaleOneSilentOwnerOfAQueueDoesNotStarveTheOthers: of the processes that share
// one queue one is stopped, as on a machine that swaps. The others go on with what is
// theirs (P7), and do its work too when its lease is over.
func TestScaleOneSilentOwnerOfAQueueDoesNotStarveTheOthers(t *testing.T) {
	proof.Only(t)
	besideOthers(t)
	processes, n := sized(4, 16), sized(300, 4000)
	w := newWorldOf(t, realistic, 1, 1)
	tasks := w.path("tasks.jsonl")
	writeTasks(t, tasks, n)
	crew := w.crew(processes, func(file string) []string {
		if *scale {
			return toFile(file)
		}
		return append(toFile(file), "--beat", "1s")
	})
	before := crew.settled()
	silent := crew.hands[len(crew.hands)/2]
	ofOthers := func(d done) bool { return before.Owners[d.Segment].Instance != silent.instance }

	measure := func() (run string, others int, took time.Duration) {
		began := time.Now()
		run = w.distribute(tasks, 1).Run
		others = n - tasksOf(t, tasks, before, silent.instance)
		crew.finish(run, others, ofOthers)
		return run, others, time.Since(began)
	}
	run, others, healthy := measure()
	crew.finish(run, n, every)

	silent.signal(syscall.SIGSTOP)
	stopped := time.Now()
	run, _, took := measure()
	t.Logf("%d processes on one queue, one of them silent: the others' %d messages took %v, and %v when it was not silent",
		processes, others, took.Round(time.Millisecond), healthy.Round(time.Millisecond))
	crew.finish(run, n, every)
	t.Logf("its own %d messages were done %v after it fell silent", n-others, time.Since(stopped).Round(time.Second))
	proof.Same(t, len(silent.did(run)), 0, "tasks were handled by a stopped process")

	silent.signal(syscall.SIGCONT)
	after := crew.settled() // it is a member again
	crew.end()
	requireEachOnceNamed(t, crew.did(run), n)
	crew.requireOwners(run, before, after)
}

// tasksOf counts the tasks of a file whose segments an instance owns.
func tasksOf(t *testing.T, tasks string, v *cluster.View, instance string) (n int) {
	text, err := os.ReadFile(tasks)
	must(t, err)
	for line := range strings.Lines(string(text)) {
		segment := shardmap.Segment([]byte(strings.TrimSuffix(line, "\n")), v.Workload.Map.Segments)
		if v.Owners[segment].Instance == instance {
			n++
		}
	}
	return n
}

// TestScaleTwoInstancesTakeHalfTheTimeOfOne is origins B1: 40 tasks that take half
// a second each, one at a time in each process.
func TestScaleTwoInstancesTakeHalfTheTimeOfOne(t *testing.T) {
	proof.Only(t)
	besideOthers(t)
	const n = 40
	each := time.Duration(sized(50, 500)) * time.Millisecond
	sizes := []int{1, 2}
	if *scale {
		sizes = append(sizes, 4, 8)
	}
	for _, how := range []string{"as many of each", "as they are hashed", "without owners"} {
		var alone time.Duration
		for _, processes := range sizes {
			took, most := sleepers(t, processes, n, each, how)
			if processes == 1 {
				alone = took
			}
			t.Logf("%d tasks of %v, %s: %d processes took %v, %.2f times as fast as one; the most of one are %d tasks",
				n, each, how, processes, took.Round(time.Millisecond), float64(alone)/float64(took), most)
		}
		if !*scale {
			break
		}
	}
}

// sleepers has n tasks done by processes that sleep over each, and gives the time
// from the beginning of the first to the end of the last, and the most that one process did.
func sleepers(t *testing.T, processes, n int, each time.Duration, how string) (took time.Duration, most int) {
	t.Helper()
	w := newWorldOf(t, realistic, 2, 4)
	if how == "without owners" {
		config, err := os.ReadFile(w.config)
		must(t, err)
		writeText(t, w.config, string(config)+"segments: 0\n")
	}
	crew := w.crew(processes, func(file string) []string {
		sleep := fmt.Sprintf(`sh -c 'b=$(date +%%s%%N); read -r task; sleep %v; echo "$b $(date +%%s%%N) $task" >>%s'`, each.Seconds(), file)
		return []string{"--exec-each", sleep, "--children", "1"}
	})
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprint("task-", i)
	}
	if how == "as many of each" {
		keys = balanced(crew.settled(), keys)
	}
	tasks := w.path("tasks.txt")
	writeText(t, tasks, strings.Join(keys, "\n"))
	start(t, "distributor", "run", "--config", w.config, "--input", tasks, "--pack", "1", "--quiet").succeeds()

	w.eventually("all tasks are done", func() bool {
		var all naps
		most = 0
		for _, h := range crew.hands {
			before := len(all.keys)
			all.read(t, h.file)
			most = max(most, len(all.keys)-before)
		}
		took = time.Duration(all.last - all.first)
		slices.Sort(all.keys)
		if len(slices.Compact(slices.Clone(all.keys))) != len(all.keys) {
			t.Fatalf("a task was done twice: %v", all.keys)
		}
		return len(all.keys) == n
	})
	crew.end()
	return took, most
}

// naps are what sleeping tasks have written.
type naps struct {
	keys        []string
	first, last int64 // when the first began and the last ended, ns
}

func (ns *naps) read(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var key string
		var began, ended int64
		if _, err := fmt.Sscan(line, &began, &ended, &key); err != nil {
			t.Fatalf("%s holds %q: %v", file, line, err)
		}
		if len(ns.keys) == 0 || began < ns.first {
			ns.first = began
		}
		ns.last = max(ns.last, ended)
		ns.keys = append(ns.keys, key)
	}
}

// balanced makes as many keys as are given; each instance owns equally many.
func balanced(v *cluster.View, like []string) (keys []string) {
	each := len(like) / len(v.Processors())
	have := map[string]int{}
	for i := 0; len(keys) < len(like); i++ {
		key := fmt.Sprint("even-", i)
		owner := v.Owners[shardmap.Segment([]byte(key), v.Workload.Map.Segments)].Instance
		if have[owner] < each {
			have[owner]++
			keys = append(keys, key)
		}
	}
	return keys
}
