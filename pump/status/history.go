package status

import (
	"context"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/sampling"
	"github.com/queuepump/queuepump/pump/internal/setup"
)

// HistorySpan is how far back [History] reaches.
const HistorySpan = 6 * time.Hour

// HistoryPoint is what a workload was like in one minute.
type HistoryPoint struct {
	Time  time.Time `json:"time"`           // the beginning of the minute, UTC
	Tasks float64   `json:"tasksPerSecond"` // handled
	// Sampled: the next two are known; see pump.Backlog. They are 0 until a process looked at the
	// queues.
	Sampled bool    `json:"sampled"`
	Done    float64 `json:"messagesDonePerSecond"`
	Waiting float64 `json:"waitingSeconds"`
	// Cost is the cost since the last row was written: of the minute, and of any gap before it;
	// DayCost is that of the UTC day up to now. Both are in Currency.
	Cost     float64          `json:"cost"`
	DayCost  float64          `json:"dayCost"`
	Currency string           `json:"currency"`
	Accounts []HistoryAccount `json:"accounts"` // by name
}

// HistoryAccount is what an account was like in one minute.
type HistoryAccount struct {
	Name  string  `json:"name"` // empty: the accounts beyond the first 250 together
	Asked float64 `json:"askedPerSecond"`
	Limit float64 `json:"limit"` // messages a second
	// Throttled counts the requests of the minute that were refused as too many.
	Throttled uint64 `json:"throttled"`
	// Sampled: the queues were looked at within the last minutes, and the next are known; see
	// pump.WaitingAccount. Otherwise they are 0.
	Sampled     bool    `json:"sampled"`
	Messages    uint64  `json:"messages"`
	Visible     uint64  `json:"visible"`
	InFlight    uint64  `json:"inFlight"`
	Delayed     uint64  `json:"delayed"`
	Quarantined uint64  `json:"quarantined"`
	Oldest      float64 `json:"oldestSeconds"`
	// Requests are those of the minute, Day those of the UTC day up to now.
	Requests Requests `json:"requests"`
	Day      Requests `json:"day"`
	Cost     float64  `json:"cost"` // of the minute
}

// Requests counts requests of the two services, which have a price each.
type Requests struct {
	Queue uint64 `json:"queue"`
	Table uint64 `json:"table"`
}

// History gives what the workload was like in each minute later than after (the zero time: in all
// of the last six hours), in the order of time. The process that samples the queues writes them
// ([pump.Config].Sample), so a minute without such a process is missing. Rows that cannot be read
// are part of the error, beside the rows that can.
func History(ctx context.Context, cfg pump.Config, after time.Time) ([]HistoryPoint, error) {
	o, err := setup.Reach(cfg)
	if err != nil {
		return nil, err
	}
	rows, err := sampling.ReadHistory(ctx, o.Queues.Control, cfg.Workload, after)
	var points []HistoryPoint
	for i := range rows {
		points = append(points, pointOf(&rows[i]))
	}
	return points, err
}

func pointOf(r *sampling.HistoryPoint) HistoryPoint {
	p := HistoryPoint{
		Time: r.Time, Tasks: r.Tasks, Sampled: r.Sampled, Done: r.Done, Waiting: r.Waiting,
		Cost: r.Cost, DayCost: r.DayCost, Currency: r.Currency, Accounts: []HistoryAccount{},
	}
	for _, a := range r.Accounts {
		p.Accounts = append(p.Accounts, HistoryAccount{
			Name: a.Name, Asked: a.Asked, Limit: a.Limit, Throttled: a.Throttled,
			Sampled: a.Sampled, Messages: a.Messages, Visible: a.Visible, InFlight: a.InFlight,
			Delayed: a.Delayed, Quarantined: a.Quarantined, Oldest: a.Oldest,
			Requests: Requests(a.Requests), Day: Requests(a.Day), Cost: a.Cost,
		})
	}
	return p
}
