package processtest

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/workload"
)

const countedTasks = 20_000

var (
	countTasks = flag.Int("count.tasks", countedTasks, "how many tasks to count while processes are killed and paused")
	countSeed  = flag.Uint64("count.seed", 1, "decides who is killed and paused, and when")
)

// state asks what has been counted.
func (w *world) state(args ...string) (lines []counted) {
	w.t.Helper()
	p := start(w.t, "distributor", append([]string{"counts", "--config", w.config, "--json"}, args...)...)
	p.succeeds()
	for line := range strings.Lines(p.out.String()) {
		var c counted
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			w.t.Fatalf("state printed %q: %v", line, err)
		}
		lines = append(lines, c)
	}
	return lines
}

// once makes the workload one whose tasks are done once.
func (w *world) once() { appendText(w.t, w.config, "delivery: once\n") }

// TestCountsAndSumsAreThoseOfTheTasksAndCauseIsGivenForTheRest, by the commands.
func TestCountsAndSumsAreThoseOfTheTasksAndCauseIsGivenForTheRest(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2, 2)
	w.once()
	tasks := w.path("tasks.jsonl")
	writeText(t, tasks, strings.Repeat(`{"id":1,"shop":{"city":"Oslo"},"price":0.1}
{"id":2,"shop":{"city":"Oslo"},"price":"2.25"}
{"id":3,"shop":{"city":"Malmö"},"price":-1e3}
{"id":4,"shop":{"city":7},"price":9007199254740993}
`, 50)+`{"id":5,"price":1}
{"id":6,"shop":{"city":"Oslo"},"price":"free"}
`)
	start(t, "distributor", "run", "--config", w.config, "--input", tasks, "--id", "id", "--pack", "7", "--json").succeeds()
	counts := []string{"--count-by", "shop.city", "--sum", "price"}
	processor := func(args ...string) *process {
		// Longer than a message that met a segment's ledger too early stays away.
		return start(t, "processor", append([]string{"run", "--config", w.config, "--until-idle", "5s"}, args...)...)
	}
	first := processor(counts...)
	first.succeeds()

	want := []counted{{"7", 50, "450359962737049650"}, {"Malmö", 50, "-50000"}, {"Oslo", 100, "117.5"}}
	proof.Alike(t, w.state(), want, "state")
	proof.Alike(t, w.state("--key", "Oslo"), want[2:], "one key")
	proof.Same(t, len(w.state("--key", "Rome")), 0, "a key that nothing was counted by")
	proof.Alike(t, w.state("--top", "2"), []counted{want[2], want[0]}, "the two with most")
	table := start(t, "distributor", "counts", "--config", w.config)
	table.succeeds()
	if got := table.out.String(); !strings.Contains(got, "100                117.5  Oslo\n") || !strings.HasSuffix(got, "3 keys, 200 tasks\n") {
		t.Errorf("for people:\n%s", got)
	}

	again := processor(counts...) // what is counted is no reason to count it again
	again.succeeds()
	proof.Alike(t, w.state(), want, "state after another processor")
	for _, other := range [][]string{{"--count-by", "shop.city"}, {"--count-by", "id", "--sum", "price"}, {"--discard"}, {"--exec", "cat"}} {
		p := processor(other...)
		if code := p.wait(); code != 2 || !strings.Contains(p.log.String(), "count/1 by shop.city sum price") {
			t.Errorf("%q on what is counted otherwise: exit status %d", other, code)
		}
	}
	for _, cause := range []string{`nothing to count by: there is no field \"shop.city\"`, `field \"price\" is \"free\", which is not a number`} {
		has(t, first.log.String(), cause, "no task was quarantined because")
	}
}

func TestCountingWhereATaskMayCountTwiceSaysSo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, 1)
	w.fill(100, "--key", "city")
	p := start(t, "processor", "run", "--config", w.config, "--count-by", "city", "--until-idle", "2s")
	p.succeeds()
	has(t, p.log.String(), "a task that is delivered twice is counted twice", "nothing was said")
	proof.Alike(t, w.state("--key", "Lima"), []counted{{"Lima", 13, ""}},
		"nothing went wrong, and the count")
	shared := newWorld(t, 1, 1)
	appendText(t, shared.config, "segments: 0\n")
	p = start(t, "processor", "run", "--config", shared.config, "--count-by", "city")
	if code := p.wait(); code != 2 || !strings.Contains(p.log.String(), "--count-by: it needs segments with owners") {
		t.Errorf("without owners: exit status %d", code)
	}
}

