package sampling

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/testkit"
	"github.com/queuepump/queuepump/shardmap"
)

// recorder is a sampler over a table, with a view that a test gives.
func recorder(table *testkit.Client, instance string, view func() *cluster.View) *Sampler {
	cfg := &pump.Config{
		Workload: "work", Instance: instance, Sample: 15 * time.Second, Prices: pump.Prices{}.OrPublished(),
		Budget: pump.Budget{Account: 20_000}, Log: slog.New(slog.DiscardHandler),
	}
	return New(cfg, &queues.Set{Control: table, Allowance: queues.NewAllowance(cfg)}, view)
}

// The rows are there after the process was killed that wrote them, and the next one goes on.
func TestTheHistoryIsThereAfterItsWriterWasKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(12 * time.Hour)
		began := time.Now()
		table := testkit.NewServer().Client("a")
		a, c := newParty("a", began), newParty("c", began)
		var mu sync.Mutex // guards a and c, which two samplers see
		move := func(f func()) { mu.Lock(); defer mu.Unlock(); f() }
		view := func() *cluster.View { mu.Lock(); defer mu.Unlock(); return viewOf(time.Now(), a, c) }
		first, killed := context.WithCancel(t.Context())
		second, stop := context.WithCancel(t.Context())
		one, two := recorder(table, "a", view), recorder(table, "c", view)
		go one.record(first)
		go two.record(second)
		for range 600 {
			time.Sleep(time.Second)
			move(func() {
				a.asks("alpha", 2, 1)
				c.asks("alpha", 1, 0)
			})
		}
		killed()
		move(func() { a.gone, a.m.Samples = true, false }) // as an eviction has it, and the next is the first now
		for range 600 {
			time.Sleep(time.Second)
			move(func() { c.asks("alpha", 1, 0) })
		}
		time.Sleep(90 * time.Second)
		day := two.Day()
		stop()
		synctest.Wait()
		points, err := ReadHistory(t.Context(), table, "work", time.Time{})
		if err != nil || len(points) < 19 {
			t.Fatalf("%d points: %v", len(points), err)
		}
		last := points[len(points)-1]
		want := Requests{Queue: 600*2 + 1200, Table: 600}
		proof.Same(t, last.Accounts[0].Day, want, "the day is")
		if day == nil || math.Abs(day.Cost-(pump.Prices{}).OrPublished().Cost(2400, 600)) > 1e-9 || one.Day() != nil {
			t.Errorf("published: %+v, and by the other %+v", day, one.Day())
		}
		sum := Requests{}
		for i, p := range points {
			sum = sum.Add(p.Accounts[0].Requests)
			if i > 0 && p.Time.Sub(points[i-1].Time) > 2*time.Minute {
				t.Errorf("nothing from %v to %v", points[i-1].Time, p.Time)
			}
		}
		proof.Same(t, sum, want, "the minutes have")
	})
}

// A sampler that is cut off from the table says nothing of the day once the others take it for
// dead. When it is back it goes on from their rows, and not from its own knowledge.
func TestASamplerThatIsCutOffBeginsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(12 * time.Hour)
		table := testkit.NewServer().Client("a")
		a, c := newParty("a", time.Now()), newParty("c", time.Now())
		var v atomic.Pointer[cluster.View]
		v.Store(viewOf(time.Now(), a, c))
		s := recorder(table, "a", v.Load)
		go s.record(t.Context())
		time.Sleep(18 * time.Second)
		if s.Day() == nil {
			t.Error("it says nothing while it samples")
		}
		time.Sleep(30 * time.Second)
		proof.Same(t, s.Day(), nil, "it has been cut off for 48 s")
		other := emptyBooks()
		c.asks("alpha", 1000, 0)
		now := viewOf(time.Now(), c)
		other.observe(now, time.Now())
		p, marks := other.row(Minute(time.Now()), now, nil)
		must(t, WriteHistory(t.Context(), table, "work", p, marks))
		for range 8 {
			time.Sleep(10 * time.Second)
			c.asks("alpha", 1, 0)
			v.Store(viewOf(time.Now(), a, c))
		}
		time.Sleep(19 * time.Second)
		points, err := ReadHistory(t.Context(), table, "work", time.Time{})
		last := points[len(points)-1]
		if err != nil || last.Accounts[0].Requests.Queue > 10 || last.Accounts[0].Day.Queue < 1002 || last.Accounts[0].Day.Queue > 1008 {
			t.Errorf("%+v, %v", last, err)
		}
	})
}

