package workloads_test

import (
	"context"
	"fmt"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/source"
	"github.com/queuepump/queuepump/pump/workloads"
)

// Pause a workload: processors finish what they have begun, and nothing is lost.
func ExamplePause() {
	sim := azsim.New(azsim.Config{Accounts: []azsim.Account{{Name: "one"}}})
	cfg, ctx := pump.Config{Workload: "photos"}, context.Background()
	cfg.Accounts = []pump.Account{{ConnectionString: must(sim.Listen("", "")).ConnectionString("one")}}
	photos := must(distributor.New(cfg, source.Files("example_test.go"), distributor.Options{}))
	must(photos.Run(ctx)) // one task: the name of this file

	paused := must(workloads.Pause(ctx, cfg, "me", workloads.PauseOptions{Wait: true}))
	fmt.Println("paused:", paused.Paused, "by", paused.By)
	resumed := must(workloads.Resume(ctx, cfg))
	fmt.Println("paused:", resumed.Paused)
	// Output:
	// paused: true by me
	// paused: false
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
