package azsim

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Limits are the request rates that a Sim enforces as 503 ServerBusy. The zero
// value means the published figures (learn.microsoft.com/azure/storage/queues/scalability-targets
// and .../tables/scalability-targets). In JSON, fields that are left out keep
// the published figure and the word "none" turns a limit off.
type Limits struct {
	Queue          Rate // messages of one queue; published: 2,000
	QueueAccount   Rate // messages of all queues of an account; published: 20,000
	TablePartition Rate // entities of one partition of a table; published: 2,000
	TableAccount   Rate // transactions of all tables of an account; published: 20,000
	// Blob is requests of one blob; published: 500. An account's requests to blobs count for
	// QueueAccount, as messages do.
	Blob Rate

	// GetCost is what getting or peeking 32 messages costs: 32 (each message counts; the default)
	// or 1 (the request counts). The published page says "messages per second" and leaves it open.
	GetCost int

	// QueryCost is what a table query that looks at 1,000 entities costs: 1 (the request counts; the
	// default) or 1000 (each entity counts, on its own partition, also if the filter then leaves it
	// out).
	QueryCost int

	// Burst is how much unused rate may be caught up at once: at 2,000/s and
	// 100 ms, 200 messages. 0: 100 ms. One request is always let through when
	// nothing is owed, and may leave a debt (a get of 32).
	Burst time.Duration

	// RetryAfter, if positive, is sent with every 503 as a Retry-After header
	// in whole seconds, rounded up. No document says that Azure sends one.
	RetryAfter time.Duration

	// TimedOut is the share (0 to 1) of refusals by a queue or partition that are answered 500
	// OperationTimedOut instead of 503, as the scalability pages say may happen.
	TimedOut float64
}

// Rate is a number of messages, entities or requests a second. 0 stands for the published figure, a
// negative one for no limit. Its JSON form is a positive number or "none".
type Rate float64

// Unlimited is the Rate that is never reached.
const Unlimited Rate = -1

// PublishedLimits are Microsoft's published scalability targets.
func PublishedLimits() Limits { return Limits{}.filled() }

// NoLimits never refuse a request.
func NoLimits() Limits {
	return Limits{
		Queue: Unlimited, QueueAccount: Unlimited, TablePartition: Unlimited, TableAccount: Unlimited,
		Blob: Unlimited,
	}.filled()
}

func (l Limits) filled() Limits {
	l.Queue = cmp.Or(l.Queue, 2_000)
	l.QueueAccount = cmp.Or(l.QueueAccount, 20_000)
	l.TablePartition = cmp.Or(l.TablePartition, 2_000)
	l.TableAccount = cmp.Or(l.TableAccount, 20_000)
	l.Blob = cmp.Or(l.Blob, 500)
	l.GetCost = cmp.Or(l.GetCost, maxMessages)
	l.QueryCost = cmp.Or(l.QueryCost, 1)
	l.Burst = cmp.Or(l.Burst, 100*time.Millisecond)
	return l
}

// ParseLimits reads the JSON form of Limits:
//
//	{"queue": 2000, "queueAccount": 20000, "tablePartition": 2000, "tableAccount": "none",
//	 "blob": 500, "getCost": 32, "queryCost": 1, "burst": "100ms", "retryAfter": "1s", "timedOut": 0}
//
// Every field may be left out. The error names the field that is wrong.
func ParseLimits(data []byte) (Limits, error) {
	var l Limits
	if err := l.UnmarshalJSON(data); err != nil {
		return Limits{}, err
	}
	return l.filled(), nil
}

// limitsField reads and shows one field of the JSON form.
type limitsField struct {
	name string
	read func(l *Limits, raw json.RawMessage) error
	show func(l *Limits) any
}

func rateField(name string, at func(*Limits) *Rate) limitsField {
	return limitsField{
		name,
		func(l *Limits, raw json.RawMessage) error { return at(l).UnmarshalJSON(raw) },
		func(l *Limits) any { return *at(l) },
	}
}