// The row of a day's last minute says what the day came to, though it is written on the next day.
// The rate goes on over midnight. A sampler that comes then counts nothing twice, and misses
// nothing.
func TestTheLastRowOfADayHasItsSum(t *testing.T) {
	for _, killed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(24*time.Hour - 5*time.Minute)
			table := testkit.NewServer().Client("a")
			a := newParty("a", time.Now())
			var mu sync.Mutex // guards a
			view := func() *cluster.View { mu.Lock(); defer mu.Unlock(); return viewOf(time.Now(), a) }
			ctx, kill := context.WithCancel(t.Context())
			s := recorder(table, "a", view)
			go s.record(ctx)
			ask := func(seconds int) {
				for range seconds {
					time.Sleep(time.Second)
					mu.Lock()
					a.asks("alpha", 10, 1)
					mu.Unlock()
				}
			}
			ask(5*60 + 40)
			second := pump.Prices{}.OrPublished().Cost(10, 1)
			if day := s.Money(); day.PerDay == nil || math.Abs(*day.PerDay/(second*secondsADay)-1) > 0.1 || *day.Cost > 41*second {
				t.Errorf("just after midnight: %+v", day)
			}
			if killed {
				kill()
				synctest.Wait()
				ctx, kill = context.WithCancel(t.Context())
				s = recorder(table, "a", view)
				go s.record(ctx)
			}
			ask(140)
			time.Sleep(20 * time.Second)
			kill()
			synctest.Wait()
			points, err := ReadHistory(t.Context(), table, "work", time.Time{})
			if err != nil || len(points) < 6 {
				t.Fatalf("%d points: %v", len(points), err)
			}
			began, sum := Minute(time.Now()).Truncate(24*time.Hour), Requests{}
			for _, p := range points {
				sum = sum.Add(p.Accounts[0].Requests)
				past := p.Time.Add(time.Minute).Sub(began)
				if past <= 0 {
					past += 5 * time.Minute // since the first look
				}
				most := uint64((past + 20*time.Second) / time.Second)
				if n := p.Accounts[0].Day; n.Table > most || n.Table+40 < most || n.Queue != 10*n.Table {
					t.Errorf("killed %v, %v: %+v of the day, %d s after it began", killed, p.Time.Format(time.TimeOnly), n, most)
				}
				if want := (pump.Prices{}).OrPublished().Cost(float64(p.Accounts[0].Day.Queue), float64(p.Accounts[0].Day.Table)); math.Abs(p.DayCost-want) > 1e-12 {
					t.Errorf("%v: the day costs %v, want %v", p.Time, p.DayCost, want)
				}
			}
			last := points[len(points)-1].Accounts[0].Day
			var eve HistoryPoint
			for _, p := range points {
				if dayOf(p.Time) != dayOf(began) {
					eve = p
				}
			}
			if all := eve.Accounts[0].Day.Add(last); all != sum || all != (Requests{Queue: 4800, Table: 480}) {
				t.Errorf("killed %v: the two days have %+v and %+v, the minutes %+v", killed, eve.Accounts[0].Day, last, sum)
			}
		})
	}
}

