package handlers_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/internal/handlers"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/source"
	"github.com/queuepump/queuepump/pump/storage/azure"
)

// must ends a test with an error.
var must = proof.Must

// A field that is not the key is in the states of several segments, and Read adds them up.
func TestWhatRealProcessorsCountIsReadInOneLineAKey(t *testing.T) {
	synctest.Test(t, counted)
}

func counted(t *testing.T) {
	sim := azsim.New(azsim.Config{Accounts: []azsim.Account{{Name: "one"}, {Name: "two"}}})
	cfg := pump.Config{Workload: "orders", Delivery: pump.Once}
	for _, name := range sim.Accounts() {
		account, err := azure.Open(azure.Options{ConnectionString: sim.ConnectionString(name), Transport: sim.Transport()})
		must(t, err)
		cfg.Accounts = append(cfg.Accounts, pump.Account{Storage: account})
	}
	file := filepath.Join(t.TempDir(), "orders.jsonl")
	must(t, os.WriteFile(file, []byte(`{"customer":"ada","city":"Oslo","euros":20.10}
{"customer":"bob","city":"Bern","euros":5}
{"customer":"ada","city":"Bern","euros":0.20}
{"customer":"eve","city":"Oslo","euros":7.05}
`), 0o600))
	d, err := distributor.New(cfg, source.JSONLines(file, "customer"), distributor.Options{})
	must(t, err)
	must(t, proof.ErrOf(d.Run(t.Context())))
	p, err := processor.New(cfg, handlers.CountBy("city", "euros"), processor.Options{UntilIdle: time.Second})
	must(t, err)
	must(t, proof.ErrOf(p.Run(t.Context())))

	var got []string
	for k, err := range handlers.ReadCounts(t.Context(), cfg) {
		must(t, err)
		got = append(got, fmt.Sprint(k.Key, " ", k.Count, " ", k.Sum))
	}
	proof.Alike(t, got, []string{"Bern 2 5.2", "Oslo 2 27.15"})
}
