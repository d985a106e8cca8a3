package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/status"
)

func TestRowsOfTheHistoryArePointsOfThePage(t *testing.T) {
	at := time.Date(2026, 1, 2, 10, 4, 0, 0, time.UTC)
	got := pointsOf([]status.HistoryPoint{{Time: at, Tasks: 12.5, Accounts: []status.HistoryAccount{
		{Name: "a", Asked: 30, Limit: 20_000, Sampled: true, Messages: 7, Visible: 5, InFlight: 2},
		{Name: "", Asked: 9, Sampled: true, Messages: 1, Visible: 1},
	}}, {Time: at.Add(time.Minute), Accounts: []status.HistoryAccount{
		{Name: "a", Sampled: true, Messages: 7}, {Name: "b"}, // nothing is known of b
	}}})
	want := []Point{{
		At: at, Rate: 12.5, Messages: new(int64(8)),
		Accounts: map[string]AccountPoint{"a": {Demand: 30, Limit: 20_000}},
	}, {At: at.Add(time.Minute), Accounts: map[string]AccountPoint{"a": {}, "b": {}}}}
	proof.Same(t, cmp.Diff(want, got), "")
}

// rows are those that a sampling process has written by now, one for each minute that has ended.
type rows struct {
	asked []time.Time // what is after these was asked for
	fails error
}

func (r *rows) read(_ context.Context, after time.Time) (points []status.HistoryPoint, err error) {
	r.asked = append(r.asked, after)
	if r.fails != nil {
		return nil, r.fails
	}
	last := time.Now().Truncate(time.Minute).Add(-time.Minute)
	for at := last.Add(-status.HistorySpan + time.Minute); !at.After(last); at = at.Add(time.Minute) {
		if at.After(after) {
			points = append(points, status.HistoryPoint{Time: at, Tasks: float64(at.Unix() / 60 % 1000)})
		}
	}
	return points, nil
}

// lastHours asks for the last hours as the page does.
func lastHours(t *testing.T, p *Page) (sent hoursSent) {
	t.Helper()
	w := served(p, "/page/hours", nil)
	if w.Code != http.StatusOK {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	must(t, json.Unmarshal(w.Body.Bytes(), &sent))
	return sent
}

// However many watch and however often they ask, rows are read once a minute, those that are new.
func TestTheLastHoursAreReadOnceAMinuteAndOnlyWhileSomeoneWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, cfg := newSim(t, 1)
		p := opened(t, cfg, "")
		var r rows
		p.hours.read = r.read
		if w := served(p, "/page/hours", nil); w.Code != http.StatusConflict || len(r.asked) != 0 {
			t.Errorf("without a viewer: %d, %d reads", w.Code, len(r.asked))
		}
		leave, _ := p.join()
		time.Sleep(time.Second)
		for range 3 * 60 {
			for range 5 {
				lastHours(t, p)
			}
			time.Sleep(time.Second)
		}
		if n := len(r.asked); n < 3 || n > 4 {
			t.Errorf("%d reads in three minutes", n)
		}
		if !r.asked[0].IsZero() || time.Since(r.asked[len(r.asked)-1]) > 10*time.Minute {
			t.Errorf("asked for what is after %v", r.asked)
		}
		leave()
		again, _ := p.join() // within the minute
		again()
		time.Sleep(linger + time.Second)
		before := len(r.asked)
		w := served(p, "/page/hours", nil)
		time.Sleep(time.Hour)
		if w.Code != http.StatusConflict || len(r.asked) != before {
			t.Errorf("after all have left: %d, %d reads more", w.Code, len(r.asked)-before)
		}
	})
}

func TestTheLastHoursAreSixHoweverLongOneWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r rows
		h := hours{read: r.read, log: slog.New(slog.DiscardHandler)}
		look := func() (sent hoursSent) {
			must(t, json.Unmarshal(h.all(t.Context()), &sent))
			return sent
		}
		first := look()
		for range 7 * 12 { // one who looks now and then misses no row
			time.Sleep(5 * time.Minute)
			look()
		}
		later := look()
		for _, sent := range []hoursSent{first, later} {
			n := len(sent.Times)
			if n != 360 || sent.Times[n-1]-sent.Times[0] != 359*60 || sent.Problem != "" {
				t.Errorf("%d points, %q", n, sent.Problem)
			}
		}
		if now := time.Now().Unix(); now-later.Times[359] > 7*60 || later.Times[0] <= first.Times[359] {
			t.Errorf("the newest is of %d, now is %d", later.Times[359], now)
		}
		r.fails = errors.New("no answer\nadvice")
		time.Sleep(5 * time.Minute)
		if sent := look(); sent.Problem != "no answer" || len(sent.Times) != 360 {
			t.Errorf("what cannot be read: %q, %d points are left", sent.Problem, len(sent.Times))
		}
	})
}

// Of many accounts the rows are bounded too.
func TestTheLastHoursOfManyAccountsAreBounded(t *testing.T) {
	h := hours{read: func(context.Context, time.Time) (points []status.HistoryPoint, _ error) {
		for i := range 2 * 360 {
			p := status.HistoryPoint{Time: began.Add(time.Duration(i) * time.Minute)}
			for a := range 250 {
				p.Accounts = append(p.Accounts, status.HistoryAccount{
					Name: fmt.Sprintf("account%d", a), Asked: 12345.6, Limit: 20_000,
				})
			}
			points = append(points, p)
		}
		return points, nil
	}}
	text := h.all(t.Context())
	if len(h.points) != 360 || len(text) > 1<<20 {
		t.Errorf("%d points, %d bytes", len(h.points), len(text))
	}
}

// The rows are those that are stored, and an address of elsewhere learns nothing of them.
func TestTheLastHoursAreThoseOfTheHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, cfg := newSim(t, 1)
		p := opened(t, cfg, "")
		leave, _ := p.join()
		defer leave()
		time.Sleep(5 * time.Second)
		if sent := lastHours(t, p); sent.Problem != "" || len(sent.Times) != 0 || sent.Accounts == nil {
			t.Errorf("no process has sampled: %+v", sent)
		}
		sim.Blackout("accounta", true)
		time.Sleep(2 * time.Minute)
		if sent := lastHours(t, p); sent.Problem == "" {
			t.Error("a dark account is not told of")
		}
		elsewhere := func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }
		proof.Same(t, served(p, "/page/hours", elsewhere).Code, http.StatusForbidden, "asked from elsewhere")
	})
}
