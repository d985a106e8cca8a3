package distributor_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/source"
	"github.com/queuepump/queuepump/pump/storage"
)

// scheduled is distributors with a schedule. A beat is chosen long where time is: a day has many.
type scheduled struct {
	*testworld.World
	e    ended
	s    source.Source
	o    distributor.Options
	live map[string]*testworld.Started[*distributor.Distributor, distributor.Summary]
}

func atNight(w *testworld.World, cron string, beat time.Duration) *scheduled {
	w.Cfg.Retention = 3 * 366 * 24 * time.Hour
	return &scheduled{
		World: w, s: &testworld.ListSource{Print: "a", N: 6, Pace: 200 * time.Millisecond},
		o:    distributor.Options{Cron: cron, Beat: beat, Lease: 4 * beat},
		live: map[string]*testworld.Started[*distributor.Distributor, distributor.Summary]{},
	}
}

func (n *scheduled) begin(names ...string) {
	for _, name := range names {
		o := n.o
		o.OnRun = n.e.by(name)
		n.live[name] = testworld.Begun(n.World, distributor.New, name, n.s, o)
	}
}

// end stops all distributors.
func (n *scheduled) end() {
	for name, d := range n.live {
		d.Stop()
		_ = d.Wait()
		delete(n.live, name)
	}
}

// leaderDies has the network swallow what the leader of now sends, until it is buried.
func (n *scheduled) leaderDies() (bury func()) {
	leader := lookRow(n.World).Leader
	if n.live[leader] == nil {
		for leader = range n.live {
			break
		}
	}
	return n.Crash(leader).Remove
}

// sent are the runs whose tasks lie in the queue; it takes the tasks out for good.
func (n *scheduled) sent() (runs []string) {
	n.T.Helper()
	for q := n.Queue("accounta", setup.Shards(n.Cfg)[0].Queue); ; {
		ms, err := q.Get(n.T.Context(), storage.MaxGet, time.Minute)
		proof.Must(n.T, err)
		for _, m := range ms {
			e, err := codec.Open(m.Text, codec.Limits{})
			proof.Must(n.T, errors.Join(err, q.Delete(n.T.Context(), m.Receipt)))
			runs = append(runs, e.Header.Run.String())
			e.Release()
		}
		if len(ms) == 0 {
			slices.Sort(runs)
			return slices.Compact(runs)
		}
	}
}

// cronRuns are the rows of runs by schedule in a state, or in any, the first one first.
func (n *scheduled) cronRuns(state workload.RunState) []workload.Run {
	all, err := n.AllRuns().List(n.T.Context(), 1000)
	proof.Must(n.T, err)
	all = slices.DeleteFunc(all, func(r workload.Run) bool { return r.Mode != "cron" || state != "" && r.State != state })
	slices.SortFunc(all, func(a, b workload.Run) int { return a.Started.Compare(b.Started) })
	return all
}

// until sleeps until a moment of the day of virtual time.
func (n *scheduled) until(clock string) {
	at, err := time.Parse("15:04:05", clock)
	proof.Must(n.T, err)
	y, m, d := time.Now().UTC().Date()
	time.Sleep(time.Until(time.Date(y, m, d, at.Hour(), at.Minute(), at.Second(), 0, time.UTC)))
}

// dues are the due times of sealed runs, as the minutes in which the runs were begun.
func (n *scheduled) begun(state workload.RunState) (at string) {
	for _, r := range n.cronRuns(state) {
		at += r.Started.UTC().Format(" 15:04")
	}
	return strings.TrimSpace(at)
}

