package realaccounts

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/pump/storage/azure"
	"github.com/queuepump/queuepump/pump/storage/storagetest"
)

// What `make azure` sets, and what is for those who call `go test ./loadtest/realaccounts` themselves.
var (
	onAzure  = flag.Bool("azure", false, "try the accounts that QUEUEPUMP_AZURE_1 to _9 name; it costs cents")
	dryRun   = flag.Bool("dry-run", false, "with -azure: only say what would be done")
	requests = flag.Int64("requests", defaultRequests(), "the most requests, of all processes and with the removing")
	tasks    = flag.Int("tasks", 3000, "tasks of each of the two runs of the pump")
	older    = flag.Duration("older", time.Hour, "remove what other runs have left if they began so long ago")
	without  = flag.String("without", "", "`PARTS` to leave out, of "+strings.Join(parts, ","))
	outDir   = flag.String("out", filepath.Join("out", "azure"), "the `DIR` for the report and what the binaries write")
	binDir   = flag.String("bin", "bin", "the `DIR` of the binaries, also by the names that packages give them")
)

// trial is one run.
type trial struct {
	prefix    string
	began     time.Time
	tasks     int
	older     time.Duration
	out, bin  string
	targets   []*target
	chosen    []string        // of the parts
	ctx       context.Context // of the parts: it ends when the budget is spent, or by Ctrl-C
	budget    *budget
	transport storagetest.Doer
	report    report
	tries     [][]string    // of the report: what was tried
	puts      time.Duration // what a put took: a median; 0 if it was not measured
}

// newTrial prepares a run, and makes no request.
func newTrial(ctx context.Context, t testing.TB, accounts []Account, requests int64) *trial {
	t.Helper()
	targets, err := targetsOf(accounts)
	must(t, err)
	client := azure.NewTransport(64)
	t.Cleanup(client.CloseIdleConnections)
	tr := &trial{began: time.Now(), tasks: *tasks, older: *older, out: *outDir, bin: *binDir, targets: targets, transport: doer{client.Transport}, chosen: parts}
	tr.prefix = newPrefix(tr.began)
	ctx, cancel := context.WithCancelCause(ctx)
	t.Cleanup(func() { cancel(nil) })
	tr.ctx, tr.budget = ctx, newBudget(requests, reserve, func() { cancel(errSpent) })
	tr.report = report{
		Run: tr.prefix, Began: tr.began.UTC().Truncate(time.Second), Failed: []string{}, NotDecided: []string{}, Left: []string{}, Most: requests,
		Machine: fmt.Sprintf("%s/%s, %d CPUs, %s", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version()),
	}
	var rows [][]string
	for _, one := range targets {
		tr.report.secrets = append(tr.report.secrets, one.secrets()...)
		rows = append(rows, []string{one.name, one.queues, one.tables, one.credential()})
	}
	tr.report.add("Accounts", "", []string{"account", "queues", "tables", "credential", "requests"}, rows...)
	return tr
}

// TestAccounts tries the pump on the accounts that the environment names, and says what differs from
// the simulator. Each part, rule and case is a test of its own. What they make is removed at the
// end, also after Ctrl-C; a part that fails does not keep the next from being run.
func TestAccounts(t *testing.T) {
	if !*onAzure {
		t.Skip("costs cents on accounts of yours; make azure runs it")
	}
	if *tasks < 100 || *tasks > 1_000_000 {
		t.Fatalf("-tasks: %d is out of range; use 100 to 1000000", *tasks)
	}
	if *requests < 2*reserve {
		t.Fatalf("-requests: %d are too few; use %d or more: %d are kept for removing what was made", *requests, 2*reserve, reserve)
	}
	chosen, err := partsWithout(*without)
	must(t, err)
	accounts, err := fromEnvironment(os.Getenv)
	must(t, err)
	// The first Ctrl-C ends the parts, the second one everything.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	t.Cleanup(stop)
	context.AfterFunc(ctx, stop)
	tr := newTrial(ctx, t, accounts, *requests)
	tr.chosen, tr.out, tr.bin = chosen, fromRoot(t, *outDir), fromRoot(t, *binDir)
	fmt.Fprint(t.Output(), tr.described())
	if *dryRun {
		t.Skip("nothing else was done")
	}
	must(t, os.MkdirAll(tr.out, 0o755))
	t.Cleanup(func() { tr.finish(t) })
	tr.report.Earlier, err = tr.earlier(tr.ctx)
	tr.must(t, err)
	for _, part := range tr.chosen {
		t.Run(part, func(t *testing.T) {
			t.Cleanup(func() { tr.tried(t, part) })
			tr.must(t, nil)
			map[string]func(*testing.T){
				partConformance: tr.conformance, partRules: tr.rules, partLimits: tr.limits, partFigures: tr.figures,
				partPump: tr.pump, partKill: tr.kill, partBlobs: tr.blobs, partRefusals: tr.refusals,
			}[part](t)
		})
	}
}

