package capacity

import (
	"cmp"
	"fmt"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/shardmap"
)

// Input is what a plan is made for. Zero fields take their defaults (see [Input.Defaults]).
type Input struct {
	Rate           float64 // tasks a second, more than 0
	HandlerSeconds float64 // that the handler is at work for a task
	HandlerCPU     float64 // of these, seconds of a core
	Sample         Sample  // of the input, measured or assumed

	Concurrency int // tasks in the handlers of one processor. Default 256, as of a processor
	Pack        int // the most tasks in a message. Default: as many as fit
	// how long a task waits for its message to fill. Default 1 s; negative: until it is full
	SealAge time.Duration
	MaxOpen int64   // bytes of all open messages of the distributor. Default 96 MiB
	Once    bool    // mode once: each task's end is recorded
	Results float64 // bytes of the line of a result that is kept in blobs; 0: none is
	// ResultsRatio is bytes of such lines to one that is stored. Default 4
	ResultsRatio float64
	Retention    time.Duration // for how long results are kept after their run. Default 168 h
	LargePart    float64       // of the tasks, besides those of Sample, have bodies in blobs
	LargeBytes   float64       // of such a body
	Elected      bool          // distributors elect one of them, which saves checkpoints

	Accounts int // to be used; 0: as many as it takes
	Queues   int // of each account; 0: as many as it takes, and 8 at least
	Segments int // 0: the default for so many queues
	// Shared: segments have no owners, any processor takes anything ([pump.Shared]). Then
	// Segments is 0.
	Shared bool

	AccountLimit float64 // messages a second of an account. Default 20,000
	QueueLimit   float64 // messages a second of a queue. Default 2,000
	GetPerMsg    bool    // a get counts each of its messages, rather than as one request
	Headroom     float64 // part of everything that is to be left free, 0 to 0.9
	Latency      time.Duration
	RequestCPU   float64 // seconds of a core for one request. Default 150 us
	// of a day in which tasks come at that rate; none come in the others. Default 24
	Hours float64

	Machine     Machine
	Prices      pump.Prices
	StoredPrice float64 // of a GB in blobs a month
}

// Machine is what each process runs on.
type Machine struct {
	CPUs     float64 `json:"cpus"`
	Mbits    float64 `json:"mbits"`    // a second
	PerHour  float64 `json:"perHour"`  // its price
	Describe string  `json:"describe"` // for people
}

// DefaultMachine is a usual machine, at its list price.
var DefaultMachine = Machine{
	CPUs: 2, Mbits: 12_500, PerHour: 0.096,
	Describe: "Standard_D2s_v5 (2 vCPUs, 8 GiB, 12,500 Mbit/s), Linux",
}

const (
	defaultConcurrency = 256
	defaultSealAge     = time.Second
	defaultMaxOpen     = 96 << 20
	// A put takes 80 to 130 us of CPU over plain TCP and a delete 50 to 100 (the SDK measured over
	// loopback); TLS adds some.
	defaultRequestCPU = 150e-6
	defaultLatency    = 10 * time.Millisecond
	maxQueues         = 100
	maxAccounts       = 1000
)

// Defaults fills in missing values, and says what is out of range.
func (in Input) Defaults() (Input, error) {
	in.Concurrency = cmp.Or(in.Concurrency, defaultConcurrency)
	in.SealAge = cmp.Or(in.SealAge, defaultSealAge)
	in.MaxOpen = cmp.Or(in.MaxOpen, defaultMaxOpen)
	in.AccountLimit = cmp.Or(in.AccountLimit, 20_000)
	in.QueueLimit = cmp.Or(in.QueueLimit, 2_000)
	in.Latency = cmp.Or(in.Latency, defaultLatency)
	in.RequestCPU = cmp.Or(in.RequestCPU, defaultRequestCPU)
	in.Hours = cmp.Or(in.Hours, 24)
	in.Retention = cmp.Or(in.Retention, 7*24*time.Hour)
	in.ResultsRatio = cmp.Or(in.ResultsRatio, 4)
	in.Machine = cmp.Or(in.Machine, DefaultMachine)
	in.Prices = cmp.Or(in.Prices, pump.Prices{}.OrPublished())
	for _, f := range []struct {
		name        string
		value       float64
		least, most float64
	}{
		{"rate", in.Rate, 1e-6, 1e9},
		{"handler-seconds", in.HandlerSeconds, 0, 7 * 24 * 3600},
		{"handler-cpu-seconds", in.HandlerCPU, 0, 7 * 24 * 3600},
		{"concurrency", float64(in.Concurrency), 1, 100_000},
		{"pack", float64(in.Pack), 0, maxTasks},
		{"accounts", float64(in.Accounts), 0, maxAccounts},
		{"results", in.Results, 0, 4 << 20},
		{"results-ratio", in.ResultsRatio, 0.5, 1000},
		{"retention", in.Retention.Hours(), 0, 1e6}, // hours
		{"large-share", in.LargePart, 0, 1},
		{"queues", float64(in.Queues), 0, maxQueues},
		{"account-limit", in.AccountLimit, 1, 1e9},
		{"queue-limit", in.QueueLimit, 1, 1e9},
		{"headroom", in.Headroom, 0, 0.9},
		{"latency", in.Latency.Seconds(), 1e-4, 60},
		{"request-cpu", in.RequestCPU, 0, 1},
		{"hours", in.Hours, 0, 24},
		{"vm-cpus", in.Machine.CPUs, 0.1, 1000},
		{"vm-mbits", in.Machine.Mbits, 1, 1e6},
		{"vm-price", in.Machine.PerHour, 0, 1e4},
		{"queue-price", in.Prices.Queue, 0, 1e4},
		{"table-price", in.Prices.Table, 0, 1e4},
		{"stored-price", in.StoredPrice, 0, 1e4},
	} {
		if !(f.value >= f.least && f.value <= f.most) { // so written that NaN fails too
			return in, pump.Invalid(f.name,
				fmt.Sprintf("%v is out of range", f.value), fmt.Sprintf("use %v to %v", f.least, f.most))
		}
	}
	return in, in.fits()
}

// fits refuses numbers that are in range alone but not together.
func (in *Input) fits() error {
	if in.Accounts*in.Queues > shardmap.MaxShards {
		return pump.Invalid("queues", fmt.Sprintf("%d accounts of %d queues are more than "+
			"the %d queues that a workload can have", in.Accounts, in.Queues, shardmap.MaxShards),
			"use fewer queues of each account, or plan several workloads")
	}
	if s := in.Segments; s != 0 && !shardmap.CanBeSegments(s) {
		return pump.Invalid("segments", fmt.Sprintf("%d is not a possible number of segments", s),
			"use a multiple of 64 up to 16384, or leave it out")
	}
	if in.Shared && in.Segments != 0 {
		return pump.Invalid("segments",
			"a shared workload has no number of segments of its own", "leave it out")
	}
	if in.HandlerCPU > in.HandlerSeconds {
		return pump.Invalid("handler-cpu-seconds",
			"is more than the handler takes in all", "use --handler-seconds at most")
	}
	return nil
}