// P2.7: over a year with both changes of the clock, each due time has one run, though its leader
// dies: before the run has a row, before the election row names it, in the midst of it, or after.
func TestAYearInWhichEachLeaderDiesAtItsDueTime(t *testing.T) {
	proof.Only(t)
	oslo, err := time.LoadLocation("Europe/Oslo")
	proof.Must(t, err)
	for name, c := range map[string]struct {
		cron               string
		hour, minute, dues int
		skips              func(day time.Time) bool
	}{
		"each night at 02:30": {"30 2 * * *", 2, 30, 366, func(time.Time) bool { return false }},
		"weekdays at 06:00": {"0 6 * * 1-5", 6, 0, 260, func(day time.Time) bool {
			return day.Weekday() == time.Saturday || day.Weekday() == time.Sunday
		}},
	} {
		t.Run(name, func(t *testing.T) {
			testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
				n, draw, seen, resumed := atNight(w, c.cron, time.Second), rand.New(rand.NewPCG(1, uint64(c.hour))), map[string]bool{}, 0
				n.o.Timezone = "Europe/Oslo"
				n.begin("first") // it has no past, and makes no due time of it
				time.Sleep(10 * time.Second)
				n.end()
				for day := time.Date(2000, 1, 1, 0, 0, 0, 0, oslo); day.Year() == 2000; day = day.AddDate(0, 0, 1) {
					if c.skips(day) {
						continue
					}
					due := time.Date(2000, day.Month(), day.Day(), c.hour, c.minute, 0, 0, oslo)
					switch fmt.Sprint(day.Format("0102 "), c.hour) {
					case "0326 2": // there is no 02:30
						due = time.Date(2000, 3, 26, 1, 0, 0, 0, time.UTC)
					case "1029 2": // there are two
						due = time.Date(2000, 10, 29, 0, 30, 0, 0, time.UTC)
					}
					time.Sleep(time.Until(due.Add(-3 * time.Second)))
					n.begin("d1", "d2")
					time.Sleep(time.Until(due.Add(time.Duration(draw.IntN(1+[]int{200, 2000}[draw.IntN(2)])) * time.Millisecond)))
					bury := n.leaderDies()
					time.Sleep(9 * time.Second)
					runs := n.sent()
					if len(runs) != 1 || seen[runs[0]] {
						t.Fatalf("%v: the tasks are of runs %v", due, runs)
					}
					seen[runs[0]] = true
					if s := lookRow(w); s.Run.String() != runs[0] || !s.Due.Equal(due) || w.RunRow(s.Run).State != workload.RunSealed {
						t.Fatalf("%v: run %s is not sealed: %+v", due, runs[0], s)
					}
					// The other change of the clock: an hour later it is 02:30 again.
					if day.Month() == 10 && day.Day() == 29 {
						time.Sleep(time.Until(due.Add(time.Hour + time.Minute)))
						if runs := n.sent(); len(runs) > 0 {
							t.Errorf("%v comes twice, and was made twice", due)
						}
					}
					n.end()
					bury()
				}
				for _, r := range n.e.all() {
					if r.err == nil && r.Resumed {
						resumed++
					}
				}
				if len(seen) != c.dues || len(n.cronRuns(workload.RunSealed)) != c.dues || resumed < 20 {
					t.Errorf("%d due times were made, want %d; %d by a second leader", len(seen), c.dues, resumed)
				}
			})
		})
	}
}

// Whatever happens to the election row at a due time: it is gone, or comes back as it was at the one
// before, while the leader dies or lives.
func TestALostElectionRowDoublesNoDueTime(t *testing.T) {
	times := 16
	if proof.Less(t) {
		times = 8
	}
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		n, draw := atNight(w, "*/2 * * * *", time.Second), rand.New(rand.NewPCG(3, 1))
		partition := workload.ElectionPartition(w.Cfg.Workload)
		n.begin("first")
		for i := 1; i <= times; i++ {
			due := time.Date(2000, 1, 1, 0, 2*i, 0, 0, time.UTC)
			before := w.Sim.Snapshot("accounta", row.TableName, partition)
			n.begin(fmt.Sprintf("a%d", i), fmt.Sprintf("b%d", i))
			time.Sleep(time.Until(due.Add(time.Duration(draw.IntN(3000)-500) * time.Millisecond)))
			bury := func() {}
			if draw.IntN(2) == 0 {
				bury = n.leaderDies()
			}
			switch draw.IntN(3) {
			case 0:
				w.Sim.DropRows("accounta", row.TableName, partition, func(key string) bool { return key == "election" })
			case 1:
				before.Restore()
			}
			time.Sleep(40 * time.Second)
			if runs := n.sent(); len(runs) != 1 || len(n.cronRuns(workload.RunSealed)) != i {
				t.Errorf("%v: the tasks are of runs %v, and %s were sealed", due, runs, n.begun(workload.RunSealed))
			}
			if draw.IntN(2) == 0 { // those who know of the due time live on
				n.end()
			}
			bury()
		}
		// Nobody lives who knows what was made, but the rows of runs tell.
		for _, pause := range []time.Duration{0, 2 * time.Minute} {
			n.end()
			time.Sleep(pause)
			made := len(n.cronRuns(""))
			w.Sim.DropRows("accounta", row.TableName, partition, func(string) bool { return true })
			n.begin("last")
			time.Sleep(20 * time.Second)
			proof.Same(t, len(n.cronRuns(""))-made, int(pause/(2*time.Minute)),
				"runs were made after the row was gone and", pause, "passed")
		}
		n.end()
	})
}

