package processor

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/processor/internal/leases"
	"github.com/queuepump/queuepump/pump/processor/internal/message"
)

// Options say how a processor works. The zero value is a good one.
type Options struct {
	// Concurrency is how many tasks are in handlers at once, 1 to 100,000. An envelope in the hands
	// of a [pump.BatchHandler] counts as one. Default 256: tasks that wait for something else want
	// more of them, tasks that compute want as many as there are processors. To spare a service
	// that slows down under load, set it lower, or MaxRate.
	Concurrency int
	// Visibility is for how long a message that was taken stays hidden from other processors before
	// it must be renewed, in whole seconds from 3 s to 1 h. It is renewed after a third for as long
	// as its tasks are worked on, so it is not a limit of their time: it is how long tasks are
	// delayed by the death of the process that had them. Default 0: it follows the work, between 30
	// s and 5 min, so that all but the slowest messages are settled before their first renewal:
	// about four times as long as a message is in hand, measured lately (60 s until there is a
	// measure). A message that is worked on for longer is renewed for longer and longer, less and
	// less often.
	Visibility time.Duration
	// Timeout is how long one call of the handler may take, to a second. Then its context ends, which
	// is a failure of its task; a handler that goes on regardless keeps its place among Concurrency
	// until it returns. Default 15 min; negative: no limit.
	Timeout time.Duration
	// Grace is how long running handlers may go on when the processor stops,
	// before their contexts end; default 30 s, negative: not at all.
	Grace time.Duration
	// UntilIdle makes Run return when no task was in hand and no segment on its way to this process
	// for that long, and every queue of its segments then answers once more that it has no visible
	// message. Default 0: Run only ends with its context. Run waits for messages that this process
	// may have hidden by an unanswered request. Run does not wait for tasks that were put back for
	// longer than UntilIdle, or for those in other processes' hands: they stay in their queues for
	// the processor that runs next. To see every retry through, let UntilIdle be longer than
	// Retry.Max and than any delay that the handler asks for by RetryAfter.
	UntilIdle time.Duration
	// Retry says how often and when failed tasks are handled again.
	Retry pump.RetryPolicy
	// Beat is how often this process says that it lives, and Lease for how long a beat is good. A
	// little more than a lease after the death of a processor, others take its segments. Defaults 5 s
	// and 4 beats; equal in all processes of a workload.
	Beat, Lease time.Duration
	// Make lets the processor make the workload and its queues if no distributor has made them. It is
	// for a workload whose tasks all come from other programs. Default: it waits for a distributor.
	Make bool
	// Gate names a gate to wait at before the first task is taken; see [coordination.Gate].
	Gate string
	// MinInterval lets a key be handled at most once in so long: another task of a key that was begun
	// less than MinInterval ago is settled without being handled, and a dead process's lock is taken
	// over after that time. Default 0: no limit.
	MinInterval time.Duration
	// MaxRate is how many tasks a second all processors of the workload together start at most, to
	// spare what stands behind them; the same in all of them. They share it by what each needs, as
	// they do the accounts' limits; a processor that joins has a quarter until it knows the others. A
	// batch starts at once and is paid for afterwards. Default 0: no limit.
	MaxRate float64
	// PerKey bounds the work on each key. A BatchHandler then gets one task at a time. It cannot be
	// held in a workload without owners (segments: 0), nor with Discard.
	PerKey pump.PerKey
	// HandOver is how long a segment's hand-over waits for handlers of keys that PerKey.Concurrent
	// bounds; then their contexts end. Default: Timeout, or 15 min without one.
	HandOver time.Duration
	// MaxBytes bounds the memory for messages that were fetched and for the tasks
	// unpacked from them; default 128 MiB, at least 4 MiB. One envelope (at most 4
	// MiB) is always unpacked.
	MaxBytes int64
	// Discard settles every message at once, without a handler: for measuring and
	// for emptying queues. Only the header of each is read.
	Discard bool
	// Use are what stands around each call of the handler, the first outermost; see [Middleware]. They
	// stand around MinInterval too: the outcome of a task that it skips is [pump.OutcomeDone], by an
	// error. Default: none.
	Use []Middleware
	// Results has the results of done tasks kept in blobs (see [pump.Task.SetResult]) before the tasks
	// count as done; [runs.Results] reads them. Results of tasks without a run are not kept. A
	// result of more than 4 MiB is refused, and its task goes into quarantine.
	Results bool
	// Amiss are functions of the handlers. Each says in words what keeps a handler from working; ""
	// means that all is well. Their words are among the Reasons of State. Default: none.
	Amiss []func() string
	// Progress is called about five times a second and at the end, by one goroutine.
	Progress func(Summary)
}