// TestCountOnceIsExactWhateverIsKilledAndPaused: tasks are counted and summed while processors
// and distributors are killed with SIGKILL and stopped for longer than their leases, and answers
// of the storage accounts are lost; all is as if it had been added up here.
func TestCountOnceIsExactWhateverIsKilledAndPaused(t *testing.T) {
	if *countTasks == countedTasks {
		t.Parallel()
	}
	off := countUnderFire(t, true)
	proof.Same(t, off, 0, "off by")
}

// TestCountAtLeastOnceIsOffButNeverLow is the same without the ledger, to
// see what it is good for.
func TestCountAtLeastOnceIsOffButNeverLow(t *testing.T) {
	if *countTasks == countedTasks {
		t.Skip("only with -count.tasks: how far it is off is nothing that a test could ask for")
	}
	if off := countUnderFire(t, false); off < 0 {
		t.Errorf("%d tasks were lost", -off)
	}
}

// countUnderFire counts the tasks while processes are killed and paused, and says how
// many too many were counted, negative for too few.
func countUnderFire(t *testing.T, once bool) (off int64) {
	const queues = 4
	n := *countTasks
	if testing.Short() {
		n = min(n, 4000)
	}
	// The budget paces it, not the machine: the work must outlast some faults, and
	// messages are to be many enough that each fault hits some.
	w := newWorldOf(t, azsim.Config{Limits: azsim.NoLimits(), Seed: *countSeed}, 2, queues)
	appendText(t, w.config, "budget:\n  queue: 150\n")
	if once {
		w.once()
	}
	want := writeOrders(t, w.path("orders.jsonl"), n, *countSeed)
	faults := []*azsim.Injection{
		w.sim.Inject(azsim.Rule{Fault: azsim.AnswerLost, Probability: 0.003}),
		w.sim.Inject(azsim.Rule{Fault: azsim.FailBefore, Probability: 0.003}),
		w.sim.Inject(azsim.Rule{Fault: azsim.AnswerAfter, Probability: 0.002}),
	}

	c := &chaos{
		world: w, random: rand.New(rand.NewPCG(*countSeed, 0)),
		kills: map[string]int{}, stops: map[string]int{}, dark: map[string]int{},
	}
	general := append([]string{"run", "--config", w.config, "--quiet"}, chaosLease...)
	for i := range 5 {
		p := &part{role: "processor", args: append(slices.Clone(general), "--visibility", chaosVisibility, "--count-by", "city", "--sum", "euros")}
		if i < 2 {
			p.role = "distributor"
			p.args = append(slices.Clone(general), "--every", "24h", "--input", w.path("orders.jsonl"), "--key", "order", "--pack", strconv.Itoa(max(8, n/40_000)))
		}
		c.parts = append(c.parts, p)
		c.start(p)
	}
	began := time.Now()
	c.until(func() bool { return w.drained(queues) }, max(12, n/5000))
	took := time.Since(began)
	c.cease()

	got := map[string]counted{}
	var tasks int64
	for _, k := range w.state() {
		got[k.Key] = k
		tasks += k.Count
	}
	exact := 0
	for _, city := range slices.Sorted(maps.Keys(want)) {
		a, b := want[city], got[city]
		if a == b {
			exact++
		} else if once || b.Count < a.Count {
			t.Errorf("%s: counted %d of %s, want %d of %s", city, b.Count, b.Sum, a.Count, a.Sum)
		}
	}
	proof.Same(t, len(got), len(want), "keys were counted")
	hits := int64(0)
	for _, injected := range faults {
		hits += injected.Hits()
	}
	if len(c.kills) == 0 || len(c.stops) == 0 || hits == 0 {
		t.Errorf("killed %v, stopped %v, %d faults: too little was tried", c.kills, c.stops, hits)
	}
	mode := pump.AtLeastOnce
	if once {
		mode = pump.Once
	}
	t.Logf("%s, -count.seed %d: counted %d of %d tasks (%+d), %d of %d keys exactly; kill -9 %v, SIGSTOP %v, accounts dark %v, %d requests with faults; %v",
		mode, *countSeed, tasks, n, tasks-int64(n), exact, len(want), c.kills, c.stops, c.dark, hits, took.Round(time.Second))
	return tasks - int64(n)
}

