package capacity

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/shardmap"
)

// Plan is what a workload needs at its rate, and the most that this could do.
type Plan struct {
	Rate             float64 `json:"rate"` // tasks a second that it is for
	Fits             bool    `json:"fits"` // everything that was asked for has room
	Accounts         int     `json:"accounts"`
	QueuesPerAccount int     `json:"queuesPerAccount"`
	Queues           int     `json:"queues"`
	Segments         int     `json:"segments"`
	Processors       int     `json:"processors"`
	Concurrency      int     `json:"concurrency"` // of each
	Distributors     int     `json:"distributors"`
	VMs              int     `json:"vms"` // one for each process
	Connections      int     `json:"connections"`

	Packing  Packing  `json:"packing"`
	Requests Requests `json:"requests"`
	Money    Money    `json:"money"`

	// StoredResults and StoredBodies are bytes that lie in blobs in the long run: results until the
	// retention of their runs is over, and the bodies of a day, as if runs were closed daily.
	StoredResults float64 `json:"storedResults,omitempty"`
	StoredBodies  float64 `json:"storedBodies,omitempty"`

	// Limits are what bounds the tasks a second, the lowest first; the first is the Bottleneck.
	Limits     []Limit `json:"limits"`
	Bottleneck string  `json:"bottleneck"`
	Most       float64 `json:"most"` // tasks a second that all this can do, without headroom

	Sample  Sample      `json:"sample"`
	Machine Machine     `json:"machine"`
	Prices  pump.Prices `json:"prices"`

	worst float64 // part in use of the busiest limit; without the hottest key, if no size mends that
}

// Packing is how tasks share messages.
type Packing struct {
	Tasks    float64 `json:"tasks"`    // in a message
	By       string  `json:"by"`       // the limit: size, pack, handling, memory, seal-age or bodies
	Bytes    float64 `json:"bytes"`    // of a message's text
	Messages float64 `json:"messages"` // a second
	// Counts is what one counts against the limits of its queue and account, from its put to its
	// delete.
	Counts float64 `json:"counts"`
}

// Requests are those to the queues and tables of the workload.
type Requests struct {
	Put         float64 `json:"put"` // a second, while tasks come
	Get         float64 `json:"get"`
	Delete      float64 `json:"delete"`
	Renew       float64 `json:"renew"`
	Table       float64 `json:"table"`
	Objects     float64 `json:"objects,omitempty"` // of results, put into blobs
	Bodies      float64 `json:"bodies,omitempty"`  // of tasks, put into blobs; as many are got
	PerThousand float64 `json:"perThousand"`       // tasks; those to queues
	PerDay      float64 `json:"perDay"`
}

// Money is a day's.
type Money struct {
	Queues     float64 `json:"queues"`
	Tables     float64 `json:"tables"`
	Results    float64 `json:"results,omitempty"` // puts of their objects
	Bodies     float64 `json:"bodies,omitempty"`  // puts and gets of bodies
	Stored     float64 `json:"stored,omitempty"`  // in blobs
	VMs        float64 `json:"vms"`
	Total      float64 `json:"total"`
	PerMillion float64 `json:"perMillion"` // tasks
}

// Limit is one resource.
type Limit struct {
	Name   string  `json:"name"`
	Tasks  float64 `json:"tasks"`  // a second when it is full
	Used   float64 `json:"used"`   // part of it at the plan's rate
	What   string  `json:"what"`   // how it comes about
	Remedy string  `json:"remedy"` // what moves it
}