func costField(name string, all int, at func(*Limits) *int) limitsField {
	return limitsField{
		name,
		func(l *Limits, raw json.RawMessage) error {
			if err := json.Unmarshal(raw, at(l)); err != nil || *at(l) != 1 && *at(l) != all {
				return fmt.Errorf("want 1 or %d, got %s", all, raw)
			}
			return nil
		},
		func(l *Limits) any { return *at(l) },
	}
}

func durationField(name string, least time.Duration, at func(*Limits) *time.Duration) limitsField {
	return limitsField{
		name,
		func(l *Limits, raw json.RawMessage) error {
			var text string
			if err := json.Unmarshal(raw, &text); err != nil {
				return fmt.Errorf(`want a duration such as "100ms", got %s`, raw)
			}
			d, err := time.ParseDuration(text)
			if err != nil || d < least || d > time.Hour {
				return fmt.Errorf(`want a duration from %v to 1h such as "100ms", got %s`, least, raw)
			}
			*at(l) = d
			return nil
		},
		func(l *Limits) any { return at(l).String() },
	}
}

var limitsFields = []limitsField{
	rateField("queue", func(l *Limits) *Rate { return &l.Queue }),
	rateField("queueAccount", func(l *Limits) *Rate { return &l.QueueAccount }),
	rateField("tablePartition", func(l *Limits) *Rate { return &l.TablePartition }),
	rateField("tableAccount", func(l *Limits) *Rate { return &l.TableAccount }),
	rateField("blob", func(l *Limits) *Rate { return &l.Blob }),
	costField("getCost", maxMessages, func(l *Limits) *int { return &l.GetCost }),
	costField("queryCost", 1000, func(l *Limits) *int { return &l.QueryCost }),
	durationField("burst", time.Millisecond, func(l *Limits) *time.Duration { return &l.Burst }),
	durationField("retryAfter", 0, func(l *Limits) *time.Duration { return &l.RetryAfter }),
	{
		"timedOut",
		func(l *Limits, raw json.RawMessage) error {
			if err := json.Unmarshal(raw, &l.TimedOut); err != nil || l.TimedOut < 0 || l.TimedOut > 1 {
				return fmt.Errorf("want a number from 0 to 1, got %s", raw)
			}
			return nil
		},
		func(l *Limits) any { return l.TimedOut },
	},
}

// UnmarshalJSON reads the form that ParseLimits describes.
func (l *Limits) UnmarshalJSON(data []byte) error {
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil {
		return fmt.Errorf("limits: not a JSON object: %w", err)
	}
	for _, f := range limitsFields {
		if v, ok := raw[f.name]; ok {
			if err := f.read(l, v); err != nil {
				return fmt.Errorf("limits: field %q: %w", f.name, err)
			}
			delete(raw, f.name)
		}
	}
	if len(raw) == 0 {
		return nil
	}
	var known []string
	for _, f := range limitsFields {
		known = append(known, f.name)
	}
	return fmt.Errorf("limits: unknown field %q: want one of %v",
		slices.Min(slices.Collect(maps.Keys(raw))), known)
}

