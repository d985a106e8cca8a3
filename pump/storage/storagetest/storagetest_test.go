package storagetest_test

import (
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/pump/storage/azure"
	"github.com/queuepump/queuepump/pump/storage/storagetest"
)

// open opens an account through via.
func open(t testing.TB, o azure.Options, next storagetest.Doer, via func(storagetest.Doer) storagetest.Doer) storage.Account {
	o.Transport = via(next)
	a, err := azure.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestAzurite(t *testing.T) {
	server := storagetest.StartAzurite(t, "conformance")
	client := client(t)
	storagetest.Run(t, storagetest.Harness{
		Open: func(t testing.TB, via func(storagetest.Doer) storagetest.Doer) storage.Account {
			return open(t, azure.Options{ConnectionString: server.ConnectionString("conformance")}, client, via)
		},
		Differences: storagetest.AzuriteDifferences,
	})
}

// TestAzure runs against a real account. It makes queues and tables with random
// names, drops them, and costs a few cents.
func TestAzure(t *testing.T) {
	o := azure.Options{
		ConnectionString: os.Getenv("QUEUEPUMP_TEST_CONNECTION_STRING"),
		Endpoint:         os.Getenv("QUEUEPUMP_TEST_ENDPOINT"),
	}
	if o.ConnectionString == "" && o.Endpoint == "" {
		t.Skip("no account: set QUEUEPUMP_TEST_CONNECTION_STRING, or QUEUEPUMP_TEST_ENDPOINT (https://NAME.queue.core.windows.net, with a SAS or with credentials that azidentity finds)")
	}
	client := client(t)
	storagetest.Run(t, storagetest.Harness{
		Open: func(t testing.TB, via func(storagetest.Doer) storagetest.Doer) storage.Account {
			return open(t, o, client, via)
		},
		Clean: true,
	})
}

// client is the driver's own, its idle connections closed at the end.
func client(t testing.TB) *http.Client {
	c := azure.NewTransport(32)
	t.Cleanup(c.CloseIdleConnections)
	return c
}

// simulated opens an account of a simulator of its own, in process.
func simulated(t testing.TB, via func(storagetest.Doer) storagetest.Doer) storage.Account {
	sim := azsim.New(azsim.Config{Accounts: []azsim.Account{{Name: "conformance"}}, Latency: 5 * time.Millisecond, Limits: azsim.NoLimits()})
	return open(t, azure.Options{ConnectionString: sim.ConnectionString("conformance")}, sim.Transport(), via)
}

func TestSimulatorInProcess(t *testing.T) {
	storagetest.Run(t, storagetest.Harness{Open: simulated, Virtual: true})
}

func TestSimulatorOverTCP(t *testing.T) {
	sim := azsim.New(azsim.Config{Accounts: []azsim.Account{{Name: "conformance"}}, Limits: azsim.NoLimits()})
	server, err := sim.Listen("", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	client := client(t)
	storagetest.Run(t, storagetest.Harness{
		Open: func(t testing.TB, via func(storagetest.Doer) storagetest.Doer) storage.Account {
			return open(t, azure.Options{ConnectionString: server.ConnectionString("conformance")}, client, via)
		},
	})
}
