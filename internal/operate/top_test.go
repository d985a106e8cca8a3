package operate

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/charmbracelet/x/ansi"

	"github.com/queuepump/queuepump/internal/admin"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/accounts"
	"github.com/queuepump/queuepump/pump/gates"
	"github.com/queuepump/queuepump/pump/status"
)

var write = flag.Bool("write", false, "write the screens of testdata")

func ptr[T any](v T) *T { return &v }

// sample is a workload in which something of everything is to be seen.
func sample() *status.Status {
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	account := func(name string, demand float64, visible int64, dark string) status.Account {
		d := status.Depth{Messages: visible + 40, Visible: visible, InFlight: 40, Bounds: visible > 1000, Oldest: ptr(float64(visible) / 100)}
		return status.Account{
			Use:   accounts.Use{Name: name, State: accounts.Active, Queues: 2, Segments: 32, Configured: true},
			Limit: 20000, Demand: demand, Throttled: uint64(demand / 100), Depth: d, Poison: ptr(int64(visible / 1000)), Dark: dark,
			ByQueue: []status.Queue{{Queue: "demo-00", Depth: d}, {Queue: "demo-01", Dark: dark}},
		}
	}
	return &status.Status{
		Workload: "demo", Time: at, Delivery: "once", Segments: 64,
		Accounts: []status.Account{
			account("north", 12200, 4212, ""), account("south", 800, 12, ""),
			account("west", 0, 0, "no answer for 40 s"),
		},
		Instances: []status.Instance{
			{Instance: "vm-1-a", Role: "processor", Host: "vm-1", Segments: 32, Rate: 2106.4, Seconds: 0.05, Busy: 0.97, BeatAge: 2},
			{Instance: "vm-2-a", Role: "processor", Host: "vm-2", Segments: 32, Rate: 2105.9, Seconds: 0.05, Busy: 0.4, BeatAge: 93, Silent: true},
			{Instance: "vm-3-d", Role: "distributor", Host: "vm-3", Rate: 900, BeatAge: 1, Trouble: "\x1b[31mnot red"},
		},
		Runs: []status.Run{
			{
				ID: strings.Repeat("0123456789abcdef", 2), State: "sealed", Sent: ptr(uint64(400000)), Handled: 300000, Quarantined: 3,
				Exact: &pump.RunProgress{Total: ptr(uint64(400000)), Done: 299997, Quarantined: 3, Remaining: ptr(uint64(100000)), Percent: ptr(75.0)},
			},
			{ID: strings.Repeat("fedcba9876543210", 2), State: "broken", Sent: ptr(uint64(12)), AtLeast: true, Handled: 12, Note: "the source is gone"},
		},
		Gates: []gates.Status{{Name: "morning", Open: true, By: "me", Since: ptr(at.Add(-time.Hour)), Waiting: 2}},
		Keys:  []status.Key{{Key: "Oslo\x1b]0;title\a", Instance: "vm-1-a", Start: at.Add(-time.Minute), Running: true}},
		Money: status.Money{
			Prices: pump.Prices{Currency: "USD"}, DayCost: ptr(1.2345), PerDay: ptr(4321.5),
			Operations: []status.MoneyOperation{
				{MoneyRequests: status.MoneyRequests{Operation: "delete", Service: "queue", Requests: 1000, Cost: 0.0004}, PerMinute: ptr(0.25), CostPerMinute: ptr(1e-7)},
				{MoneyRequests: status.MoneyRequests{Operation: "get", Service: "queue", Requests: 3_000_000, Cost: 1.2}, PerMinute: ptr(12000.), CostPerMinute: ptr(0.0048)},
				{MoneyRequests: status.MoneyRequests{Operation: "read\x1b[2J", Service: "table", Requests: 40, Cost: 0.0000014}},
			},
		},
		Problems: []string{"account west does not answer"},
		Requests: 14,
	}
}

// minutes are the last ones of the sample: two are missing, and one account is not known before.
func minutes(now time.Time) (points []status.HistoryPoint) {
	for i := range 25 {
		if i == 10 || i == 11 {
			continue
		}
		p := status.HistoryPoint{Time: now.Truncate(time.Minute).Add(time.Duration(i-25) * time.Minute)}
		p.Accounts = append(p.Accounts, status.HistoryAccount{
			Name: "north", Asked: float64(i) * 1000, Limit: 20000,
		})
		if i > 20 {
			p.Accounts = append(p.Accounts, status.HistoryAccount{Name: "south", Asked: 800, Limit: 20000})
		}
		points = append(points, p)
	}
	return points
}

