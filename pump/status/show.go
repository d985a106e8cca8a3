package status

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/queuepump/queuepump/pump/accounts"
	"github.com/queuepump/queuepump/pump/coordination"
	"github.com/queuepump/queuepump/pump/gates"
	"github.com/queuepump/queuepump/pump/internal/closing"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/election"
	"github.com/queuepump/queuepump/pump/internal/ledger"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/runs"
)

// status puts the parts together. rows is when the rows were read, by the local clock. Ages of
// messages are counted until now.
func (r *statusReader) status(rows time.Time) *Status {
	s := &Status{
		Workload: r.cfg.Workload, Time: r.byServer(rows), LocalClock: r.server.IsZero(),
		Delivery: string(r.cfg.Delivery), Distribution: Distribution{Phase: "unknown"},
		Runs: []Run{}, Instances: []Instance{}, Accounts: r.accounts, Unowned: []uint32{},
		Gates: []gates.Status{}, Keys: []Key{}, PausedParts: []PausedPart{},
		Settings: map[string]string{},
	}
	if r.view != nil {
		r.cluster(s)
		live := slices.DeleteFunc(slices.Clone(r.view.Members),
			func(m cluster.Member) bool { return r.silent[m.Instance] })
		for _, g := range setup.Gates(r.gates, live) {
			s.Gates = append(s.Gates, gates.Status(g))
		}
	}
	r.distribution(s)
	if r.recorded != nil {
		use := closing.LedgerStatus(r.recorded.Use)
		s.Ledger = &use
	}
	r.runStatuses(s)
	r.ends(s)
	r.money(s)
	r.notRead(s)
	for _, k := range r.claims {
		s.Keys = append(s.Keys, keyStatus(k))
	}
	for i := range s.Accounts {
		r.finish(&s.Accounts[i])
	}
	slices.Sort(r.problems) // they came from many goroutines
	s.Problems = append([]string{}, r.problems...)
	return s
}

// byServer turns a time of the local clock into one of the control account's clock, if that is
// known.
func (r *statusReader) byServer(t time.Time) time.Time {
	if r.server.IsZero() {
		return t.UTC()
	}
	return r.server.Add(t.Sub(r.local)).UTC()
}

// seen is when the view was read, by the control account's clock if that is known. Ages of beats
// are counted until then: another part that took long to answer makes no member older.
func (r *statusReader) seen() time.Time {
	if r.server.IsZero() {
		return r.view.Read
	}
	return r.server.Add(r.view.Read.Sub(r.local))
}

// cluster fills in what the view shows. A view alone never says that a member is dead, because only
// a process that watched a row for a lease may act on that (P5.3). People look once, perhaps long
// after the last process has gone; for them a beat that is older than its lease and margin is
// silence.
func (r *statusReader) cluster(s *Status) {
	v := r.view
	r.silent = map[string]bool{}
	s.Delivery, s.Shared = v.Workload.Delivery, v.Workload.Shared
	s.Segments, s.MapVersion = v.Workload.Map.Segments, v.Workload.Map.Version
	if p := v.Workload.Paused; p.Is() {
		s.PausedSince, s.PausedBy = new(p.Since.UTC()), p.By
	}
	s.PausedParts = pausedPartsOf(v.Workload)
	for name, is := range v.Workload.Settings {
		s.Settings[name] = is.Value
	}
	s.Settled = v.Settled()
	var silent []string
	live := 0 // processors that take segments
	for i := range v.Members {
		m := &v.Members[i]
		at := instanceStatus(v, m, r.seen())
		s.Instances = append(s.Instances, at)
		switch {
		case at.Silent:
			r.silent[m.Instance] = true
			silent = append(silent, m.Instance)
			s.Settled = s.Settled && at.Rank == nil
		case at.Rank != nil:
			live++
		}
	}
	slices.SortStableFunc(s.Instances, func(a, b Instance) int {
		switch {
		case a.Rank != nil && b.Rank != nil:
			return cmp.Compare(*a.Rank, *b.Rank)
		case (a.Rank == nil) != (b.Rank == nil):
			return map[bool]int{true: 1, false: -1}[a.Rank == nil]
		}
		return cmp.Or(cmp.Compare(a.Role, b.Role), cmp.Compare(a.Instance, b.Instance))
	})
	places := make(map[string]int, len(s.Instances))
	for i := range s.Instances {
		places[s.Instances[i].Instance] = i
	}
	s.Owners = make([]int, len(v.Owners))
	for segment := range v.Owners {
		owner, live := v.OwnerOf(uint32(segment))
		if live && !r.silent[owner.Instance] {
			s.Owners[segment] = places[owner.Instance]
			continue
		}
		s.Owners[segment] = -1
		s.Unowned = append(s.Unowned, uint32(segment))
	}
	for _, marks := range v.Spills {
		if marks != 0 {
			s.Spilled++
		}
	}
	for _, err := range v.Damaged {
		r.problem("%v", err)
	}
	r.absent(s, silent, live)
}

