package top

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/queuepump/queuepump/internal/page"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/status"
)

// causesEvery is how often quarantine is looked into while it is shown.
const causesEvery = 10 * time.Second

// Run shows a workload until q is pressed or ctx ends. In and out must be a terminal.
func Run(ctx context.Context, cfg pump.Config, o status.Options, in io.Reader, out io.Writer) error {
	w, err := status.NewWatcher(cfg, o)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	all.Go(func() { w.Look(ctx) })
	m := newModel(stylesFor(out), source{
		rows: func() (*status.Status, error) { return w.Rows(ctx) },
		causes: func(s *status.Status) page.Causes {
			return page.CausesOf(ctx, cfg, s, w.Pay)
		},
		every: func(s *status.Status) time.Duration { return page.Every(w, s) },
		past: func(after time.Time) ([]status.HistoryPoint, error) {
			if err := w.Pay(ctx); err != nil {
				return nil, err
			}
			return status.History(ctx, cfg, after)
		},
	})
	// Signals are the caller's, whose context they end.
	_, err = tea.NewProgram(m, tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out),
		tea.WithAltScreen(), tea.WithoutSignalHandler()).Run()
	if ctx.Err() != nil || errors.Is(err, tea.ErrInterrupted) {
		return nil // that is the way to end it
	}
	return err
}

// source is where the figures come from.
type source struct {
	rows   func() (*status.Status, error)
	causes func(*status.Status) page.Causes
	every  func(*status.Status) time.Duration
	past   func(after time.Time) ([]status.HistoryPoint, error)
}

// seenMsg is a reading, causesMsg a look into quarantine, pastMsg the last minutes; dueMsg says that the next reading is due.
type (
	seenMsg struct {
		status *status.Status
		err    error
	}
	causesMsg struct{ page.Causes }
	pastMsg   struct {
		points []status.HistoryPoint
		err    error
	}
	dueMsg struct{}
)

func (s source) read() tea.Msg {
	st, err := s.rows()
	return seenMsg{st, err}
}
