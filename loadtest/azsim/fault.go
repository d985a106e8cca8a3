package azsim

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// FaultKind is a way for a request to go wrong on purpose.
type FaultKind string

// The kinds of fault. "Acts" means that the operation is carried out, so that
// the client's view and the server's differ (the windows of docs/protocols.md).
const (
	Answer      FaultKind = "answer"       // does not act; answers Status and Code
	FailBefore  FaultKind = "fail-before"  // does not act; the connection breaks without an answer
	AnswerAfter FaultKind = "answer-after" // acts, but answers Status and Code
	AnswerLost  FaultKind = "answer-lost"  // acts; the connection breaks without an answer
	// acts; the connection breaks in the middle of the answer's body
	CutBody      FaultKind = "cut-body"
	DelayBefore  FaultKind = "delay-before"  // waits Delay, then acts
	DelayAfter   FaultKind = "delay-after"   // acts, then waits Delay before answering
	HangBefore   FaultKind = "hang-before"   // never acts; no answer until the client gives up
	HangAfter    FaultKind = "hang-after"    // acts; no answer until the client gives up
	DeliverTwice FaultKind = "deliver-twice" // GetMessages: what it hands out stays visible
	// GetMessages, UpdateMessage: visible again after 10 to 90 % of its lease
	ReappearEarly FaultKind = "reappear-early"
	// GetMessages: takes visible messages in an order chosen by the seed
	Reorder FaultKind = "reorder"
	// GetEntity, QueryEntities: binary values lack their last byte; the rows stay as they are
	Damage FaultKind = "damage"
)

// Rule says which requests go wrong, how, and how often. The zero value of a
// matching field matches everything.
type Rule struct {
	Account    string   // account name
	Service    string   // "queue", "table" or "blob"
	Operations []string // names as in RequestCount.Operation
	Object     string   // queue, table or container
	Partition  string   // partition key, or blob; requests of queues and of whole tables have none
	Instance   string   // client, see Transport.As; by TCP its User-Agent
	UserAgent  string   // a part of the header

	Fault  FaultKind
	Status int // Answer, AnswerAfter: HTTP status; 0: 503, or 500 for AnswerAfter
	// Answer, AnswerAfter: error code; "": ServerBusy, or InternalError for AnswerAfter
	Code  string
	Delay time.Duration // DelayBefore, DelayAfter

	// RetryAfter, if positive, is sent with an Answer or AnswerAfter as a
	// Retry-After header in whole seconds, rounded up.
	RetryAfter time.Duration

	// Of the requests that match, the first Skip are spared. Of the rest only the first First (0: all)
	// are hit, of those every Every-th (0 and 1: each), and of those a share of Probability, chosen by
	// the seed (0: each).
	Skip, First, Every int
	Probability        float64
}

// String describes the rule on one line, for failing tests and logs.
func (r Rule) String() string {
	var b strings.Builder
	b.WriteString(string(r.Fault))
	if r.Fault == Answer || r.Fault == AnswerAfter {
		status, code := r.answer()
		fmt.Fprintf(&b, " %d %s", status, code)
	}
	if r.Fault == DelayBefore || r.Fault == DelayAfter {
		fmt.Fprintf(&b, " %v", r.Delay)
	}
	for _, f := range []struct{ name, value string }{
		{"account", r.Account},
		{"service", r.Service},
		{"operations", strings.Join(r.Operations, ",")},
		{"object", r.Object},
		{"partition", r.Partition},
		{"instance", r.Instance},
		{"user-agent", r.UserAgent},
	} {
		if f.value != "" {
			fmt.Fprintf(&b, " %s=%s", f.name, f.value)
		}
	}
	for _, f := range []struct {
		name  string
		value int
	}{{"skip", r.Skip}, {"first", r.First}, {"every", r.Every}} {
		if f.value != 0 {
			fmt.Fprintf(&b, " %s=%d", f.name, f.value)
		}
	}
	if r.Probability != 0 {
		fmt.Fprintf(&b, " probability=%g", r.Probability)
	}
	return b.String()
}

func (r Rule) answer() (status int, code string) {
	status, code = http.StatusServiceUnavailable, "ServerBusy"
	if r.Fault == AnswerAfter {
		status, code = http.StatusInternalServerError, "InternalError"
	}
	return cmp.Or(r.Status, status), cmp.Or(r.Code, code)
}