// writeOrders writes n orders of a hundred cities with prices in cents, and says what
// each city comes to. They are segmented by order, so that each city is in every segment.
func writeOrders(t *testing.T, path string, n int, seed uint64) map[string]counted {
	t.Helper()
	file, err := os.Create(path)
	must(t, err)
	b := bufio.NewWriter(file)
	rng := rand.New(rand.NewPCG(seed, 1))
	count, cents := map[string]int64{}, map[string]int64{}
	for i := range n {
		city, price := fmt.Sprintf("city %02d", rng.IntN(100)), rng.Int64N(100_000)-10_000
		count[city]++
		cents[city] += price
		sign := ""
		if price < 0 {
			sign, price = "-", -price
		}
		fmt.Fprintf(b, `{"order":%d,"city":%q,"euros":%s%d.%02d}`+"\n", i, city, sign, price/100, price%100)
	}
	must(t, b.Flush())
	must(t, file.Close())
	want := map[string]counted{}
	for city := range count {
		want[city] = counted{city, count[city], json.Number(euros(cents[city]))}
	}
	return want
}

// euros writes cents as the decimal that sums are printed as.
func euros(cents int64) string {
	sign := ""
	if cents < 0 {
		sign, cents = "-", -cents
	}
	text := fmt.Sprintf("%s%d.%02d", sign, cents/100, cents%100)
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
}

// drained reports whether everything was sent, and every queue is empty, hidden
// messages included: their owners have deleted them.
func (w *world) drained(queues int) bool {
	// A request may meet one of the faults; the next look will tell then.
	runs, err := workload.NewRuns(w.account(w.names[0]).Table(row.TableName), "test").List(w.t.Context(), 1)
	switch {
	case err != nil || len(runs) == 0 || runs[0].State == workload.RunOpen:
		return false
	case runs[0].State == workload.RunBroken:
		w.t.Fatalf("the run is broken: %s", runs[0].Note)
	}
	for _, name := range w.names {
		for i := range queues {
			if n, err := w.account(name).Queue(fmt.Sprintf("test-%02d", i)).Count(w.t.Context()); err != nil || n > 0 {
				return false
			}
		}
	}
	return true
}

// until deals so many blows, and goes on until it is done.
func (c *chaos) until(done func() bool, blows int) {
	c.t.Helper()
	deadline := time.Now().Add(4*patience + time.Duration(*countTasks)*time.Millisecond)
	for ; !done(); blows-- {
		if time.Now().After(deadline) {
			c.explain()
			c.t.Fatal("waited in vain until everything was done")
		}
		time.Sleep(time.Duration(200+c.random.IntN(1500)) * time.Millisecond)
		c.revive()
		if blows > 0 {
			c.blow()
		}
	}
}

// explain shows what is left to be done, as an operator sees it, and then where each process
// stands.
func (c *chaos) explain() {
	for _, args := range [][]string{{"status", "--json"}, {"runs", "list"}, {"quarantine", "list"}} {
		p := start(c.t, "distributor", append(args, "--config", c.world.config)...)
		p.wait()
		c.t.Logf("distributor %v:\n%s\n%s", args, p.out.String(), p.log.String())
	}
	for _, p := range c.parts {
		before := len(p.log.String())
		p.signal(syscall.SIGCONT)
		p.signal(syscall.SIGQUIT)
		p.wait()
		c.t.Logf("a %s:\n%s", p.role, p.log.String()[before:])
	}
}

// cease lets everybody who lives end in good order.
func (c *chaos) cease() {
	c.t.Helper()
	for _, p := range c.parts {
		p.signal(syscall.SIGCONT)
		p.signal(syscall.SIGTERM)
	}
	for _, p := range c.parts {
		// One that has just been started may have had no ear for the signal yet.
		if code := p.wait(); code > 0 {
			c.t.Errorf("a %s ended with status %d", p.role, code)
		}
	}
}