// defaultConcurrency costs a few KiB a handler, and keeps 256 tasks of 100 ms waiting at once:
// 2,560 a second.
const defaultConcurrency = 256

func (o Options) withDefaults() (Options, error) {
	setup.Default(&o.Concurrency, defaultConcurrency)
	setup.Default(&o.Timeout, 15*time.Minute)
	setup.Default(&o.Grace, 30*time.Second)
	setup.Default(&o.HandOver, max(o.Timeout, 0))
	setup.Default(&o.HandOver, 15*time.Minute)
	setup.Default(&o.MaxBytes, 128<<20)
	switch {
	case o.Concurrency < 1 || o.Concurrency > 100_000:
		return o, setup.OutOfRange("concurrency", o.Concurrency,
			"use 1 to 100000, or leave it out for 256")
	case o.Visibility != 0 &&
		(o.Visibility < 3*time.Second || o.Visibility > time.Hour || o.Visibility%time.Second != 0):
		return o, pump.Invalid("visibility", fmt.Sprintf("%v is not possible", o.Visibility),
			"use whole seconds from 3s to 1h, or leave it out for one that follows the work")
	case o.UntilIdle < 0:
		return o, pump.Invalid("until-idle",
			fmt.Sprintf("%v is negative", o.UntilIdle), "use 0 to run until stopped")
	case o.MinInterval < 0:
		return o, pump.Invalid("min-interval",
			fmt.Sprintf("%v is negative", o.MinInterval), "use 0 for no limit")
	case o.MinInterval > 0 && o.Discard:
		return o, pump.Invalid("min-interval",
			"nothing is handled that it could limit", "leave it out, or do not discard")
	case len(o.Use) > 0 && o.Discard:
		return o, pump.Invalid("use", "discarding calls no handler to stand around",
			"leave it out, or do not discard")
	case slices.ContainsFunc(o.Use, func(m Middleware) bool { return m == nil }):
		return o, pump.Invalid("use", "one of them is nil", "leave it out")
	case o.MaxRate > 0 && o.Discard:
		return o, pump.Invalid("max-rate",
			"discarding starts no task that it could limit", "leave it out, or do not discard")
	case o.Results && o.Discard:
		return o, pump.Invalid("results",
			"nothing is handled that has a result", "leave it out, or do not discard")
	case o.MaxBytes < 4<<20:
		return o, pump.Invalid("max-bytes",
			fmt.Sprintf("%d is too little", o.MaxBytes), "use at least 4 MiB, or leave it out for 128 MiB")
	}
	if err := setup.CheckPerKey(o.PerKey, o.Discard); err != nil {
		return o, err
	}
	if err := checkGate(o.Gate); err != nil {
		return o, err
	}
	return o, nil
}

// room is what bounds the messages that wait.
func (o Options) room() message.BacklogOptions {
	return message.BacklogOptions{
		Handlers: o.Concurrency, MaxBytes: o.MaxBytes, Lease: cmp.Or(o.Visibility, leases.FirstLease),
		Paced: func() bool { return o.MaxRate > 0 }, PerKey: o.PerKey, Discards: o.Discard,
	}
}