// reply is the answer that the rule gives instead of the operation's own.
func (r Rule) reply(q *request) reply {
	status, code := r.answer()
	return q.fail(status, code, "").retryAfter(r.RetryAfter)
}

// check refuses a rule that could never do what it says.
func (r Rule) check() error {
	kinds := []FaultKind{
		Answer, FailBefore, AnswerAfter, AnswerLost, CutBody, DelayBefore, DelayAfter,
		HangBefore, HangAfter, DeliverTwice, ReappearEarly, Reorder, Damage,
	}
	switch {
	case !slices.Contains(kinds, r.Fault):
		return fmt.Errorf("unknown fault %q", r.Fault)
	case (r.Fault == DelayBefore || r.Fault == DelayAfter) && r.Delay <= 0:
		return fmt.Errorf("%s without a Delay", r.Fault)
	case r.Probability < 0 || r.Probability > 1:
		return fmt.Errorf("probability %g is not in 0 to 1", r.Probability)
	case r.Skip < 0 || r.First < 0 || r.Every < 0:
		return fmt.Errorf("negative count")
	case !slices.Contains([]service{"", queueService, tableService, blobService}, service(r.Service)):
		return fmt.Errorf("unknown service %q", r.Service)
	case r.Status != 0 && (r.Status < 200 || r.Status > 599):
		return fmt.Errorf("status %d cannot be answered", r.Status)
	}
	return nil
}

func (r *Rule) matches(instance string, q *request, op *operation) bool {
	return (r.Account == "" || r.Account == q.account.name) &&
		(r.Service == "" || r.Service == string(q.service)) &&
		(len(r.Operations) == 0 || slices.Contains(r.Operations, op.name)) &&
		(r.Object == "" || r.Object == op.object) &&
		(r.Partition == "" || strings.HasSuffix(op.partition, "\x00"+r.Partition)) &&
		(r.Instance == "" || r.Instance == instance) &&
		(r.UserAgent == "" || strings.Contains(q.header.Get("User-Agent"), r.UserAgent))
}

// Injection is a rule in force.
type Injection struct {
	rule    Rule
	salt    uint64 // the how-many-th rule of the Sim this is
	sim     *Sim
	matched atomic.Int64
	hits    atomic.Int64
}

// Hits is how many requests the rule has made go wrong.
func (i *Injection) Hits() int64 { return i.hits.Load() }

// Remove ends the rule. Requests it is already acting on stay as they are.
func (i *Injection) Remove() { i.sim.faults.remove(i) }

// String describes the rule and what it has done.
func (i *Injection) String() string {
	return fmt.Sprintf("%v (%d of %d matching)", i.rule, i.hits.Load(), i.matched.Load())
}

// faults are the rules in force, replaced as a whole so that requests read them without a lock.
type faults struct {
	mu    sync.Mutex // serialises writers
	rules atomic.Pointer[[]*Injection]
	added uint64 // guarded by mu
}

func (f *faults) load() []*Injection {
	if p := f.rules.Load(); p != nil {
		return *p
	}
	return nil
}

func (f *faults) remove(i *Injection) {
	f.mu.Lock()
	defer f.mu.Unlock()
	rules := slices.DeleteFunc(slices.Clone(f.load()), func(x *Injection) bool { return x == i })
	f.rules.Store(&rules)
}

// Inject puts a rule in force until it is removed. Several rules may hit one request: their delays
// add up, and the first rule that decides the answer wins. It panics on a rule that makes no sense,
// a mistake in the calling program.
func (s *Sim) Inject(r Rule) *Injection {
	if err := r.check(); err != nil {
		panic("azsim: rule " + r.String() + ": " + err.Error())
	}
	r.Operations = slices.Clone(r.Operations)
	f := &s.faults
	f.mu.Lock()
	defer f.mu.Unlock()
	f.added++
	i := &Injection{rule: r, salt: f.added, sim: s}
	rules := append(slices.Clone(f.load()), i)
	f.rules.Store(&rules)
	return i
}

// Faults describes the rules in force, one a line, for failing tests.
func (s *Sim) Faults() string {
	var b strings.Builder
	for _, i := range s.faults.load() {
		fmt.Fprintln(&b, i)
	}
	return b.String()
}

