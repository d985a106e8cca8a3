package processor

import (
	"context"
	"fmt"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/closing"
	"github.com/queuepump/queuepump/pump/internal/member"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/shardmap"
)

// State is what a processor is doing at one moment.
type State struct {
	Workload string `json:"workload"`
	Instance string `json:"instance"`
	// Phase is "stopped" outside of Run, "starting" until the workload and the
	// cluster are read, "waiting" at a gate, "working", and "draining" once Run
	// was told to stop.
	Phase string `json:"phase"`
	// Ready means that all is well: it works, holds its share of the segments, and
	// every account answers. Reasons are what is missing, in words; never nil.
	Ready   bool     `json:"ready"`
	Reasons []string `json:"reasons"`
	Gate    string   `json:"gate,omitempty"` // that it waits at
	// NoWorkload: it starts, and the workload is not made yet, by the first distributor.
	NoWorkload bool `json:"noWorkload,omitempty"`
	// PausedSince is since when an operator has paused the workload, as far as this process has seen,
	// by the clock of the operator's machine; null if it is not paused. PausedBy names the operator.
	PausedSince *time.Time `json:"pausedSince"`
	PausedBy    string     `json:"pausedBy"`
	Messages    int        `json:"messages"` // in hand
	Queues      int        `json:"queues"`   // that it reads
	Handlers    int        `json:"handlers"` // that may be at work at once
	// OldestHandler is when the handler began that has been at work for longest, or null.
	// HandlersOverdue are those at work for over a minute, and for ten times as long as a task usually
	// takes: they hang, or their tasks are unusual.
	OldestHandler   *time.Time `json:"oldestHandler"`
	HandlersOverdue int        `json:"handlersOverdue"`
	// OverdueTask is the task of the oldest overdue handler, or empty.
	OverdueTask string `json:"overdueTask,omitempty"`
	// LeaseSeconds is how long messages got now are hidden, TaskSeconds how long a task usually takes
	// in the handler (0: none has ended), and RetrySeconds the longest delay of a task that fails for
	// the first time. They follow the work, unless the options fix them.
	LeaseSeconds float64 `json:"leaseSeconds"`
	TaskSeconds  float64 `json:"taskSeconds"`
	RetrySeconds float64 `json:"retrySeconds"`
	// Latency is that of the tasks begun in the last minute or two.
	Latency Latency `json:"latency"`
	// Uncommitted are messages whose results wait to be recorded in the ledger, Unfenced segments
	// whose ledger is not this process's yet, so that their tasks wait (mode once, and with a
	// reducer).
	Uncommitted int `json:"uncommitted"`
	Unfenced    int `json:"unfenced"`
	// StateUsed is the part of its bound (1 MiB compressed, 16 MiB before) that the fullest reducer's
	// state of its segments takes, from 0 to 1. StatesFull is how many segments' states had no room
	// for results within the last hour: their tasks wait, and those that do not fit go into quarantine
	// after an hour.
	StateUsed  float64 `json:"stateUsed"`
	StatesFull int     `json:"statesFull"`
	// Ledger is what the fullest of its segments uses of its ledger's bounds; zeros without a
	// ledger.
	Ledger pump.LedgerStatus `json:"ledger"`
	// RunsUnfinished is how many runs without a distributor are not over yet. The processor of rank 0
	// ends them and knows; others say 0.
	RunsUnfinished int `json:"runsUnfinished"`
	// TasksRemaining is how many tasks of runs that are not over are neither done nor in quarantine,
	// by the ledger. The processor of rank 0 knows; null for others, and without a ledger.
	TasksRemaining *int64 `json:"tasksRemaining"`
	// Backlog is what waits in all queues; null unless this process samples them.
	Backlog *pump.Backlog `json:"backlog"`
	// Money is what this process knows of what a day costs.
	Money pump.CostOfDay `json:"money"`
	// RateUsed is what this process would start a second, as a part of Options.MaxRate; 0 without.
	RateUsed float64 `json:"rateUsed"`
	// NotNow says whether tasks are told "not now" by what the handlers use.
	NotNow NotNow `json:"notNow"`
	// KeysOver says which keys are over the limits of Options.PerKey.
	KeysOver pump.KeysOver `json:"keysOver"`
	// Failing says whether the handlers fail.
	Failing Failing `json:"failing"`
	// ForeignWaits is in how many segments foreign messages have lately waited because the segment
	// keeps the most names of done messages (mode once): deletes of those were not acknowledged.
	ForeignWaits int `json:"foreignWaits"`

	Cluster  pump.ClusterState   `json:"cluster"`
	Accounts []pump.AccountState `json:"accounts"`
	Done     Summary             `json:"done"`
}

// phase is where a Run stands. It only grows.
type phase int32

const (
	phaseStopped phase = iota
	phaseStarting
	phaseWaiting
	phaseWorking
	phaseDraining
)

func (p phase) String() string {
	return [...]string{"stopped", "starting", "waiting", "working", "draining"}[p]
}

// setRunning notes that Run goes on; the returned function ends that.
func (p *Processor) setRunning(r *run) (end func()) {
	r.setPhase(phaseStarting)
	p.running.Store(r)
	return func() {
		last := r.summary()
		p.last.Store(&last) // what it counted stays to be seen until the process ends
		p.running.Store(nil)
	}
}

func (r *run) setPhase(p phase) { r.phase.Store(int32(p)) }

// Loops are the loops of a processor that runs: a loop that does not go round is stuck, which
// cannot be due to an account, a gate or a handler. It may be called at any time, from any
// goroutine.
func (p *Processor) Loops() []pump.LoopState {
	r := p.running.Load()
	if r == nil {
		return nil
	}
	return []pump.LoopState{
		member.OfLoop("poller", &r.poller.Rounds, waits.Most),
		member.OfLoop("lease keeper", &r.keeper.Rounds, waits.Most),
		r.Member.Load().Loop(),
	}
}

