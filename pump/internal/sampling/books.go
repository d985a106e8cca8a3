package sampling

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/cluster"
)

// books are what the process that samples knows of the requests of all: those of the UTC day by
// account, and those since the last row of the history. They go on from the marks in the row that
// the last sampling process wrote.
type books struct {
	prices pump.Prices
	limit  float64 // messages a second of an account

	day int64 // since 1970; 0 before the first look
	sums
	closed *closedDay // until its last row is written
	// marks are what members had asked at the last look, by process, or, until a member is seen, what
	// the row says. Marks of absent members are kept for a while, here and in the rows: a member with
	// an unreadable row, or one evicted while it was suspended, comes back as it was.
	marks  map[uint64]memberMark
	before Marks
	from   time.Time // what before is as of
	looked time.Time // at first
	at     time.Time // the last look
	ever   ever      // since these books began, over all days
	rates  []point   // of the last minutes
}

// sums are what a row says of requests, by account.
type sums struct {
	total map[string]Requests // of the day
	since map[string]entry    // since the last row
	kinds kinds               // of the day
}

// closedDay is what was known at the last look before midnight. The row of the day's last minute is
// written only after the next day's first look.
type closedDay struct {
	day int64
	sums
	marks Marks
}

// entry is what one account was asked since the last row.
type entry struct {
	requests  Requests
	throttled uint64
	blobsMore float64 // see cluster.OpCounts.BlobsMore
}

// memberMark is what a member had asked of each account when it was last seen.
type memberMark struct {
	of    map[string]asked
	kinds kindsMark
	at    time.Time
}

// asked is what a member had asked of an account in all.
type asked struct {
	requests  Requests
	throttled uint64
}

// ever is what all have asked and spent.
type ever struct {
	spent    float64
	requests Requests
	kinds    cluster.OpCounts
}

// point is a day's state at a time.
type point struct {
	at time.Time
	ever
}

const (
	secondsADay = 24 * 60 * 60
	// rateOver is the time over which what is spent a second is averaged.
	rateOver = 2 * time.Minute
	// forget is for how long marks of members that are gone are kept.
	forget = time.Hour
)

// dayOf is the number of a UTC day.
func dayOf(at time.Time) int64 { return at.Unix() / secondsADay }

// midnight is when a day began.
func midnight(day int64) time.Time { return time.Unix(day*secondsADay, 0).UTC() }

// newBooks goes on from a row, or begins from nothing without one.
func newBooks(prices pump.Prices, limit float64, last HistoryPoint, marks Marks) *books {
	b := &books{
		prices: prices, limit: limit, sums: newSums(),
		marks: map[uint64]memberMark{}, before: marks,
	}
	if !last.Time.IsZero() {
		b.day, b.from = dayOf(last.Time), last.Time.Add(time.Minute)
		b.kinds.all = last.DayKinds
		for _, a := range last.Accounts {
			b.total[a.Name], b.kinds.of[a.Name] = a.Day, a.DayKinds
		}
	}
	return b
}

func newSums() sums {
	return sums{
		total: map[string]Requests{}, since: map[string]entry{},
		kinds: kinds{of: map[string]cluster.OpCounts{}},
	}
}

// observe takes the beats of a view, at a time of the server's clock. The requests of members
// before they were first seen are of this day as far as they ran on this day.
func (b *books) observe(v *cluster.View, now time.Time) {
	if today := dayOf(now); b.day != today {
		b.closed = &closedDay{b.day, b.sums, b.marked()}
		b.day, b.sums = today, newSums()
	}
	if b.at = now; b.looked.IsZero() {
		b.looked = now
	}
	for i := range v.Members {
		m := &v.Members[i]
		if m.Err == nil {
			id := markOf(m)
			b.mark(m, id, now)
		}
	}
	maps.DeleteFunc(b.marks, func(_ uint64, m memberMark) bool { return now.Sub(m.at) > forget })
	b.rates = append(b.rates, point{now, b.ever})
	for len(b.rates) > 2 && now.Sub(b.rates[1].at) >= rateOver {
		b.rates = b.rates[1:]
	}
}

// since is when a process began to count, and markOf what stands for it.
func since(m *cluster.Member) time.Time {
	if m.AskedSince.IsZero() {
		return m.Started
	}
	return m.AskedSince
}