// plan is what will happen to one request besides what it asks for.
type plan struct {
	before, after time.Duration // latency and delays on the way there and back
	decided       *Injection    // the rule that decides the answer; nil: none
	mischief      mischief
}

// mischief is what a service does wrong on purpose in one request.
type mischief struct {
	twice, early, reorder, damage bool
	hash                          uint64 // decides what is left to chance
}

// is reports whether the answer is decided by one of kinds.
func (p *plan) is(kinds ...FaultKind) bool {
	return p.decided != nil && slices.Contains(kinds, p.decided.rule.Fault)
}

// plan decides a request's fate before it is sent on its way: everything is a function of the seed
// and the occasion, except the counts of First, Skip and Every, which follow the order of requests.
// With Ordered the seed decides that order too.
func (s *Sim) plan(instance string, r *request, op *operation) plan {
	var p plan
	rules := s.faults.load()
	if r.spared {
		rules = nil
	}
	l, spread := s.latencyOf(r.service)
	if len(rules) == 0 && l <= 0 && !s.config.Ordered {
		return p
	}
	o := occasion{instance, op.name, r.account.name, op.object}
	h := drawMix(s.config.Seed, o.hash(), s.tally.next(o))
	r.id = drawGUID(h, requestWord).String()
	if l > 0 {
		p.before, p.after = leg(l, spread, drawMix(h, 1)), leg(l, spread, drawMix(h, 2))
	}
	p.mischief.hash = drawMix(h, 3)
	for _, i := range rules {
		if i.rule.matches(instance, r, op) && i.due(h) {
			p.add(i, &s.stats)
		}
	}
	return p
}

// Latency is how long the requests of each service take, as Config.Latency says, those of blobs as
// those of queues; 0: no time. Spread
// is how much more the seed adds at most; 0: half of the latency, two microseconds at least.
type Latency struct{ Queue, Table, Spread time.Duration }

// SetLatency changes how long requests take that come from now on.
func (s *Sim) SetLatency(l Latency) { s.latency.Store(&l) }

func (s *Sim) latencyOf(of service) (latency, spread time.Duration) {
	l := s.latency.Load()
	if of == tableService {
		return l.Table, l.Spread
	}
	return l.Queue, l.Spread
}

// leg is the time one way: half the latency and up to half the spread more.
func leg(latency, spread time.Duration, h uint64) time.Duration {
	half := latency / 2
	return half + time.Duration(h%uint64(max(cmp.Or(spread, half)/2, 1000)))
}

// due counts a matching request and reports whether it is one to go wrong.
func (i *Injection) due(h uint64) bool {
	n := int(i.matched.Add(1)) - 1 - i.rule.Skip
	switch {
	case n < 0:
		return false
	case i.rule.First > 0 && n >= i.rule.First:
		return false
	case i.rule.Every > 1 && n%i.rule.Every != i.rule.Every-1:
		return false
	case i.rule.Probability > 0 && drawShare(drawMix(h, i.salt, 4)) >= i.rule.Probability:
		return false
	}
	return true
}

func (p *plan) add(i *Injection, c *counters) {
	switch i.rule.Fault {
	case DelayBefore:
		p.before += i.rule.Delay
	case DelayAfter:
		p.after += i.rule.Delay
	case DeliverTwice:
		p.mischief.twice = true
	case ReappearEarly:
		p.mischief.early = true
	case Reorder:
		p.mischief.reorder = true
	case Damage:
		p.mischief.damage = true
	default:
		if p.decided != nil {
			return
		}
		p.decided = i
	}
	i.hits.Add(1)
	count(&c.faults, i.rule.Fault)
}

// darkness is whether an account can be reached.
type darkness int32

const (
	lit     darkness = iota
	refused          // connections are refused
	hanging          // connections are taken and nothing is answered
)

// Blackout makes an account unreachable, or reachable again: connections are
// refused, and answers under way are lost although the operations acted. It
// ends a Hang, and does nothing for an account that does not exist.
func (s *Sim) Blackout(account string, on bool) { s.darken(account, on, refused) }

// Hang is Blackout of the worse kind: requests are taken and never answered
// until the client gives up.
func (s *Sim) Hang(account string, on bool) { s.darken(account, on, hanging) }

func (s *Sim) darken(account string, on bool, d darkness) {
	if !on {
		d = lit
	}
	if a := s.accounts[account]; a != nil {
		a.dark.Store(int32(d))
	}
}
