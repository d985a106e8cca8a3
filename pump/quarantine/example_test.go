package quarantine_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/quarantine"
	"github.com/queuepump/queuepump/pump/source"
)

// A handler rejects a task. You look at it, and put it back when the cause is mended.
func ExampleQuarantine() {
	sim := azsim.New(azsim.Config{Accounts: []azsim.Account{{Name: "one"}}})
	cfg, ctx := pump.Config{Workload: "photos"}, context.Background()
	cfg.Accounts = []pump.Account{{ConnectionString: must(sim.Listen("", "")).ConnectionString("one")}}
	photos := must(distributor.New(cfg, source.Files("example_test.go"), distributor.Options{}))
	must(photos.Run(ctx)) // one task: the name of this file
	handler := pump.HandlerFunc(func(context.Context, *pump.Task) error {
		return pump.Reject(errors.New("this is not a photo"))
	})
	idle := processor.Options{UntilIdle: 500 * time.Millisecond}
	must(must(processor.New(cfg, handler, idle)).Run(ctx))

	q := must(quarantine.Open(ctx, cfg))
	err := q.List(ctx, quarantine.Filter{}, func(m *quarantine.Message) (more bool) {
		fmt.Printf("%s, %s: %s\n", m.Reason, m.Detail, must(m.Open())[0].Body)
		return true
	})
	filter, options := quarantine.Filter{Key: []byte("example_test.go")}, quarantine.Options{}
	again := q.Redrive(ctx, filter, options, func(o quarantine.Outcome) (more bool) {
		fmt.Println(o.Tasks, "task is", o.Outcome)
		return true
	})
	fmt.Println(errors.Join(err, again))
	// Output:
	// rejected, this is not a photo: example_test.go
	// 1 task is redriven
	// <nil>
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