// State is what the processor is doing now. It may be called at any time, from
// any goroutine, and makes no request.
func (p *Processor) State() State {
	s := State{
		Workload: p.cfg.Workload, Instance: p.cfg.Instance, Phase: phaseStopped.String(),
		Reasons: []string{}, Accounts: []pump.AccountState{}, Done: Summary{Requests: pump.Requests{}},
		Cluster: pump.ClusterState{Rank: -1}, NotNow: NotNow{Causes: noCauses()},
	}
	r := p.running.Load()
	if r == nil {
		if last := p.last.Load(); last != nil {
			s.Done = *last
		}
		s.Reasons = []string{"it is not running"}
		return s
	}
	now := phase(r.phase.Load())
	s.Phase = now.String()
	s.Messages = r.Messages.Count()
	s.Done = r.summary()
	s.Gate = s.Done.Waiting
	if mark := r.aside.paused.Load(); mark != nil {
		s.PausedSince, s.PausedBy = &mark.Since, mark.By
	}
	var m *shardmap.Map
	if share := r.Assignment.Load(); share != nil {
		m = share.Of
	}
	s.Accounts = r.Queues.States(time.Now(), m)
	s.Cluster = r.Member.Load().State()
	s.Queues = r.poller.Queues()
	_, retry := r.timing.Backoff(0)
	s.Latency, s.NotNow = r.latency.lately(), r.notNows.State()
	s.Failing, s.KeysOver = r.failures.State(), r.keysOver()
	s.Handlers = r.o.Concurrency
	s.RunsUnfinished = int(r.unfinished.Load())
	if n := r.remaining.Load(); n >= 0 {
		s.TasksRemaining = &n
	}
	s.Backlog, s.Money = r.sampler.Latest(), r.sampler.Money()
	r.Queues.Allowance.State(&s.Money)
	if tasks := r.Queues.Tasks.Load(); tasks != nil {
		s.RateUsed = tasks.Used()
	}
	s.LeaseSeconds, s.TaskSeconds, s.RetrySeconds = r.timing.Lease().Seconds(),
		r.timing.Task().Seconds(), retry.Seconds()
	switch now {
	case phaseStarting:
		s.Reasons = append(s.Reasons, "it is starting")
		if s.NoWorkload = r.start.noWorkload.Load(); s.NoWorkload {
			s.Reasons = append(s.Reasons, "it waits for the workload to be made by the first distributor")
		}
	case phaseWaiting:
		s.Reasons = append(s.Reasons, fmt.Sprintf("it waits at gate %q", s.Gate))
	case phaseDraining:
		s.Reasons = append(s.Reasons, "it is stopping")
	}
	if now > phaseStarting {
		s.Reasons = append(s.Reasons, member.OfCluster(&s.Cluster)...)
		r.addLedger(&s)
		if share := r.Assignment.Load(); share != nil {
			if awaits := share.Awaits(); awaits != "" {
				s.Reasons = append(s.Reasons, awaits)
			}
			for _, name := range share.Unreadable() {
				s.Reasons = append(s.Reasons,
					fmt.Sprintf("queue %s cannot be read: no credentials for its account", name))
			}
		}
	}
	s.Reasons = append(s.Reasons, member.OfAccounts(s.Accounts)...)
	r.workers.late.Load().addTo(&s)
	for _, amiss := range r.o.Amiss {
		if why := amiss(); why != "" {
			s.Reasons = append(s.Reasons, why)
		}
	}
	s.Ready = len(s.Reasons) == 0
	return s
}

// addTo says which handlers have not returned for long.
func (late *lateness) addTo(s *State) {
	if late == nil || late.oldest.IsZero() {
		return
	}
	s.OldestHandler, s.HandlersOverdue, s.OverdueTask = &late.oldest, late.overdue, late.task
	if late.overdue == s.Handlers {
		s.Reasons = append(s.Reasons,
			fmt.Sprintf("its %d handlers have not returned, the first since %s", late.overdue,
				late.oldest.UTC().Format(time.RFC3339)))
	}
}

// addLedger adds the state of the ledger, if there is one.
func (r *run) addLedger(s *State) {
	c := r.recorder
	if c == nil {
		return
	}
	because := func(format string, n int) { s.Reasons = append(s.Reasons, fmt.Sprintf(format, n)) }
	s.Uncommitted, s.Unfenced = c.Uncommitted(), len(c.ToFence(r.Member.Load()))
	if s.Unfenced > 0 {
		because("the ledger of %d of its segments is not its own yet", s.Unfenced)
	}
	s.Ledger = closing.LedgerStatus(c.Ledger.Use())
	s.StateUsed, s.StatesFull = c.StateUsed(), c.States.Count()
	if s.StatesFull > 0 {
		because("the reducer's state of %d of its segments is full: keep less of each "+
			"key, or use more segments",
			s.StatesFull)
	}
	if s.ForeignWaits = c.Names.Count(); s.ForeignWaits > 0 {
		because("foreign messages of %d of its segments wait until deletes of done ones are acknowledged",
			s.ForeignWaits)
	}
	if c.Full() {
		because("the results of %d messages wait to be recorded", s.Uncommitted)
	}
}

// reportEvery is how often Progress is called.
const reportEvery = 200 * time.Millisecond

func (r *run) reportProgress(ctx context.Context) {
	if r.o.Progress != nil {
		waits.Every(ctx, reportEvery, func(time.Time) { r.o.Progress(r.summary()) })
	}
}
