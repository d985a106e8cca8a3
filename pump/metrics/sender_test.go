package metrics

import (
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/source"
	"github.com/queuepump/queuepump/pump/storage/azure"
)

// must ends a test with an error.
var must = proof.Must

// TestASenderHasTheMetricsOfADistributor: what it sent by its state, its requests by its hooks.
func TestASenderHasTheMetricsOfADistributor(t *testing.T) {
	sim := azsim.New(azsim.Config{Limits: azsim.NoLimits(), Accounts: []azsim.Account{{Name: "alpha"}}})
	st, err := azure.Open(azure.Options{ConnectionString: sim.ConnectionString("alpha"), Transport: sim.Transport()})
	must(t, err)
	counters := NewCounters(pump.Prices{})
	s, err := distributor.NewSender(pump.Config{
		Workload: "test", Log: slog.New(slog.DiscardHandler), Hooks: counters.Hooks(pump.Hooks{}),
		Accounts: []pump.Account{{Storage: st, Queues: 2}},
	}, distributor.SenderOptions{})
	must(t, err)
	r := prometheus.NewRegistry()
	r.MustRegister(counters, Distributor(s.State))
	must(t, s.Send(t.Context(), source.Record{Key: []byte("k"), Body: []byte("{}")}))
	must(t, proof.ErrOf(s.Close(t.Context())))
	families, err := r.Gather()
	must(t, err)
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			got[f.GetName()] += m.GetCounter().GetValue()
		}
	}
	var requests float64
	for _, operations := range s.State().Done.Requests {
		for _, n := range operations {
			requests += float64(n)
		}
	}
	if got["queuepump_messages_sent_total"] != 1 || requests == 0 || got["queuepump_requests_total"] != requests {
		t.Errorf("%v messages sent, %v requests of %v", got["queuepump_messages_sent_total"], got["queuepump_requests_total"], requests)
	}
}
