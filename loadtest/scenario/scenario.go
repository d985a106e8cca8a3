package scenario

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/queuepump/queuepump/loadtest/report"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/storage"
)

// World is what a load test runs on.
type World struct {
	Against report.Against
	// Config says which accounts there are, and the budget. Its workload, instance, hooks
	// and log are not used.
	Config pump.Config
	// Open opens the i-th account of Config for an instance. It is called for each
	// instance that is started.
	Open func(instance string, i int) (storage.Account, error)
	// Limits are what the accounts give. A zero rate is unknown or unlimited.
	Limits report.Limits
}

// Options say what load to put on. Zero fields take the defaults of the scenario.
type Options struct {
	// Scenario is one of Names.
	Scenario string
	// Duration is how long load is put on and measured, at least 5 s. Default: as Scenarios says, or
	// 40 s for each step of a scale-out.
	Duration time.Duration
	// WarmUp is how long load is put on before that. Default 15 s; negative: no warm-up.
	WarmUp time.Duration
	// Rate is how many tasks a second are offered. Default: half of what the accounts give from put to
	// delete with Pack tasks in a message. It is refused if a scenario offers as many as are taken.
	Rate float64
	// Processors is their number, or their number at the end. Default 2; 4 if processors are added; 1
	// if accounts are added and the first has one queue.
	Processors int
	// Concurrency is how many tasks each handles at once. Default 64; 16 if processors are added.
	Concurrency int
	// HandlerTime is how long a task takes. Default 0; 20 ms if processors are added.
	HandlerTime time.Duration
	// Pack is the most tasks in a message; negative: as many as fit. Default 1.
	Pack int
	// Linger is how long a task waits for others to fill its message. Default 50 ms.
	Linger time.Duration
	// TaskBytes is the size of a task, MinTaskBytes to MaxTaskBytes. Default 130.
	TaskBytes int
	// Keys is how many keys the tasks have. Default 100,000.
	Keys int
	// HotShare is the share of tasks with one and the same key, from 0 to 1. Default 0; a half in
	// hot-key.
	HotShare float64
	// Over is what scale-out adds: OverAccounts (the default) or OverProcessors. It is
	// refused in other scenarios.
	Over string
	// Account is the account that goes dark or is drained. Default: the last. It is refused if the
	// scenario does neither.
	Account string
	// Patience is how long at the end nothing may move while tasks are not handled. Default 90 s.
	Patience time.Duration
	// Delivery is the workload's mode. Default: what the configuration says.
	Delivery pump.Delivery
	// ID names the test, 8 lower-case hexadecimal digits: its workload and table are named
	// by it, so no other test may have had it on these accounts lately.
	ID string
	// Version is shown in the result.
	Version string
	// Log gets what the pump logs. Default: nothing.
	Log *slog.Logger
	// Progress is called about twice a second, by one goroutine.
	Progress func(Progress)
}

// What scale-out can add.
const (
	OverAccounts   = "accounts"
	OverProcessors = "processors"
)

// Progress is how far a test is.
type Progress struct {
	Phase          string
	Seconds, Of    float64 // of the load; Seconds is more than Of while it finishes
	Sent, Handled  int64
	Throttled      int64
	HandledPerLast float64 // tasks a second, in the last interval
}

// Info describes a scenario.
type Info struct {
	Name     string
	Asks     string        // what it measures
	Load     string        // what it does, with the defaults
	Duration time.Duration // by default
	// Least is the least number of accounts it needs.
	Least int

	taken  bool // it has no rate: it offers as much as is taken
	victim bool // something is done to one account
	plan   func(*planner) error
}

// Scenarios are all that there are.
func Scenarios() []Info { return slices.Clone(scenarios) }

// Names are the names of all scenarios.
func Names() []string {
	var names []string
	for _, s := range scenarios {
		names = append(names, s.Name)
	}
	return names
}

// OptionError says why a test cannot be made with an option.
type OptionError struct {
	Option  string // in the words of the command line: "rate", "processors"
	Problem string
}

func (e *OptionError) Error() string { return e.Option + ": " + e.Problem }

