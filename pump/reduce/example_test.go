package reduce_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/reduce"
	"github.com/queuepump/queuepump/pump/source"
	"github.com/queuepump/queuepump/pump/storage/azure"
)

// orders are JSON lines in a file, and a workload that is to handle each of them once.
func orders() (cfg pump.Config, file string, remove func()) {
	sim := azsim.New(azsim.Config{Accounts: []azsim.Account{{Name: "one"}, {Name: "two"}}})
	cfg = pump.Config{Workload: "orders", Delivery: pump.Once}
	for _, name := range sim.Accounts() {
		account, err := azure.Open(azure.Options{ConnectionString: sim.ConnectionString(name), Transport: sim.Transport()})
		if err != nil {
			log.Fatal(err)
		}
		cfg.Accounts = append(cfg.Accounts, pump.Account{Storage: account})
	}
	dir, err := os.MkdirTemp("", "pump")
	if err != nil {
		log.Fatal(err)
	}
	file = filepath.Join(dir, "orders.jsonl")
	if err := os.WriteFile(file, []byte(`{"customer":"ada","city":"Oslo","items":2,"euros":20.10}
{"customer":"bob","city":"Bern","items":1,"euros":5}
{"customer":"ada","city":"Bern","items":1,"euros":0.20}
{"customer":"eve","city":"Oslo","items":4,"euros":7.05}
`), 0o600); err != nil {
		log.Fatal(err)
	}
	return cfg, file, func() { _ = os.RemoveAll(dir) }
}

// work sends the tasks of a file and handles them, until all is done.
func work(ctx context.Context, cfg pump.Config, file, key string, h pump.Handler) {
	d, err := distributor.New(cfg, source.JSONLines(file, key), distributor.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := d.Run(ctx); err != nil {
		log.Fatal(err)
	}
	p, err := processor.New(cfg, h, processor.Options{UntilIdle: time.Second})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := p.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

// Count and sum by key, each task exactly once. The state of a segment is a map of
// the keys of that segment, so the states of all segments together hold each key once.
func ExampleReducer() {
	cfg, file, remove := orders()
	defer remove()
	ctx := context.Background()

	type order struct {
		Customer string
		Items    int
	}
	type total struct{ Orders, Items int }
	totals := &reduce.Reducer[map[string]total, order]{
		Name: "totals/1",
		Map: func(_ context.Context, t *pump.Task) (order, error) {
			var o order
			if err := json.Unmarshal(t.Body, &o); err != nil {
				return o, pump.Reject(err) // it will never be an order
			}
			return o, nil
		},
		Fold: func(s *map[string]total, o order) {
			if *s == nil {
				*s = map[string]total{}
			}
			t := (*s)[o.Customer]
			t.Orders++
			t.Items += o.Items
			(*s)[o.Customer] = t
		},
	}
	work(ctx, cfg, file, "customer", totals)

	all := map[string]total{}
	for state, err := range totals.States(ctx, cfg) {
		if err != nil {
			log.Fatal(err)
		}
		maps.Copy(all, state)
	}
	for _, customer := range slices.Sorted(maps.Keys(all)) {
		fmt.Println(customer, all[customer].Orders, all[customer].Items)
	}
	// Output:
	// ada 2 3
	// bob 1 1
	// eve 1 4
}
