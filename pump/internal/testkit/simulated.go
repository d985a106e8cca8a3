package testkit

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/pump/storage/azure"
)

// Simulated is a simulated account whose requests take 10 ms.
func Simulated() *azsim.Sim {
	return azsim.New(azsim.Config{
		Accounts: []azsim.Account{{Name: "north"}}, Seed: 1, Latency: 10 * time.Millisecond,
	})
}

// OverTheWire is the table as one process reaches it.
func OverTheWire(t *testing.T, sim *azsim.Sim, instance string) storage.Table {
	t.Helper()
	account, err := azure.Open(azure.Options{
		ConnectionString: sim.ConnectionString("north"), Transport: sim.Transport().As(instance),
	})
	proof.Must(t, err)
	return account.Table(fakeTable)
}

// OnSim runs a test in a bubble, on a simulated account that has the table.
func OnSim(t *testing.T, test func(t *testing.T, sim *azsim.Sim)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		sim := Simulated()
		proof.Must(t, OverTheWire(t, sim, "setup").Create(t.Context()))
		test(t, sim)
	})
}

// OnServer runs a test in a bubble, with a table in memory and a client of it.
func OnServer(t *testing.T, client string, test func(t *testing.T, s *Server, c *Client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := NewServer()
		test(t, s, s.Client(client))
	})
}
