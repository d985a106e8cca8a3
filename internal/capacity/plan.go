package capacity

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/shardmap"
)

// Plan is what a workload needs at its rate, and what that could do at most.
type Plan struct {
	Rate             float64 `json:"rate"` // tasks a second that it is for
	Fits             bool    `json:"fits"` // everything that was asked for has the room
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

	// Limits are what bounds the tasks a second, the lowest first; the first is the Bottleneck.
	Limits     []Limit `json:"limits"`
	Bottleneck string  `json:"bottleneck"`
	Most       float64 `json:"most"` // tasks a second that all this can do, with no headroom

	Sample  Sample  `json:"sample"`
	Machine Machine `json:"machine"`
	Prices  Prices  `json:"prices"`
}

// Packing is how tasks share messages.
type Packing struct {
	Tasks    float64 `json:"tasks"`    // in a message
	By       string  `json:"by"`       // what limits that: size, seal-age, memory or pack
	Bytes    float64 `json:"bytes"`    // of a message's text
	Messages float64 `json:"messages"` // a second
}

// Requests are those to the queues and tables of the workload.
type Requests struct {
	Put, Get, Delete, Renew, Table float64 // a second, while tasks come
	PerThousand                    float64 // tasks; those to queues
	PerDay                         float64
}

// Money is a day's.
type Money struct {
	Queues, Tables, VMs, Total float64
	PerMillion                 float64 // tasks
}

// Limit is one resource.
type Limit struct {
	Name   string  `json:"name"`
	Tasks  float64 `json:"tasks"`  // a second at which it is full
	Used   float64 `json:"used"`   // part of it at the plan's rate
	What   string  `json:"what"`   // how it comes about
	Remedy string  `json:"remedy"` // what moves it
}

// Make plans. Accounts and queues are as many as it takes, or as were asked for.
func Make(in Input) (*Plan, error) {
	in, err := in.Defaults()
	if err != nil {
		return nil, err
	}
	if in.Sample.PerFull < 1 {
		return nil, &pump.ConfigError{Field: "task-bytes", Problem: "nothing says how large tasks are", Fix: "give --task-bytes, or --input and the like"}
	}
	var best *Plan
	for accounts := max(in.Accounts, 1); accounts <= maxAccounts; accounts++ {
		p := in.withAccounts(accounts)
		// What more accounts cannot mend does not get better with them.
		if best == nil || p.Fits || p.Most > best.Most*1.001 {
			best = p
		}
		if best.Fits || in.Accounts > 0 || !p.shared() {
			return best, nil
		}
	}
	return best, nil
}

// shared reports whether accounts or queues are what the plan lacks.
func (p *Plan) shared() bool {
	return slices.ContainsFunc(p.Limits, func(l Limit) bool {
		return (l.Name == limitAccounts || l.Name == limitQueues || l.Name == limitSpread) && l.Tasks < p.Rate
	})
}

// withAccounts plans with so many accounts, and with the fewest processors that any possible number
// of queues allows: they share queues evenly, or one has more than its part.
func (in *Input) withAccounts(accounts int) *Plan {
	if in.Queues > 0 {
		return in.with(accounts, in.Queues)
	}
	var best *Plan
	for queues := pump.DefaultQueues; queues <= maxQueues; queues++ {
		p := in.with(accounts, queues)
		better := best == nil || p.Fits && !best.Fits
		if best != nil && p.Fits == best.Fits {
			// A processor costs money and a queue nothing, but what is in 8 queues is in more of them packed less.
			better = p.Money.Total < 0.98*best.Money.Total || !p.Fits && p.Most > 1.02*best.Most
		}
		if better {
			best = p
		}
	}
	return best
}

// The names of limits.
const (
	limitAccounts    = "accounts"
	limitQueues      = "queues"
	limitSpread      = "processors a queue"
	limitKeyQueue    = "hottest key's queue"
	limitKeyHandlers = "hottest key's processor"
	limitHandlers    = "handlers"
	limitCPU         = "processors' CPU"
	limitNetwork     = "processors' network"
	limitDistributor = "distributor's CPU"
)

