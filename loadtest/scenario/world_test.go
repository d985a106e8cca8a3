package scenario

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/loadtest/report"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/pump/storage/azure"
)

// simulated is a world of simulated accounts without sockets.
type simulated struct {
	World
	sim *azsim.Sim
}

// newSimulated makes accounts with two queues each. Each account gives rate units a second.
func newSimulated(accounts int, rate float64) *simulated {
	c := azsim.Config{Seed: 1, Latency: 5 * time.Millisecond, Limits: azsim.Limits{Queue: azsim.Rate(rate / 2), QueueAccount: azsim.Rate(rate)}}
	var cfg pump.Config
	for i := range accounts {
		name := fmt.Sprintf("simulated%d", i+1)
		c.Accounts = append(c.Accounts, azsim.Account{Name: name})
		cfg.Accounts = append(cfg.Accounts, pump.Account{Name: name, Queues: 2})
	}
	cfg.Budget = pump.Budget{Account: rate, Queue: rate / 2}
	s := &simulated{sim: azsim.New(c)}
	s.World = World{
		Against: report.Virtual, Config: cfg, Limits: report.Limits{Queue: rate / 2, Account: rate, GetCost: 32},
		Open: func(instance string, i int) (storage.Account, error) {
			return azure.Open(azure.Options{ConnectionString: s.sim.ConnectionString(cfg.Accounts[i].Name), Transport: s.sim.Transport().As(instance)})
		},
	}
	return s
}

// inBubble runs a scenario in virtual time and gives its result, which accounts for every task.
func inBubble(t *testing.T, accounts int, rate float64, o Options) (r *report.Result) {
	t.Helper()
	began := time.Now()
	synctest.Test(t, func(t *testing.T) {
		w := newSimulated(accounts, rate)
		o.Log = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
		var err error
		if r, err = Run(t.Context(), w.World, o); err != nil {
			t.Fatalf("%v; %+v", err, r)
		}
		if len(r.Trouble) > 0 {
			t.Errorf("trouble: %q", r.Trouble)
		}
		for i := range accounts {
			a, err := w.Open("judge", i)
			must(t, err)
			if left, err := a.Queues(t.Context(), ""); err != nil || len(left) > 0 {
				t.Errorf("account %s has %q left over, %v", a.Name(), left, err)
			}
			table := "loadtest" + strings.TrimPrefix(r.Workload, "loadtest-")
			if _, err := a.Table(table).Read(t.Context(), "p", "r"); !storage.Is(err, storage.Missing) {
				t.Errorf("account %s has a table left over: %v", a.Name(), err)
			}
		}
	})
	t.Logf("%.0f s of load in %v; %+v", r.Seconds, time.Since(began), r.Tasks)
	judge(t, r)
	if r.Tasks.Lost != 0 || r.Tasks.Handled != r.Tasks.Sent || r.Tasks.Sent == 0 {
		t.Errorf("of %d tasks %d were handled", r.Tasks.Sent, r.Tasks.Handled)
	}
	return r
}

// judge checks what holds of every result: the parts add up to the whole.
func judge(t *testing.T, r *report.Result) {
	t.Helper()
	var text strings.Builder
	must(t, r.Write(&text))
	proof.Is(t, proof.ErrOf(report.Read(strings.NewReader(text.String()))), nil, "the result")
	var handled, lists float64
	for i, p := range r.Phases {
		if i > 0 && p.From != r.Phases[i-1].To || p.To <= p.From {
			t.Errorf("phase %q is from %v to %v", p.Name, p.From, p.To)
		}
		handled += p.Handled * (p.To - p.From)
		if p.Use < 0 || p.Use > 1.1 {
			t.Errorf("phase %q used %v of the limits", p.Name, p.Use)
		}
		if l := p.FromSend; l.P50 != nil && (*l.P50 > *l.P99 || *l.P99 > *l.Max) {
			t.Errorf("phase %q: latencies are %+v", p.Name, l)
		}
		if p.Offered == nil && p.FromSchedule.Count != 0 {
			t.Errorf("phase %q has no schedule, and latencies from it", p.Name)
		}
	}
	// The last interval may be cut short, and counts as a whole one here.
	slack := 1.0
	for _, v := range r.Series.Handled {
		lists += v * r.Series.Interval
		slack = max(slack, v*r.Series.Interval)
	}
	if handled > float64(r.Tasks.Handled)+0.5 || handled <= 0 || lists > handled+max(slack, 0.05*handled+1) {
		t.Errorf("%v tasks were handled in the phases, %v in the intervals, %d in all", handled, lists, r.Tasks.Handled)
	}
	if len(r.Findings) == 0 {
		t.Error("nothing was found")
	}
	for _, f := range r.Findings {
		if f.Text == "" {
			t.Errorf("%s is not explained", f.Name)
		}
	}
}

// found is a figure of a result.
func found(t *testing.T, r *report.Result, name string) float64 {
	t.Helper()
	for _, f := range r.Findings {
		if f.Name == name {
			return f.Value
		}
	}
	t.Fatalf("%q is not among what was found: %+v", name, r.Findings)
	return 0
}

// phaseOf is the phase of a name.
func phaseOf(t *testing.T, r *report.Result, name string) report.Phase {
	t.Helper()
	for _, p := range r.Phases {
		if p.Name == name {
			return p
		}
	}
	t.Fatalf("there is no phase %q", name)
	return report.Phase{}
}
