package status

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/queuepump/queuepump/pump/internal/workload"
)

// Parked is a run or a key that an operator has paused by itself: what processors meet of it waits
// in parking queues.
type Parked struct {
	Run string `json:"run"` // empty: it is a key
	Key string `json:"key"` // empty: it is a run; bytes that are no UTF-8 are replaced
	// Since is when it was paused, by the clock of the machine at which it was ordered, and By who
	// did.
	Since time.Time `json:"since"`
	By    string    `json:"by"`
	// Returning is since when what is parked comes home; null: it is paused. It stays in the list
	// until its queues are empty.
	Returning *time.Time `json:"returning"`
	// Messages is how many are parked, which may be too high; null: that is not known, or was not
	// asked.
	Messages *int64 `json:"messages"`

	number int
}

// What names it for people.
func (p *Parked) What() string {
	if p.Run != "" {
		return "run " + p.Run
	}
	return "key " + p.Key
}

// Flag is how a command names it, quoted for a shell.
func (p *Parked) Flag() string {
	if p.Run != "" {
		return "--run " + p.Run
	}
	if strings.Trim(p.Key, plainInShells) == "" {
		return "--key " + p.Key
	}
	return "--key '" + strings.ReplaceAll(p.Key, "'", `'\''`) + "'"
}

// plainInShells are characters that mean nothing to a shell.
const plainInShells = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:@"

func parkedOf(w *workload.Workload) []Parked {
	list := make([]Parked, len(w.Parkings))
	for i, p := range w.Parkings {
		list[i] = Parked{Key: string(p.Key), Since: p.Since.UTC(), By: p.By, number: p.Number}
		if !p.Run.IsZero() {
			list[i].Run = p.Run.String()
		}
		if !p.Holds() {
			list[i].Returning = new(p.Returning.UTC())
		}
	}
	return list
}

// readParked counts what is parked: a request an account for each mark.
func (r *statusReader) readParked(ctx context.Context) {
	if r.view == nil {
		return
	}
	r.parked = parkedOf(r.view.Workload)
	var g sync.WaitGroup
	for i := range r.parked {
		p := &r.parked[i]
		g.Go(func() {
			n, err := r.queues.CountParked(ctx, r.view.Workload, p.number)
			if err != nil {
				r.problem("what is parked of %s could not be counted: %s", p.What(), why(err))
				return
			}
			p.Messages = &n
		})
		for _, s := range r.view.Workload.Map.Shards {
			if workload.ParkingOf(r.cfg.Workload, &s) == p.number {
				r.requests.Add(1)
			}
		}
	}
	g.Wait()
}
