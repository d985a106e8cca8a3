package admin

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/queuepump/queuepump/pump/status"
)

const (
	// hoursEvery is how often rows of the history are read at most: one is written each minute. The
	// rows of six hours and 250 accounts take some 10 MiB here.
	hoursEvery = time.Minute
	// hoursAgain is how far before the newest row reading begins the next time: rows come late if
	// another process with another clock goes on writing them.
	hoursAgain = 3 * time.Minute
	// apart is the distance to another row below which a row of the history is left out.
	apart = 30 * time.Second
)

// hours keeps what the rows of the history say of the last six hours. It may be used from many
// goroutines.
type hours struct {
	read func(ctx context.Context, after time.Time) ([]status.HistoryPoint, error)
	log  *slog.Logger

	mu     sync.Mutex // held while rows are read; guards what follows
	at     time.Time  // when they were read
	points []Point    // by time
	text   []byte     // as it is sent
}

// hoursSent is the answer to a viewer who wants to see the last hours.
type hoursSent struct {
	chart
	Problem string `json:"problem"` // why rows are missing; empty: no written row is
}

// fresh reads the rows that have come since, unless it did so lately. The caller holds the lock.
func (h *hours) fresh(ctx context.Context) {
	if !h.at.IsZero() && time.Since(h.at) < hoursEvery {
		return
	}
	h.at = time.Now()
	var after time.Time // all there are
	if n := len(h.points); n > 0 {
		after = h.points[n-1].At.Add(-hoursAgain)
	}
	rows, err := h.read(ctx, after)
	sent := hoursSent{}
	if err != nil {
		h.log.Debug("some of what was seen before cannot be read", "error", err)
		sent.Problem, _, _ = strings.Cut(err.Error(), "\n")
	}
	h.points = keep(h.points, pointsOf(rows), apart, status.HistorySpan-apart)
	sent.chart = chartOf(h.points)
	if h.text, err = json.Marshal(sent); err != nil {
		h.log.Warn("the last hours cannot be encoded for the page", "error", err)
	}
}

// since gives what was seen after a time.
func (h *hours) since(ctx context.Context, after time.Time) []Point {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fresh(ctx)
	at := slices.IndexFunc(h.points, func(p Point) bool { return p.At.After(after) })
	if at < 0 {
		return nil
	}
	return slices.Clone(h.points[at:])
}

// all gives the last six hours as they are sent.
func (h *hours) all(ctx context.Context) []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fresh(ctx)
	return h.text
}

// pointsOf are rows of the history as the page draws them.
func pointsOf(rows []status.HistoryPoint) []Point {
	points := make([]Point, len(rows))
	for i, r := range rows {
		messages, sampled := int64(0), true
		p := Point{At: r.Time, Rate: r.Tasks, Accounts: map[string]AccountPoint{}}
		for _, a := range r.Accounts {
			messages += int64(a.Messages)
			sampled = sampled && a.Sampled // else the sum is a part
			if a.Name != "" {              // accounts beyond what a row holds are one without a name
				p.Accounts[a.Name] = AccountPoint{Demand: a.Asked, Limit: a.Limit}
			}
		}
		if sampled {
			p.Messages = &messages
		}
		points[i] = p
	}
	return points
}

// readHistory reads rows of the history, and pays for that like the watcher for its requests.
func (p *Page) readHistory(ctx context.Context, after time.Time) ([]status.HistoryPoint, error) {
	if err := p.watcher.Load().Pay(ctx); err != nil {
		return nil, err
	}
	return status.History(ctx, *p.cfg.Load(), after)
}

// lastHours answers a viewer who wants to see the last six hours. Without a viewer it reads
// nothing.
func (p *Page) lastHours(w http.ResponseWriter, r *http.Request) {
	if !ours(r) {
		refuse(w, http.StatusForbidden, "only this page itself may watch")
		return
	}
	p.mu.Lock()
	watched := p.stop != nil
	p.mu.Unlock()
	if !watched {
		refuse(w, http.StatusConflict, "no viewer watches")
		return
	}
	text := p.hours.all(p.life)
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(text)
}