func TestMissedDueTimesAreMadeOnceOrNotAtAll(t *testing.T) {
	for missed, want := range map[string]string{
		"": "01:00 02:00 05:20 06:00 07:00", "once": "01:00 02:00 05:20 06:00 07:00", "skip": "01:00 02:00 06:00 07:00",
	} {
		testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
			n := atNight(w, "0 * * * *", time.Minute)
			n.o.Missed = missed
			n.begin("d1")
			n.until("02:30:00")
			n.end()
			n.until("05:20:00")
			n.begin("d2", "d3")
			n.until("07:30:00")
			s := lookRow(w)
			if got := n.begun(workload.RunSealed); got != want || s.Cron != "0 * * * * UTC" {
				t.Errorf("missed %q: runs at %s, want %s; %+v", missed, got, want, s)
			}
			if s.Due.UTC().Format("15:04") != "07:00" || s.NextRun.UTC().Format("15:04") != "08:00" || s.Run != n.cronRuns(workload.RunSealed)[len(strings.Fields(want))-1].ID {
				t.Errorf("missed %q: %+v", missed, s)
			}
			if st := n.live["d3"].Of.State(); st.NextDue == nil || !st.NextDue.Equal(s.NextRun) {
				t.Errorf("missed %q: next %v", missed, st.NextDue)
			}
			proof.Same(t, w.Logged("a due time is left out") > 0, (missed == "skip"),
				"missed", missed, "that one was left out is said")
			n.end()
		})
	}
}

// A run that takes longer than the interval ends first. A new schedule makes no past due times.
func TestARunThatTakesLongerThanTheInterval(t *testing.T) {
	for missed, want := range map[string]string{
		"once": "00:10 00:35 01:00", "skip": "00:10 00:40 01:10",
	} {
		testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
			n := atNight(w, "*/10 * * * *", time.Minute)
			n.o.Missed, n.s = missed, &testworld.ListSource{Print: "a", N: 100, Pace: 15 * time.Second}
			n.begin("d1", "d2")
			n.until("01:22:00")
			if got := n.begun(workload.RunSealed); !strings.HasPrefix(want, got) || len(got) < 11 {
				t.Errorf("missed %q: runs at %s, want %s", missed, got, want)
			}
			n.end()
			if got := strings.Fields(n.begun(workload.RunSealed) + " " + n.begun(workload.RunOpen)); strings.Join(got, " ") != want {
				t.Errorf("missed %q: runs at %s, want %s", missed, got, want)
			}
			before := len(n.cronRuns(""))
			n.o.Cron, n.s = "5 * * * *", &testworld.ListSource{Print: "b", N: 1}
			n.begin("d3")
			n.until("01:50:00")
			if after := len(n.cronRuns("")); after != before {
				t.Errorf("missed %q: a new schedule made %d runs at once: %+v", missed, after-before, lookRow(w))
			}
			n.until("02:06:00")
			if got := n.begun(workload.RunSealed); !strings.HasSuffix(got, " 02:05") {
				t.Errorf("missed %q: runs at %s", missed, got)
			}
			n.end()
		})
	}
}

// breaking is a source whose first runs break.
type breaking struct {
	testworld.ListSource
	left int
	err  error
}

func (s *breaking) Open(ctx context.Context, cursor []byte) (source.Reader, error) {
	r, err := s.ListSource.Open(ctx, cursor)
	return &breakingReader{r.(*testworld.ListReader), s}, err
}

type breakingReader struct {
	*testworld.ListReader
	of *breaking
}

func (r *breakingReader) Next(ctx context.Context) (source.Record, error) {
	if r.At == 3 && r.of.left > 0 {
		r.of.left--
		return source.Record{}, r.of.err
	}
	return r.ListReader.Next(ctx)
}

