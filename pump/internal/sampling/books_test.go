package sampling

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/testkit"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/shardmap"
)

// party is a member as a test moves it.
type party struct {
	m      cluster.Member
	gone   bool // dead: its row stands still
	mute   bool // it does not say what kind its requests are
	counts map[string]cluster.OpCounts
}

// asks makes requests: a third of those to queues are deletes, the others gets.
func (p *party) asks(account string, queue, table uint64) {
	now := map[string]cluster.OpCounts{}
	maps.Copy(now, p.counts) // a beat of before keeps what it said
	now[account] = now[account].Add(cluster.OpCounts{
		cluster.OpGet: queue - queue/3, cluster.OpDelete: queue / 3, cluster.OpRead: table,
	})
	p.counts = now
	p.m.Asked, p.m.Operations = cluster.AskedOf(now)
	if p.mute {
		p.m.Operations = nil
	}
}

func newParty(name string, started time.Time) *party {
	p := &party{m: member(name, cluster.RoleProcessor, true, false)}
	p.m.Started, p.m.Dead = started, 20*time.Second
	return p
}

func viewOf(at time.Time, of ...*party) *cluster.View {
	v := &cluster.View{Read: time.Now(), Workload: &workload.Workload{Map: &shardmap.Map{}}}
	for _, p := range of {
		if !p.gone {
			p.m.Beat = at
		}
		v.Members = append(v.Members, p.m)
	}
	return v
}

var evening = time.Date(2020, 1, 1, 20, 0, 0, 0, time.UTC)

func emptyBooks() *books { return newBooks(pump.Prices{}.OrPublished(), 20_000, HistoryPoint{}, nil) }

func wantSum(t *testing.T, what string, b *books, want Requests) {
	t.Helper()
	proof.Same(t, b.whole(), want, what)
	proof.Same(t, kindsWrong(b), "", what)
}

// kindsWrong says where the sums by kind are others than those by service, of members that all say
// what kind their requests are.
func kindsWrong(b *books) string {
	is := func(c cluster.OpCounts) Requests {
		return Requests{Queue: c.Of(cluster.QueueService), Table: c.Of(cluster.TableService)}
	}
	if got := is(b.kinds.all); got != b.whole() {
		return fmt.Sprintf("by kind the day has %+v, in all %+v", got, b.whole())
	}
	for name, n := range b.total {
		if got := is(b.kinds.of[name]); got != n {
			return fmt.Sprintf("by kind account %s has %+v, in all %+v", name, got, n)
		}
	}
	return ""
}

func TestTheDaysSumIsThatOfAllMembers(t *testing.T) {
	b, a, c := emptyBooks(), newParty("a", evening), newParty("c", evening)
	a.asks("alpha", 100, 10)
	c.asks("beta", 1, 0)
	b.observe(viewOf(evening, a, c), evening)
	if rate := b.rate(); rate != nil {
		t.Errorf("after one look a second costs %v", *rate)
	}
	wantSum(t, "two members that began today", b, Requests{Queue: 101, Table: 10})
	a.asks("alpha", 5, 5)
	b.observe(viewOf(evening.Add(time.Minute), a, c), evening.Add(time.Minute))
	wantSum(t, "one asks more", b, Requests{Queue: 106, Table: 15})
	if got, want := b.cost(b.whole()), (106*0.004+15*0.00036)/1e4; math.Abs(got-want) > 1e-12 {
		t.Errorf("it costs %v, want %v", got, want)
	}
	if got, want := b.rate(), (5*0.004+5*0.00036)/1e4/60; got == nil || math.Abs(*got-want) > 1e-12 {
		t.Errorf("a second it costs %v, want %v", got, want)
	}
	older := *a
	older.m.Asked = map[string]cluster.Asked{"alpha": {Queue: 100, Table: 10}}
	b.observe(viewOf(evening.Add(2*time.Minute), &older, c), evening.Add(2*time.Minute))
	b.observe(viewOf(evening.Add(3*time.Minute), a, c), evening.Add(3*time.Minute))
	wantSum(t, "a row that came back as it was", b, Requests{Queue: 106, Table: 15})
	unread := *a
	unread.m.Err, unread.m.Asked = fmt.Errorf("damaged"), nil
	b.observe(viewOf(evening.Add(4*time.Minute), &unread, c), evening.Add(4*time.Minute))
	b.observe(viewOf(evening.Add(5*time.Minute), a, c), evening.Add(5*time.Minute))
	wantSum(t, "a row that could not be read", b, Requests{Queue: 106, Table: 15})
	a.asks("alpha", 7, 0)
	next := evening.Add(4*time.Hour + time.Minute)
	b.observe(viewOf(next, a, c), next)
	wantSum(t, "a new day", b, Requests{Queue: 7})
}

