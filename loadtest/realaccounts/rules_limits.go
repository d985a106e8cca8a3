package realaccounts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/storage"
)

// pace is the load to find limits with: enough to pass the published ones, and no more. The
// simulator of this process has a tenth of them.
type pace struct {
	limit               float64 // the expected rate a second, of a queue and of a partition
	puts, gets, queries float64 // a second
	workers             int
}

// paceFor puts the limit of a queue to the test.
func paceFor(limit float64, workers int) pace {
	return pace{
		limit: limit, puts: 1.6 * limit, gets: 0.2 * limit, queries: 0.05 * limit, workers: workers,
	}
}

var (
	accountPace   = paceFor(float64(azsim.PublishedLimits().Queue), 96)
	simulatorPace = paceFor(simulatedRate, 8)
)

const (
	// simulatedRate is a tenth of the published rate of a queue and of a partition.
	simulatedRate = 200
	loadSeconds   = 4
	loadFor       = loadSeconds * time.Second
	// queryRows are the rows of the partition that is queried: a page.
	queryRows = 1000
)

// load is what a service did under load.
type load struct {
	puts, gets, queries flow
	neighbour           flow
	scan                string // the answer to a query that matches no row
	total               float64
	published           float64 // the limit of the queue that is expected
}

// limit is the limit of the queue as it showed, or as it is expected if that is more: on a busy
// machine less was accepted than could have been.
func (l *load) limit() float64 { return max(l.puts.rate(), l.published) }

// flow is one kind of request under load.
type flow struct {
	accepted, refused, failed int64
	served                    int64                  // messages or rows
	halves                    [2 * loadSeconds]int64 // accepted in each half of a second
	seconds                   float64
	retryAfter, timedOut      int64 // of those refused
	busy                      int64
	cause                     error // of the first that had no answer
}

// perSecond is how many requests were accepted a second, and what they served.
func (f *flow) perSecond() (requests, served float64) {
	seconds := max(f.seconds, 1e-3)
	return float64(f.accepted) / seconds, float64(f.served) / seconds
}

// first is how many were accepted in the first second.
func (f *flow) first() int64 { return f.halves[0] + f.halves[1] }

// rate is how many requests a second were accepted in the best half of a second, because a busy
// machine stands still at times. It leaves out the first second, in which unused rate is caught up.
func (f *flow) rate() float64 { return 2 * float64(slices.Max(f.halves[2:])) }

func (f *flow) String() string {
	text := fmt.Sprintf("%d accepted (up to %.0f a second after the first), %d refused, %d "+
		"without an answer, in %.1f s",
		f.accepted, f.rate(), f.refused, f.failed, f.seconds)
	if f.cause != nil {
		text += "; " + f.cause.Error()
	}
	return text
}

// loadOnce measures once for all rules.
type loadOnce struct {
	once sync.Once
	load *load
	err  error
}

// underLoad makes a rule's question from what the load showed. Every rule needs a load that reached
// the limit.
func underLoad(say func(*load) (answer, detail string, err error)) asking {
	return func(ctx context.Context, p *prober) (string, string, error) {
		p.load.once.Do(func() { p.load.load, p.load.err = p.measure(ctx) })
		if p.load.err != nil {
			return "", "", p.load.err
		}
		return say(p.load.load)
	}
}

// throttled is underLoad for rules about what happens at the limit of a queue.
func throttled(say func(*load) (answer, detail string, err error)) asking {
	return underLoad(func(l *load) (string, string, error) {
		if l.puts.refused == 0 {
			return "", "", undecided("the queue's limit was not reached: puts " + l.puts.String() +
				"; try it from a machine in the account's region")
		}
		return say(l)
	})
}

// either answers by whether there were any.
func either(n int64, some, none, detail string) (string, string, error) {
	if n > 0 {
		return some, detail, nil
	}
	return none, detail, nil
}

