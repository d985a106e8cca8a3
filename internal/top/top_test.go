package top

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/charmbracelet/x/ansi"

	"github.com/queuepump/queuepump/internal/page"
	"github.com/queuepump/queuepump/pump/accounts"
	"github.com/queuepump/queuepump/pump/gates"
	"github.com/queuepump/queuepump/pump/prices"
	"github.com/queuepump/queuepump/pump/runs"
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
				Exact: &runs.Progress{Total: ptr(uint64(400000)), Done: 299997, Quarantined: 3, Remaining: ptr(uint64(100000)), Percent: ptr(75.0)},
			},
			{ID: strings.Repeat("fedcba9876543210", 2), State: "broken", Sent: ptr(uint64(12)), AtLeast: true, Handled: 12, Note: "the source is gone"},
		},
		Gates: []gates.Status{{Name: "morning", Open: true, By: "me", Since: ptr(at.Add(-time.Hour)), Waiting: 2}},
		Keys:  []status.Key{{Key: "Oslo\x1b]0;title\a", Instance: "vm-1-a", Start: at.Add(-time.Minute), Running: true}},
		Money: status.Money{
			Prices: prices.List{Currency: "USD"}, DayCost: ptr(1.2345), PerDay: ptr(4321.5),
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
	m := newModel(stylesFor(io.Discard), source{
		rows: func() (*status.Status, error) { return sample(), nil },
		causes: func(*status.Status) page.Causes {
			return page.Causes{Messages: 4, Shown: 4, List: []page.CauseSeen{{Cause: "rejected", Messages: 4, Tasks: 4, Detail: "no such city"}}}
		},
		every: func(*status.Status) time.Duration { return 2 * time.Second },
		past:  func(time.Time) ([]status.HistoryPoint, error) { return minutes(sample().Time), nil },
	})
	m.Update(tea.WindowSizeMsg{Width: width, Height: height})
	return m
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
			m.Update(m.source.read())
			m.Update(pastMsg{points: minutes(sample().Time)})
			if cmd := m.type_(fmt.Sprint(i + 1)); cmd != nil {
				m.Update(cmd())
			}
			text := m.View()
			if n := lines(text); n != size[1] {
				t.Errorf("%s in %v: %d lines", tab.name, size, n)
			}
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
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("the screens are not those of %s; look at them, and run the test with -write", file)
	}
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
	m.Update(m.source.read())
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
		if got := firstOf(m); got != c.first {
			t.Errorf("after %q: %s, want %s\n%s", c.keys, got, c.first, m.View())
		}
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
	if text := m.View(); !strings.Contains(text, "Reading the workload") {
		t.Errorf("before the first reading:\n%s", text)
	}
	m.Update(m.source.read())
	m.Update(seenMsg{nil, errors.New("no answer came")})
	if text := m.View(); !strings.Contains(text, "no answer came") || !strings.Contains(text, "north") || !strings.Contains(text, "known then") {
		t.Errorf("after a failure:\n%s", text)
	}
}

// The terminal's headline is the page's: it names a cap that holds work back too.
func TestTheHeadlineNamesTheCapOfADay(t *testing.T) {
	m := screens(132, 20)
	s := sample()
	s.Accounts, s.Instances = s.Accounts[:2], s.Instances[:1]
	s.Money.CapPerDay, s.Money.HoldBack = ptr(1.25), 1
	m.Update(seenMsg{s, nil})
	if text := m.View(); !strings.Contains(text, "what holds it back: the day's cap of 1.25 USD\n") {
		t.Errorf("it is not named:\n%s", text)
	}
}

func TestWhatIsHeldDoesNotMove(t *testing.T) {
	m := screens(100, 20)
	m.Update(m.source.read())
	m.type_("p")
	before := m.View()
	later := sample()
	later.Accounts[0].Name = "changed"
	if _, next := m.Update(seenMsg{later, nil}); next == nil {
		t.Error("nothing is read any more")
	}
	if m.View() != before || !strings.Contains(before, "held") {
		t.Errorf("it moved:\n%s", m.View())
	}
	m.type_("p")
	m.Update(seenMsg{later, nil})
	if !strings.Contains(m.View(), "changed") {
		t.Error("it does not go on")
	}
}

// A table with more lines than the screen is scrolled to its end and no further.
func TestALongTableIsScrolled(t *testing.T) {
	m := screens(80, 12)
	long := sample()
	for i := range 100 {
		long.Instances = append(long.Instances, status.Instance{Instance: fmt.Sprintf("p-%03d", i), Role: "processor"})
	}
	m.Update(seenMsg{long, nil})
	m.type_("3", "end")
	if text := m.View(); !strings.Contains(text, "p-099") || lines(text) != 12 {
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
	m.source.past = func(after time.Time) ([]status.HistoryPoint, error) {
		asked = append(asked, after)
		if fails != nil {
			return nil, fails
		}
		return minutes(at), nil
	}
	look := func(after time.Duration) tea.Cmd {
		return m.past.look(m.source, &status.Status{Time: at.Add(after)})
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
	if want := "▃▃▃▄▄··▅▆▆▆▇▇▇██████"; north != want {
		t.Errorf("north: %s, want %s", north, want)
	}
	if got := m.past.line("south"); got != strings.Repeat("·", 16)+"▁▁▁▁" {
		t.Errorf("south: %s", got)
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
		m.Update(m.source.read())
		for _, keys := range [][]string{nil, {"?"}, {"?", "/"}, {"enter", "6"}} {
			m.type_(keys...)
			text := m.View()
			if n := lines(text); n != size[1] {
				t.Errorf("%v after %q: %d lines\n%s", size, keys, n, text)
			}
			for l := range strings.Lines(text) {
				if w := ansi.StringWidth(strings.TrimSuffix(l, "\n")); w > size[0] {
					t.Errorf("%v after %q: %d columns: %q", size, keys, w, l)
				}
			}
		}
	}
}
