package status_test

import (
	"context"
	"fmt"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/source"
	"github.com/queuepump/queuepump/pump/status"
)

// What waits in the accounts, read from any machine that has the configuration.
func ExampleRead() {
	sim := azsim.New(azsim.Config{Accounts: []azsim.Account{{Name: "one"}}})
	cfg, ctx := pump.Config{Workload: "photos"}, context.Background()
	cfg.Accounts = []pump.Account{{ConnectionString: must(sim.Listen("", "")).ConnectionString("one")}}
	photos := must(distributor.New(cfg, source.Files("example_test.go"), distributor.Options{}))
	must(photos.Run(ctx)) // one task: the name of this file

	s := must(status.Read(ctx, cfg, status.Options{}))
	for _, run := range s.Runs {
		fmt.Println("a run is", run.State, "with", *run.Sent, "task,", run.Handled, "handled")
	}
	for _, account := range s.Accounts {
		fmt.Println(account.Name, "has", account.Messages, "message in", account.Queues, "queues")
	}
	fmt.Println(len(s.Unowned), "of", s.Segments, "segments have no processor")
	// Output:
	// a run is sealed with 1 task, 0 handled
	// one has 1 message in 8 queues
	// 256 of 256 segments have no processor
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