// Make plans. It takes the accounts and queues that were asked for, or as many as needed.
func Make(in Input) (*Plan, error) {
	in, err := in.Defaults()
	if err != nil {
		return nil, err
	}
	if in.Sample.PerFull < 1 {
		return nil, pump.Invalid("task-bytes",
			"nothing says how large tasks are", "give --task-bytes, or --input and the like")
	}
	var best *Plan
	most := min(maxAccounts, shardmap.MaxShards/max(in.Queues, 1))
	for accounts := max(in.Accounts, 1); accounts <= most; accounts++ {
		p := in.withAccounts(accounts)
		if best == nil || p.worst < 0.999*best.worst {
			best = p
		}
		if in.enough(best.worst) || in.Accounts > 0 {
			break
		}
	}
	in.finish(best)
	return best, nil
}

// enough reports whether a part in use leaves the headroom.
func (in *Input) enough(used float64) bool { return used <= (1-in.Headroom)*(1+1e-9) }

// withAccounts plans with so many accounts, and the number of queues with which that is cheapest:
// over more queues processors share the work more evenly, but fewer tasks fit a message.
func (in *Input) withAccounts(accounts int) *Plan {
	if in.Queues > 0 {
		return in.with(accounts, in.Queues)
	}
	var best *Plan
	most := shardmap.MaxShards / accounts
	for queues := min(pump.DefaultQueues, most); queues <= min(maxQueues, most); queues++ {
		p := in.with(accounts, queues)
		switch {
		case best == nil, in.enough(p.worst) && !in.enough(best.worst):
			best = p
		case in.enough(p.worst) && p.Money.Total < 0.98*best.Money.Total,
			!in.enough(best.worst) && p.worst < 0.98*best.worst:
			best = p
		}
	}
	return best
}

// with plans with so many queues: processors and distributors for the rate, and the requests and
// money that follow.
func (in *Input) with(accounts, queuesEach int) *Plan {
	n := accounts * queuesEach
	p := &Plan{
		Rate: in.Rate, Accounts: accounts, QueuesPerAccount: queuesEach, Queues: n, Segments: in.Segments,
		Concurrency: in.Concurrency, Sample: in.Sample, Machine: in.Machine, Prices: in.Prices,
	}
	p.Segments = cmp.Or(p.Segments, shardmap.DefaultSegments(n))
	l := in.load(p, in.Rate)
	in.processes(p, &l)
	l = in.load(p, in.Rate) // with so many processors
	p.Packing = l.packing
	p.Packing.Counts = l.cost
	in.count(p, l.got)
	mended := in.keyFits(p, &l)
	for _, r := range in.resources(p) {
		if !r.ofKey || mended {
			p.worst = max(p.worst, r.used(&l))
		}
	}
	return p
}

// keyFits reports whether the hottest key fits one queue and one processor that have hardly any
// other work, the most that size can do for it.
func (in *Input) keyFits(p *Plan, l *load) bool {
	alone := in.withKey(1 / float64(p.Segments))
	return in.enough(in.keyMessages(l, alone)*l.cost/in.QueueLimit) &&
		(in.Shared || in.enough(l.rate*in.busy(l)*alone))
}

// processes finds how many are needed: T x X / S must reach the rate, also for the fullest of them
// (origins H2).
func (in *Input) processes(p *Plan, l *load) {
	mended := in.keyFits(p, l)
	fits := func(x int) bool {
		part := in.spread(p, x)
		if mended && !in.Shared {
			part = in.withKey(part)
		}
		return in.enough(in.Rate * in.busy(l) * part)
	}
	x := max(1, int(math.Ceil(in.Rate*in.busy(l)/(1-in.Headroom)-1e-9)))
	for x < p.Segments && !fits(x) {
		x++
	}
	p.Processors = x
	if !in.Shared { // a processor that owns nothing does nothing
		p.Processors = min(x, p.Segments)
	}
	p.Distributors = max(1,
		int(math.Ceil(in.Rate*in.sending(l)/(in.Machine.CPUs*(1-in.Headroom))-1e-9)))
	p.VMs = p.Processors + p.Distributors
}

