package worlds

import (
	"cmp"
	"fmt"
	"maps"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
)

// simSum adds up the worlds that were played. It is stored as JSON, so that an interrupted play
// goes on.
type simSum struct {
	mu    sync.Mutex
	began time.Time

	Commit   string
	Took     time.Duration // before this process
	Worlds   int
	Played   map[uint64]bool // seeds; nil: not asked for
	Kinds    map[string]*simKindSum
	Once     int
	Reducers int
	Wrong    []uint64 // seeds
	Stuck    int
	Lost     int
	Double   int // states that are not what the ledger's tasks come to, ledgers with more tasks than there are, tasks at work twice
	Virtual  time.Duration
	Requests int
	Tasks    int
	Longest  time.Duration // recovery
	Slowest  uint64        // the seed of it
	Closest  float64       // of a recovery to its bound
	Counts   map[string]int
}

// simKindSum is the sum of the worlds of one kind. Took is by the wall's clock, of worlds that were
// played beside others.
type simKindSum struct {
	Worlds, Wrong, Requests, Tasks int
	Met                            int // worlds in which a request met what the kind is about
	Virtual, Took                  time.Duration
}

func newSimSum() *simSum {
	return &simSum{Counts: map[string]int{}, Kinds: map[string]*simKindSum{}, Played: map[uint64]bool{}, began: time.Now()}
}

// add adds a world that took so long.
func (sum *simSum) add(w *simWorld, took time.Duration) (worlds int) {
	sum.mu.Lock()
	defer sum.mu.Unlock()
	sum.Worlds++
	sum.Played[w.plan.seed] = true
	if w.plan.delivery == pump.Once {
		sum.Once++
	}
	if w.plan.reducer {
		sum.Reducers++
	}
	sum.addKind(w, took)
	for _, what := range w.wrong {
		if strings.Contains(what, "stuck") {
			sum.Stuck++
		}
		if strings.Contains(what, "lost") {
			sum.Lost++
		}
		if slices.ContainsFunc([]string{"the state of segment", "tasks more as done", "twice at the same time"}, func(s string) bool { return strings.Contains(what, s) }) {
			sum.Double++
		}
	}
	sum.Virtual += w.lasted
	sum.Requests += w.requests
	sum.Tasks += len(w.tasks)
	if w.recovery > sum.Longest {
		sum.Longest, sum.Slowest = w.recovery, w.plan.seed
	}
	sum.Closest = max(sum.Closest, float64(w.recovery)/float64(w.allowed))
	for what, n := range w.counts {
		sum.Counts[what] += n
	}
	return sum.Worlds
}

func (sum *simSum) addKind(w *simWorld, took time.Duration) {
	k := sum.Kinds[w.plan.kind]
	if k == nil {
		k = &simKindSum{}
		sum.Kinds[w.plan.kind] = k
	}
	k.Worlds++
	if kind, err := simKindNamed(w.plan.kind); err == nil && w.counts["met "+kind.met] > 0 {
		k.Met++
	}
	if len(w.wrong) > 0 {
		k.Wrong++
		sum.Wrong = append(sum.Wrong, w.plan.seed)
	}
	k.Requests += w.requests
	k.Tasks += len(w.tasks)
	k.Virtual += w.lasted
	k.Took += took
}

// took is the time of all processes that played a part.
func (sum *simSum) took() time.Duration { return (sum.Took + time.Since(sum.began)).Round(time.Second) }

// String says it in a few lines.
func (sum *simSum) String() string {
	sum.mu.Lock()
	defer sum.mu.Unlock()
	return fmt.Sprintf(`%d worlds (%d with delivery once, %d with a reducer), %d with something wrong: %d tasks lost, %d double effects in ledgers and states, %d worlds stuck
%.1f hours of virtual time in %v, %d requests, %d tasks, %d delivered and done again
the slowest recovered in %v (seed %d); the closest to its bound took %.0f %% of it
`, sum.Worlds, sum.Once, sum.Reducers, len(sum.Wrong), sum.Lost, sum.Double, sum.Stuck, sum.Virtual.Hours(), sum.took(), sum.Requests, sum.Tasks,
		sum.Counts["effects repeated"], sum.Longest.Round(time.Millisecond), sum.Slowest, 100*sum.Closest)
}

// simWindow is a row of the table of windows: what was counted that hits it.
type simWindow struct {
	numbers, what string
	hits          []string
}

