package sampling

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/shardmap"
)

const (
	// perSecond bounds the requests of a sample: at 0.4 cents for 10,000 they cost 86 cents a day at
	// most. 8 queues take two thirds of a second, a thousand take 80 s, which is how old a sample is
	// then.
	perSecond = 25
	// forgotten is after how long the numbers of an unreadable account are not told: old numbers
	// would look like new ones.
	forgotten = 5 * time.Minute
	// patience is what a sample may take beside its own pace. An account that does not answer, or
	// whose budget leaves no request, does not delay the others for longer.
	patience = 30 * time.Second
)

// Sampler samples while it is this process's turn. Its methods may be called from many goroutines.
type Sampler struct {
	cfg    *pump.Config
	queues *queues.Set
	view   func() *cluster.View
	asked  func() (map[string]cluster.Asked, []byte) // by this process, up to now
	jitter waits.Jitter
	log    *slog.Logger
	pace   *rate.Limiter
	latest atomic.Pointer[pump.Backlog]
	day    atomic.Pointer[cluster.Day]

	mu        sync.Mutex // guards recording
	recording recording

	// Of Keep's goroutine.
	known map[string]pump.WaitingAccount
	rates rates
}

// New makes a sampler, nil if the configuration wants none. It makes no request. View is the latest
// look at the cluster, nil before the first.
func New(cfg *pump.Config, f *queues.Set, view func() *cluster.View) *Sampler {
	if cfg.Sample <= 0 {
		return nil
	}
	return &Sampler{
		cfg: cfg, queues: f, view: view, asked: f.Asked, jitter: waits.Jitter(cfg.Instance),
		log:  cfg.Log.With("workload", cfg.Workload, "instance", cfg.Instance),
		pace: rate.NewLimiter(perSecond, 1),
	}
}

// Latest is the last sample; nil if this process does not sample, or has not yet.
func (s *Sampler) Latest() *pump.Backlog {
	if s == nil {
		return nil
	}
	return s.latest.Load()
}

// Chosen reports whether a member is to sample: the first in rank of the processors that would, or
// without one the first of the others by name. All members see the same rows; if two sample for a
// while, that costs some requests.
func Chosen(v *cluster.View, instance string) bool { return chosen(v) == instance }

// chosen is the member that samples; empty: none does.
func chosen(v *cluster.View) (other string) {
	ranked := v.Processors()
	for i := range v.Members { // in the order of their names, as the ranks are
		m := &v.Members[i]
		if !m.Samples || m.Err != nil {
			continue
		}
		if _, is := slices.BinarySearch(ranked, m.Instance); is {
			return m.Instance
		}
		if other == "" && !m.Draining {
			other = m.Instance
		}
	}
	return other
}

// Keep samples until ctx ends. A nil Sampler does nothing.
func (s *Sampler) Keep(ctx context.Context) {
	if s == nil {
		return
	}
	defer s.latest.Store(nil)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { s.record(ctx) })
	pause := func(n uint64) time.Duration {
		return s.jitter.Around(s.queues.Allowance.Sample(s.cfg.Sample), "sample", s.cfg.Workload, n)
	}
	for n := uint64(0); waits.Wait(ctx, pause(n)); n++ {
		v := s.view()
		if v == nil || !Chosen(v, s.cfg.Instance) {
			s.latest.Store(nil)
			s.known, s.rates = nil, rates{}
			continue
		}
		s.sample(ctx, v)
	}
}