// screens has a model of the sample that reads nothing by itself.
func screens(width, height int) *model {
	m := newModel(context.Background(), styles{}, readings{
		look: func(context.Context) {},
		rows: func(context.Context) (*status.Status, error) { return sample(), nil },
		causes: func(context.Context, *status.Status) admin.Causes {
			return admin.Causes{Messages: 4, Shown: 4, List: []admin.CauseSeen{{Cause: "rejected", Messages: 4, Tasks: 4, Detail: "no such city"}}}
		},
		every: func(*status.Status) time.Duration { return 2 * time.Second },
		past: func(context.Context, time.Time) ([]status.HistoryPoint, error) {
			return minutes(sample().Time), nil
		},
	})
	m.now = func() time.Time { return sample().Time.Add(9 * time.Second) }
	m.Init()
	m.Update(tea.WindowSizeMsg{Width: width, Height: height})
	return m
}

// see shows a reading.
func (m *model) see(s *status.Status, err error) tea.Cmd {
	_, next := m.Update(seenMsg{s, err, m.turn.number})
	return next
}

func (m *model) type_(keys ...string) (last tea.Cmd) {
	for _, k := range keys {
		msg := tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune(k)}
		for _, special := range []tea.KeyType{tea.KeyTab, tea.KeyShiftTab, tea.KeyEnter, tea.KeyEsc, tea.KeyDown, tea.KeyEnd, tea.KeyCtrlC} {
			if s := (tea.KeyMsg{Type: special}); s.String() == k {
				msg = s
			}
		}
		_, last = m.Update(msg)
	}
	return last
}

func TestTheScreens(t *testing.T) {
	var b strings.Builder
	for _, size := range [][2]int{{80, 24}, {132, 14}, {160, 9}, {40, 12}} {
		for i, tab := range tabs {
			m := screens(size[0], size[1])
			m.see(sample(), nil)
			m.Update(pastMsg{points: minutes(sample().Time), turn: m.turn.number})
			if cmd := m.type_(fmt.Sprint(i + 1)); cmd != nil {
				m.Update(cmd())
			}
			text := m.View()
			proof.Same(t, topLines(text), size[1], tab.name, "in", size, "lines")
			for l := range strings.Lines(text) {
				if w := ansi.StringWidth(strings.TrimSuffix(l, "\n")); w > size[0] {
					t.Errorf("%s in %v: %d columns: %s", tab.name, size, w, l)
				}
			}
			if strings.ContainsAny(text, "\x1b\a") {
				t.Errorf("%s: a text from outside reaches the terminal: %q", tab.name, text)
			}
			fmt.Fprintf(&b, "---- %s, %d x %d\n%s\n", tab.name, size[0], size[1], text)
		}
	}
	file := filepath.Join("testdata", "screens.txt")
	if *write {
		must(t, os.WriteFile(file, []byte(b.String()), 0o644))
	}
	want, err := os.ReadFile(file)
	must(t, err)
	proof.Same(t, b.String(), string(want),
		"the screens are not those", file, "look at them, and run the test with -write")
}

func firstOf(m *model) string {
	for _, l := range strings.Split(m.View(), "\n")[3:] {
		if f := strings.Fields(l); len(f) > 0 && f[0] != strings.ToUpper(f[0]) {
			return f[0]
		}
	}
	return ""
}

func TestATableIsSortedReversedAndFiltered(t *testing.T) {
	m := screens(132, 24)
	m.see(sample(), nil)
	for _, c := range []struct {
		keys  []string
		first string
	}{
		{nil, "north"},
		{[]string{"s"}, "north"},           // by account
		{[]string{"r"}, "west"},            // the other way round
		{[]string{"/", "s", "o"}, "south"}, // what is typed filters at once
		{[]string{"enter", "tab", "shift+tab"}, "south"},
		{[]string{"esc", "r"}, "north"},
		{[]string{"2", "s", "s"}, "north"},
	} {
		m.type_(c.keys...)
		proof.Same(t, firstOf(m), c.first, c.keys, m.View(), "after")
	}
	if m.type_("esc"); m.views[0].filter != "" {
		t.Error("esc takes the filter away")
	}
	if cmd := m.type_("q"); cmd == nil || cmd() != tea.Quit() {
		t.Error("q does not end it")
	}
}

func TestAReadingThatFailsLeavesTheFiguresAndSaysSo(t *testing.T) {
	m := screens(100, 20)
	proof.Has(t, m.View(), "Reading the workload", "before the first reading")
	m.see(sample(), nil)
	m.see(nil, errors.New("no answer came"))
	if text := m.View(); !strings.Contains(text, "no answer came") || !strings.Contains(text, "north") || !strings.Contains(text, "this is what was known at 03:04:05") {
		t.Errorf("after a failure:\n%s", text)
	}
}

