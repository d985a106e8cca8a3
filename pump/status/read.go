package status

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/queuepump/queuepump/internal/through"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/coordination"
	"github.com/queuepump/queuepump/pump/internal/closing"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/election"
	"github.com/queuepump/queuepump/pump/internal/failure"
	"github.com/queuepump/queuepump/pump/internal/ledger"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/sampling"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
)

// Read reads what can be seen of a workload. An account that does not answer is named in Problems
// and does not keep the rest from being shown; Read takes no longer than o.Timeout. If nothing
// could be learned of the workload itself, because its control account is dark or it does not exist
// (pump.ErrNoWorkload), there is an error beside what was learned of the accounts. Only a wrong
// configuration gives no Status at all.
func Read(ctx context.Context, cfg pump.Config, o Options) (*Status, error) {
	of, err := setup.Reach(cfg)
	if err != nil {
		return nil, err
	}
	o = o.withDefaults()
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	r := newReader(&of.Cfg, o, of.Queues)
	s, err := r.read(ctx)
	s.Requests = r.requests.Load()
	return s, err
}

func newReader(cfg *setup.Config, o Options, set *queues.Set) *statusReader {
	r := &statusReader{
		cfg: cfg, options: o, queues: set, asOf: map[string]time.Time{}, missed: map[string]bool{},
	}
	r.table = r.counted(set.Control)
	return r
}

// statusReader reads the parts of a status at the same time. Each part belongs to
// one goroutine until all have ended.
type statusReader struct {
	cfg      *setup.Config
	options  Options
	queues   *queues.Set
	table    storage.Table
	requests atomic.Int64
	rows     atomic.Int64 // read of the table

	view          *cluster.View
	silent        map[string]bool // of the view's members, by instance; see cluster.Member
	server        time.Time       // of the server's clock ...
	local         time.Time       // ... and the local moment that goes with it
	election      election.Status
	electionKnown bool
	runs          []workload.Run
	tallies       map[pump.RunID]workload.Tally
	clients       map[pump.RunID]workload.LiveRun // open runs of senders
	recorded      *ledger.Sums                    // nil: not known
	waiting       int                             // runs that wait for their ends
	endings       []closing.Unended               // the first of them
	gates         []coordination.GateState
	claims        []coordination.ClaimState
	accounts      []Account
	last          *sampling.HistoryPoint // the newest row of the history

	mu       sync.Mutex // guards what follows while parts are read
	problems []string
	asOf     map[string]time.Time // by part: when it was last read, by the local clock
	missed   map[string]bool      // parts that could not be read now
}

// problem notes what an operator should know, in its first line. Errors hold no secrets.
func (r *statusReader) problem(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.problems = append(r.problems, fmt.Sprintf(format, args...))
}

func (r *statusReader) read(ctx context.Context) (*Status, error) {
	err := r.gather(ctx, r.readAccounts)
	s := r.status(time.Now())
	if err != nil {
		s.Problems = append([]string{nothingKnown(err)}, s.Problems...)
	}
	return s, err
}

func nothingKnown(err error) string {
	return fmt.Sprintf("nothing is known of the workload: %v", err)
}

// half leaves the other half of the time for the accounts that answer.
func half(ctx context.Context) (context.Context, context.CancelFunc) {
	if end, ok := ctx.Deadline(); ok {
		return context.WithTimeout(ctx, time.Until(end)/2)
	}
	return context.WithCancel(ctx)
}

func (r *statusReader) readView(ctx context.Context) (err error) {
	ctx, cancel := half(ctx)
	defer cancel()
	r.view, err = cluster.LoadView(ctx, r.table, r.cfg.Workload)
	return setup.WithAdvice(ctx, r.cfg, err)
}

func (r *statusReader) readTime(ctx context.Context) (err error) {
	r.server, r.local, err = workload.ServerTime(ctx, r.table, r.cfg.Workload)
	if err != nil && !failure.Ends(failure.Help, err, failure.Command) {
		return nil // a credential that may only read is fine for looking
	}
	return err
}

func (r *statusReader) readElection(ctx context.Context) (err error) {
	e := election.New(r.table, r.cfg.Workload, election.Options{Instance: r.cfg.Instance})
	r.election, err = e.Status(ctx)
	r.electionKnown = err == nil
	return err
}

func (r *statusReader) readRuns(ctx context.Context) (err error) {
	// Before the rows: if a run's row says "sealed" afterwards, nothing of the run had been pruned.
	ledgerErr := r.readRecorded(ctx)
	r.runs, err = workload.NewRuns(r.table, r.cfg.Workload).List(ctx, r.options.Runs)
	r.note("ledger", "the ledger", errors.Join(ledgerErr, r.readRests(ctx)))
	if err != nil {
		return err
	}
	if err := r.readClients(ctx); err != nil {
		return err
	}
	r.tallies = map[pump.RunID]workload.Tally{}
	var bad []error
	for _, run := range r.runs {
		tallies, err := workload.Tallies(ctx, r.table, r.cfg.Workload, run.ID)
		if err != nil {
			bad = append(bad, err)
			if !errors.Is(err, row.ErrCorrupt) {
				break // the next would not be read either
			}
		}
		r.tallies[run.ID] = workload.SumTallies(tallies)
	}
	return errors.Join(bad...)
}