// partsWithout are the parts but some, which stand with commas or bars between them.
func partsWithout(list string) (chosen []string, err error) {
	out := strings.FieldsFunc(list, func(c rune) bool { return strings.ContainsRune(",| ", c) })
	for _, part := range out {
		if !slices.Contains(parts, part) {
			return nil, fmt.Errorf("there is no part %q to leave out; the parts are %s", part, strings.Join(parts, ", "))
		}
	}
	chosen = slices.DeleteFunc(slices.Clone(parts), func(part string) bool { return slices.Contains(out, part) })
	if len(chosen) == 0 {
		return nil, errors.New("every part is left out")
	}
	return chosen, nil
}

// fromRoot is a whole path. `go test` runs in the folder of this package, and its user is in the root
// of the source tree; the test binary runs where its user is.
func fromRoot(t testing.TB, path string) string {
	t.Helper()
	if _, err := os.Stat("trial_test.go"); err == nil && !filepath.IsAbs(path) {
		path = filepath.Join("..", "..", path)
	}
	path, err := filepath.Abs(path)
	must(t, err)
	return path
}

// tried says what became of a part, and what it cost.
func (tr *trial) tried(t *testing.T, part string) {
	outcome := "as it must be"
	if t.Failed() {
		outcome = "failed"
	} else if tr.ctx.Err() != nil {
		outcome = "cut short"
	}
	queues, tables, money := tr.budget.of(part)
	row := []string{part, outcome, fmt.Sprint(queues + tables), fmt.Sprintf("%.4f", money)}
	tr.tries = append(tr.tries, row)
	t.Logf("%s: %s requests, some %s %s", outcome, row[2], row[3], pump.Prices{}.OrPublished().Currency)
}

// open opens an account under the budget, for a part.
func (tr *trial) open(t *target, part string) (opened, error) {
	return t.open(tr.budget.meter(tr.transport, t, part))
}

// fail fails a test and says so in the report.
func (tr *trial) fail(t testing.TB, format string, args ...any) {
	t.Helper()
	text := tr.report.hidden(fmt.Sprintf(format, args...))
	_, name, _ := strings.Cut(t.Name(), "/")
	tr.report.mu.Lock()
	defer tr.report.mu.Unlock()
	tr.report.Failed = append(tr.report.Failed, strings.TrimPrefix(name+": "+text, ": "))
	t.Error(text)
}

// some fails a part of which -run or -skip has left nothing.
func (tr *trial) some(t *testing.T, n int) {
	if n == 0 && tr.ctx.Err() == nil && !t.Failed() {
		tr.fail(t, "nothing was tried: no rule or case has such a name")
	}
}

// must ends a test with an error, or because the run has ended.
func (tr *trial) must(t testing.TB, err error) {
	t.Helper()
	if cause := context.Cause(tr.ctx); cause != nil {
		t.Skip(cause)
	}
	if err != nil {
		tr.fail(t, "%v", err)
		t.FailNow()
	}
}

// finish removes what was made and writes the report.
func (tr *trial) finish(t *testing.T) {
	r := &tr.report
	if cause := context.Cause(tr.ctx); cause != nil {
		tr.fail(t, "the run did not complete: %v", cause)
	}
	if len(tr.tries) == 0 {
		tr.fail(t, "nothing was tried: no part has such a name")
	}
	if err := tr.clean(context.WithoutCancel(tr.ctx)); err != nil {
		r.Left = append(r.Left, err.Error())
		tr.fail(t, "removing: %v", err)
	}
	queues, tables, money := tr.budget.sum(func(counted) bool { return true })
	r.Used, r.Cost, r.Seconds = queues+tables, money, time.Since(tr.began).Seconds()
	r.Queues, r.Tables = tr.budget.created("CreateQueue"), tr.budget.created("CreateTable")
	r.Containers = tr.budget.created("CreateContainer")
	for i, one := range tr.targets {
		queues, tables, _ := tr.budget.sum(func(c counted) bool { return c.account == one.name })
		r.Sections[0].Rows[i] = append(r.Sections[0].Rows[i], fmt.Sprint(queues+tables))
	}
	r.Same = !t.Failed()
	r.Sections = slices.Insert(r.Sections, 1, section{
		Title: "Tried", Head: []string{"part", "outcome", "requests", "cost in " + pump.Prices{}.OrPublished().Currency}, Rows: tr.tries,
	})
	r.add("Requests", "", []string{"operation", "answer", "requests"}, tr.budget.operations()...)
	path, err := r.write(tr.out)
	proof.Is(t, err, nil)
	t.Logf("%s\nthe report is in %s", r.summary(), path)
}

