package election

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/testkit"
	"github.com/queuepump/queuepump/pump/storage"
)

func TestClocksTenMinutesOffChangeNothing(t *testing.T) {
	t.Run("a period", func(t *testing.T) { clocksChangeNothing(t, 9, Options{Every: 3 * time.Minute}) })
	t.Run("a schedule", func(t *testing.T) {
		clocksChangeNothing(t, 5, Options{Cron: &Schedule{Text: "each fifth minute", Kept: time.Hour, Next: func(t time.Time) time.Time {
			return t.Truncate(5 * time.Minute).Add(5 * time.Minute)
		}}})
	})
}

// clocksChangeNothing: the schedule of a server and three machines, none of whose clocks agree, is
// that of right clocks.
func clocksChangeNothing(t *testing.T, n int, o Options) {
	schedule := func(server, a, b, c time.Duration) (starts []time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			s := testkit.NewServer()
			s.Offset = server
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
			defer cancel()
			var wg sync.WaitGroup
			var mu sync.Mutex
			for i, off := range []time.Duration{a, b, c} {
				name := fmt.Sprint("m", i)
				if o.Cron != nil {
					off = 0 // a skewed table shows stamps by the machine's clock, and a due time is the server's
				}
				table := row.Seeded(testkit.Skewed{Table: s.Client(name), By: off}, testkit.SeededDraw(5, name))
				o := o
				o.Instance = name
				e := New(table, "city", o)
				wg.Go(func() {
					for {
						term := stand(ctx, e)
						if term == nil {
							return
						}
						if o.Cron != nil {
							due, _, err := term.Due(ctx)
							if mustFinish(t, term); due.IsZero() {
								continue // the first look
							}
							if late := time.Now().Add(server).Sub(due); err != nil || late < 0 || late > 2*time.Second {
								t.Errorf("%v late: %v", late, err)
							}
						}
						mu.Lock()
						starts = append(starts, time.Since(began))
						mu.Unlock()
						time.Sleep(20 * time.Second)
						mustFinish(t, term) // or it is finished
					}
				})
			}
			wg.Wait()
		})
		return starts
	}
	right := schedule(0, 0, 0, 0)
	if len(right) != n { // 200 s each, by a period
		t.Fatalf("%d distributions in half an hour: %v", len(right), right)
	}
	const off = 10 * time.Minute
	for _, o := range [][4]time.Duration{{off, 0, 0, 0}, {-off, 0, 0, 0}, {0, off, -off, 0}, {0, -off, off, off}, {off, off, off, -off}} {
		got := schedule(o[0], o[1], o[2], o[3])
		if !slices.EqualFunc(got, right, func(x, y time.Duration) bool { return (x - y).Abs() < time.Second }) {
			t.Errorf("with offsets %v the distributions begin at %v, with right clocks at %v", o, got, right)
		}
	}
}

func TestACandidateThatStartsAnewKnowsHowMuchOfThePeriodIsLeft(t *testing.T) {
	for name, c := range map[string]struct {
		started time.Duration // after the last distribution ended
		every   time.Duration // of the new one; the old one's is a day
		due     time.Duration // after it started
	}{
		"in the middle":      {20 * time.Hour, 24 * time.Hour, 4 * time.Hour},
		"at the end":         {24 * time.Hour, 24 * time.Hour, 0},
		"long after":         {100 * time.Hour, 24 * time.Hour, 0},
		"with a shorter one": {time.Minute, time.Hour, 59 * time.Minute},
		"with a longer one":  {20 * time.Hour, 48 * time.Hour, 4 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := testkit.NewServer()
				server.Offset = -7 * time.Minute
				old := New(server.Client("a"), "city", Options{Instance: "a", Every: 24 * time.Hour})
				mustFinish(t, standFor(t, old, time.Second))
				time.Sleep(c.started)
				began := time.Now()
				e := New(server.Client("b"), "city", Options{Instance: "b", Every: c.every})
				mustFinish(t, standFor(t, e, 25*time.Hour))
				if waited := time.Since(began); (waited - c.due).Abs() > time.Second {
					t.Errorf("began after %v, want %v", waited, c.due)
				}
			})
		})
	}
}

func TestTheServersClockIsOnlyLearnedFromAnAcknowledgedWrite(t *testing.T) {
	testkit.OnServer(t, "a", func(t *testing.T, server *testkit.Server, client *testkit.Client) {
		e := candidate(client, "a")
		mustFinish(t, standFor(t, e, time.Second))
		// The clock row exists from an hour ago. A lost write must not let it speak.
		if _, _, err := e.schedule.clock.Read(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		client.SetFault(func(c testkit.Call) testkit.Fault {
			return map[bool]testkit.Fault{true: testkit.LostRequest}[c.Op == "write" && strings.HasSuffix(c.Row, "/clock")]
		})
		if term, wait, err := e.Try(t.Context()); term != nil || !storage.Ambiguous(err) || wait > 5*time.Second {
			t.Errorf("%v, %v, %v", term, wait, err)
		}
		client.SetFault(nil)
		mustFinish(t, standFor(t, e, time.Second))
	})
}

func TestTheEstimateOfTheServersTimeIsNeverAheadAndIsLearnedOnceForAll(t *testing.T) {
	for _, offset := range []time.Duration{0, 10 * time.Minute, -10 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			server := testkit.NewServer()
			server.Offset = offset
			client := server.Client("me")
			c := row.ServerClock{Table: client, Partition: "p", Timeout: row.RequestTimeout}
			check := func(ctx context.Context) {
				now, err := c.AtLeast(ctx)
				proof.Is(t, err, nil)
				// A round trip and a thousandth of ten minutes.
				if behind := time.Now().Add(offset).Sub(now); behind < 0 || behind > time.Second {
					t.Errorf("%v behind the server", behind)
				}
			}
			var wg sync.WaitGroup
			// The first asks for all and gives up; another has to ask then.
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
				defer cancel()
				if _, err := c.AtLeast(ctx); err == nil {
					t.Error("it learned the time without waiting for it")
				}
			})
			time.Sleep(time.Millisecond)
			for range 50 {
				wg.Go(func() { check(t.Context()) })
			}
			wg.Wait()
			proof.Same(t, len(client.Sent()), 1+2, "requests")
			for range 60 {
				time.Sleep(time.Minute)
				check(t.Context())
			}
			if n := len(client.Sent()); n > 3+2*6 {
				t.Errorf("%d requests in an hour", n)
			}
			time.Sleep(time.Hour)
			client.SetFault(func(testkit.Call) testkit.Fault { return testkit.LostRequest })
			if _, err := c.AtLeast(t.Context()); !storage.Ambiguous(err) {
				t.Errorf("an old estimate was used: %v", err)
			}
		})
	}
}