// Faults by what they mean for one request: it did not act, or it did and its answer was lost.
var (
	simBefore = []azsim.FaultKind{azsim.Answer, azsim.FailBefore, azsim.HangBefore}
	simAfter  = []azsim.FaultKind{azsim.AnswerAfter, azsim.AnswerLost, azsim.CutBody, azsim.HangAfter}
)

// simHits names the counts of some faults on some operations.
func simHits(kinds []azsim.FaultKind, operations ...string) (names []string) {
	for _, kind := range kinds {
		for _, op := range operations {
			names = append(names, fmt.Sprintf("fault %s %s", kind, op))
		}
	}
	return names
}

func simWindows() []simWindow {
	inserts, updates := []string{"InsertEntity", "InsertOrReplaceEntity"}, []string{"UpdateEntity", "MergeEntity", "DeleteEntity"}
	and := func(hits []string, more ...string) []string { return append(hits, more...) }
	return []simWindow{
		{"1", "a Put is lost", and(simHits(simBefore, "PutMessage"), "crash before put")},
		{"2", "the answer of a Put is lost", and(simHits(simAfter, "PutMessage"), "crash after put")},
		{"3", "a Get is lost", and(simHits(simBefore, "GetMessages"), "crash before get")},
		{"4", "the answer of a Get is lost or cut", and(simHits(simAfter, "GetMessages"), "crash after get")},
		{"5, 6", "a process dies with tasks in its handlers", []string{simDiedWithTasks}},
		{"6", "a process dies before a handler's effect", []string{"crash before effect"}},
		{"7", "a process dies between an effect and its record or delete", []string{"crash after effect", "crash before transact", "crash before delete"}},
		{"8", "a Delete is lost", simHits(simBefore, "DeleteMessage")},
		{"9", "the answer of a Delete is lost", and(simHits(simAfter, "DeleteMessage"), "crash after delete")},
		{"9", "a Delete is answered with gone", []string{"answer delete gone"}},
		{"10, 11", "a lease ends with its message in hand", []string{simLeasesLost}},
		{"10, 11, 24", "a process with tasks in its handlers is stopped for longer than their visibility", []string{simPausedWithTasks}},
		{"12", "a message is back early, or delivered twice", simHits([]azsim.FaultKind{azsim.ReappearEarly, azsim.DeliverTwice}, "GetMessages", "UpdateMessage")},
		{"13", "a renewal, release or rewriting is lost", and(simHits(simBefore, "UpdateMessage"), "crash before renew", "crash before replace")},
		{"14", "the answer of a renewal, release or rewriting is lost", and(simHits(simAfter, "UpdateMessage"), "crash after renew", "crash after replace")},
		{"14", "a renewal is answered with gone: its receipt is stale", []string{"answer renew gone", "answer replace gone"}},
		{"20", "the answer of an insert is lost", simHits(simAfter, inserts...)},
		{"20", "the answer of a conditional write is lost", and(simHits(simAfter, updates...), "crash after write")},
		{"20", "a transaction is lost", and(simHits(simBefore, "Batch"), "crash before transact")},
		{"20", "the answer of a transaction is lost", and(simHits(simAfter, "Batch"), "crash after transact")},
		{"20", "a conditional write meets another's", []string{"answer write precondition", "answer write exists", "answer transact precondition", "answer transact exists"}},
		{"22, 23", "another distributor goes on with a run", []string{simTakenOver}},
		{"23, 24", "a process is stopped for longer than its lease in the cluster", []string{simLongPause}},
		{"25", "the service's clock jumps", []string{"clock jump"}},
		{"25", "machines sleep, so that monotonic clocks miss some time", []string{"suspended machine", "suspended machines, all"}},
		{"26, 27", "a request is refused as one too many", []string{"throttled by limits", "fault answer any"}},
		{"28", "worlds in which queries begin with an empty page", []string{"worlds with empty pages"}},
		{"35", "a process is told to stop", []string{"stop"}},
		{"37", "messages come in another order", simHits([]azsim.FaultKind{azsim.Reorder}, "GetMessages")},
		{"39", "an account is dark or hangs", []string{"account dark", "account hang"}},
		{"39", "the control account is dark or hangs", []string{"control account dark", "control account hang"}},
	}
}