// with plans with so many queues.
func (in *Input) with(accounts, queuesEach int) *Plan {
	n := accounts * queuesEach
	p := &Plan{
		Rate: in.Rate, Accounts: accounts, QueuesPerAccount: queuesEach, Queues: n, Segments: in.Segments,
		Concurrency: in.Concurrency, Sample: in.Sample, Machine: in.Machine, Prices: in.Prices,
	}
	if p.Segments == 0 {
		p.Segments = shardmap.DefaultSegments(n)
	}
	p.Packing = in.packing(p.Segments)
	k := p.Packing.Tasks
	perQueue := p.Packing.Messages / float64(n)
	got, empty := gets(perQueue, in.Latency, n)
	cost := 2 + got // put, delete, gets
	if in.GetPerMsg {
		cost = 3 + empty // an empty one costs one as well
	}
	// The fullest queue has its segments rounded up, and the hottest key in one of them.
	part := ceil(p.Segments, n) / float64(p.Segments)
	hot := in.Sample.Hottest + (1-in.Sample.Hottest)/float64(p.Segments)

	in.processors(p, got)
	free := 1 - in.Headroom
	limit := func(name string, tasks float64, remedy, what string, a ...any) {
		if tasks < 1e15 {
			p.Limits = append(p.Limits, Limit{Name: name, Tasks: tasks, Used: in.Rate / tasks, What: fmt.Sprintf(what, a...), Remedy: remedy})
		}
	}
	counts := fmt.Sprintf("a message counts %.2f (put 1, get %.2f, delete 1) and holds %.3g tasks", cost, cost-2, k)
	limit(limitAccounts, float64(accounts)*in.AccountLimit/cost*k, "more accounts, or more tasks in a message",
		"%d x %.0f messages/s; %s", accounts, in.AccountLimit, counts)
	limit(limitQueues, in.QueueLimit/cost*k/part, "more queues an account, or more accounts",
		"%d x %.0f messages/s, of which the fullest has %.3g %% of the tasks; %s", n, in.QueueLimit, 100*part, counts)
	if in.Sample.Hottest > 0 {
		limit(limitKeyQueue, in.QueueLimit/cost*k/hot, "another --key, or one that is finer: a key has one queue",
			"%.3g %% of the tasks have the key %s and go through one queue", 100*in.Sample.Hottest, in.Sample.HottestKey)
		limit(limitKeyHandlers, in.perProcess(got, k)/hot, "another --key, or one that is finer: a key has one processor",
			"%.3g %% of the tasks have the key %s and go to one processor", 100*in.Sample.Hottest, in.Sample.HottestKey)
	}
	fullest := spread(n, p.Segments, p.Processors)
	if in.HandlerSeconds > 0 {
		limit(limitHandlers, float64(in.Concurrency)/in.HandlerSeconds/fullest, "more processors, or a higher --concurrency",
			"%d processors x %d handlers / %.3g s, of which the fullest has %.3g %% of the tasks", p.Processors, in.Concurrency, in.HandlerSeconds, 100*fullest)
	}
	limit(limitCPU, in.Machine.CPUs/in.cpu(got, k)/fullest, "more or larger machines",
		"%d machines of %.3g CPUs; %.3g us a task", p.Processors, in.Machine.CPUs, 1e6*in.cpu(got, k))
	limit(limitNetwork, in.Machine.Mbits*1e6/8/in.bytes(got, k)/fullest, "more or larger machines",
		"%d machines of %.0f Mbit/s; %.3g bytes a task", p.Processors, in.Machine.Mbits, in.bytes(got, k))
	limit(limitDistributor, in.Machine.CPUs/in.sending(k)*float64(p.Distributors), "divide the input among distributors run --once, or a larger machine",
		"%d of %.3g CPUs; %.3g us a task", p.Distributors, in.Machine.CPUs, 1e6*in.sending(k))
	slices.SortStableFunc(p.Limits, func(a, b Limit) int { return cmp.Compare(a.Tasks, b.Tasks) })
	p.Bottleneck, p.Most = p.Limits[0].Name, p.Limits[0].Tasks
	p.Fits = in.Rate <= p.Most*free*(1+1e-9)
	in.count(p, got)
	return p
}

