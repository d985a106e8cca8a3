package operate

import (
	"math"
	"strings"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/queuepump/queuepump/pump/status"
)

const (
	// pastMinutes is how many minutes are drawn, a character each.
	pastMinutes = 20
	// pastEvery is how often they are read: a row of them is written each minute.
	pastEvery = 30 * time.Second
)

// past is how near each account was to its limit in the last minutes, as the history says. A minute
// without a row is a gap.
type past struct {
	parts   map[string]map[int64]float64 // by account and minute
	newest  int64                        // the last minute that is known
	looked  time.Time
	looking bool
}

// look reads the last minutes if that is due.
func (p *past) look(t turn, from readings, s *status.Status) tea.Cmd {
	if s == nil || p.looking || s.Time.Sub(p.looked).Abs() < pastEvery { // a clock may go back
		return nil
	}
	p.looking, p.looked = true, s.Time
	after := s.Time.Add(-(pastMinutes + 1) * time.Minute)
	return func() tea.Msg {
		points, err := from.past(t.ctx, after)
		return pastMsg{points, err, t.number}
	}
}

// stop forgets that the last minutes are being read: they come too late.
func (p *past) stop() {
	if p.looking {
		p.looking, p.looked = false, time.Time{}
	}
}

// take keeps what was read. A part that could not be read stays as it was, and is drawn as it ages.
func (p *past) take(msg pastMsg) {
	p.looking = false
	if msg.err != nil && len(msg.points) == 0 {
		return
	}
	p.parts, p.newest = map[string]map[int64]float64{}, 0
	for i := range msg.points {
		minute := msg.points[i].Time.Unix() / 60
		p.newest = max(p.newest, minute)
		for _, a := range msg.points[i].Accounts {
			if a.Limit <= 0 {
				continue
			}
			if p.parts[a.Name] == nil {
				p.parts[a.Name] = map[int64]float64{}
			}
			p.parts[a.Name][minute] = a.Asked / a.Limit
		}
	}
}

// levels are the characters for a minute: the full one is at the limit, or above it.
var levels = []rune("▁▂▃▄▅▆▇█")

// line draws the last minutes of an account; empty if none is known.
func (p *past) line(account string) string {
	known := p.parts[account]
	if len(known) == 0 {
		return ""
	}
	var b strings.Builder
	for minute := p.newest - pastMinutes + 1; minute <= p.newest; minute++ {
		part, ok := known[minute]
		if !ok || math.IsNaN(part) {
			b.WriteRune('·')
			continue
		}
		level := int(math.Round(part * float64(len(levels)-1)))
		b.WriteRune(levels[max(0, min(level, len(levels)-1))])
	}
	return b.String()
}