func markOf(m *cluster.Member) uint64 { return MarkOf(m.Instance, since(m)) }

// mark counts what a member has asked since the last look, or since the row, and notes what it had
// asked by now.
func (b *books) mark(m *cluster.Member, id uint64, at time.Time) {
	last, seen := b.marks[id]
	was := last.kinds
	if seen && len(last.of) == 0 { // it had asked nothing, of any kind
		was.known, was.of = true, map[string]cluster.OpCounts{}
	}
	now := was.note(m)
	if seen {
		b.more(was, now)
		b.marks[id] = memberMark{b.again(m, last.of), now, at}
		return
	}
	of, counted := b.first(m, id)
	b.spread(now, counted)
	b.marks[id] = memberMark{of, now, at}
}

// askedBy is what a member has asked of each account in all.
func askedBy(m *cluster.Member) (of map[string]asked, all Requests) {
	of = make(map[string]asked, len(m.Asked))
	for name, n := range m.Asked {
		of[name] = asked{Requests{Queue: n.Queue, Table: n.Table}, m.Throttles[name]}
		all = all.Add(of[name].requests)
	}
	return of, all
}

// again counts what a member has asked since the last look. A member's row that came back older
// says less than what is known, and is ignored.
func (b *books) again(m *cluster.Member, last map[string]asked) map[string]asked {
	now, _ := askedBy(m)
	for name, n := range now {
		was := last[name]
		b.add(name, n.requests.Since(was.requests), n.throttled-min(was.throttled, n.throttled))
		now[name] = asked{n.requests.Max(was.requests), max(n.throttled, was.throttled)}
	}
	return now
}

// first counts what a member has asked since the row, and gives how much of each account that is.
func (b *books) first(
	m *cluster.Member, id uint64,
) (now map[string]asked, counted map[string]Requests) {
	now, all := askedBy(m)
	// The times of the requests are not known: they count as spread evenly since the row, or since the
	// process counts.
	news, from := all, since(m)
	if before, known := b.before[id]; known {
		news, from = all.Since(before.Requests), b.from.Add(-before.Ago)
	}
	part := today(b.day, from, m.Beat)
	queue, table := divided(part, all.Queue, news.Queue), divided(part, all.Table, news.Table)
	counted = make(map[string]Requests, len(now))
	for _, name := range slices.Sorted(maps.Keys(now)) { // so that the same row gives the same sums
		n := now[name].requests
		counted[name] = Requests{Queue: queue(n.Queue), Table: table(n.Table)}
		b.add(name, counted[name], 0)
	}
	return now, counted
}

// divided shares out part of news in proportion to all: called for each portion of all, it gives
// out exactly that part of news in sum.
func divided(part float64, all, news uint64) func(of uint64) uint64 {
	given, upTo := uint64(0), uint64(0)
	due := uint64(math.Round(part * float64(news)))
	return func(of uint64) uint64 {
		if all == 0 {
			return 0
		}
		upTo += of
		share := uint64(float64(due)*(float64(upTo)/float64(all))) - given
		given += share
		return share
	}
}

// own counts what this process has asked after its last beat.
func (b *books) own(
	v *cluster.View, instance string, now map[string]cluster.Asked, packed []byte, at time.Time,
) {
	for i := range v.Members {
		if m := v.Members[i]; m.Instance == instance && m.Err == nil {
			m.Asked, m.Operations = now, packed
			b.mark(&m, markOf(&m), at)
		}
	}
}

// today is the part of the time between two moments that is of this day.
func today(day int64, from, to time.Time) float64 {
	began := midnight(day)
	if from.IsZero() || !from.Before(began) || !to.After(from) {
		return 1
	}
	return max(to.Sub(began).Seconds(), 0) / to.Sub(from).Seconds()
}

func (b *books) add(name string, n Requests, throttled uint64) {
	b.total[name] = b.total[name].Add(n)
	e := b.since[name]
	b.since[name] = entry{e.requests.Add(n), e.throttled + throttled, e.blobsMore}
	b.ever.spent += b.cost(n)
	b.ever.requests = b.ever.requests.Add(n)
}

func (b *books) cost(of Requests) float64 {
	return b.prices.Cost(float64(of.Queue), float64(of.Table))
}