// A screen of 80 columns cuts the second line: what the day has cost and its cap come before that.
func TestTheCapOfADayIsSeenAt80Columns(t *testing.T) {
	for _, name := range []string{"demo", strings.Repeat("a-long-name-", 5)} {
		m := screens(80, 24)
		s := sample()
		s.Workload, s.Money.CapPerDay, s.Money.Slowed = name, ptr(2.0), 3
		m.see(s, nil)
		proof.Has(t, m.View(), "today 1.23 USD · at most 2.00 USD a day", "workload", name)
	}
}

// While the reader holds the figures nothing is read, and the screen says since when.
func TestWhatIsHeldDoesNotMoveAndReadsNothing(t *testing.T) {
	m := screens(100, 20)
	reads := 0
	m.source.rows = func(ctx context.Context) (*status.Status, error) {
		reads++
		return sample(), ctx.Err()
	}
	var looks []context.Context
	m.source.look = func(ctx context.Context) { looks = append(looks, ctx) }
	m.Init()
	m.see(sample(), nil)
	due, before := dueMsg{m.turn.number}, m.turn
	under := m.turn.read(m.source) // a reading that is under way when p is pressed
	m.type_("p")
	held := m.View()
	proof.Has(t, held, "held since 03:04:14 UTC, nothing is read, p goes on")
	if before.ctx.Err() == nil || looks[0].Err() == nil {
		t.Error("queues are looked at on and on")
	}
	reads = 0
	if _, next := m.Update(due); next != nil {
		t.Error("a reading that was due is made")
	}
	for _, tab := range []string{"5", "6", "1"} {
		if cmd := m.type_(tab); cmd != nil {
			t.Errorf("table %s has something read", tab)
		}
	}
	later := sample()
	later.Accounts[0].Name = "changed"
	late := under()
	for _, msg := range []tea.Msg{
		late, seenMsg{later, nil, before.number}, pastMsg{turn: before.number}, causesMsg{turn: before.number},
	} {
		if _, next := m.Update(msg); next != nil || m.View() != held {
			t.Errorf("%T moves it, or has something read:\n%s", msg, m.View())
		}
	}
	if reads > 1 { // the one that was under way
		t.Errorf("%d readings", reads)
	}
	again := m.type_("p")
	if again == nil || len(looks) != 2 || looks[1].Err() != nil {
		t.Fatal("it does not go on")
	}
	m.Update(due)
	m.Update(late)
	if m.err != nil || strings.Contains(m.View(), "held") {
		t.Errorf("what is of the time before comes through:\n%s", m.View())
	}
	if got, ok := again().(seenMsg); !ok || got.turn != m.turn.number || got.err != nil {
		t.Errorf("it is not read anew: %+v", got)
	}
	if m.see(later, nil); !strings.Contains(m.View(), "changed") {
		t.Error("what is read is not shown")
	}
}

func TestWhatIsHeldBeforeTheFirstReadingSaysSo(t *testing.T) {
	m := screens(100, 20)
	if m.type_("p"); !strings.Contains(m.View(), "Held since 03:04:14 UTC, nothing is read") {
		t.Errorf("before the first reading:\n%s", m.View())
	}
	m = screens(100, 20)
	m.see(sample(), nil)
	if m.type_("p", "5"); !strings.Contains(m.View(), "not looked into before the figures were held") {
		t.Errorf("quarantine:\n%s", m.View())
	}
}

func TestAReadingByAnotherClockDoesNotPutQuarantineOff(t *testing.T) {
	m := screens(100, 20)
	m.see(sample(), nil)
	for _, after := range []time.Duration{0, 5 * time.Minute, 0} {
		s := sample()
		s.Time = s.Time.Add(after)
		m.status, m.tab, m.looking, m.causes = s, 4, false, &admin.Causes{}
		if m.lookIntoQuarantine() == nil {
			t.Errorf("it is not looked into after %v", after)
		}
	}
}

// An unknown quarantine is not taken for an empty one.
func TestTheScreenSaysWhereQuarantineIsNotKnown(t *testing.T) {
	list := []admin.CauseSeen{{Cause: "rejected", Messages: 4}}
	for _, c := range []struct {
		causes admin.Causes
		unread bool
		want   string
	}{
		{admin.Causes{}, false, "nothing is in quarantine\n"},
		{admin.Causes{}, true, "nothing is in quarantine in what was read so far"},
		{admin.Causes{Dark: []string{"west"}}, false, "nothing is in quarantine in the accounts that answer; not known of west"},
		{admin.Causes{List: list, Dark: []string{"west"}}, false, "of west"},
		{admin.Causes{List: list, Problem: "no answer came"}, false, "no answer came"},
	} {
		m := screens(100, 20)
		s := sample()
		if c.unread {
			s.Accounts[0].Poison = nil
		}
		m.see(s, nil)
		m.tab, m.causes = 4, &c.causes
		proof.Has(t, m.View(), c.want, c.causes)
	}
}