// described says what is going to be done, before anything is.
func (tr *trial) described() string {
	var b strings.Builder
	fmt.Fprintln(&b, "accounts")
	for _, t := range tr.targets {
		fmt.Fprintf(&b, "  %-24s queues %s  tables %s  by %s\n", t.name, t.queues, t.tables, t.credential())
	}
	fmt.Fprintf(&b, "names that are made; all begin with %s\n", tr.prefix)
	for _, made := range []struct {
		by   []string
		what string
	}{
		{[]string{partConformance}, "cNxM: at most some 180 queues and tables of cases, in the first account"},
		{[]string{partRules, partLimits}, "rN: at most 20 queues and tables of rules, in the first account"},
		{[]string{partFigures}, "f: a queue of each account"},
		{[]string{partPump}, fmt.Sprintf("p-00 to p-%02d, p-poison: queues of each account", pumpQueues-1)},
		{[]string{partKill}, fmt.Sprintf("k-00 to k-%02d, k-poison: queues of each account", pumpQueues-1)},
		{[]string{partConformance}, "cblobs: a container of the first account"},
		{[]string{partBlobs}, fmt.Sprintf("b-00 to b-%02d, b-poison: queues; b-results: a container, of each account", pumpQueues-1)},
		{[]string{partRefusals}, fmt.Sprintf("r-00 to r-%02d, r-poison: queues of each account", pumpQueues-1)},
		{[]string{partPump, partKill, partBlobs, partRefusals}, "rows of table " + pumpTable + " of each account, whose partitions begin so; the table too, if it is not there yet"},
	} {
		if slices.ContainsFunc(made.by, func(part string) bool { return slices.Contains(tr.chosen, part) }) {
			fmt.Fprintf(&b, "  %s\n", made.what)
		}
	}
	fmt.Fprintf(&b, "requests\n  at most %d, which cost at most %.3f %s (%s)\n",
		tr.budget.most, mostCost(tr.budget.most), pump.Prices{}.OrPublished().Currency, pump.Prices{}.OrPublished().Source)
	for _, part := range tr.chosen {
		fmt.Fprintf(&b, "  %-24s up to some %d\n", part, allowance[part])
	}
	fmt.Fprintf(&b, "  %-24s %d are kept for it\n", "removing", reserve)
	return b.String()
}

// conformance runs the suite against the first account. The simulator passes each case of it, so
// that a case that fails is a difference.
func (tr *trial) conformance(t *testing.T) {
	cases, failed := 0, [][]string{}
	t.Cleanup(func() {
		tr.some(t, cases)
		tr.report.add("Conformance", fmt.Sprintf("%d of %d cases are as the suite says.", cases-len(failed), cases), []string{"case", "the account"}, failed...)
	})
	storagetest.Run(t, storagetest.Harness{
		Prefix: tr.prefix + "c", Clean: true,
		Open: func(t testing.TB, via func(storagetest.Doer) storagetest.Doer) storage.Account {
			tr.must(t, nil)
			one := tr.targets[0]
			a, err := one.open(via(patient{tr.ctx, tr.budget.meter(tr.transport, one, partConformance)}))
			tr.must(t, err)
			return a
		},
		Ended: func(name, failure string) {
			cases++
			if failure == "" || tr.ctx.Err() != nil {
				return
			}
			failed = append(failed, []string{name, failure})
			tr.report.Failed = append(tr.report.Failed, partConformance+": "+name)
		},
	})
}

// patient sends a request again that was refused because of a limit: cases put as much load on as
// this machine and the way to the account allow, and a limit is no difference. It sends nothing
// after the end of a run.
type patient struct {
	run  context.Context
	next storagetest.Doer
}

// Do sends a request; see [patient].
func (p patient) Do(req *http.Request) (*http.Response, error) {
	var body []byte
	if req.Body != nil {
		var err error
		if body, err = io.ReadAll(req.Body); err != nil {
			return nil, err
		}
	}
	for try := 0; ; try++ {
		if err := context.Cause(p.run); err != nil {
			return nil, err
		}
		once := req.Clone(req.Context())
		if req.Body != nil {
			once.Body = io.NopCloser(bytes.NewReader(body))
		}
		resp, err := p.next.Do(once)
		if err != nil || resp.StatusCode != http.StatusServiceUnavailable || try == 6 {
			return resp, err
		}
		_ = resp.Body.Close()
		if err := wait(req.Context(), 100*time.Millisecond<<try); err != nil {
			return nil, err
		}
	}
}

