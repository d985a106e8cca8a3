package worlds

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/accounts"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/closing"
	"github.com/queuepump/queuepump/pump/internal/election"
	"github.com/queuepump/queuepump/pump/internal/ledger"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/quarantine"
	"github.com/queuepump/queuepump/pump/source"
	"github.com/queuepump/queuepump/pump/status"
)

// world is a world of the simulator and what its tests do in it.
type world struct{ *testworld.World }

// inWorld runs a test in a world. Names of accounts are accounta, accountb, ...
func inWorld(t *testing.T, accounts, queues int, change func(*azsim.Config), test func(t *testing.T, w *world)) {
	t.Helper()
	inWorldOf(t, workload.Spec{}, accounts, queues, change, test)
}

// inSharedWorldOf is inWorld with a workload whose segments have no owners.
func inSharedWorldOf(t *testing.T, accounts, queues int, change func(*azsim.Config), test func(t *testing.T, w *world)) {
	t.Helper()
	inWorldOf(t, workload.Spec{Shared: true}, accounts, queues, change, test)
}

// inOnceWorld is inWorld with delivery mode once.
func inOnceWorld(t *testing.T, accounts, queues int, change func(*azsim.Config), test func(t *testing.T, w *world)) {
	t.Helper()
	inWorldOf(t, workload.Spec{Delivery: string(pump.Once)}, accounts, queues, change, test)
}

// inWorldOf is inWorld with what spec says of the workload besides its queues.
func inWorldOf(t *testing.T, spec workload.Spec, accounts, queues int, change func(*azsim.Config), test func(t *testing.T, w *world)) {
	t.Helper()
	testworld.In(t, spec, accounts, queues, change, func(t *testing.T, w *testworld.World) { test(t, &world{w}) })
}

// processor makes the processor of instance "p".
func (w *world) processor(h pump.Handler, o processor.Options) *processor.Processor {
	w.T.Helper()
	return w.processorOf("p", h, o)
}

func (w *world) processorOf(instance string, h pump.Handler, o processor.Options) *processor.Processor {
	w.T.Helper()
	p, err := processor.New(w.Config(instance, w.Cfg.Accounts[0].Queues), h, o)
	must(w.T, err)
	return p
}

// drain runs a processor until it is idle.
func (w *world) drain(h pump.Handler, o processor.Options) processor.Summary {
	w.T.Helper()
	if o.UntilIdle == 0 {
		o.UntilIdle = 2 * time.Minute
	}
	s, err := w.processor(h, o).Run(w.T.Context())
	must(w.T, err)
	return s
}

// started is a processor at work.
type started = testworld.Started[*processor.Processor, processor.Summary]

func (w *world) start(p *processor.Processor) *started { return testworld.Start(w.T, p) }

// inThree is testworld.InThree in a world of these tests.
func inThree(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	testworld.InThree(t, func(t *testing.T, w *testworld.World) { test(t, &world{w}) })
}

// must ends a test with an error.
var must = proof.Must

func (w *world) status(o status.Options) *status.Status {
	w.T.Helper()
	s, err := status.Read(w.T.Context(), w.Operator(), o)
	must(w.T, err)
	return s
}

// elected lists the runs that elected leaders made.
func (w *world) elected() []workload.Run {
	return slices.DeleteFunc(w.runsOf(), func(r workload.Run) bool { return r.Mode != closing.ModeEvery })
}

func (w *world) lookRow() election.Status {
	w.T.Helper()
	f := queues.Open(&w.Cfg)
	s, err := election.New(f.Control, w.Cfg.Workload, election.Options{Instance: "look"}).Status(w.T.Context())
	must(w.T, err)
	return s
}

const (
	aKey  = "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0"
	aConn = "DefaultEndpointsProtocol=https;AccountName=accounta;AccountKey=" + aKey + ";EndpointSuffix=core.windows.net"
	bConn = "DefaultEndpointsProtocol=https;AccountName=accountb;AccountKey=" + aKey + ";EndpointSuffix=core.windows.net"
)

func twoAccounts() pump.Config {
	return pump.Config{Workload: "cities", Accounts: []pump.Account{{ConnectionString: aConn}, {ConnectionString: bConn, Queues: 2, Weight: 3}}}
}

// drained is when accountb may be removed.
func (w *world) drained(name string) {
	w.T.Helper()
	must(w.T, proof.ErrOf(accounts.Drain(w.T.Context(), w.Operator(), name)))
	time.Sleep(queues.RemoveAfter)
}