// An unknown length of a queue is not written down as nothing.
func TestARowSaysWhatIsNotKnown(t *testing.T) {
	minute := Minute(time.Now())
	a := newParty("a", minute)
	a.asks("table only", 0, 1)
	v := viewOf(minute, a)
	v.Workload.Map.Shards = []shardmap.Shard{{Account: "alpha", Queue: "q"}, {Account: "dark", Queue: "q"}}
	alpha := pump.WaitingAccount{Name: "alpha", Messages: 60, Visible: 30, InFlight: 20, Delayed: 10, Quarantined: 2, Oldest: 3}
	for _, c := range []struct {
		what                string
		backlog             *pump.Backlog
		all, lit, dark, one bool
	}{
		{"no sample yet", nil, false, false, false, false},
		{"one account is dark", &pump.Backlog{Accounts: []pump.WaitingAccount{alpha}, Done: new(2.0), Seconds: new(15.0)}, true, true, false, true},
	} {
		b := emptyBooks()
		b.observe(v, minute)
		table := testkit.NewServer().Client("a")
		table.SetLatency(func(testkit.Call) time.Duration { return 0 })
		p, marks := b.row(minute, v, c.backlog)
		must(t, WriteHistory(t.Context(), table, "work", p, marks))
		p, _, err := NewestPoint(t.Context(), table, "work")
		if err != nil || len(p.Accounts) != 3 {
			t.Fatalf("%+v, %v", p, err)
		}
		lit, dark, one := p.Accounts[0], p.Accounts[1], p.Accounts[2]
		if p.Sampled != c.all || lit.Sampled != c.lit || dark.Sampled != c.dark || one.Sampled != c.one || dark.Messages != 0 {
			t.Errorf("%s: %+v", c.what, p)
		}
		if c.lit && (lit.Messages != 60 || lit.Visible != 30 || lit.InFlight != 20 || lit.Delayed != 10 || lit.Quarantined != 2 || p.Done != 2) {
			t.Errorf("%s: %+v", c.what, p)
		}
	}
}

// A process that lives for less than a minute leaves what it has asked.
func TestTheLastRowIsWrittenByTheLastProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(12 * time.Hour)
		table := testkit.NewServer().Client("a")
		for n := range 3 {
			a := newParty(fmt.Sprintf("a%d", n), time.Now())
			s := recorder(table, a.m.Instance, nil)
			a.asks("alpha", 10, 1)
			time.Sleep(20 * time.Second)
			s.asked = func() (map[string]cluster.Asked, []byte) { return a.m.Asked, a.m.Operations }
			v := viewOf(time.Now(), a)
			s.view = func() *cluster.View { return v }
			a.asks("alpha", 5, 0) // after its last beat
			s.Last(t.Context())
		}
		p, _, err := NewestPoint(t.Context(), table, "work")
		if err != nil || len(p.Accounts) == 0 || p.Accounts[0].Day != (Requests{Queue: 45, Table: 3}) {
			t.Errorf("%+v, %v", p, err)
		}
	})
}

// A table that is dark or slow makes gaps, and no sum of a part that is taken for all.
func TestADarkTableMakesAGapAndNoWrongSum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(12 * time.Hour)
		table := testkit.NewServer().Client("a")
		a := newParty("a", time.Now())
		a.asks("alpha", 1000, 0)
		b := emptyBooks()
		v := viewOf(time.Now(), a)
		b.observe(v, time.Now())
		p, marks := b.row(Minute(time.Now()), v, nil)
		must(t, WriteHistory(t.Context(), table, "work", p, marks))
		table.Dies()
		s := recorder(table, "a", func() *cluster.View { return viewOf(time.Now(), a) })
		go s.record(t.Context())
		time.Sleep(3 * time.Minute)
		proof.Same(t, s.Day(), nil, "the row of before cannot be read")
		table.SetFault(nil)
		table.SetLatency(func(testkit.Call) time.Duration { return 3 * time.Second })
		time.Sleep(3 * time.Minute)
		if day := s.Day(); day == nil || math.Abs(day.Cost-(pump.Prices{}).OrPublished().Cost(1000, 0)) > 1e-12 {
			t.Errorf("the day costs %+v", day)
		}
	})
}
