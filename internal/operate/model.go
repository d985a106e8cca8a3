package operate

import (
	"context"
	"time"

	"github.com/charmbracelet/bubbles/help"
	"github.com/charmbracelet/bubbles/key"
	"github.com/charmbracelet/bubbles/textinput"
	tea "github.com/charmbracelet/bubbletea"

	"github.com/queuepump/queuepump/internal/admin"
	"github.com/queuepump/queuepump/pump/status"
)

// model is all that the screen shows. Bubble Tea calls its methods from one goroutine.
type model struct {
	life   context.Context // of the whole screen
	source readings
	styles styles
	keys   keyMap
	help   help.Model
	filter textinput.Model
	seer   admin.Seer

	width, height int
	tab           int
	views         []view // by tab: what the reader chose there

	status  *status.Status
	every   time.Duration // how long after a reading the next one is due
	err     error
	seen    admin.Seen
	causes  *admin.Causes
	looked  time.Time // when quarantine was last looked into
	looking bool      // it is being looked into
	past    past
	turn    turn
	held    time.Time // since when the reader wants the figures to stand still; zero: they move
	now     func() time.Time
	typing  bool // the filter is being typed
}

// view is what the reader chose in a tab.
type view struct {
	sort     int // the column, from 1; 0: the order of the status
	reversed bool
	filter   string
	at       int // the first line shown
}

type keyMap struct {
	next, back, jump, up, down, pageUp, pageDown, top, bottom key.Binding
	filter, sort, reverse, pause, help, quit                  key.Binding
}

func newKeys() keyMap {
	bind := func(keys []string, name, what string) key.Binding {
		return key.NewBinding(key.WithKeys(keys...), key.WithHelp(name, what))
	}
	return keyMap{
		next:     bind([]string{"tab", "right", "l"}, "tab", "next table"),
		back:     bind([]string{"shift+tab", "left", "h"}, "shift+tab", "table before"),
		jump:     bind([]string{"1", "2", "3", "4", "5", "6", "7", "8"}, "1-8", "that table"),
		up:       bind([]string{"up", "k"}, "↑", "line up"),
		down:     bind([]string{"down", "j"}, "↓", "line down"),
		pageUp:   bind([]string{"pgup", "b"}, "pgup", "page up"),
		pageDown: bind([]string{"pgdown", " ", "f"}, "pgdn", "page down"),
		top:      bind([]string{"home", "g"}, "home", "first line"),
		bottom:   bind([]string{"end", "G"}, "end", "last line"),
		filter:   bind([]string{"/"}, "/", "filter"),
		sort:     bind([]string{"s"}, "s", "sort by next column"),
		reverse:  bind([]string{"r"}, "r", "reverse"),
		pause:    bind([]string{"p"}, "p", "hold or go on"),
		help:     bind([]string{"?"}, "?", "help"),
		quit:     bind([]string{"q", "ctrl+c", "esc"}, "q", "quit"),
	}
}

// ShortHelp and FullHelp are help.KeyMap's.
func (k keyMap) ShortHelp() []key.Binding {
	return []key.Binding{k.quit, k.next, k.filter, k.sort, k.pause, k.help}
}

func (k keyMap) FullHelp() [][]key.Binding {
	return [][]key.Binding{
		{k.next, k.back, k.jump, k.quit, k.help},
		{k.up, k.down, k.pageUp, k.pageDown, k.top, k.bottom},
		{k.filter, k.sort, k.reverse, k.pause},
	}
}

func newModel(life context.Context, s styles, from readings) *model {
	m := &model{
		life: life, source: from, styles: s, keys: newKeys(), views: make([]view, len(tabs)),
		width: 80, height: 24, now: time.Now,
	}
	m.help = help.New()
	m.help.Styles = s.help
	m.filter = textinput.New()
	m.filter.Prompt = "filter: "
	m.filter.CharLimit = 64
	return m
}

// Init begins to read.
func (m *model) Init() tea.Cmd { return m.goOn() }

// goOn begins a turn of reading.
func (m *model) goOn() tea.Cmd {
	m.held = time.Time{}
	m.turn.number++
	m.turn.ctx, m.turn.end = context.WithCancel(m.life)
	m.source.look(m.turn.ctx)
	return m.turn.read(m.source)
}

// hold ends the turn: nothing more is read, and readings under way come too late.
func (m *model) hold() {
	m.held = m.now()
	m.turn.number++
	m.turn.end()
	m.past.stop()
	m.looking, m.looked = false, time.Time{}
}