// MarshalJSON writes the form that ParseLimits reads, defaults filled in.
func (l Limits) MarshalJSON() ([]byte, error) {
	l = l.filled()
	var b bytes.Buffer
	for i, f := range limitsFields {
		v, err := json.Marshal(f.show(&l))
		if err != nil {
			return nil, err
		}
		sep := byte(',')
		if i == 0 {
			sep = '{'
		}
		b.WriteByte(sep)
		fmt.Fprintf(&b, "%q:%s", f.name, v)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// UnmarshalJSON reads a positive number or "none".
func (r *Rate) UnmarshalJSON(data []byte) error {
	var none string
	if json.Unmarshal(data, &none) == nil && none == "none" {
		*r = Unlimited
		return nil
	}
	var f float64
	if err := json.Unmarshal(data, &f); err != nil || f <= 0 {
		return fmt.Errorf(`want a positive number a second or "none", got %s`, data)
	}
	*r = Rate(f)
	return nil
}

// MarshalJSON writes a number, or "none" for a negative rate.
func (r Rate) MarshalJSON() ([]byte, error) {
	if r < 0 {
		return []byte(`"none"`), nil
	}
	return json.Marshal(float64(r))
}

// validate refuses what a Go program may put into the struct but no file can.
func (l Limits) validate() error {
	for _, r := range []Rate{l.Queue, l.QueueAccount, l.TablePartition, l.TableAccount, l.Blob} {
		if math.IsNaN(float64(r)) || math.IsInf(float64(r), 0) {
			return fmt.Errorf("limits: a rate is %v; use Unlimited for none", float64(r))
		}
	}
	switch {
	case l.GetCost != 0 && l.GetCost != 1 && l.GetCost != maxMessages:
		return fmt.Errorf("limits: GetCost is %d, want 1 or %d", l.GetCost, maxMessages)
	case l.QueryCost != 0 && l.QueryCost != 1 && l.QueryCost != 1000:
		return fmt.Errorf("limits: QueryCost is %d, want 1 or 1000", l.QueryCost)
	case l.Burst < 0, l.RetryAfter < 0:
		return errors.New("limits: Burst and RetryAfter cannot be negative")
	case l.TimedOut < 0 || l.TimedOut > 1 || math.IsNaN(l.TimedOut):
		return fmt.Errorf("limits: TimedOut is %v, want 0 to 1", l.TimedOut)
	}
	return nil
}

// bucket is a token bucket, kept as the instant at which it would be full again (the generic cell
// rate algorithm): refilling costs nothing, and a cost above the burst leaves a debt instead of
// never being admitted, which is why this is not an x/time/rate.Limiter. The nil bucket has no
// limit.
type bucket struct {
	each  int64 // nanoseconds of rate that one unit uses up
	burst int64 // how far full may lie ahead of now, nanoseconds
	full  atomic.Int64
}

func newBucket(r Rate, burst time.Duration) *bucket {
	if r < 0 {
		return nil
	}
	each := max(int64(float64(time.Second)/float64(r)), 1)
	return &bucket{each: each, burst: max(int64(burst), each)}
}

// take charges n units if at least one is left at now (nanoseconds).
func (b *bucket) take(now int64, n int) bool {
	if b == nil {
		return true
	}
	for {
		full := b.full.Load()
		if full-now+b.each > b.burst {
			return false
		}
		if b.full.CompareAndSwap(full, max(full, now)+int64(n)*b.each) {
			return true
		}
	}
}

// owe charges n units even if fewer are left; a negative n gives units back.
func (b *bucket) owe(n int) {
	if b != nil && n != 0 {
		b.full.Add(int64(n) * b.each)
	}
}

// maxPartitions bounds the buckets that an account keeps: partition keys come from outside. At the
// bound full buckets go, because they say nothing.
const maxPartitions = 1 << 14

// buckets are the limits of one service of one account.
type buckets struct {
	account *bucket

	mu         sync.RWMutex
	partitions map[string]*bucket // guarded by mu
}

func (bs *buckets) partition(name string, r Rate, burst time.Duration, now int64) *bucket {
	if name == "" || r < 0 {
		return nil
	}
	bs.mu.RLock()
	b := bs.partitions[name]
	bs.mu.RUnlock()
	if b != nil {
		return b
	}
	bs.mu.Lock()
	defer bs.mu.Unlock()
	if b = bs.partitions[name]; b != nil {
		return b
	}
	if bs.partitions == nil {
		bs.partitions = make(map[string]*bucket)
	}
	if len(bs.partitions) >= maxPartitions {
		maps.DeleteFunc(bs.partitions, func(_ string, b *bucket) bool { return b.full.Load() <= now })
	}
	b = newBucket(r, burst)
	if len(bs.partitions) < maxPartitions {
		bs.partitions[name] = b
	}
	return b
}

// limiter is the limits of an account and what is used of them.
type limiter struct {
	Limits             // with every default filled in
	queue, table, blob buckets
}

// SetLimits changes the limits of all accounts for requests that come from now on; nothing is used
// of the new ones yet. Limits that make no sense are an error, and those in force stay.
func (s *Sim) SetLimits(l Limits) error {
	if err := l.validate(); err != nil {
		return err
	}
	l = l.filled()
	for _, a := range s.accounts {
		n := &limiter{Limits: l}
		n.queue.account, n.table.account = newBucket(l.QueueAccount, l.Burst),
			newBucket(l.TableAccount, l.Burst)
		n.blob.account = n.queue.account
		a.limiter.Store(n)
	}
	return nil
}

// charge is what a request was charged, for the entities that it serves later.
type charge struct {
	*limiter
	partition, account *bucket
}

// admit charges an operation to its partition and its account, or answers the refusal. It reads
// package time, not the server's clock: an offset that jumps must not look like unused rate.
func (s *Sim) admit(r *request, op *operation) (charge, *reply) {
	l := r.account.limiter.Load()
	bs, partitionRate := &l.queue, l.Queue
	switch r.service {
	case tableService:
		bs, partitionRate = &l.table, l.TablePartition
	case blobService:
		bs, partitionRate = &l.blob, l.Blob
	}
	now := time.Now().UnixNano()
	cost := max(op.cost, 1)
	c := charge{l, bs.partition(op.partition, partitionRate, l.Burst, now), bs.account}
	if !c.partition.take(now, cost) {
		return c, new(s.refuse(l, r, op, true))
	}
	if !c.account.take(now, cost) {
		c.partition.owe(-cost)
		return c, new(s.refuse(l, r, op, false))
	}
	return c, nil
}

// settle charges what an operation turned out to serve beyond the one unit
// that admit took. It may refuse a query after all.
func (s *Sim) settle(c charge, r *request, op *operation, rep *reply) *reply {
	if r.service == tableService {
		return s.settleTable(c, r, op, rep)
	}
	if c.GetCost > 1 && rep.served > 1 {
		c.partition.owe(rep.served - 1)
		c.account.owe(rep.served - 1)
	}
	return nil
}

// settleTable charges the entities that a query looked at to their partitions. It refuses a query
// that met a partition whose limit is used up.
func (s *Sim) settleTable(c charge, r *request, op *operation, rep *reply) *reply {
	if c.QueryCost > 1 {
		now, total := time.Now().UnixNano(), 0
		for _, l := range rep.looked {
			total += l.n
			name := partitionName(op.object, l.partition)
			if name == op.partition {
				c.partition.owe(l.n - 1) // admit took one
				continue
			}
			b := c.table.partition(name, c.TablePartition, c.Burst, now)
			if !b.take(now, l.n) {
				return new(s.refuse(c.limiter, r, op, true))
			}
		}
		c.account.owe(max(total-1, 0))
	}
	if s.config.CountPartitions {
		s.loads.add(r.account.name, op, rep)
	}
	return nil
}

func (s *Sim) refuse(l *limiter, r *request, op *operation, partition bool) reply {
	message := "Operations per second is over the account limit."
	if partition {
		message = "" // ServerBusy's own
		if l.TimedOut > 0 {
			n := s.tally.next(occasion{operation: "throttle", account: r.account.name, object: op.partition})
			if drawShare(drawMix(r.account.seed, drawHash(op.partition), n)) < l.TimedOut {
				return r.fail(http.StatusInternalServerError, "OperationTimedOut", "")
			}
		}
	}
	return r.fail(http.StatusServiceUnavailable, "ServerBusy", message).retryAfter(l.RetryAfter)
}

// retryAfter adds the header for a positive d, in whole seconds, rounded up.
func (rep reply) retryAfter(d time.Duration) reply {
	if d > 0 {
		rep.header.Set("Retry-After", itoa(int64((d+time.Second-1)/time.Second)))
	}
	return rep
}
