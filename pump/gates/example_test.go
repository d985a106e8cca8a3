package gates_test

import (
	"context"
	"fmt"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/gates"
	"github.com/queuepump/queuepump/pump/source"
)

// A processor with processor.Options{Gate: "morning"} starts nothing until you open the gate.
func ExampleOpen() {
	sim := azsim.New(azsim.Config{Accounts: []azsim.Account{{Name: "one"}}})
	cfg, ctx := pump.Config{Workload: "photos"}, context.Background()
	cfg.Accounts = []pump.Account{{ConnectionString: must(sim.Listen("", "")).ConnectionString("one")}}
	photos := must(distributor.New(cfg, source.Files("example_test.go"), distributor.Options{}))
	must(photos.Run(ctx)) // one task: the name of this file

	opened := must(gates.Open(ctx, cfg, "morning", "me"))
	fmt.Println(opened.Waiting, "processes waited")
	for _, gate := range must(gates.List(ctx, cfg)) {
		fmt.Println("gate", gate.Name, "is open:", gate.Open, "by", gate.By)
	}
	// Output:
	// 0 processes waited
	// gate morning is open: true by me
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
