package reduce_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/reduce"
	"github.com/queuepump/queuepump/pump/source"
)

// Sum by key, each task exactly once. The state of a segment is a map of the keys of that
// segment, so the states of all segments together hold each key once.
func ExampleReducer() {
	sim := azsim.New(azsim.Config{Accounts: []azsim.Account{{Name: "one"}}})
	cfg, ctx := pump.Config{Workload: "orders", Delivery: pump.Once}, context.Background()
	cfg.Accounts = []pump.Account{{ConnectionString: must(sim.Listen("", "")).ConnectionString("one")}}
	orders := source.JSONLines("-", "customer") // a file, or the standard input, here a text
	orders.Stdin = strings.NewReader(`{"customer":"ada","items":2}
{"customer":"bob","items":1}
{"customer":"ada","items":1}
`)
	must(must(distributor.New(cfg, orders, distributor.Options{})).Run(ctx))

	type order struct {
		Customer string
		Items    int
	}
	items := &reduce.Reducer[map[string]int, order]{
		Name: "items/1",
		Map: func(_ context.Context, t *pump.Task) (order, error) {
			var o order
			if err := json.Unmarshal(t.Body, &o); err != nil {
				return o, pump.Reject(err) // it will never be an order
			}
			return o, nil
		},
		Fold: func(s *map[string]int, o order) {
			if *s == nil {
				*s = map[string]int{}
			}
			(*s)[o.Customer] += o.Items
		},
	}
	idle := processor.Options{UntilIdle: time.Second}
	must(must(processor.New(cfg, items.Handler(), idle)).Run(ctx))

	all := map[string]int{}
	for state, err := range items.States(ctx, cfg) {
		maps.Copy(all, must(state, err))
	}
	fmt.Println(all)
	// Output:
	// map[ada:3 bob:1]
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
