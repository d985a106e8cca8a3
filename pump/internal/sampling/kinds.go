package sampling

import (
	"maps"

	"github.com/queuepump/queuepump/pump/internal/cluster"
)

// kinds are requests by kind, of the members that say it: over all accounts, and by account.
type kinds struct {
	all cluster.OpCounts
	of  map[string]cluster.OpCounts
}

// kindsMark is what a member had said by kind when it was last seen. What the member does not say
// for a while stays as it was: the member counts all the time, so later nothing is missing.
type kindsMark struct {
	known bool
	all   cluster.OpCounts
	of    map[string]cluster.OpCounts // nil: it was never said by account
}

// note gives what is known now.
func (k kindsMark) note(m *cluster.Member) kindsMark {
	all, each, known := m.Kinds()
	if !known {
		return k
	}
	next := kindsMark{true, all.Max(k.all), k.of}
	if each != nil {
		next.of = make(map[string]cluster.OpCounts, len(each))
		maps.Copy(next.of, k.of)
		for name, n := range each {
			next.of[name] = n.Max(k.of[name])
		}
	}
	return next
}

// more counts what a member has asked by kind between two looks. What the member had asked when it
// first said so belongs to no look.
func (b *books) more(was, now kindsMark) {
	if was.known && now.known {
		b.addKinds(now.all.Since(was.all))
	}
	if was.of == nil {
		return
	}
	for name, n := range now.of {
		if n = n.Since(was.of[name]); n != (cluster.OpCounts{}) {
			b.addOf(name, n)
		}
	}
}

func (b *books) addKinds(n cluster.OpCounts) {
	b.kinds.all, b.ever.kinds = b.kinds.all.Add(n), b.ever.kinds.Add(n)
	b.ever.spent += n.BlobsMore(b.prices)
}

func (b *books) addOf(name string, n cluster.OpCounts) {
	b.kinds.of[name] = b.kinds.of[name].Add(n)
	e := b.since[name]
	e.blobsMore += n.BlobsMore(b.prices)
	b.since[name] = e
}

// spread divides a member's requests of the first look, by account, among kinds in proportion to
// all of its kinds.
func (b *books) spread(now kindsMark, counted map[string]Requests) {
	var whole Requests
	var all cluster.OpCounts
	for name, n := range counted {
		whole = whole.Add(n)
		if now.of != nil {
			part := partOf(now.of[name], n)
			b.addOf(name, part)
			all = all.Add(part)
		}
	}
	switch {
	case now.of != nil:
		b.addKinds(all)
	case now.known:
		b.addKinds(partOf(now.all, whole))
	}
}

// partOf divides so many requests as they are divided in all.
func partOf(all cluster.OpCounts, n Requests) (part cluster.OpCounts) {
	queue := divided(1, all.Of(cluster.QueueService), n.Queue)
	table := divided(1, all.Of(cluster.TableService), n.Table)
	for k := range cluster.OpKinds {
		if k.Service() == cluster.TableService {
			part[k] = table(all[k])
		} else {
			part[k] = queue(all[k])
		}
	}
	return part
}

// dayKinds are the day's requests by kind, requests of unknown kind included, with their recent
// rate a second.
func (b *books) dayKinds() map[cluster.DayKind]cluster.DayCount {
	of := map[cluster.DayKind]cluster.DayCount{}
	first, last := b.rates[0], b.rates[len(b.rates)-1]
	put := func(service, operation string, day, from, to uint64) {
		if day == 0 {
			return
		}
		n := cluster.DayCount{Requests: day}
		if span := last.at.Sub(first.at).Seconds(); span > 0 {
			n.Rate = new(float64(to-min(from, to)) / span)
		}
		of[cluster.DayKind{Service: service, Operation: operation}] = n
	}
	for k := range cluster.OpKinds {
		put(k.Service(), k.String(), b.kinds.all[k], first.kinds[k], last.kinds[k])
	}
	day := b.whole().Unknown(b.kinds.all)
	from, to := first.requests.Unknown(first.kinds), last.requests.Unknown(last.kinds)
	put(cluster.QueueService, "", day.Queue, from.Queue, to.Queue)
	put(cluster.TableService, "", day.Table, from.Table, to.Table)
	return of
}
