package sampling

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/testkit"
	"github.com/queuepump/queuepump/pump/storage"
)

// example is a point of a minute with so many accounts.
func example(at time.Time, accounts int) HistoryPoint {
	p := HistoryPoint{
		Time: Minute(at), Tasks: 12.5, Sampled: true, Done: 3, Waiting: 60, Cost: 0.001, DayCost: 1.2345,
		Currency: "USD", Accounts: []HistoryAccount{},
	}
	for i := range accounts {
		n := uint64(i)
		p.Accounts = append(p.Accounts, HistoryAccount{
			Name: fmt.Sprintf("account%04d%s", i, strings.Repeat("x", 13)), Asked: 2.5, Limit: 20_000,
			Throttled: n, Sampled: i != 1, Messages: 1 << 41, Visible: 1 << 40, InFlight: 7, Delayed: 9, Quarantined: 1, Oldest: 0.5,
			Requests: Requests{1 << 50, n}, Day: Requests{1 << 52, 2 * n}, Cost: 0.5,
		})
	}
	return p
}

// withKinds says of the example's requests what kind they are.
func withKinds(p HistoryPoint) HistoryPoint {
	for i := range p.Accounts {
		kinds := cluster.OpCounts{cluster.OpGet: 1 << 40, cluster.OpPeek: 3, cluster.OpRead: uint64(i)}
		p.Accounts[i].DayKinds, p.DayKinds = kinds, p.DayKinds.Add(kinds)
	}
	return p
}

func write(t *testing.T, table storage.Table, p HistoryPoint, marks Marks) {
	t.Helper()
	must(t, WriteHistory(t.Context(), table, "work", p, marks))
}

func times(points []HistoryPoint) (minutes []string) {
	for _, p := range points {
		minutes = append(minutes, p.Time.Format("02 15:04"))
	}
	return minutes
}

func same(t *testing.T, what string, got, want any) {
	t.Helper()
	proof.Same(t, cmp.Diff(want, got), "", what, "- wanted, + got)")
}

// atNoon is where a test begins: the clock of synctest stands at midnight.
func atNoon(t *testing.T, test func(t *testing.T, server *testkit.Server, table storage.Table)) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(12 * time.Hour)
		server := testkit.NewServer()
		test(t, server, server.Client("a"))
	})
}

func TestAPointIsReadAsItWasWritten(t *testing.T) {
	atNoon(t, func(t *testing.T, _ *testkit.Server, table storage.Table) {
		want := example(time.Now(), 3)
		marks := Marks{MarkOf("a", time.Now()): {Requests{7, 8}, 59 * time.Minute}, MarkOf("b", time.Now()): {Requests: Requests{1 << 50, 0}}}
		write(t, table, want, marks)
		got, err := ReadHistory(t.Context(), table, "work", time.Time{})
		must(t, err)
		same(t, "the point", got, []HistoryPoint{want})
		p, m, err := NewestPoint(t.Context(), table, "work")
		must(t, err)
		same(t, "the newest", p, want)
		same(t, "its marks", m, marks)
	})
}

// selecting knows which columns were asked for last.
type selecting struct {
	storage.Table
	columns []string
}

func (t *selecting) Query(ctx context.Context, q storage.Query) iter.Seq2[storage.Entity, error] {
	t.columns = q.Select
	return t.Table.Query(ctx, q)
}

// What kind the requests of a day are is known to who asks for it, and of a row that says it as
// this program does.
func TestTheKindsOfADayAreReadByWhoAsksForThem(t *testing.T) {
	atNoon(t, func(t *testing.T, server *testkit.Server, table storage.Table) {
		want := withKinds(example(time.Now(), 3))
		write(t, table, want, nil)
		read := func(what string, want HistoryPoint) {
			t.Helper()
			got, err := ReadHistoryKinds(t.Context(), table, "work", time.Time{})
			if err != nil {
				t.Fatal(what, err)
			}
			same(t, what, got, []HistoryPoint{want})
			p, _, err := NewestPoint(t.Context(), table, "work")
			if err != nil {
				t.Fatal(what, err)
			}
			same(t, what+", the newest", p, want)
		}
		read("with kinds", want)
		plain := example(time.Now(), 3)
		asked := &selecting{Table: table}
		if _, err := ReadHistory(t.Context(), asked, "work", time.Time{}); err != nil || slices.Contains(asked.columns, kindsColumn) {
			t.Errorf("six hours are read with %v, %v", asked.columns, err)
		}
		if _, err := ReadHistoryKinds(t.Context(), asked, "work", time.Time{}); err != nil || !slices.Contains(asked.columns, kindsColumn) {
			t.Errorf("kinds are read with %v, %v", asked.columns, err)
		}
		e := server.Rows[HistoryPartition("work")+"/"+key(plain.Time.Unix()/60)]
		good := e.Properties[kindsColumn].([]byte)
		for what, value := range map[string]any{
			"no column": nil, "a newer form": []byte{2}, "another type": int64(1), "nothing": []byte{},
			"cut": good[:len(good)-1], "of more accounts": append(good[:len(good):len(good)], 0),
		} {
			props := maps.Clone(e.Properties)
			if props[kindsColumn] = value; value == nil {
				delete(props, kindsColumn)
			}
			e.Properties = props
			server.Rows[HistoryPartition("work")+"/"+key(plain.Time.Unix()/60)] = e
			read(what, plain)
		}
	})
}