// readClients reads what senders say of their runs, which need no member row.
func (r *statusReader) readClients(ctx context.Context) error {
	r.clients = map[pump.RunID]workload.LiveRun{}
	rows := workload.NewRuns(r.table, r.cfg.Workload)
	for _, run := range r.runs {
		if run.State != workload.RunOpen || !closing.OfClient(run.Mode) {
			continue
		}
		l, ok, err := rows.LiveOf(ctx, run.ID)
		if err != nil {
			return err
		}
		if ok && l.Err == nil {
			r.clients[run.ID] = l
		}
	}
	return nil
}

// readRecorded reads what the ledger knows of all runs. A damaged segment makes every run look less
// far on than it is, so then nothing exact is shown.
func (r *statusReader) readRecorded(ctx context.Context) error {
	w := r.view.Workload
	if w.Delivery != string(pump.Once) {
		return nil
	}
	recorded, err := ledger.ReadSums(ctx, r.table, r.cfg.Workload, w.Map.Segments)
	if err != nil {
		return err
	}
	r.recorded = recorded
	if use := recorded.Use; use.Fullest() >= closing.Pressure {
		r.problem("segment %d has %d of %d live runs, %d of %d pages and %d of %d bytes "+
			"of records in its ledger: runs that no process continues end sooner, "+
			"and at the bound tasks of further runs wait until others have ended; "+
			"see: distributor runs list",
			use.Segment, use.Runs, ledger.MaxLiveRuns, use.Pages, ledger.MaxPages, use.Bytes,
			ledger.MaxBytes)
	}
	return nil
}

// readRests reads what is still in quarantine of the runs that were closed with that.
func (r *statusReader) readRests(ctx context.Context) error {
	var ids []pump.RunID
	for _, run := range r.runs {
		if run.State == workload.RunClosed && run.Rest > 0 {
			ids = append(ids, run.ID)
		}
	}
	if r.recorded == nil || len(ids) == 0 {
		return nil
	}
	rests, err := ledger.ReadProgress(ctx, r.table, r.cfg.Workload,
		r.view.Workload.Map.Segments, ids...)
	for id, p := range rests {
		_, quarantined := p.Sums()
		r.recorded.Runs[id] = workload.RunSum{Quarantined: quarantined}
	}
	return err
}

func (r *statusReader) readGates(ctx context.Context) (err error) {
	r.gates, err = coordination.Gates(ctx, r.table, r.cfg.Workload)
	return err
}

func (r *statusReader) readClaims(ctx context.Context) error {
	// The interval matters only to processes that claim.
	claims, all, err := coordination.NewClaims(r.table, r.cfg.Workload, time.Hour, r.cfg.Instance).
		List(ctx, r.options.Keys)
	r.claims = claims
	if err == nil && !all {
		r.problem("there are more keys than are looked at: some that run may be missing below")
	}
	return err
}

// counted gives a table that counts requests and rows.
func (r *statusReader) counted(t storage.Table) storage.Table {
	return through.Table{
		Called: t.Name(),
		Way: func(_ string, request func(storage.Table) error) error {
			r.requests.Add(1)
			return request(t)
		},
		Row: func(n int) error {
			r.rows.Add(1)
			if n%rowsAPage == 0 {
				r.requests.Add(1)
			}
			return nil
		},
	}
}

// rowsAPage is how many rows an answer of the table service holds at most
// (learn.microsoft.com/rest/api/storageservices/query-timeout-and-pagination).
const rowsAPage = 1000

// why is the first line of an error.
func why(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "it did not answer in time"
	}
	first, _, _ := strings.Cut(err.Error(), "\n")
	return first
}

// endsShown is how many runs are shown with their ends: each costs a request.
const endsShown = 5

// readEnds reads which runs wait for their ends and, for the first of them, when each last gave a
// sign of life.
func (r *statusReader) readEnds(ctx context.Context) error {
	if r.view.Workload.Delivery != string(pump.Once) {
		return nil // rows of runs go after the retention, and take no room until then
	}
	live, err := workload.NewRuns(r.table, r.cfg.Workload).Live(ctx)
	if err != nil {
		return err
	}
	live = slices.DeleteFunc(
		live,
		func(l workload.LiveRun) bool { return l.Err != nil || !closing.WaitsForEnd(l.State, l.Over) },
	)
	slices.SortFunc(live, func(a, b workload.LiveRun) int {
		return cmp.Or(a.Changed.Compare(b.Changed), workload.CompareRuns(a.ID, b.ID))
	})
	r.waiting = len(live)
	var bad []error
	for _, l := range live[:min(len(live), endsShown)] {
		e, err := closing.ReadEnding(ctx, r.table, r.cfg.Workload, l.ID, l.State, l.Mode, l.Changed)
		if err != nil {
			bad = append(bad, err)
			if !errors.Is(err, row.ErrCorrupt) {
				break // the next would not be read either
			}
		}
		r.endings = append(r.endings, e)
	}
	return errors.Join(bad...)
}
