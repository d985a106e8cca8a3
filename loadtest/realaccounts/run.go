package realaccounts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/queuepump/queuepump/pump/storage/azure"
	"github.com/queuepump/queuepump/pump/storage/storagetest"
)

// The parts of a run, in order.
const (
	partConformance = "conformance"
	partRules       = "rules"
	partLimits      = "limits"
	partFigures     = "figures"
	partPump        = "pump"
	partKill        = "kill"
	partClean       = "clean"
)

// Parts are the parts that can be chosen, in order. After any of them everything that it made is
// removed.
var Parts = []string{partConformance, partRules, partLimits, partFigures, partPump, partKill}

// allowance is what a part may come to, in requests, on accounts that answer: three times what it
// was on the simulator, because queues are asked for as long as something is awaited.
var allowance = map[string]int64{
	partConformance: 9_000, partRules: 1_500, partLimits: 22_000, partFigures: 700, partPump: 4_000,
	partKill: 9_000,
}

// reserve is what is kept for removing.
const reserve = 3_000

// LeastRequests is the least budget that makes sense: as much as is kept for removing, and as much
// beside it.
const LeastRequests int64 = 2 * reserve

// DefaultRequests is the budget of a run of all parts.
func DefaultRequests() (n int64) {
	for _, part := range Parts {
		n += allowance[part]
	}
	return n + reserve
}

// Options are what to run, and on what.
type Options struct {
	Accounts []Account
	Parts    []string // of Parts; nil: all
	Requests int64    // the most requests; 0: DefaultRequests
	Tasks    int      // of each of the two runs of the pump; 0: 3,000
	Older    time.Duration
	// Cases are the cases of the conformance suite that are run, Rules the rules; nil: all.
	Cases, Rules func(name string) bool
	// Distributor and Processor are the binaries.
	Distributor, Processor string
	Dir                    string // for what the binaries write
	Log                    *slog.Logger
	Out                    io.Writer // for the plan
	DryRun                 bool
}

// DefaultOlder is the age from which on what another run has left is removed: an hour is far
// beyond what a run takes.
const DefaultOlder = time.Hour

// target is an account under trial.
type target struct {
	Account
	name           string
	queues, tables string // addresses
}

// runner is one run.
type runner struct {
	o         Options
	prefix    string
	began     time.Time
	targets   []*target
	budget    *budget
	transport storagetest.Doer
	report    *Report
	cleaned   map[string]bool // prefixes of other runs that were removed
}

// Run tries the accounts. The report is there also beside an error, if anything was done: the error
// is that the run could not be completed. In any case it removes everything that it has made.
func Run(ctx context.Context, o Options) (*Report, error) {
	r, err := newRunner(o)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r.budget = newBudget(r.o.Requests, reserve, func() { cancel(errSpent) })
	if err := r.describe(r.o.Out); err != nil || o.DryRun {
		return nil, err
	}
	client := azure.NewTransport(64)
	defer client.CloseIdleConnections()
	r.transport = transportOf{client.Transport}
	failed := r.begin(ctx)
	if failed == nil {
		failed = r.parts(ctx)
	}
	if failed != nil && ctx.Err() != nil {
		failed = context.Cause(ctx)
	}
	if err := r.clean(context.WithoutCancel(ctx)); err != nil {
		r.report.Removed.Left = append(r.report.Removed.Left, err.Error())
	}
	r.finish(failed)
	return r.report, failed
}