func wrong(option, format string, args ...any) error {
	return &OptionError{option, fmt.Sprintf(format, args...)}
}

// Run makes a test. Without a result the error says why nothing could be measured; an *OptionError
// comes before anything was done. A result covers as much as was measured: if the test was cut
// short its Trouble says so, and the error says why.
func Run(ctx context.Context, w World, o Options) (*report.Result, error) {
	t, err := newTest(w, o)
	if err != nil {
		return nil, err
	}
	return t.run(ctx)
}

// find gives a scenario by its name.
func find(name string) (*Info, error) {
	i := slices.IndexFunc(scenarios, func(s Info) bool { return s.Name == name })
	if i < 0 {
		return nil, wrong("scenario", "there is no scenario %q; use one of %s", name,
			strings.Join(Names(), ", "))
	}
	return &scenarios[i], nil
}

// unused refuses options that the scenario does not use: a user who sets one means another test.
func (o *Options) unused(s *Info) error {
	switch {
	case o.Rate > 0 && s.taken:
		return wrong("rate", "%s offers as much as is taken; leave it out, or use ramp or soak", s.Name)
	case o.Over != "" && s.Name != "scale-out":
		return wrong("over", "%s adds nothing; leave it out, or use scale-out", s.Name)
	case o.Account != "" && !s.victim:
		return wrong("account",
			"%s does nothing to one account; leave it out, or use account-dark or drain-add", s.Name)
	}
	return nil
}

// fill puts the defaults in that do not depend on the scenario, and refuses what cannot be.
func (o *Options) fill(s *Info) error {
	o.Duration = cmp.Or(o.Duration, s.Duration)
	o.Pack = cmp.Or(o.Pack, 1)
	o.TaskBytes = cmp.Or(o.TaskBytes, 130)
	o.Keys = cmp.Or(o.Keys, 100_000)
	o.Processors = cmp.Or(o.Processors, 2)
	o.Concurrency = cmp.Or(o.Concurrency, 64)
	switch {
	case o.WarmUp == 0:
		o.WarmUp = 15 * time.Second // three beats
	case o.WarmUp < 0:
		o.WarmUp = 0
	}
	o.Linger = cmp.Or(o.Linger, 50*time.Millisecond)
	o.Patience = cmp.Or(o.Patience, 90*time.Second)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	switch {
	case o.Duration < 5*time.Second && o.Duration != 0: // 0: the plan says
		return wrong("duration", "%v is too short; use 5s or more", o.Duration)
	case !(o.Rate >= 0 && o.Rate <= 1e7):
		return wrong("rate", "%v is out of range; use 0 to 10000000 tasks a second", o.Rate)
	case o.Processors < 1 || o.Processors > 1000:
		return wrong("processors", "%d is out of range; use 1 to 1000", o.Processors)
	case o.Concurrency < 1 || o.Concurrency > 100_000:
		return wrong("concurrency", "%d is out of range; use 1 to 100000", o.Concurrency)
	case o.HandlerTime < 0 || o.HandlerTime > time.Hour:
		return wrong("handler-time", "%v is out of range; use 0 to 1h", o.HandlerTime)
	case o.Pack < -1 || o.Pack > 100_000:
		return wrong("pack", "%d is out of range; use 1 to 100000, or 0 for as many as fit", o.Pack)
	case o.TaskBytes < MinTaskBytes || o.TaskBytes > MaxTaskBytes:
		return wrong("task-bytes", "%d is out of range; use %d to %d", o.TaskBytes, MinTaskBytes,
			MaxTaskBytes)
	case o.Keys < 1 || o.Keys > 100_000_000:
		return wrong("keys", "%d is out of range; use 1 to 100000000", o.Keys)
	case !(o.HotShare >= 0 && o.HotShare <= 1):
		return wrong("hot-share", "%v is out of range; use 0 to 1", o.HotShare)
	case o.Linger < time.Millisecond || o.Linger > time.Minute:
		return wrong("linger", "%v is out of range; use 1ms to 1m", o.Linger)
	}
	return nil
}