// The ring is six hours; what is older is written over, and a minute without a row is a gap.
func TestTheRingHoldsSixHoursAndGapsAreSeen(t *testing.T) {
	atNoon(t, func(t *testing.T, server *testkit.Server, table storage.Table) {
		for n := range 400 {
			if n != 390 {
				write(t, table, example(time.Now(), 1), nil)
			}
			time.Sleep(time.Minute)
		}
		proof.Same(t, len(server.Rows), int(ring), "rows", ring)
		now := Minute(time.Now())
		all, err := ReadHistory(t.Context(), table, "work", time.Time{})
		must(t, err)
		if len(all) != int(ring)-1 || !all[0].Time.Equal(now.Add(-360*time.Minute)) {
			t.Errorf("%d points from %v; now it is %v", len(all), all[0].Time, now)
		}
		late, err := ReadHistory(t.Context(), table, "work", now.Add(-13*time.Minute))
		must(t, err)
		same(t, "the last minutes", times(late), times(all[len(all)-11:]))
		if late[1].Time.Sub(late[0].Time) != time.Minute || late[2].Time.Sub(late[1].Time) != 2*time.Minute {
			t.Errorf("the gap is not seen: %v", times(late))
		}
	})
}

// A few minutes around the end of the ring are two queries of a few rows.
func TestLateMinutesAreFewRows(t *testing.T) {
	start := time.Unix(60*ring*1000, 0).UTC()
	for _, c := range []struct {
		after, now time.Duration // from the begin of a lap
		want       string
	}{
		{100 * time.Minute, 103 * time.Minute, "m.099-m.119~"},
		{-2 * time.Minute, 3 * time.Minute, "m.357-m.359~ m.000-m.019~"},
		{0, 7 * time.Hour, "m.-m.~"},
		{time.Hour, 0, "m.-m.~"}, // the clock of this machine stands before the reader's
	} {
		var got []string
		for _, q := range queries("work", start.Add(c.after), start.Add(c.now)) {
			got = append(got, q.From+"-"+q.To)
		}
		proof.Same(t, strings.Join(got, " "), c.want, "after", c.after, "at", c.now)
	}
}

// When nothing was written for long, rows of laps before do not come back as new.
func TestOldLapsAreNotShown(t *testing.T) {
	atNoon(t, func(t *testing.T, _ *testkit.Server, table storage.Table) {
		write(t, table, example(time.Now(), 1), nil)
		time.Sleep(9*time.Hour + time.Minute)
		write(t, table, example(time.Now(), 1), nil)
		got, err := ReadHistory(t.Context(), table, "work", time.Time{})
		if err != nil || len(got) != 1 || !got[0].Time.Equal(Minute(time.Now())) {
			t.Errorf("%v, %v", times(got), err)
		}
	})
}

// Rows of newer programs, of wrong clocks and damaged ones do not hide the others.
func TestRowsThatCannotBeReadHideNoOthers(t *testing.T) {
	atNoon(t, func(t *testing.T, server *testkit.Server, table storage.Table) {
		for range 6 {
			write(t, table, example(time.Now(), 1), Marks{1: {Requests: Requests{1, 1}}})
			time.Sleep(time.Minute)
		}
		now := Minute(time.Now())
		future := example(now.Add(time.Hour), 1)
		write(t, table, future, nil)
		alter := func(minutes int, name string, value any) {
			k := key(now.Add(time.Duration(minutes)*time.Minute).Unix() / 60)
			e, err := table.Read(t.Context(), HistoryPartition("work"), k)
			must(t, err)
			e.Properties[name] = value
			must(t, proof.ErrOf(table.Write(t.Context(), storage.Write{Mode: storage.Replace, Entity: e})))
		}
		alter(-1, row.FormatProperty, int64(row.Format+1))
		alter(-2, "Point", []byte{200, 1, 2})
		alter(-3, "Minute", now.Unix()/60)
		alter(-4, "Marks", []byte{1, 2, 3})
		got, err := ReadHistory(t.Context(), table, "work", time.Time{})
		if !errors.Is(err, row.ErrCorrupt) || strings.Count(err.Error(), "damaged") != 3 {
			t.Errorf("%v", err)
		}
		same(t, "what can be read", times(got), []string{
			now.Add(-6 * time.Minute).Format("02 15:04"), now.Add(-5 * time.Minute).Format("02 15:04"),
			now.Add(-4 * time.Minute).Format("02 15:04"),
		})
		p, _, err := NewestPoint(t.Context(), table, "work")
		if err == nil || !p.Time.IsZero() {
			t.Errorf("five rows are damaged, and %v is the newest: %v", p.Time, err)
		}
		alter(60, row.FormatProperty, int64(row.Format+1))
		delete(server.Rows, HistoryPartition("work")+"/"+key(now.Add(time.Hour).Unix()/60))
		p, marks, err := NewestPoint(t.Context(), table, "work")
		if err != nil || !p.Time.Equal(now.Add(-5*time.Minute)) || len(marks) != 1 {
			t.Errorf("%v, %v, %v", p.Time, marks, err)
		}
	})
}