// packing is how many tasks share a message with so many segments.
func (in *Input) packing(segments int) Packing {
	k, by := in.Sample.PerFull, "size"
	if in.Pack > 0 && float64(in.Pack) <= k {
		k, by = float64(in.Pack), "pack"
	}
	// All envelopes that are being filled are half full on average, so when they do not find
	// room together each is sent when it has the part of its fill that does.
	if open := float64(segments) * in.Sample.held / 2; open > float64(in.MaxOpen) {
		if most := max(1, in.Sample.PerFull*float64(in.MaxOpen)/open); most < k {
			k, by = most, "memory"
		}
	}
	if in.SealAge > 0 {
		// The first task opens it, and those that come within the age are in it as well.
		if most := 1 + in.Rate/float64(segments)*in.SealAge.Seconds(); most < k {
			k, by = most, "seal-age"
		}
	}
	return Packing{Tasks: k, By: by, Bytes: headerText + k*in.Sample.Text, Messages: in.Rate / k}
}

// headerText is what a message has besides its tasks.
const headerText = 150

// spread is the part of the tasks that the fullest of so many processors has: whole queues where
// there are enough, else segments (P5.5).
func spread(queues, segments, processors int) float64 {
	if processors <= queues {
		return ceil(queues, processors) / float64(queues)
	}
	return ceil(segments, processors) / float64(segments)
}

func ceil(n, parts int) float64 { return float64((n + parts - 1) / parts) }

// engineCPU is what a processor does for a task besides opening it and the handler's own work.
const engineCPU = 1e-6

// cpu is seconds of a core that a task takes in its processor, sending those in the distributor.
func (in *Input) cpu(got, k float64) float64 {
	return in.HandlerCPU + in.Sample.OpenSeconds + engineCPU + in.RequestCPU*(got+1)/k
}

func (in *Input) sending(k float64) float64 { return in.Sample.PackSeconds + in.RequestCPU/k }

// requestBytes is what a request and its answer have besides the text of messages: headers and what
// a message is wrapped into.
const requestBytes = 1200

// bytes that a task brings to its processor's network.
func (in *Input) bytes(got, k float64) float64 {
	return (headerText+k*in.Sample.Text)/k + requestBytes*(got+1)/k
}

// perProcess is how many tasks a second one processor can do at most.
func (in *Input) perProcess(got, k float64) float64 {
	most := min(in.Machine.CPUs/in.cpu(got, k), in.Machine.Mbits*1e6/8/in.bytes(got, k))
	if in.HandlerSeconds > 0 {
		most = min(most, float64(in.Concurrency)/in.HandlerSeconds)
	}
	return most
}

// processors finds how many processes it takes: T x X / S must reach the rate, with the fullest of
// them in mind (origins H2).
func (in *Input) processors(p *Plan, got float64) {
	each := in.perProcess(got, p.Packing.Tasks) * (1 - in.Headroom)
	x := max(1, int(math.Ceil(in.Rate/each-1e-9)))
	for x < p.Segments && in.Rate*spread(p.Queues, p.Segments, x) > each*(1+1e-9) {
		x++
	}
	p.Processors = min(x, p.Segments)
	if x > p.Queues { // several would share queues, at ten times the cost of one (P7)
		p.Limits = append(p.Limits, Limit{
			Name: limitSpread, Tasks: each / (1 - in.Headroom) * float64(p.Queues), Used: in.Rate / (each / (1 - in.Headroom) * float64(p.Queues)),
			What: fmt.Sprintf("%d processors share %d queues, and pass on what is another's", p.Processors, p.Queues), Remedy: "more queues, or a higher --concurrency",
		})
	}
	p.Distributors = max(1, int(math.Ceil(in.Rate*in.sending(p.Packing.Tasks)/(in.Machine.CPUs*(1-in.Headroom))-1e-9)))
	p.VMs = p.Processors + p.Distributors
}