func newRunner(o Options) (*runner, error) {
	if o.Parts == nil {
		o.Parts = Parts
	}
	for _, part := range o.Parts {
		if !slices.Contains(Parts, part) {
			return nil, fmt.Errorf("%q is no part; the parts are %s", part, strings.Join(Parts, ", "))
		}
	}
	if o.Requests == 0 {
		o.Requests = DefaultRequests()
	}
	if o.Requests < LeastRequests {
		return nil, fmt.Errorf("%d requests are too few: %d are kept for removing what was made",
			o.Requests, reserve)
	}
	if o.Tasks == 0 {
		o.Tasks = 3_000
	}
	if o.Older == 0 {
		o.Older = DefaultOlder
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Out == nil {
		o.Out = io.Discard
	}
	r := &runner{o: o, began: time.Now(), cleaned: map[string]bool{}}
	r.prefix = newPrefix(r.began)
	r.report = &Report{Run: r.prefix, Began: r.began.UTC().Truncate(time.Second), Parts: o.Parts}
	for _, a := range o.Accounts {
		of, err := a.open(nil)
		if err != nil {
			return nil, err
		}
		t := &target{Account: a, name: of.Name(), queues: of.Endpoint(), tables: of.TableEndpoint()}
		same := func(other *target) bool { return other.name == t.name || other.queues == t.queues }
		if slices.ContainsFunc(r.targets, same) {
			return nil, fmt.Errorf("account %s is named twice", t.name)
		}
		r.targets = append(r.targets, t)
		r.report.Accounts = append(r.report.Accounts, Described{
			Name: t.name, Queues: t.queues, Tables: t.tables, Credential: a.credential(),
		})
	}
	if len(r.targets) == 0 {
		return nil, ErrNotConfigured
	}
	return r, nil
}

// has reports whether a part is to be run.
func (r *runner) has(part string) bool { return slices.Contains(r.o.Parts, part) }

// open opens an account under the budget, for a part.
func (r *runner) open(
	t *target, part string, via func(storagetest.Doer) storagetest.Doer,
) (opened, error) {
	var transport storagetest.Doer = &meter{
		budget: r.budget, next: r.transport, part: part, account: t.name, queues: t.queues,
		tables: t.tables,
	}
	if via != nil {
		transport = via(transport)
	}
	return t.Account.open(transport)
}

// describe says what is going to be done, before anything is.
func (r *runner) describe(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintln(&b, "accounts")
	for _, a := range r.report.Accounts {
		fmt.Fprintf(&b, "  %-24s queues %s  tables %s  by %s\n", a.Name, a.Queues, a.Tables, a.Credential)
	}
	fmt.Fprintf(&b, "names that are made, all of which begin with %s\n", r.prefix)
	for _, line := range r.names() {
		fmt.Fprintf(&b, "  %s\n", line)
	}
	fmt.Fprintf(&b, "requests\n  at most %d, which cost at most %.3f %s (%s)\n",
		r.o.Requests, mostCost(r.o.Requests), r.budget.usage().Currency, r.budget.usage().Prices)
	for _, part := range r.o.Parts {
		fmt.Fprintf(&b, "  %-24s up to some %d\n", part, allowance[part])
	}
	fmt.Fprintf(&b, "  %-24s %d are kept for it\n", "removing", reserve)
	_, err := io.WriteString(w, b.String())
	return err
}

// names are the names of all queues and tables of the run, those of a kind by a pattern.
func (r *runner) names() []string {
	var lines []string
	if r.has(partConformance) {
		lines = append(lines,
			r.prefix+"cNxM: queues and tables of case N of the conformance suite, in the first "+
				"account; at most some 180")
	}
	if r.has(partRules) || r.has(partLimits) {
		lines = append(lines,
			r.prefix+"rN: queues and tables of the rules, in the first account; at most 20")
	}
	if r.has(partFigures) {
		lines = append(lines, r.prefix+"f: a queue of each account")
	}
	for _, part := range []string{partPump, partKill} {
		if r.has(part) {
			w := r.workload(part)
			lines = append(lines, fmt.Sprintf("%s-0 to %s-%d and %s-poison: queues of each account", w, w,
				pumpQueues-1, w))
		}
	}
	if r.has(partPump) || r.has(partKill) {
		lines = append(lines,
			"rows of table "+pumpTable+
				" of each account, whose partitions begin so; the table too, if it is not there yet")
	}
	return lines
}

// begin removes what earlier runs have left, and makes sure that the accounts answer at all.
func (r *runner) begin(ctx context.Context) error {
	if r.o.Dir != "" {
		if err := os.MkdirAll(r.o.Dir, 0o755); err != nil {
			return err
		}
	}
	for _, t := range r.targets {
		left, err := r.earlier(ctx, t)
		if err != nil {
			return fmt.Errorf("account %s: %w", t.name, err)
		}
		r.report.Removed.Earlier += left
	}
	return nil
}

// parts runs the parts. One that fails does not keep the next from being run; the end of ctx does.
func (r *runner) parts(ctx context.Context) error {
	var failed []error
	for _, part := range Parts {
		if !r.has(part) {
			continue
		}
		r.o.Log.Info("beginning", "part", part, "requests", r.budget.usage().Used)
		do := map[string]func(context.Context) error{
			partConformance: r.conformance, partRules: r.rules, partLimits: r.limits,
			partFigures: r.figures, partPump: r.pump, partKill: r.kill,
		}[part]
		err := do(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", part, err))
			r.o.Log.Warn("failed", "part", part, "error", err)
		}
	}
	return errors.Join(failed...)
}
