package worlds

import (
	"context"
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/status"
)

var (
	costHours = flag.Duration("cost.for", 3*time.Hour, "how much of a day is played, up to midnight")
	costWrite = flag.String("cost.write", "", "write the table of docs/tuning.md into this file")
)

// spentDay is what a part of a day has cost, and what that did to tasks.
type spentDay struct {
	cost      float64 // by what the accounts were asked, but for the puts of the test
	done, put int
	p50, p99  time.Duration // from put to handled, of what was handled
	worst     time.Duration
	slowed    float64 // the part of the time in which a processor polled more slowly
	held      float64 // and in which it held gets back
	day       float64 // as the status has it at the end
	row       float64 // and as the history has it in the last minute
	// Of the first half an hour of the next day: its cost, by the accounts and by the status, and the
	// rate of a day that the metrics say just after midnight; -1: none.
	night, nextDay, rate float64
}

// costDay plays a part of a day up to midnight: one message in each `every`, and a cap. Two
// processors read the two queues of an account. Half an hour of the next day follows, with a
// message in each 20 s.
func costDay(t *testing.T, span, every time.Duration, most float64) (d spentDay) {
	testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		time.Sleep(24*time.Hour - span - time.Second)
		var mu sync.Mutex
		born := map[string]time.Time{}
		var waits []time.Duration
		h := pump.HandlerFunc(func(_ context.Context, task *pump.Task) error {
			mu.Lock()
			defer mu.Unlock()
			waits = append(waits, time.Since(born[fmt.Sprintf("%d/%d", task.Segment, task.N)]))
			return nil
		})
		before := asked(w)
		change := func(cfg *pump.Config) { cfg.Budget.CostPerDay = most }
		p, q := sampled(w, "p", h, change), sampled(w, "q", h, change)
		m := w.ShardMap()
		end := time.Now().Add(span - time.Second)
		put := func(i int) {
			segment := uint32(i*37) % uint32(m.Segments)
			mu.Lock()
			born[fmt.Sprintf("%d/%d", segment, w.Ns[segment])] = time.Now()
			mu.Unlock()
			home := m.Shards[m.Home(segment)]
			w.PutText(home.Account, home.Queue, w.Envelope(segment, 1))
		}
		looks := 0.
		for i := 0; time.Now().Before(end); i++ {
			put(i)
			d.put++
			money := p.Of.State().Money
			looks++
			if money.TimesSlower > 1 {
				d.slowed++
			}
			if money.HoldsBack {
				d.held++
			}
			time.Sleep(min(every, time.Until(end)))
		}
		spent := asked(w).Since(before)
		spent.Queue -= uint64(d.put)
		s := w.Status(status.Options{})
		d.day, d.cost = *s.Money.DayCost, pump.Prices{}.OrPublished().Cost(float64(spent.Queue), float64(spent.Table))
		d.slowed, d.held = d.slowed/looks, d.held/looks
		mu.Lock()
		d.done = len(waits)
		mu.Unlock()
		before = asked(w)
		for i := range 90 {
			put(d.put + i)
			time.Sleep(20 * time.Second)
			if i == 1 {
				d.rate = perDay(w, p, q)
			}
		}
		spent = asked(w).Since(before)
		spent.Queue -= 90
		d.night = pump.Prices{}.OrPublished().Cost(float64(spent.Queue), float64(spent.Table))
		d.nextDay = *w.Status(status.Options{}).Money.DayCost
		d.row = lastOfDay(w)
		sp, sq := p.End(), q.End()
		mu.Lock()
		defer mu.Unlock()
		if n := int(sp.Handled + sq.Handled); n != len(waits) || sp.Lost+sq.Lost > 0 {
			t.Errorf("%d tasks were handled and %d settled; %d leases were lost", len(waits), n, sp.Lost+sq.Lost)
		}
		waits = waits[:d.done]
		slices.Sort(waits)
		if n := len(waits); n > 0 {
			d.p50, d.p99, d.worst = waits[n/2], waits[n*99/100], waits[n-1]
		}
	})
	return d
}

// perDay is what the one of these that samples says that a day costs, in its metrics; -1: nothing.
func perDay(w *testworld.World, of ...*started) float64 {
	for _, p := range of {
		if rate := p.Of.State().Money.PerDay; rate != nil {
			return *rate
		}
	}
	return -1
}

// lastOfDay is what the day before has cost, by its last row of the history.
func lastOfDay(w *testworld.World) (cost float64) {
	points, err := status.History(w.T.Context(), w.Operator(), time.Time{})
	must(w.T, err)
	for _, p := range points {
		if p.Time.Before(time.Now().UTC().Truncate(24 * time.Hour)) {
			cost = p.DayCost
		}
	}
	return cost
}