// report is what is kept of a long play, as Markdown.
func (sum *simSum) report(from uint64) []byte {
	short := sum.String()
	sum.mu.Lock()
	defer sum.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, `# Simulations

The whole pump in virtual time: some distributors and processors over the real driver and the
simulated accounts, played by fault plans that seeds write. The command makes this file.

- [simulation_plan_test.go](../../pump/worlds/simulation_plan_test.go) reads plans,
- [simulation_seeded_test.go](../../pump/worlds/simulation_seeded_test.go) makes them of seeds,
- [simulation_check_test.go](../../pump/worlds/simulation_check_test.go) judges what came of them,
- [simulation_kinds_test.go](../../pump/worlds/simulation_kinds_test.go) has the kinds of worlds.

Of 10,000 seeds so many are of each kind:

- %s

| | |
|---|---|
| command | make simulate SEEDS=%d FROM=%d |
| commit | %s |
| Go | %s, %s/%s, %d CPUs |
| date | %s |

`, strings.Join(simMix(), "\n- "), sum.Worlds, from, simCommit(), runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), time.Now().UTC().Format("2006-01-02 15:04 UTC"))
	fmt.Fprintf(&b, "```\n%s```\n", short)
	sum.kinds(&b)
	fmt.Fprint(&b, "\n## Windows\n\nThe numbers are those of [protocols.md](../protocols.md#windows-of-vulnerability).\n\n| window | what | hits |\n|---|---|---:|\n")
	told := map[string]bool{}
	for _, w := range simWindows() {
		hits := 0
		for _, name := range w.hits {
			hits += sum.Counts[name]
			told[name] = true
		}
		fmt.Fprintf(&b, "| %s | %s | %d |\n", w.numbers, w.what, hits)
	}
	sum.table(&b, "Faults", "kind and operation", "requests", "fault ")
	sum.table(&b, "Crashes", "where", "processes", "crash ")
	sum.table(&b, "Answers other than success, as the processes saw them", "request and answer", "requests", "answer ")
	fmt.Fprintf(&b, "\n## What else was counted\n\n| what | times |\n|---|---:|\n")
	for _, what := range slices.Sorted(maps.Keys(sum.Counts)) {
		if !told[what] && !slices.ContainsFunc([]string{"fault ", "crash ", "answer "}, func(p string) bool { return strings.HasPrefix(what, p) }) {
			fmt.Fprintf(&b, "| %s | %d |\n", what, sum.Counts[what])
		}
	}
	return []byte(b.String())
}

// kinds says what was played of each kind.
func (sum *simSum) kinds(b *strings.Builder) {
	fmt.Fprint(b, "\n## Kinds of worlds\n\nSeconds are of worlds played beside each other.\n\n")
	fmt.Fprint(b, "Its fault was met in so many of a kind's worlds: a request got that answer, or none.\n\n")
	fmt.Fprint(b, "| kind | worlds | met | with something wrong | tasks | requests | virtual hours | seconds a world |\n|---|---:|---:|---:|---:|---:|---:|---:|\n")
	for _, name := range slices.Sorted(maps.Keys(sum.Kinds)) {
		k := sum.Kinds[name]
		met := "-"
		if kind, err := simKindNamed(name); err == nil && kind.met != "" {
			met = fmt.Sprint(k.Met)
		}
		fmt.Fprintf(b, "| %s | %d | %s | %d | %d | %d | %.1f | %.2f |\n", name, k.Worlds, met, k.Wrong, k.Tasks, k.Requests, k.Virtual.Hours(), k.Took.Seconds()/float64(k.Worlds))
	}
}

func (sum *simSum) table(b *strings.Builder, title, of, unit, prefix string) {
	fmt.Fprintf(b, "\n## %s\n\n| %s | %s |\n|---|---:|\n", title, of, unit)
	for _, what := range slices.Sorted(maps.Keys(sum.Counts)) {
		if name, ok := strings.CutPrefix(what, prefix); ok {
			fmt.Fprintf(b, "| %s | %d |\n", name, sum.Counts[what])
		}
	}
}

// simCommit is the commit that is played, with a word if files differ from it.
func simCommit() string {
	commit, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	changed, _ := exec.Command("git", "status", "--porcelain", "--untracked-files=no", "--", "..").Output()
	return strings.TrimSpace(string(commit)) + cmp.Or(map[bool]string{true: ", and changes that are in none"}[len(changed) > 0])
}