var limitRules = []rule{
	{
		id: "get-charge", mark: "open", part: partLimits,
		says: "a get charges each of its messages to the queue's limit",
		ask: throttled(func(l *load) (string, string, error) {
			detail := fmt.Sprintf("%d gets with %d messages accepted in %.1f s, %d "+
				"refused; puts %.0f a second",
				l.gets.accepted, l.gets.served, l.gets.seconds, l.gets.refused, l.puts.rate())
			gets, messages := l.gets.perSecond()
			switch {
			case l.gets.refused > 0 && gets < l.limit()/4:
				return "each message", detail, nil
			case l.gets.refused == 0 && messages > 2*l.limit():
				return "the request", detail, nil
			}
			return "", "", undecided(detail)
		}),
	},
	{
		id: "query-charge", mark: "INF", part: partLimits,
		says: "a query charges its request, and not each entity that it looks at",
		ask: throttled(func(l *load) (string, string, error) {
			queries, _ := l.queries.perSecond()
			switch entities := queries * queryRows; {
			case l.queries.refused == 0 && entities > 3*l.limit():
				return "the request", l.queries.String(), nil
			case l.queries.refused > 0 && entities < 3*l.limit():
				return "each entity", l.queries.String(), nil
			}
			return "", "", undecided("queries: " + l.queries.String())
		}),
	},
	{
		id: "burst", mark: "own choice", part: partLimits,
		says: "unused rate can be caught up for 100 ms",
		ask: throttled(func(l *load) (string, string, error) {
			caught := float64(l.puts.first())/l.puts.rate() - 1
			detail := fmt.Sprintf("%d puts in the first second, then up to %.0f a second", l.puts.first(),
				l.puts.rate())
			switch {
			case caught < 0.35:
				return "for less than a third of a second", detail, nil
			case l.puts.refused < l.puts.accepted/4:
				return "", "", undecided("the queue was hardly at its limit: " + l.puts.String())
			}
			return fmt.Sprintf("for %.1f s or more", caught), detail, nil
		}),
	},
	{
		id: "retry-after", mark: "open", part: partLimits, says: "a 503 carries no Retry-After",
		ask: throttled(func(l *load) (string, string, error) {
			detail := fmt.Sprintf("%d of %d refusals", l.puts.retryAfter, l.puts.refused)
			return either(l.puts.retryAfter, "Retry-After", "no Retry-After", detail)
		}),
	},
	{
		id: "timed-out", mark: "open", part: partLimits,
		says: "a refusal is 503 ServerBusy, and not 500 OperationTimedOut",
		ask: throttled(func(l *load) (string, string, error) {
			detail := fmt.Sprintf("%d of 503 ServerBusy, %d of 500 OperationTimedOut", l.puts.busy,
				l.puts.timedOut)
			return either(l.puts.timedOut, "500 OperationTimedOut too", "503 ServerBusy only", detail)
		}),
	},
	{
		id: "neighbour", mark: "MEM", part: partLimits,
		says: "a queue at its limit does not throttle the account's other queues",
		ask: throttled(func(l *load) (string, string, error) {
			return either(l.neighbour.refused, "it does", "it does not", l.neighbour.String())
		}),
	},
	{
		id: "scan-limit", mark: "own choice", part: partLimits,
		says: "a query ends its page after a number of rows looked at, far beyond 1,000",
		ask: underLoad(func(l *load) (string, string, error) {
			return l.scan, "1,000 rows, none of which passes the filter", nil
		}),
	},
	{
		id: "account-limit", mark: "MEM", part: partLimits,
		says: "there is a limit of the account over all its services, which the simulator does not have",
		ask: underLoad(func(l *load) (string, string, error) {
			return "", "", undecided(fmt.Sprintf("it takes 20,000 requests a second, "+
				"and this sent up to %.0f; `loadtest run saturate` on many machines shows it", l.total))
		}),
	},
}

// measure puts load on a queue, and on a partition of a table.
func (p *prober) measure(ctx context.Context) (*load, error) {
	l := &load{published: p.pace.limit}
	busy, err := p.queue(ctx)
	if err != nil {
		return nil, err
	}
	other, err := p.queue(ctx)
	if err != nil {
		return nil, err
	}
	var beside sync.WaitGroup
	beside.Go(func() {
		drive(ctx, 1, 10, &l.neighbour, func(ctx context.Context) (int64, error) {
			_, err := other.Put(ctx, []byte("x"), 0)
			return 1, err
		})
	})
	drive(ctx, p.pace.workers, p.pace.puts, &l.puts, func(ctx context.Context) (int64, error) {
		_, err := busy.Put(ctx, []byte("x"), 0)
		return 1, err
	})
	beside.Wait()
	l.total = float64(l.puts.accepted+l.puts.refused) / max(l.puts.seconds, 1e-3)
	if err := wait(ctx, 2*time.Second); err != nil { // what is owed is paid by then
		return nil, err
	}
	drive(ctx, p.pace.workers, p.pace.gets, &l.gets, func(ctx context.Context) (int64, error) {
		ms, err := busy.Get(ctx, storage.MaxGet, time.Second)
		return int64(len(ms)), err
	})
	return l, p.measureQueries(ctx, l)
}