// Update takes a key, a reading, or a new size of the terminal.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
		m.help.Width = msg.Width
	case seenMsg:
		if msg.turn == m.turn.number {
			return m, m.take(msg)
		}
	case dueMsg:
		if msg.turn == m.turn.number {
			return m, m.turn.read(m.source)
		}
	case pastMsg:
		if msg.turn == m.turn.number {
			m.past.take(msg)
		}
	case causesMsg:
		if msg.turn == m.turn.number {
			m.causes, m.looking = &msg.Causes, false
		}
	case tea.KeyMsg:
		return m, m.press(msg)
	}
	return m, nil
}

// take shows a reading and schedules the next one. A reading that failed leaves the last figures,
// and the headline says so.
func (m *model) take(msg seenMsg) tea.Cmd {
	every := m.source.every(msg.status)
	of := m.turn.number
	next := tea.Tick(every, func(time.Time) tea.Msg { return dueMsg{of} })
	if msg.status != nil {
		m.status = msg.status
	}
	m.every, m.err, m.seen = every, msg.err, m.seer.See(msg.status, msg.err)
	return tea.Batch(next, m.lookIntoQuarantine(), m.past.look(m.turn, m.source, m.status))
}

// lookIntoQuarantine looks while the table of quarantine is shown.
func (m *model) lookIntoQuarantine() tea.Cmd {
	if tabs[m.tab].name != quarantineTab || m.status == nil || m.looking || !m.held.IsZero() ||
		m.causes != nil && m.status.Time.Sub(m.looked).Abs() < causesEvery { // a clock may go back
		return nil
	}
	m.looking, m.looked = true, m.status.Time
	s, t := m.status, m.turn
	return func() tea.Msg { return causesMsg{m.source.causes(t.ctx, s), t.number} }
}

func (m *model) press(msg tea.KeyMsg) tea.Cmd {
	v := &m.views[m.tab]
	if m.typing {
		return m.typeFilter(msg, v)
	}
	k := m.keys
	switch {
	case msg.String() == "esc" && (v.filter != "" || m.help.ShowAll):
		v.filter, m.help.ShowAll = "", false
	case key.Matches(msg, k.quit):
		return tea.Quit
	case key.Matches(msg, k.next):
		m.tab = (m.tab + 1) % len(tabs)
		return m.lookIntoQuarantine()
	case key.Matches(msg, k.back):
		m.tab = (m.tab + len(tabs) - 1) % len(tabs)
		return m.lookIntoQuarantine()
	case key.Matches(msg, k.jump):
		m.tab = int(msg.String()[0]-'1') % len(tabs)
		return m.lookIntoQuarantine()
	case key.Matches(msg, k.up):
		v.at--
	case key.Matches(msg, k.down):
		v.at++
	case key.Matches(msg, k.pageUp):
		v.at -= m.room()
	case key.Matches(msg, k.pageDown):
		v.at += m.room()
	case key.Matches(msg, k.top):
		v.at = 0
	case key.Matches(msg, k.bottom):
		v.at = 1 << 30
	case key.Matches(msg, k.filter):
		m.typing = true
		m.filter.SetValue(v.filter)
		m.filter.CursorEnd()
		return m.filter.Focus()
	case key.Matches(msg, k.sort):
		v.sort = (v.sort + 1) % (len(tabs[m.tab].columns) + 1)
	case key.Matches(msg, k.reverse):
		v.reversed = !v.reversed
	case key.Matches(msg, k.pause):
		if !m.held.IsZero() {
			return m.goOn()
		}
		m.hold()
	case key.Matches(msg, k.help):
		m.help.ShowAll = !m.help.ShowAll
	}
	v.at = within(v.at, len(chosen(tabs[m.tab], *v, m)), m.room())
	return nil
}

func (m *model) typeFilter(msg tea.KeyMsg, v *view) (cmd tea.Cmd) {
	switch msg.Type {
	case tea.KeyCtrlC:
		return tea.Quit
	case tea.KeyEnter, tea.KeyEsc:
		if msg.Type == tea.KeyEsc {
			m.filter.SetValue("")
		}
		m.typing = false
		m.filter.Blur()
	default:
		m.filter, cmd = m.filter.Update(msg)
	}
	v.filter, v.at = m.filter.Value(), 0
	return cmd
}