// absent tells of members that are silent, and of segments that no processor works on.
func (r *statusReader) absent(s *Status, silent []string, live int) {
	if n := len(silent); n > 0 {
		clock := ""
		if s.LocalClock {
			clock = ", by the clock of this machine"
		}
		r.problem("%d of %d processes are silent, so dead or cut off from the control account%s: %s",
			n, len(s.Instances), clock, setup.SomeOf(silent, 4))
	}
	// Without processors no member can own a segment, which is normal. One look cannot tell for how
	// long that has been so.
	switch n := len(s.Unowned); {
	case n > 0 && live > 0:
		r.problem("%d of %d segments have no live owner; "+
			"that passes within two leases after a processor comes or dies", n, s.Segments)
	case n > 0 && len(r.view.Processors()) > 0:
		r.problem("%d of %d segments have no live owner, and no live processor is there to take them", n,
			s.Segments)
	}
}

func instanceStatus(v *cluster.View, m *cluster.Member, seen time.Time) Instance {
	i := Instance{
		Instance: m.Instance, Role: string(m.Role), Host: m.Host, Version: m.Version,
		Started: m.Started.UTC(), BeatAge: age(seen, m.Beat), Silent: m.Silent(seen),
		Segments: m.Holds.Len(), Queues: m.Queues, Tasks: m.Tasks, Rate: m.Rate, Seconds: m.Seconds,
		Busy: min(m.Rate*m.Pace, 1), LeaseSeconds: m.Hides, Throttled: m.Throttled,
		Demand: m.Demand, Admin: m.Admin, Waiting: m.Waiting, Draining: m.Draining, Paused: m.Paused,
		Trouble: m.Trouble, TimesSlower: m.Slower, HoldsBack: m.HoldsBack,
		NotNow: m.NotNow, NotNowError: m.NotNowError, KeysOver: m.KeysOver,
		Failing: illOf(&m.Failing), Stuck: illOf(&m.Stuck), AllStuck: m.AllStuck,
		Begun: seen.Sub(m.Started) < 2*m.Every,
	}
	if m.NotNow > 0 {
		i.NotNowSince = new(m.NotNowSince.UTC())
	}
	if i.Demand == nil || m.Guessed {
		i.Demand = map[string]float64{}
	}
	if m.Err != nil {
		i.Role, i.Trouble = "unknown", "its row cannot be read"
	}
	if rank := v.Rank(m.Instance); rank >= 0 {
		i.Rank = &rank
	}
	return i
}

func illOf(m *cluster.Ill) *Ill {
	if m.Count == 0 {
		return nil
	}
	return &Ill{m.Count, m.Since.UTC(), m.Error, m.Task}
}

// age is the age in seconds of a stamp of the server.
func age(now, then time.Time) float64 { return seconds(max(0, now.Sub(then))) }

// seconds is a time to the millisecond: stamps are no more precise.
func seconds(d time.Duration) float64 { return float64(d.Milliseconds()) / 1000 }

func (r *statusReader) distribution(s *Status) {
	e, d := r.election, &s.Distribution
	if !r.electionKnown {
		return
	}
	if e.Epoch == 0 {
		d.Phase = "none"
		return
	}
	d.Phase, d.Leader, d.Epoch = string(e.Phase), e.Leader, e.Epoch
	if !e.Run.IsZero() {
		d.Run = e.Run.String()
	}
	if e.Phase == election.Running {
		d.BeatAge = new(age(s.Time, e.Changed))
	}
	if !e.NextRun.IsZero() {
		d.Next = new(e.NextRun.UTC())
	}
	if d.Cron = e.Cron; !e.Due.IsZero() {
		d.Due = new(e.Due.UTC())
	}
}

func (r *statusReader) runStatuses(s *Status) {
	for _, run := range r.runs {
		t := r.tallies[run.ID]
		st := Run{
			ID: run.ID.String(), Mode: run.Mode, Name: run.Name, State: string(run.State),
			Instance: run.Instance, Started: run.Started, Note: run.Note,
			Handled: t.Handled, Failed: t.Failed, Retried: t.Retried, Quarantined: t.Quarantined,
			Duplicates: t.Duplicates, Dropped: t.Dropped, Skipped: t.Skipped,
			Results: t.Results, ResultBytes: t.ResultBytes,
			Requests: t.Requests(), Cost: r.cfg.Prices.Cost(t.Requests(), 0),
		}
		if !run.Ended.IsZero() {
			st.Ended = &run.Ended
		}
		if run.State == workload.RunSealed || run.State == workload.RunClosed {
			st.Sent = &run.Tasks
		} else if n, ok := r.sentSoFar(run); ok {
			st.Sent, st.AtLeast = &n, true
		}
		if r.recorded != nil {
			sum := r.recorded.Runs[run.ID]
			st.Exact = new(closing.ProgressOf(&run, sum.Done, sum.Quarantined))
		}
		s.Runs = append(s.Runs, st)
	}
}