// dayCost is what the day has cost.
func (b *books) dayCost(s sums) float64 {
	return b.cost(s.whole()) + s.kinds.all.BlobsMore(b.prices)
}

// whole is what all accounts together were asked on the day.
func (s sums) whole() (all Requests) {
	for _, n := range s.total {
		all = all.Add(n)
	}
	return all
}

// rate is what all spend a second, lately; nil until that is known.
func (b *books) rate() *float64 {
	if len(b.rates) < 2 {
		return nil
	}
	first, last := b.rates[0], b.rates[len(b.rates)-1]
	return new((last.spent - first.spent) / last.at.Sub(first.at).Seconds())
}

// published is what the process says of the day in its beats.
func (b *books) published() *cluster.Day {
	return &cluster.Day{Number: b.day, Cost: b.dayCost(b.sums), Rate: b.rate(), Kinds: b.dayKinds()}
}

// row makes the row of a minute, with the marks to go on from, and begins with the next. The row of
// a day's last minute has the sums and marks of that day; later requests go into the next row.
func (b *books) row(
	minute time.Time, v *cluster.View, backlog *pump.Backlog,
) (HistoryPoint, Marks) {
	is, marks := b.sums, Marks(nil)
	if c := b.closed; c != nil && c.day == dayOf(minute) {
		is, marks = c.sums, c.marks
	} else {
		marks, b.since = b.marked(), map[string]entry{}
	}
	b.closed = nil
	p := HistoryPoint{
		Time: minute, DayCost: b.dayCost(is), Currency: b.prices.Currency,
		DayKinds: is.kinds.all,
	}
	stamp := v.Stamp()
	wants := map[string]float64{}
	for i := range v.Members {
		m := &v.Members[i]
		if m.Err != nil || m.Silent(stamp) {
			continue
		}
		if m.Role == cluster.RoleProcessor {
			p.Tasks += m.Rate
		}
		if m.Waiting == "" && !m.Guessed { // as the status has it
			add(wants, m.Demand)
		}
	}
	looked := map[string]pump.WaitingAccount{}
	if backlog != nil {
		if backlog.Done != nil && backlog.Seconds != nil {
			p.Sampled, p.Done, p.Waiting = true, *backlog.Done, *backlog.Seconds
		}
		for _, a := range backlog.Accounts {
			looked[a.Name] = a
		}
	}
	queues := map[string]bool{}
	for _, s := range v.Workload.Map.Shards {
		queues[s.Account] = true
	}
	for _, name := range is.names(queues) {
		a, sampled := looked[name]
		e := is.since[name]
		cost := b.cost(e.requests) + e.blobsMore
		p.Cost += cost
		p.Accounts = append(p.Accounts, HistoryAccount{
			Name: name, Asked: wants[name], Limit: b.limit, Throttled: e.throttled, Cost: cost,
			// without queues nothing needs a look
			Sampled:  sampled || backlog != nil && !queues[name],
			Messages: uint64(max(a.Messages, 0)), Visible: uint64(max(a.Visible, 0)),
			InFlight: uint64(max(a.InFlight, 0)), Delayed: uint64(max(a.Delayed, 0)),
			Quarantined: uint64(max(a.Quarantined, 0)), Oldest: a.Oldest,
			Requests: e.requests, Day: is.total[name], DayKinds: is.kinds.of[name],
		})
	}
	return p, marks
}

// names are the accounts with queues and those that were asked on the day.
func (s sums) names(queues map[string]bool) []string {
	all := maps.Clone(queues)
	for name := range s.total {
		all[name] = true
	}
	return slices.Sorted(maps.Keys(all))
}

// marked are the marks of the members that were seen. Marks of the row before stay if their members
// were not seen, unless they are old.
func (b *books) marked() Marks {
	marks := Marks{}
	for id, m := range b.before {
		if m.Ago += b.at.Sub(b.looked); m.Ago <= forget {
			marks[id] = m
		}
	}
	for id, m := range b.marks {
		mark := Mark{Ago: max(b.at.Sub(m.at), 0)}
		for _, n := range m.of {
			mark.Requests = mark.Add(n.requests)
		}
		marks[id] = mark
	}
	return marks
}