// nextDay fails if a day that ends leaves its sum nowhere, or the next one begins with another's.
func nextDay(t *testing.T, load string, d spentDay, most float64) {
	t.Helper()
	if math.Abs(d.row/d.day-1) > 0.01 {
		t.Errorf("%s: the day's last row has %.5f, and the day cost %.5f", load, d.row, d.day)
	}
	// The requests of the last seconds before midnight are in it, up to a beat, a look and a sum.
	if off := d.nextDay - d.night; off < -0.02*d.night || off > 0.02*d.night+d.rate*45/86400 {
		t.Errorf("%s: the next day's sum is %.6f, and half an hour cost %.6f", load, d.nextDay, d.night)
	}
	if least := 0.5 * d.night * 48; d.rate < least {
		t.Errorf("%s: just after midnight a day costs %.5f, and that half an hour is one of at least %.5f", load, d.rate, least)
	}
	// A cap near the least that a day costs is reached after a while, and made up for later.
	if part := most / 48; most > 0 && d.night > 2*part {
		t.Errorf("%s: the first half an hour cost %.6f, and its part of the cap is %.6f", load, d.night, part)
	}
}

// A day stays within its cap by 1 %: where idle polling alone must be slowed, and where tasks wait
// because there are more than the cap pays for. Nothing that was begun is left unsettled.
func TestADayStaysWithinItsCap(t *testing.T) {
	span := min(*costHours, 24*time.Hour)
	var rows []string
	row := func(load string, most float64, d spentDay) {
		text := "none"
		if most > 0 {
			text = fmt.Sprintf("%.4f", most)
		}
		rows = append(rows, fmt.Sprintf(
			"| %s | %s | %.4f | %d of %d | %v | %v | %v | %.0f %% | %.0f %% |", load, text, d.cost, d.done, d.put,
			d.p50.Round(100*time.Millisecond), d.p99.Round(100*time.Millisecond), d.worst.Round(100*time.Millisecond), 100*d.slowed, 100*d.held,
		))
	}
	most := 0.0058 // just above the least of a whole day; a part of a day may cost as much
	if !proof.Less(t) {
		free := costDay(t, span, 20*time.Second, 0)
		row("a message each 20 s", 0, free)
		t.Logf("without a cap: %+v", free)
		nextDay(t, "without a cap", free, 0)
		most = max(most, 0.6*free.cost)
	}
	for _, c := range []struct {
		load  string
		span  time.Duration
		every time.Duration
		most  float64
		full  bool // more comes than the cap pays for
	}{
		{"a message each 20 s", span, 20 * time.Second, most, false},
		{"10 messages a second for a part of that", span / 6, 100 * time.Millisecond, max(0.02*span.Hours()/24, 0.0058), true},
	} {
		d := costDay(t, c.span, c.every, c.most)
		row(c.load, c.most, d)
		t.Logf("%s: cap %.5f, cost %.5f, by the status %.5f, %d of %d done, waits %v to %v, slowed %.2f, held %.2f, row %.5f, night %.6f of %.6f, by the status %.6f, rate %.5f",
			c.load, c.most, d.cost, d.day, d.done, d.put, d.p50, d.worst, d.slowed, d.held, d.row, d.night, c.most/48, d.nextDay, d.rate)
		if d.cost > 1.01*c.most {
			t.Errorf("%s: the day cost %.5f, and the cap is %.5f", c.load, d.cost, c.most)
		}
		if off := d.day/d.cost - 1; math.Abs(off) > 0.02 {
			t.Errorf("%s: the day's sum is %.5f, and the accounts were asked for %.5f", c.load, d.day, d.cost)
		}
		nextDay(t, c.load, d, c.most)
		switch {
		case c.full && (d.cost < 0.95*c.most || d.held == 0 || d.done == d.put):
			t.Errorf("%s: %+v of a cap of %.5f", c.load, d, c.most)
		case !c.full && (d.done < d.put-20 || d.slowed == 0 || d.p99 > 3*time.Minute):
			t.Errorf("%s: %+v", c.load, d)
		}
	}
	if *costWrite != "" {
		writeCosts(t, span, rows)
	}
}

const (
	costBegin = "<!-- make play WHAT=day-cost writes what follows -->\n"
	costEnd   = "<!-- until here -->\n"
)

func writeCosts(t *testing.T, span time.Duration, rows []string) {
	t.Helper()
	text, err := os.ReadFile(*costWrite)
	must(t, err)
	head, rest, begins := strings.Cut(string(text), costBegin)
	_, tail, ends := strings.Cut(rest, costEnd)
	if !begins || !ends {
		t.Fatalf("%s has no place for the table", *costWrite)
	}
	table := fmt.Sprintf("\n%v of virtual time; amounts in USD.\n\n", span) +
		"| load | cap | cost | tasks done | median wait | 99 % | longest | time slowed | gets held |\n|---|---|---|---|---|---|---|---|---|\n" +
		strings.Join(rows, "\n") + "\n\n"
	must(t, os.WriteFile(*costWrite, []byte(head+costBegin+table+costEnd+tail), 0o600))
}
