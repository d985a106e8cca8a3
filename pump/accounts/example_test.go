package accounts_test

import (
	"context"
	"fmt"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/accounts"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/source"
)

// A workload that runs gets a second account, and half of its segments move there.
func ExampleAdd() {
	sim := azsim.New(azsim.Config{Accounts: []azsim.Account{{Name: "one"}, {Name: "two"}}})
	server, ctx := must(sim.Listen("", "")), context.Background()
	one := pump.Account{ConnectionString: server.ConnectionString("one")}
	cfg := pump.Config{Workload: "photos", Segments: 512, Accounts: []pump.Account{one}}
	photos := must(distributor.New(cfg, source.Files("example_test.go"), distributor.Options{}))
	must(photos.Run(ctx)) // one task: the name of this file

	two := pump.Account{ConnectionString: server.ConnectionString("two")}
	cfg.Accounts = append(cfg.Accounts, two) // restart all processes with it first
	added := must(accounts.Add(ctx, cfg, "two"))
	fmt.Println(added.Account, "is", added.State, "and", added.Moved, "segments move")
	for _, use := range must(accounts.List(ctx, cfg)) {
		fmt.Println(use.Name, use.State, use.Queues, "queues", use.Segments, "segments")
	}
	// Output:
	// two is active and 256 segments move
	// one active 8 queues 256 segments
	// two active 8 queues 256 segments
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