// sentSoFar is what is known to have been sent of a run that is not sealed: by its last checkpoint
// or, if its process makes no other run, by what that process says of itself.
func (r *statusReader) sentSoFar(run workload.Run) (uint64, bool) {
	if run.State != workload.RunOpen || r.view == nil {
		return 0, false
	}
	if run.ID == r.election.Run && r.election.Saved != "" {
		if c, err := workload.DecodeCheckpoint([]byte(r.election.Saved),
			r.view.Workload.Map.Segments); err == nil {
			return uint64(c.Tasks()), true
		}
		return 0, false
	}
	if closing.OfClient(run.Mode) {
		l, ok := r.clients[run.ID]
		return l.Put, ok
	}
	for _, m := range r.view.Members {
		if run.Mode == "once" && m.Role == cluster.RoleDistributor && m.Instance == run.Instance {
			return m.Tasks, true
		}
	}
	return 0, false
}

func keyStatus(k coordination.ClaimState) Key {
	s := Key{
		Key: k.Key, Base64: k.Base64, Task: k.Task, Instance: k.Instance,
		Start: k.Start.UTC(), Running: k.Running, Failed: k.Failed,
	}
	if k.KeyBytes > len(k.Key) && !k.Base64 {
		s.Key += "…"
	}
	if !k.Stop.IsZero() {
		s.Stop = new(k.Stop.UTC())
	}
	return s
}

// finish adds what the members say to an account, and turns stamps into ages.
func (r *statusReader) finish(a *Account) {
	if r.view != nil {
		for i := range r.view.Members {
			m := &r.view.Members[i]
			if r.silent[m.Instance] {
				continue
			}
			a.Throttled += m.Throttles[a.Name]
			// A member that waits uses nothing, and a guess is not use either.
			if m.Waiting == "" && !m.Guessed {
				a.Demand += m.Demand[a.Name]
			}
		}
	}
	if a.State != accounts.Unused && !a.Configured {
		r.problem("account %s is used by the workload, and not in this configuration", a.Name)
	}
	for i := range a.ByQueue {
		q := &a.ByQueue[i]
		if !q.oldest.IsZero() {
			q.Oldest = new(age(r.byServer(time.Now()), q.oldest))
		}
		a.Depth.add(q.Depth)
	}
}

// ends adds what holds back the ends of runs.
func (r *statusReader) ends(s *Status) {
	s.Ends = runs.Ends{Waiting: r.waiting, Runs: []runs.RunEnd{}}
	if r.view == nil || r.waiting == 0 {
		return
	}
	var use ledger.Use
	if r.recorded != nil {
		use = r.recorded.Use
	}
	e := closing.EndsBy(r.view, r.seen(), use, r.cfg.Retention)
	for _, run := range r.endings {
		s.Ends.Runs = append(s.Ends.Runs, runs.RunEnd(e.Of(run)))
	}
	if !slices.ContainsFunc(s.Ends.Runs, func(end runs.RunEnd) bool {
		return end.WaitsFor == closing.EndWaitsForReading
	}) {
		return
	}
	s.Ends.HeldBackBy = e.Read.By
	if behind, known := e.Behind(); known {
		s.Ends.BehindSeconds = new(seconds(behind))
	}
}

// PausedPart is a run or a key that an operator has paused by itself.
type PausedPart struct {
	Run string `json:"run"` // empty: it is a key
	Key string `json:"key"` // empty: it is a run; bytes that are not UTF-8 are replaced
	// Since is when it was paused, by the clock of the operator's machine, and By names the operator.
	Since time.Time `json:"since"`
	By    string    `json:"by"`
}

// What names it for people.
func (p *PausedPart) What() string {
	if p.Run != "" {
		return "run " + p.Run
	}
	return "key " + p.Key
}

// Flag is how a command names it, quoted for a shell.
func (p *PausedPart) Flag() string {
	if p.Run != "" {
		return "--run " + p.Run
	}
	if strings.Trim(p.Key, plainInShells) == "" {
		return "--key " + p.Key
	}
	return "--key '" + strings.ReplaceAll(p.Key, "'", `'\''`) + "'"
}

// plainInShells are characters that mean nothing to a shell.
const plainInShells = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:@"

func pausedPartsOf(w *workload.Workload) []PausedPart {
	list := make([]PausedPart, len(w.PausedParts))
	for i, p := range w.PausedParts {
		list[i] = PausedPart{Key: string(p.Key), Since: p.Since.UTC(), By: p.By}
		if !p.Run.IsZero() {
			list[i].Run = p.Run.String()
		}
	}
	return list
}
