package distributor

import (
	"context"
	"sync"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor/internal/send"
	"github.com/queuepump/queuepump/pump/internal/member"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/shardmap"
)

// State is what a distributor is doing at one moment.
type State struct {
	Workload string `json:"workload"`
	Instance string `json:"instance"`
	// Phase is "stopped" outside of Run, "starting" until the workload is read,
	// "standby" between distributions and while another distributor makes one,
	// "distributing", and "draining" once Run was told to stop.
	Phase string `json:"phase"`
	// Ready means that all is well: it distributes or would if a distribution was
	// due, and every account answers. Reasons are what is missing, in words; never nil.
	Ready   bool     `json:"ready"`
	Reasons []string `json:"reasons"`
	Run     string   `json:"run,omitempty"` // that it distributes now
	Read    int64    `json:"read"`          // of this run's source, in bytes or files
	Of      int64    `json:"of"`            // what it has in all; 0: not known
	// NextDue is when the next distribution by a schedule is due, by the control account's clock; null
	// without a schedule.
	NextDue *time.Time `json:"nextDue"`
	// queues that do not take what is meant for them
	Trouble  string              `json:"trouble,omitempty"`
	Cluster  pump.ClusterState   `json:"cluster"`
	Accounts []pump.AccountState `json:"accounts"`
	// Backlog is what waits in all queues; null unless this process samples them.
	Backlog *pump.Backlog `json:"backlog"`
	// Money is what this process knows of what a day costs.
	Money pump.CostOfDay `json:"money"`
	Done  Counts         `json:"done"`
}

// Counts is what a distributor has done since it began to run, in all
// its distributions together.
type Counts struct {
	Sent   int64 `json:"sent"`   // distributions that ended with everything sent
	Failed int64 `json:"failed"` // distributions that ended here in another way
	// read, without those that an earlier leader had read
	Tasks       int64         `json:"tasks"`
	Envelopes   int64         `json:"envelopes"`   // put and acknowledged
	BytesIn     int64         `json:"bytesIn"`     // of the bodies of tasks
	BytesSent   int64         `json:"bytesSent"`   // of acknowledged message text
	Skipped     int64         `json:"skipped"`     // bad lines left out
	Quarantined int64         `json:"quarantined"` // bad lines put into a poison queue
	Resent      int64         `json:"resent"`      // puts repeated after an answer that told nothing
	Requests    pump.Requests `json:"requests"`
	Throttled   int64         `json:"throttled"` // requests that were refused as too many
}

// stage is what State knows of a distributor. It may be used from many goroutines.
type stage struct {
	mu       sync.Mutex
	run      context.Context // Run's; nil outside of it
	prepared bool            // the workload was read
	current  *run
	past     Counts // of the distributions that have ended
}

// begin notes that Run goes on; the returned function ends that.
func (s *stage) begin(ctx context.Context) (end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.run = ctx
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.run, s.prepared = nil, false
	}
}

func (s *stage) ready() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.prepared = true
}

func (s *stage) hasRun(r *run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current = r
}

// ended takes a distribution's counts over at the moment when the distribution is no longer
// current.
func (s *stage) ended(r *run, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current = nil
	s.past.add(r)
	if err == nil {
		s.past.Sent++
	} else {
		s.past.Failed++
	}
}

// add counts what a distribution has done in this process. From some moment on its counters include
// the work before a takeover, so a smaller count adds nothing.
func (c *Counts) add(r *run) {
	var tasks, skipped, quarantined int64
	if r.from != nil {
		tasks, skipped, quarantined = r.from.Tasks(), int64(r.from.Skipped), int64(r.from.Quarantined)
	}
	n := &r.count
	c.Tasks += max(n.Tasks.Load()-tasks, 0)
	c.Envelopes += n.Envelopes.Load()
	c.BytesIn += n.BytesIn.Load()
	c.BytesSent += n.Sent.Load()
	c.Skipped += max(n.Skipped.Load()-skipped, 0)
	c.Quarantined += max(n.Quarantined.Load()-quarantined, 0)
	c.Resent += n.Resent.Load()
}

// State is what the distributor is doing now. It may be called at any time, from
// any goroutine, and makes no request.
func (d *Distributor) State() State {
	s := State{
		Workload: d.cfg.Workload, Instance: d.cfg.Instance, Phase: "stopped", Reasons: []string{},
		Cluster: pump.ClusterState{Rank: -1},
	}
	var m *shardmap.Map
	if route := d.router.Current(); route != nil {
		m = route.Workload.Map
	}
	s.Accounts = d.fleet.States(time.Now(), m)
	st := &d.stage
	st.mu.Lock()
	run, prepared, current := st.run, st.prepared, st.current
	s.Done = st.past
	if current != nil {
		s.Done.add(current)
	}
	st.mu.Unlock()
	if next := d.nextDue.Load(); next != nil && !next.IsZero() {
		s.NextDue = new(next.UTC())
	}
	s.Done.Requests, s.Done.Throttled = d.fleet.Requests()
	switch {
	case run == nil:
		s.Reasons = []string{"it is not running"}
		return s
	case run.Err() != nil:
		s.Phase, s.Reasons = "draining", []string{"it is stopping"}
	case current != nil:
		s.Phase = "distributing"
	case prepared:
		s.Phase = "standby"
	default:
		s.Phase, s.Reasons = "starting", []string{"it is starting"}
	}
	if current != nil {
		p := current.progress()
		s.Run, s.Read, s.Of = p.Run.String(), p.Done, p.Total
	}
	if of := d.running.Load(); of != nil {
		if m := of.member.Load(); m != nil && m.Joined() { // it can do without, so it is not missed
			s.Cluster = m.State()
			s.Reasons = append(s.Reasons, member.OfCluster(&s.Cluster)...)
		}
		s.Backlog, s.Money = of.samples.Latest(), of.samples.Money()
		d.fleet.Allowance.State(&s.Money)
		s.Money.Share, s.Money.TimesSlower = 0, 0 // it is not held back
	}
	if t := d.router.Current(); t != nil {
		s.Trouble = t.Trouble()
	}
	s.Reasons = append(s.Reasons, member.OfAccounts(s.Accounts)...)
	s.Ready = len(s.Reasons) == 0
	return s
}

// standMost is for how long the election may not have gone round, beside two leases: a candidate
// rests for up to some 90 s, and a look is a few requests.
const standMost = 3 * time.Minute

// Loops are the loops of a distributor that runs: a loop that does not go round is stuck, which
// cannot be due to a source, an account or a budget. It may be called at any time, from any
// goroutine.
func (d *Distributor) Loops() []pump.LoopState {
	s := d.running.Load()
	if s == nil {
		return nil
	}
	all := []pump.LoopState{
		member.OfLoop("sinks", &d.loops.Sinks, waits.Most),
		member.OfLoop("map", &d.loops.Map, send.MapMost),
		member.OfLoop("election", &d.standing, standMost+2*d.times().Lease),
		s.member.Load().Loop(),
	}
	// Without a young enough map no message is tried (P6.5).
	if t := d.router.Current(); t != nil && t.Fresh() {
		all = append(all, member.OfLoop("puts", &d.loops.Puts, send.PutsMost))
	}
	return all
}