func (w *world) distributor(instance string, s source.Source, o distributor.Options) *distributor.Distributor {
	w.T.Helper()
	d, err := distributor.New(w.Config(instance, w.Cfg.Accounts[0].Queues), s, o)
	must(w.T, err)
	return d
}

// working is a distributor at work.
type working = testworld.Started[*distributor.Distributor, distributor.Summary]

func (w *world) startDistributor(d *distributor.Distributor) *working { return testworld.Start(w.T, d) }

// exactOf is what the status says exactly of a run.
func exactOf(t *testing.T, s *status.Status, run pump.RunID) *pump.RunProgress {
	t.Helper()
	for _, r := range s.Runs {
		if r.ID == run.String() {
			return r.Exact
		}
	}
	t.Fatalf("run %s is not shown", run)
	return nil
}

// fillNames records so many names of foreign messages in the segment of the greeting.
func (w *world) fillNames(names int) {
	w.T.Helper()
	s := w.Scribe()
	for n := 0; n < names; n += 1024 {
		var entries []*ledger.Entry
		for i := n; i < min(n+1024, names); i++ {
			entries = append(entries, &ledger.Entry{Segment: testworld.Greeted, Epoch: 1, Foreign: fmt.Sprint("of before/", i)})
		}
		s.Ledger.Commit(w.T.Context(), entries)
		for _, e := range entries {
			if e.Err != nil {
				w.T.Fatal(e.Err)
			}
		}
	}
}

func (w *world) sender(o distributor.SenderOptions) *distributor.Sender {
	w.T.Helper()
	s, err := distributor.NewSender(w.Config("d", w.Cfg.Accounts[0].Queues), o)
	must(w.T, err)
	return s
}

func newTask(text string) source.Record { return source.Record{Key: []byte(text), Body: []byte(text)} }

// runsOf lists the runs, the last first.
func (w *world) runsOf() []workload.Run {
	w.T.Helper()
	f := queues.Open(&w.Cfg)
	runs, err := workload.NewRuns(f.Control, w.Cfg.Workload).List(w.T.Context(), 100)
	must(w.T, err)
	return runs
}

// fullSegment is the first segment of a sealed run that has so many tasks.
func fullSegment(t *testing.T, sealed []uint64, tasks uint64) uint32 {
	t.Helper()
	for s, n := range sealed {
		if n >= tasks {
			return uint32(s)
		}
	}
	t.Fatalf("no segment has %d tasks: %v", tasks, sealed)
	return 0
}

// distributed is a run of n tasks in a world of mode once, sealed, and nothing done yet.
func (w *world) distributed(n int) workload.Run {
	w.T.Helper()
	summary, err := w.distributor("d", &testworld.ListSource{Print: "a", N: n}, distributor.Options{}).Run(w.T.Context())
	must(w.T, err)
	return w.RunRow(summary.Run)
}

// quarantine opens the quarantine as the instance "operator".
func (w *world) quarantine() *quarantine.Quarantine {
	w.T.Helper()
	q, err := quarantine.Open(w.T.Context(), w.Config("operator", w.Cfg.Accounts[0].Queues))
	must(w.T, err)
	return q
}

func (w *world) listed(f quarantine.Filter) (ms []*quarantine.Message) {
	w.T.Helper()
	must(w.T, w.quarantine().List(w.T.Context(), f, func(m *quarantine.Message) bool {
		ms = append(ms, m)
		return true
	}))
	return ms
}

func (w *world) redrive(f quarantine.Filter, o quarantine.Options) (outs []quarantine.Outcome) {
	w.T.Helper()
	must(w.T, w.quarantine().Redrive(w.T.Context(), f, o, func(o quarantine.Outcome) bool {
		outs = append(outs, o)
		return true
	}))
	return outs
}

func (w *world) drop(f quarantine.Filter) (outs []quarantine.Outcome) {
	w.T.Helper()
	must(w.T, w.quarantine().Drop(w.T.Context(), f, quarantine.Options{}, func(o quarantine.Outcome) bool {
		outs = append(outs, o)
		return true
	}))
	return outs
}

// endAll stops processors together, none of which ends with an error.
func endAll(all []*started) {
	testworld.StopAll(all)
	endEach(all)
}

// endEach ends one processor after the other.
func endEach(all []*started) {
	for _, p := range all {
		p.End()
	}
}