// Where no row says more, a member has asked as much in each hour since it began.
func TestWithoutARowTheDayHasItsPart(t *testing.T) {
	b, a := emptyBooks(), newParty("a", evening.Add(-24*time.Hour)) // 4 of 24 hours were yesterday's
	a.asks("alpha", 2400, 240)
	b.observe(viewOf(evening, a), evening)
	wantSum(t, "20 of 24 hours", b, Requests{Queue: 2000, Table: 200})
}

// goOn is the sampler that comes after another one, by a row as it is stored.
func goOn(t *testing.T, b *books, v *cluster.View, minute time.Time) *books {
	t.Helper()
	table := testkit.NewServer().Client("a")
	table.SetLatency(func(testkit.Call) time.Duration { return 0 })
	p, marks := b.row(minute, v, nil)
	must(t, WriteHistory(t.Context(), table, "work", p, marks))
	last, marks, err := NewestPoint(t.Context(), table, "work")
	must(t, err)
	return newBooks(b.prices, b.limit, last, marks)
}

func TestTheNextSamplerGoesOnFromTheRow(t *testing.T) {
	minute := Minute(time.Now().Add(-time.Minute))
	if dayOf(minute.Add(3*time.Minute)) != dayOf(minute) {
		t.Skip("midnight is near")
	}
	b, a, c := emptyBooks(), newParty("a", minute), newParty("c", minute)
	a.asks("alpha", 100, 10)
	c.asks("beta", 50, 0)
	v := viewOf(minute, a, c)
	b.observe(v, minute)
	next := goOn(t, b, v, minute)
	wantSum(t, "what the row says", next, Requests{Queue: 150, Table: 10})
	a.asks("alpha", 11, 1) // while none sampled
	c.gone = true
	d := newParty("d", minute.Add(time.Second))
	d.asks("beta", 1000, 0)
	at := minute.Add(2 * time.Minute)
	next.observe(viewOf(at, a, c, d), at)
	wantSum(t, "what was asked meanwhile", next, Requests{Queue: 1161, Table: 11})
	proof.Same(t, next.total["alpha"], (Requests{Queue: 111, Table: 11}), "account alpha")
}

// A member may be out of sight of a sampler, evicted or with a row that cannot be read. The next
// sampler still knows what was counted of the member before.
func TestTwoTakeoversCountAMemberOnce(t *testing.T) {
	minute := time.Date(2020, 1, 1, 20, 0, 0, 0, time.UTC)
	a, c := newParty("a", minute), newParty("c", minute)
	a.asks("alpha", 40_000, 0)
	b := emptyBooks()
	b.observe(viewOf(minute, a, c), minute)
	for n := range 6 { // samplers, each for 9 minutes
		b = goOn(t, b, viewOf(minute, c), minute)
		minute = minute.Add(time.Minute)
		for range 9 {
			minute = minute.Add(time.Minute)
			c.asks("beta", 1, 1)
			b.observe(viewOf(minute, c), minute)
		}
		if n == 4 {
			a.asks("alpha", 40, 0)
			back := goOn(t, b, viewOf(minute, c), minute)
			at := minute.Add(2 * time.Minute)
			back.observe(viewOf(at, a, c), at)
			wantSum(t, "it comes back after 50 minutes", back, Requests{Queue: 40_040 + 45, Table: 45})
		}
	}
	proof.Same(t, len(b.marked()), 2, "after an hour there are … marks")
	minute = minute.Add(20 * time.Minute)
	b.observe(viewOf(minute, c), minute)
	proof.Same(t, len(b.marked()), 1, "a member that was not seen for over an hour is one of … marks")
}