func (p *prober) measureQueries(ctx context.Context, l *load) error {
	t, err := p.table(ctx)
	if err != nil {
		return err
	}
	if err := fill(ctx, t); err != nil {
		return err
	}
	if err := wait(ctx, time.Second); err != nil { // what the rows owe is paid by then
		return err
	}
	q := question{
		service: "table", path: "/" + t.Name() + "()",
		query: map[string][]string{"$filter": {"PartitionKey eq 'p' and Absent eq 1"}},
	}
	re, err := p.ask(ctx, q)
	if err != nil {
		return err
	}
	l.scan = re.answer() + ", one page"
	if re.header.Get("x-ms-continuation-NextPartitionKey") != "" {
		l.scan = re.answer() + ", not the last page"
	}
	drive(ctx, p.pace.workers, p.pace.queries, &l.queries,
		func(ctx context.Context) (n int64, err error) {
			for _, err := range t.Query(ctx, storage.Query{Partition: "p", Select: []string{"Absent"}}) {
				if err != nil {
					return n, err
				}
				n++
			}
			return n, nil
		})
	return nil
}

// fill writes the rows of one partition, no faster than its limit allows.
func fill(ctx context.Context, t storage.Table) error {
	const patience = 6 // how often a transaction is sent again that was refused because of the limit
	for first := 0; first < queryRows; first += storage.MaxBatch {
		var writes []storage.Write
		for i := range storage.MaxBatch {
			e := storage.Entity{Partition: "p", Row: fmt.Sprintf("%06d", first+i)}
			writes = append(writes, storage.Write{Mode: storage.Upsert, Entity: e})
		}
		for try := 0; ; try++ {
			_, err := t.Transact(ctx, writes)
			if err == nil {
				break
			}
			if !storage.Is(err, storage.Throttled) || try == patience {
				return err
			}
			if err := wait(ctx, 100*time.Millisecond<<try); err != nil {
				return err
			}
		}
	}
	return nil
}

// drive makes requests at a rate, for [loadFor], and counts the outcomes.
func drive(
	ctx context.Context, workers int, rate float64, f *flow,
	request func(context.Context) (int64, error),
) {
	ctx, cancel := context.WithTimeout(ctx, 4*loadFor) // requests that hang
	defer cancel()
	var mu sync.Mutex
	var next atomic.Int64
	var all sync.WaitGroup
	began := time.Now()
	for range workers {
		all.Go(func() {
			for {
				due := time.Duration(float64(next.Add(1)-1) / rate * float64(time.Second))
				if due >= loadFor || wait(ctx, due-time.Since(began)) != nil {
					return
				}
				// A request that cannot be sent in time, because of a slow machine or a long way, is not sent.
				if time.Since(began) >= loadFor {
					return
				}
				n, err := request(ctx)
				took := time.Since(began)
				mu.Lock()
				f.note(n, err, took)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	f.seconds = time.Since(began).Seconds()
}

func (f *flow) note(served int64, err error, at time.Duration) {
	e, refused := errors.AsType[*storage.Error](err)
	switch {
	case err == nil:
		f.accepted++
		f.served += served
		if half := int(at / (time.Second / 2)); half < len(f.halves) {
			f.halves[half]++
		}
	case refused && e.Code == storage.Throttled:
		f.refused++
		if e.RetryAfter > 0 {
			f.retryAfter++
		}
		if e.Service == "OperationTimedOut" {
			f.timedOut++
		} else {
			f.busy++
		}
	default:
		f.failed++
		f.cause = cmp.Or(f.cause, err)
	}
}