func TestADueTimeWhoseRunBrokeBeginsAgain(t *testing.T) {
	bad := &source.BadInput{Where: "list:4", Err: testworld.ErrFlop}
	for name, c := range map[string]struct {
		left         int
		err          error
		broken, good string
		logged       string
	}{
		"twice":           {2, source.ErrSourceChanged, "01:00 01:01", "01:03 02:00", "begins again after a pause"},
		"always":          {5, source.ErrSourceChanged, "01:00 01:01 01:03 01:07 01:15", "02:00", "the due time is given up"},
		"at a bad record": {1, bad, "01:00", "02:00", "the due time is given up"},
	} {
		t.Run(name, func(t *testing.T) {
			testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
				n := atNight(w, "0 * * * *", time.Minute)
				n.s = &breaking{testworld.ListSource{Print: "a", N: 6}, c.left, c.err}
				n.begin("d1", "d2")
				n.until("02:30:00")
				if broken, good := n.begun(workload.RunBroken), n.begun(workload.RunSealed); broken != c.broken || good != c.good {
					t.Errorf("broken at %s, want %s; sealed at %s, want %s", broken, c.broken, good, c.good)
				}
				if w.Logged(c.logged) == 0 {
					t.Error("the log does not say so")
				}
				n.end()
			})
		})
	}
}

// A run that an operator ends does not begin again, and a source that is not there is waited for.
func TestADueTimeThatAnOperatorEndedOrThatHasNoSource(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		n := atNight(w, "0 * * * *", time.Minute)
		n.s = &testworld.ListSource{Print: "a", N: 1000, Pace: time.Second}
		n.begin("d1")
		n.until("01:02:00")
		proof.Must(t, w.AllRuns().End(t.Context(), n.cronRuns(workload.RunOpen)[0].ID, false, "not today"))
		n.until("01:50:00")
		if got := n.begun(workload.RunOpen) + n.begun(workload.RunBroken) + n.begun(workload.RunSealed); got != "" {
			t.Errorf("runs at %s after an operator ended the one of 01:00", got)
		}
		n.end()
		for _, c := range []struct {
			after string
			err   error
		}{{"02:31", source.ErrSourceChanged}, {"03:22", fs.ErrNotExist}} {
			hour, after, err := c.after[:2], c.after, c.err
			n.until(hour[:1] + string(hour[1]-1) + ":55:00")
			n.s = &absent{until: time.Now().Add(25 * time.Minute), err: err, ListSource: testworld.ListSource{Print: "b", N: 3}}
			n.begin("e" + hour)
			n.until(hour + ":15:00")
			if next := lookRow(n.World).NextRun.UTC().Format("15:04"); err == fs.ErrNotExist && next != hour+":00" {
				t.Errorf("without a source the run of %s:00 is due at %s", hour, next)
			}
			n.until(hour + ":50:00")
			if got := n.begun(workload.RunSealed); len(got) < 5 || got[len(got)-5:] < hour+":20" || got[len(got)-5:] > after {
				t.Errorf("%v until %s:20, and runs at %s", err, hour, got)
			}
			n.end()
		}
	})
}

// absent is a source that comes late.
type absent struct {
	testworld.ListSource
	until time.Time
	err   error
}

func (s *absent) Fingerprint(ctx context.Context) (string, error) {
	if time.Now().Before(s.until) {
		return "", s.err
	}
	return s.ListSource.Fingerprint(ctx)
}

// The due time is that of the account's clock, whatever machines show.
func TestWrongClocksMoveNoDueTime(t *testing.T) {
	was := time.Local
	defer func() { time.Local = was }()
	for _, off := range []time.Duration{-10 * time.Minute, 10 * time.Minute} {
		time.Local = time.FixedZone("wrong", int(off.Seconds())*30)
		testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
			w.Sim.SetClockOffset(off)
			n := atNight(w, "0 * * * *", time.Minute)
			n.begin("d1", "d2")
			time.Sleep(4*time.Hour - 30*time.Minute)
			n.end()
			runs := n.cronRuns(workload.RunSealed)
			first := runs[0].Started.Add(off).Truncate(time.Hour)
			if begun := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC); first.Before(begun) || first.After(begun.Add(time.Hour)) {
				t.Errorf("off by %v: the first due time was %v", off, first)
			}
			for i, r := range runs {
				want := first.Add(time.Duration(i) * time.Hour)
				if late := r.Started.Add(off).Sub(want); late < 0 || late > 3*time.Second {
					t.Errorf("off by %v: the run of %v began %v late", off, want, late)
				}
			}
			if len(runs) < 3 || len(runs) > 4 {
				t.Errorf("off by %v: %d runs in three hours and a half", off, len(runs))
			}
		})
	}
}