// finish finds the limits of the plan: what is full first as the rate grows.
func (in *Input) finish(p *Plan) {
	p.Fits = true
	at := in.load(p, in.Rate)
	for _, r := range in.resources(p) {
		used, most := r.used(&at), in.ceiling(p, r)
		p.Fits = p.Fits && in.enough(used)
		p.Limits = append(p.Limits,
			Limit{Name: r.name, Tasks: most, Used: used, What: r.what, Remedy: r.remedy})
	}
	slices.SortStableFunc(p.Limits, func(a, b Limit) int { return cmp.Compare(a.Tasks, b.Tasks) })
	p.Bottleneck, p.Most = p.Limits[0].Name, p.Limits[0].Tasks
}

// ceiling is how many tasks a second fill a resource. It is searched for: at a higher rate messages
// are fuller and fewer gets are empty, so a resource is full later than in proportion.
func (in *Input) ceiling(p *Plan, r resource) float64 {
	low, high := 1e-9, 1e15
	for range 100 {
		middle := math.Sqrt(low * high)
		if l := in.load(p, middle); r.used(&l) > 1 {
			high = middle
		} else {
			low = middle
		}
	}
	return low
}

// Short writes a number with three digits: 1,480,000, 612, 4.91, 0.034.
func Short(v float64) string {
	if v == 0 || math.IsInf(v, 0) || math.IsNaN(v) {
		return strconv.FormatFloat(v, 'g', -1, 64)
	}
	unit := math.Pow(10, math.Floor(math.Log10(math.Abs(v)))-2)
	if v = math.Round(v/unit) * unit; math.Abs(v) < 999.5 {
		return strconv.FormatFloat(v, 'g', 3, 64)
	}
	s := strconv.FormatFloat(v, 'f', 0, 64)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// packing is how many tasks share a message at a rate with so many segments.
func (in *Input) packing(rate float64, segments int) Packing {
	large := in.LargePart
	k, by := in.Sample.PerFull, "size"
	if in.Pack > 0 && float64(in.Pack) <= k {
		k, by = float64(in.Pack), "pack"
	}
	if in.HandlerSeconds > 0 {
		if most := max(1,
			math.Floor(envelopeSeconds*float64(in.Concurrency)/in.HandlerSeconds)); most < k {
			k, by = most, "handling"
		}
	}
	used := in.Sample.segments(segments)
	// All envelopes that are being filled are half full on average, so if they do not fit together
	// each is sent at the part of its fill that fits.
	if open := used * in.Sample.held / 2; open > float64(in.MaxOpen) {
		if most := max(1, in.Sample.PerFull*float64(in.MaxOpen)/open); most < k {
			k, by = most, "memory"
		}
	}
	if in.SealAge > 0 {
		// The first task opens the envelope, and tasks that come within the age join it.
		if most := 1 + rate*(1-large)/used*in.SealAge.Seconds(); most < k {
			k, by = most, "seal-age"
		}
	}
	if large*k > 1-large { // most messages are of a large task, which has one of its own
		by = "bodies"
	}
	k = 1 / ((1-large)/k + large)
	text := k * (1 - large) * in.Sample.Text
	return Packing{Tasks: k, By: by, Bytes: headerText + text, Messages: rate / k}
}

// envelopeSeconds is how long the tasks of one message should be in the handlers at most;
// distributors fill messages by what processors say of their tasks
// (pump/distributor/internal/send/limits.go).
const envelopeSeconds = 5.0

// headerText is what a message has besides its tasks.
const headerText = 150

// spread is the part of the tasks that the fullest of so many processors has: whole queues if there
// are enough, else segments (P5.5). In a shared workload each takes what it has room for.
func (in *Input) spread(p *Plan, processors int) float64 {
	switch {
	case in.Shared:
		return 1 / float64(processors)
	case processors <= p.Queues:
		return ceil(p.Queues, processors) / float64(p.Queues)
	}
	return ceil(p.Segments, processors) / float64(p.Segments)
}

func ceil(n, parts int) float64 { return float64((n + parts - 1) / parts) }