// dayHistory plays an evening with members that come, die and come back as they were, and samplers
// that are killed. The books say of a day just the requests of that day, whatever happened.
func dayHistory(t *testing.T, seed uint64) (wrong string) {
	r := rand.New(rand.NewPCG(seed, 1))
	now := evening.Add(time.Duration(r.IntN(3600)) * time.Second)
	table := testkit.NewServer().Client("a")
	table.SetLatency(func(testkit.Call) time.Duration { return 0 })
	b := emptyBooks()
	var parties []*party
	var truth, seen Requests // of the day: what was asked, and as of the last look
	day, born, away := dayOf(now), 0, 0
	written := Minute(now)
	for step := range 400 {
		now = now.Add(time.Duration(10+r.IntN(80)) * time.Second)
		if today := dayOf(now); today != day && away == 0 {
			day, truth = today, Requests{}
		}
		if len(parties) < 2 || r.IntN(40) == 0 {
			born++
			parties = append(parties, newParty(fmt.Sprintf("m%03d", born), now))
		}
		if i := r.IntN(len(parties)); r.IntN(40) == 0 {
			parties[i].gone = true
		}
		nearMidnight := dayOf(now.Add(20*time.Minute)) != day || dayOf(now.Add(-20*time.Minute)) != day
		shown := []*party{}
		for _, p := range parties {
			if !p.gone {
				queue, tables := uint64(r.IntN(1000)), uint64(r.IntN(50))
				p.asks([]string{"alpha", "beta"}[r.IntN(2)], queue, tables)
				truth = truth.Add(Requests{Queue: queue, Table: tables})
			}
			as := *p
			if r.IntN(30) == 0 && !nearMidnight {
				as.m.Err = fmt.Errorf("damaged")
			}
			shown = append(shown, &as)
		}
		switch {
		case away > 0:
			away--
			if away > 0 {
				continue
			}
			last, marks, err := NewestPoint(t.Context(), table, "work")
			if err != nil {
				return err.Error()
			}
			b = newBooks(pump.Prices{}.OrPublished(), 20_000, last, marks)
		case r.IntN(20) == 0 && !nearMidnight && step > 5:
			away = 1 + r.IntN(5)
			continue
		}
		v := viewOf(now, shown...)
		b.observe(v, now)
		whole := !slices.ContainsFunc(shown, func(p *party) bool { return p.m.Err != nil })
		if got := b.whole(); whole && got != truth {
			return fmt.Sprintf("step %d, %v: the day's sum is %+v, and %+v were asked", step, now.Format(time.TimeOnly), got, truth)
		}
		if wrong := kindsWrong(b); wrong != "" {
			return fmt.Sprintf("step %d, %v: %s", step, now.Format(time.TimeOnly), wrong)
		}
		if whole && b.whole().Since(seen) == (Requests{}) && truth.Since(seen) != (Requests{}) {
			return "the sum stands still"
		}
		seen = b.whole()
		if minute := Minute(now); minute.After(written) {
			p, marks := b.row(written, v, nil)
			written = minute
			if err := WriteHistory(t.Context(), table, "work", p, marks); err != nil {
				return err.Error()
			}
		}
		parties = slices.DeleteFunc(parties, func(p *party) bool { return p.gone && whole && r.IntN(4) == 0 })
	}
	return ""
}

func TestTheDaysSumIsExactWhateverHappens(t *testing.T) {
	for seed := range uint64(30) {
		proof.Same(t, dayHistory(t, seed), "", "seed", seed)
	}
}