// A row is bounded: of more accounts the rest is added up, and nothing of a sum is lost.
func TestARowIsBounded(t *testing.T) {
	atNoon(t, func(t *testing.T, server *testkit.Server, table storage.Table) {
		p := withKinds(example(time.Now(), 1000))
		marks := Marks{}
		for i := range uint64(2 * maxMarks) {
			marks[i<<32] = Mark{Requests{1 << 40, 1 << 40}, time.Duration(i%2) * time.Hour}
		}
		write(t, table, p, marks)
		got, m, err := NewestPoint(t.Context(), table, "work")
		must(t, err)
		same(t, "the marks", len(m), maxMarks)
		for key, mark := range m {
			if mark.Ago > 0 {
				t.Fatalf("mark %d is of an hour ago, and newer ones are left out", key)
			}
		}
		if n := len(got.Accounts); n != MaxAccounts || got.Accounts[n-1].Name != "" {
			t.Fatalf("%d accounts, the last is %q", n, got.Accounts[n-1].Name)
		}
		var kinds cluster.OpCounts
		for _, a := range got.Accounts {
			kinds = kinds.Add(a.DayKinds)
		}
		same(t, "the kinds of accounts", kinds, p.DayKinds)
		var sum, want Requests
		for _, a := range p.Accounts {
			want = want.Add(Requests{0, a.Day.Table})
		}
		for _, a := range got.Accounts {
			sum = sum.Add(Requests{0, a.Day.Table})
		}
		same(t, "the tables' requests of the day", sum, want)
		for _, e := range server.Rows {
			for name, value := range e.Properties {
				if b, ok := value.([]byte); ok && len(b) > 64<<10 {
					t.Errorf("%s has %d bytes", name, len(b))
				}
			}
		}
	})
}

func TestADarkTableIsAnErrorInTime(t *testing.T) {
	atNoon(t, func(t *testing.T, server *testkit.Server, table storage.Table) {
		client := table.(*testkit.Client)
		client.Dies()
		for what, ask := range map[string]func() error{
			"write":  func() error { return WriteHistory(t.Context(), table, "work", example(time.Now(), 1), nil) },
			"read":   func() error { _, err := ReadHistory(t.Context(), table, "work", time.Time{}); return err },
			"newest": func() error { _, _, err := NewestPoint(t.Context(), table, "work"); return err },
		} {
			began := time.Now()
			if err := ask(); err == nil || time.Since(began) > 2*row.Patience {
				t.Errorf("%s: %v after %v", what, err, time.Since(began))
			}
		}
	})
}

// FuzzRow reads rows, whatever they hold.
func FuzzRow(f *testing.F) {
	at := time.Date(2030, 1, 2, 3, 4, 0, 0, time.UTC)
	store := func(p HistoryPoint, m Marks) map[string]any {
		props := map[string]any{row.FormatProperty: int64(row.Format), "Minute": p.Time.Unix() / 60}
		props["Point"], props[kindsColumn] = p.encode()
		m.put(props)
		return props
	}
	testkit.Fuzz(f, []testkit.Kind{{
		Name: "history", Good: store(withKinds(example(at, 2)), Marks{1: {Requests{2, 3}, time.Hour}, 1 << 60: {Requests: Requests{4, 5}}}),
		Reread: func(props map[string]any) (map[string]any, error) {
			minute, _ := props["Minute"].(int64)
			e := storage.Entity{Row: key(minute), Properties: props}
			p, err := read(e)
			if errors.Is(err, errNewer) {
				return nil, fmt.Errorf("%w: %w", row.ErrCorrupt, err)
			}
			if err != nil {
				return nil, err
			}
			f := &row.Fields{Props: props}
			m := decodeMarks(f)
			if f.Err != nil {
				return nil, f.Err
			}
			return store(p, m), nil
		},
	}})
}

func TestANameIsChecked(t *testing.T) {
	table := testkit.NewServer().Client("a")
	for _, err := range []error{
		WriteHistory(context.Background(), table, "a/b", HistoryPoint{}, nil),
		func() error { _, err := ReadHistory(context.Background(), table, "", time.Time{}); return err }(),
		func() error { _, _, err := NewestPoint(context.Background(), table, ""); return err }(),
	} {
		proof.Same(t, err == nil, false, "a name that is none is taken")
	}
}
