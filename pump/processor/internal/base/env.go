package base

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/queuepump/queuepump/internal/logs"
	"github.com/queuepump/queuepump/pump/internal/ledger"
	"github.com/queuepump/queuepump/pump/internal/member"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/shardmap"
)

// From ResultsSoft bytes of waiting results on no message is got any more, from ResultsMost on no
// task is started. The results of a message wait for its last task.
const (
	ResultsSoft = 32 << 20
	ResultsMost = 64 << 20
)

// Env is what the parts of one Run share.
type Env struct {
	Cfg      *setup.Config
	Reducer  ledger.Reducing // the handler, if it contributes to a state
	Discards bool            // Options.Discard
	MaxBytes int64           // Options.MaxBytes
	Log      *slog.Logger
	Jitter   waits.Jitter
	Queues   *queues.Set
	Workload *workload.Workload // nil until it is loaded
	// ResultBytes are those of the results that wait to be kept.
	ResultBytes atomic.Int64
	Runs        *runCache
	Tallies     *tallies
	Gets        *InFlight // gets under way
	Messages    *InFlight // messages in hand
	Counts      counters
	Member      atomic.Pointer[member.Member] // nil until it has joined
	// Assignment is what this process knows of the cluster; nil until it has joined.
	Assignment atomic.Pointer[Assignment]
	Stopping   atomic.Bool // no message is taken any more
	Began      time.Time

	// Wire ends the requests by which messages are kept and settled.
	Wire       context.Context
	CutWire    context.CancelFunc
	Background sync.WaitGroup // ends with wire

	Lines  logs.Kinds // warnings that could come with every message
	alarms logs.Kinds // errors that would repeat with every message
}

// NewEnv makes what the parts of a Run share, but for the workload. It makes no request. Wire goes
// on when ctx has ended.
func NewEnv(ctx context.Context, cfg *setup.Config, reducer ledger.Reducing, discards bool,
	maxBytes int64,
) *Env {
	r := &Env{
		Cfg: cfg, Reducer: reducer, Discards: discards, MaxBytes: maxBytes,
		Log:    cfg.Log.With("workload", cfg.Workload, "instance", cfg.Instance),
		Jitter: waits.Jitter(cfg.Instance), Queues: queues.Open(&cfg.Config), Began: time.Now(),
		Lines: logs.Kinds{Every: logs.PerTask}, Gets: NewInFlight(), Messages: NewInFlight(),
	}
	r.Runs = NewRunCache(workload.NewRuns(r.Queues.Control, cfg.Workload), r.Log)
	r.Tallies = r.newTallies()
	r.Wire, r.CutWire = context.WithCancel(context.WithoutCancel(ctx))
	return r
}

// AlarmOnce logs an error that would repeat with every message, at most once a minute.
func (r *Env) AlarmOnce(kind, msg string, attrs ...any) {
	r.alarms.Of(kind).Say(r.Log.Error, msg, attrs...)
}

// Reach gives the queue of a shard. It is nil, with an alarm, if this process has no credentials
// for the account, as one added since its start.
func (r *Env) Reach(s shardmap.Shard) *queues.Queue {
	q, err := r.Queues.Queue(s.Account, s.Queue)
	if err != nil {
		r.AlarmOnce("account "+s.Account,
			"queues cannot be read here; other processors must, or none does", "account", s.Account,
			"error", err)
		return nil
	}
	return q
}

// counters is what a Summary is made of.
type counters struct {
	Handled, Failed, Rejected, Retried, Released, Skipped, NotNow, Quarantined atomic.Int64

	Duplicates, Dropped, Foreign, Passed, Forwarded, Split, Lost atomic.Int64

	Envelopes, Recorded, Commits atomic.Int64

	Results, ResultBytes, Objects, ObjectsRefused atomic.Int64 // kept results
}
