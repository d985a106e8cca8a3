package runs_test

import (
	"context"
	"fmt"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/runs"
	"github.com/queuepump/queuepump/pump/source"
)

// End a run that was sent by mistake: processors drop what they meet of it.
func ExampleEnd() {
	sim := azsim.New(azsim.Config{Accounts: []azsim.Account{{Name: "one"}}})
	cfg, ctx := pump.Config{Workload: "photos"}, context.Background()
	cfg.Accounts = []pump.Account{{ConnectionString: must(sim.Listen("", "")).ConnectionString("one")}}
	photos := must(distributor.New(cfg, source.Files("example_test.go"), distributor.Options{}))
	must(photos.Run(ctx)) // one task: the name of this file

	for _, run := range must(runs.List(ctx, cfg, "sealed", 10)) {
		fmt.Println(run.State, "with", *run.Tasks, "task")
		ended := must(runs.End(ctx, cfg, run.ID, true, "the wrong file"))
		fmt.Println(ended.State, "because:", ended.Note)
	}
	// Output:
	// sealed with 1 task
	// ended because: the wrong file
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