// rules asks the rules that need no load, side by side: some of them wait.
func (tr *trial) rules(t *testing.T) { tr.askRules(t, partRules, azsim.Limits{}) }

// limits asks the rules that need load, one after the other: they share this machine and one
// measurement.
func (tr *trial) limits(t *testing.T) {
	tr.askRules(t, partLimits, azsim.Limits{Queue: simulatedRate, TablePartition: simulatedRate})
}

// askRules asks the first account the rules of a part, and a simulator with limits. A rule that
// differs fails, one that cannot be decided is skipped.
func (tr *trial) askRules(t *testing.T, part string, limits azsim.Limits) {
	a, err := tr.open(tr.targets[0], part)
	tr.must(t, err)
	account, err := newProber(tr.targets[0], a, tr.prefix, part)
	tr.must(t, err)
	simulator, err := simulated(limits)
	tr.must(t, err)
	rules := slices.DeleteFunc(allRules(), func(r rule) bool { return r.part != part })
	rows := make([][]string, len(rules))
	t.Cleanup(func() {
		rows = slices.DeleteFunc(rows, func(row []string) bool { return row == nil })
		tr.some(t, len(rows))
		n := map[string]int{}
		for _, row := range rows {
			n[row[5]]++
		}
		text := fmt.Sprintf("%d same, %d different, %d not decided.", n[same], n[different], n[notDecided])
		t.Log(text)
		tr.report.add("Rules of loadtest/azsim/AZURE.md: "+part, text, []string{"check", "rule", "known by", "the account", "the simulator", "verdict", "detail"}, rows...)
	})
	for i := range rules {
		r := &rules[i]
		t.Run(r.id, func(t *testing.T) {
			if part == partRules {
				t.Parallel()
			}
			tr.must(t, nil)
			res := r.bothSides(tr.ctx, account, simulator)
			tr.must(t, nil)
			rows[i] = []string{r.id, r.says, r.mark, res.account, res.simulator, res.verdict, res.detail}
			switch res.verdict {
			case different:
				tr.fail(t, "%s\nthe account:   %s\nthe simulator: %s\n%s", r.says, res.account, res.simulator, res.detail)
			case notDecided:
				tr.report.mu.Lock()
				tr.report.NotDecided = append(tr.report.NotDecided, r.id)
				tr.report.mu.Unlock()
				t.Skip("not decided: " + tr.report.hidden(res.detail))
			default:
				t.Log(tr.report.hidden(res.account + "; " + res.detail))
			}
		})
	}
}

// figures times requests of each account, one after the other: what a request takes from here.
func (tr *trial) figures(t *testing.T) {
	const each = 60 // requests of a kind
	var rows [][]string
	var medians time.Duration
	for _, one := range tr.targets {
		a, err := tr.open(one, partFigures)
		tr.must(t, err)
		q := a.Queue(tr.prefix + "f")
		tr.must(t, q.Create(tr.ctx))
		message := []byte(randomText(1 << 10))
		var receipts []storage.Receipt
		for _, kind := range []struct {
			name string
			do   func() error
		}{
			{"put 1 KiB", func() error { _, err := q.Put(tr.ctx, message, 0); return err }},
			{"get 1 message", func() error {
				ms, err := q.Get(tr.ctx, 1, time.Hour)
				for _, m := range ms {
					receipts = append(receipts, m.Receipt)
				}
				return err
			}},
			{"delete", func() error {
				receipt := receipts[0]
				receipts = receipts[1:]
				return q.Delete(tr.ctx, receipt)
			}},
		} {
			var took []time.Duration
			for range each {
				if kind.name == "delete" && len(receipts) == 0 {
					break
				}
				began := time.Now()
				if err := kind.do(); err != nil {
					tr.must(t, fmt.Errorf("account %s: %s: %w", one.name, kind.name, err))
				}
				took = append(took, time.Since(began))
			}
			if len(took) == 0 {
				tr.must(t, fmt.Errorf("account %s: the gets have brought no message", one.name))
			}
			slices.Sort(took)
			p50, p99 := took[len(took)/2], took[len(took)-1] // of fewer than a hundred
			if kind.name == "put 1 KiB" {
				medians += p50
			}
			rows = append(rows, []string{one.name, kind.name, fmt.Sprint(len(took)), fmt.Sprint(milliseconds(p50)), fmt.Sprint(milliseconds(p99))})
		}
	}
	tr.puts = medians / time.Duration(len(tr.targets))
	tr.report.add("What a request takes", "", []string{"account", "request", "requests", "p50 ms", "p99 ms"}, rows...)
}

func milliseconds(d time.Duration) float64 {
	return float64(d.Round(10*time.Microsecond)) / float64(time.Millisecond)
}