// sample looks at all accounts at the same time, so that a dark one delays no other.
func (s *Sampler) sample(ctx context.Context, v *cluster.View) {
	shards := map[string][]shardmap.Shard{}
	for _, shard := range v.Workload.Map.Shards {
		shards[shard.Account] = append(shards[shard.Account], shard)
	}
	requests := 2*len(v.Workload.Map.Shards) + len(shards)
	ctx, cancel := context.WithTimeout(ctx, patience+time.Duration(requests)*time.Second/perSecond)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	found := map[string]sighting{}
	for name, of := range shards {
		wg.Go(func() {
			seen, err := s.look(ctx, name, of)
			if err != nil {
				s.log.Debug("an account could not be sampled", "account", name, "error", err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			found[name] = seen
		})
	}
	wg.Wait()
	if newer := s.view(); newer != nil {
		v = newer // what members hold, as of now
	}
	s.publish(v, shards, found, time.Now())
}

// publish makes the published sample from what was seen and what members say.
func (s *Sampler) publish(
	v *cluster.View, shards map[string][]shardmap.Shard, found map[string]sighting, now time.Time,
) {
	known := maps.Clone(s.known)
	if known == nil {
		known = map[string]pump.WaitingAccount{}
	}
	said := sayings(v)
	for name, seen := range found {
		known[name] = seen.backlog(name, now, int64(said.held[name]), int64(said.later[name]))
	}
	b := &pump.Backlog{Time: now}
	waits := int64(0)
	for _, name := range slices.Sorted(maps.Keys(known)) {
		a := known[name]
		if shards[name] == nil || now.Sub(a.Time) > forgotten {
			delete(known, name)
			continue
		}
		a.LimitUsed = said.demand[name] / s.cfg.Budget.Account
		b.Accounts = append(b.Accounts, a)
		waits += a.Visible
	}
	s.known = known
	if !s.cutOff(v) { // by rates of before a scaler would end processors
		done := s.rates.observe(v, waits, now)
		b.Done = &done
		if len(found) > 0 || len(shards) == 0 {
			b.Seconds = new(float64(waits) / max(done, leastRate))
		}
	}
	s.latest.Store(b)
}

// sighting is what a look at the queues of an account has shown.
type sighting struct {
	messages, quarantined int64
	// For queues that showed all visible messages: how many those are, and the rest.
	visible, hidden int64
	// For other queues: the service's count, and how many were seen.
	rest, seen int64
	oldest     time.Time
}

// look asks one queue after the other. If one does not answer, the account counts as silent.
func (s *Sampler) look(
	ctx context.Context, name string, shards []shardmap.Shard,
) (seen sighting, err error) {
	for _, shard := range shards {
		q, err := s.queues.Queue(name, shard.Queue)
		if err != nil {
			return seen, err
		}
		if err := s.lookAt(ctx, q, &seen); err != nil && !queues.NotThere(err) {
			return seen, err
		}
	}
	seen.quarantined, err = s.count(ctx, s.queues.Account(name).Poison)
	if queues.NotThere(err) { // nothing was ever quarantined
		err = nil
	}
	return seen, err
}

// lookAt counts a queue and looks at its first message. If one peek can show all messages, it looks
// at all, so that in a queue with few messages it is known which are visible.
func (s *Sampler) lookAt(ctx context.Context, q *queues.Queue, seen *sighting) error {
	n, err := s.count(ctx, q)
	if err != nil || n == 0 { // which is proof
		return err
	}
	limit := 1
	if n <= storage.MaxGet {
		limit = int(n)
	}
	if err := s.pace.Wait(ctx); err != nil {
		return err
	}
	peeked, err := q.Peek(ctx, waits.RequestTimeout, limit)
	if err != nil {
		return err
	}
	shown := int64(len(peeked))
	n = max(n, shown) // some came in between
	seen.messages += n
	if shown < int64(limit) || n <= int64(limit) {
		seen.visible, seen.hidden = seen.visible+shown, seen.hidden+n-shown
	} else {
		seen.rest, seen.seen = seen.rest+n, seen.seen+shown
	}
	if shown > 0 && (seen.oldest.IsZero() || peeked[0].Inserted.Before(seen.oldest)) {
		seen.oldest = peeked[0].Inserted
	}
	return nil
}

func (s *Sampler) count(ctx context.Context, q *queues.Queue) (int64, error) {
	if err := s.pace.Wait(ctx); err != nil {
		return 0, errors.Join(err, context.Cause(ctx))
	}
	return q.Count(ctx, waits.RequestTimeout)
}

// backlog divides what was counted. If a peek did not show all visible messages, they are the count
// less what members hold and have put back, as far as that is not in the other queues.
func (s sighting) backlog(name string, now time.Time, held, later int64) pump.WaitingAccount {
	hidden := min(max(held+later-s.hidden, 0), s.rest)
	a := pump.WaitingAccount{
		Name: name, Time: now, Messages: s.messages, InFlight: held, Delayed: later,
		Quarantined: s.quarantined, Visible: s.visible + max(s.rest-hidden, s.seen),
	}
	if !s.oldest.IsZero() {
		a.Oldest = max(now.Sub(s.oldest).Seconds(), 0)
	}
	return a
}
