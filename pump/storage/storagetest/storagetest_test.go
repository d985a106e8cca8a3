package storagetest_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/pump/storage/azure"
	"github.com/queuepump/queuepump/pump/storage/storagetest"
)

// must ends a test with an error.
var must = proof.Must

// open opens an account through via.
func open(t testing.TB, o azure.Options, next storagetest.Doer, via func(storagetest.Doer) storagetest.Doer) storage.Account {
	o.Transport = via(next)
	a, err := azure.Open(o)
	must(t, err)
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

// Azure is documented to answer 404 or 400 to a superseded receipt; a caller must not notice which.
func TestSimulatorWithPopReceiptMismatch(t *testing.T) {
	storagetest.Run(t, storagetest.Harness{
		Virtual: true,
		Open: func(t testing.TB, via func(storagetest.Doer) storagetest.Doer) storage.Account {
			sim := azsim.New(azsim.Config{Accounts: []azsim.Account{{Name: "conformance"}}, Limits: azsim.NoLimits(), PopReceiptMismatch: true})
			return open(t, azure.Options{ConnectionString: sim.ConnectionString("conformance")}, sim.Transport(), via)
		},
	})
}

// Accounts of one Azurite are apart, keys are checked, and it ends with its test.
func TestAzuriteHelper(t *testing.T) {
	var connection string
	t.Run("runs", func(t *testing.T) {
		server := storagetest.StartAzurite(t, "one", "two")
		client := client(t)
		plain := func(d storagetest.Doer) storagetest.Doer { return d }
		one := open(t, azure.Options{ConnectionString: server.ConnectionString("one")}, client, plain)
		two := open(t, azure.Options{ConnectionString: server.ConnectionString("two")}, client, plain)
		must(t, one.Queue("queue").Create(t.Context()))
		if names, err := two.Queues(t.Context(), ""); err != nil || len(names) != 0 {
			t.Errorf("the other account has %v, %v", names, err)
		}
		wrong := strings.Replace(server.ConnectionString("one"), "AccountName=one", "AccountName=two", 1)
		if err := open(t, azure.Options{ConnectionString: wrong}, client, plain).Queue("queue").Create(t.Context()); !storage.Is(err, storage.Auth) {
			t.Errorf("with the key of another account: %v", err)
		}
		connection = server.ConnectionString("one")
	})
	if connection == "" {
		t.Skip("no Azurite")
	}
	// Its port may be another process's by now, which does not know the account.
	after := open(t, azure.Options{ConnectionString: connection}, client(t), func(d storagetest.Doer) storagetest.Doer { return d })
	if _, err := after.Queues(t.Context(), ""); err == nil {
		t.Error("Azurite outlived its test")
	}
}

// TestSimulatorOverTCP also sees that the suite says how each case ended, and drops what it made.
func TestSimulatorOverTCP(t *testing.T) {
	sim := azsim.New(azsim.Config{Accounts: []azsim.Account{{Name: "conformance"}}, Limits: azsim.NoLimits()})
	server, err := sim.Listen("", "")
	must(t, err)
	t.Cleanup(func() {
		proof.Is(t, server.Close(), nil)
	})
	client := client(t)
	opened := func(t testing.TB, via func(storagetest.Doer) storagetest.Doer) storage.Account {
		return open(t, azure.Options{ConnectionString: server.ConnectionString("conformance")}, client, via)
	}
	ended := map[string]string{}
	storagetest.Run(t, storagetest.Harness{
		Open: opened, Clean: true, Prefix: "trial", Ended: func(name, failure string) { ended[name] = failure },
	})
	plain := opened(t, func(d storagetest.Doer) storagetest.Doer { return d })
	if names, err := plain.Queues(t.Context(), ""); err != nil || len(names) > 0 {
		t.Errorf("left over: %v, %v", names, err)
	}
	if failure, told := ended["an empty text is a message"]; !told || failure != "" || len(ended) < 90 {
		t.Errorf("%d cases have ended: %v, %q", len(ended), told, failure)
	}
	if sim.Stats().Count("", "CreateQueue") == 0 {
		t.Error("no queue was made")
	}
}