// A table with more lines than the screen is scrolled to its end and no further.
func TestALongTableIsScrolled(t *testing.T) {
	m := screens(80, 12)
	long := sample()
	for i := range 100 {
		long.Instances = append(long.Instances, status.Instance{Instance: fmt.Sprintf("p-%03d", i), Role: "processor"})
	}
	m.see(long, nil)
	m.type_("3", "end")
	if text := m.View(); !strings.Contains(text, "p-099") || topLines(text) != 12 {
		t.Errorf("the end:\n%s", text)
	}
	m.type_("down", "down", "k") // there is nothing below
	if text := m.View(); strings.Contains(text, "p-099") || !strings.Contains(text, "p-098") {
		t.Errorf("a line up from the end:\n%s", text)
	}
	m.type_("g")
	if firstOf(m) != "vm-1-a" {
		t.Errorf("the beginning:\n%s", m.View())
	}
}

// The last minutes are read every half a minute, one reading at a time; a failure leaves them.
func TestTheLastMinutesAreReadInTime(t *testing.T) {
	m := screens(132, 20)
	at := sample().Time
	var asked []time.Time
	var fails error
	m.source.past = func(_ context.Context, after time.Time) ([]status.HistoryPoint, error) {
		asked = append(asked, after)
		if fails != nil {
			return nil, fails
		}
		return minutes(at), nil
	}
	look := func(after time.Duration) tea.Cmd {
		return m.past.look(m.turn, m.source, &status.Status{Time: at.Add(after)})
	}
	first := look(0)
	if first == nil || look(time.Hour) != nil {
		t.Fatal("it is read once at a time")
	}
	m.Update(first())
	if look(29*time.Second) != nil {
		t.Error("it is read again at once")
	}
	if want := at.Add(-21 * time.Minute); len(asked) != 1 || !asked[0].Equal(want) {
		t.Errorf("asked for what is after %v, want %v", asked, want)
	}
	north := m.past.line("north")
	proof.Same(t, north, "▃▃▃▄▄··▅▆▆▆▇▇▇██████", "north")
	proof.Same(t, m.past.line("south"), strings.Repeat("·", 16)+"▁▁▁▁", "south")
	// A reading by this machine's clock, which is ahead, does not put the next one off.
	for _, after := range []time.Duration{5 * time.Minute, 0} {
		next := look(after)
		if next == nil {
			t.Fatalf("it is not read after %v", after)
		}
		m.Update(next())
	}
	fails = errors.New("no answer")
	if again := look(30 * time.Second); again == nil {
		t.Error("it is not read again")
	} else if m.Update(again()); m.past.line("north") != north {
		t.Error("a failure takes away what was known")
	}
}

// However small the screen, nothing is drawn beyond it.
func TestASmallScreenIsKeptTo(t *testing.T) {
	for _, size := range [][2]int{{20, 6}, {10, 3}, {1, 1}, {300, 80}, {24, 4}} {
		m := screens(size[0], size[1])
		m.see(sample(), nil)
		for _, keys := range [][]string{nil, {"?"}, {"?", "/"}, {"enter", "6"}} {
			m.type_(keys...)
			text := m.View()
			proof.Same(t, topLines(text), size[1], size, "after", keys, "lines", text)
			for l := range strings.Lines(text) {
				if w := ansi.StringWidth(strings.TrimSuffix(l, "\n")); w > size[0] {
					t.Errorf("%v after %q: %d columns: %q", size, keys, w, l)
				}
			}
		}
	}
}

// Each line of the headline has its colour by itself, and NO_COLOR leaves none.
func TestTheScreenHasColoursUnlessTheyAreForbidden(t *testing.T) {
	t.Setenv("TERM", "xterm-256color")
	for _, forbidden := range []string{"", "1"} {
		t.Setenv("NO_COLOR", forbidden)
		m := screens(40, 24)
		m.styles = stylesFor()
		m.see(sample(), nil)
		text := m.View()
		if n := strings.Count(text, "\x1b[38;5;160;1m"); forbidden == "" && n < 2 {
			t.Errorf("%d lines are red: %q", n, text)
		}
		if forbidden != "" && strings.Contains(text, "\x1b") {
			t.Errorf("NO_COLOR: %q", text)
		}
	}
}
