package distributor_test

import (
	"context"
	"fmt"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/runs"
	"github.com/queuepump/queuepump/pump/source"
)

// A program sends tasks as they come up, all in one run, and in delivery mode once learns when
// they are done.
func ExampleSender() {
	sim := azsim.New(azsim.Config{Accounts: []azsim.Account{{Name: "one"}}})
	cfg, ctx := pump.Config{Workload: "orders", Delivery: pump.Once}, context.Background()
	cfg.Accounts = []pump.Account{{ConnectionString: must(sim.Listen("", "")).ConnectionString("one")}}

	sender := must(distributor.NewSender(cfg, distributor.SenderOptions{}))
	for _, customer := range []string{"Ada", "Grace", "Ada"} {
		order := source.Record{Key: []byte(customer), Body: []byte("an order")}
		must(order, sender.Send(ctx, order)) // now it is in a queue for good
	}
	sent := must(sender.Close(ctx))

	// Here in the same program: a processor.
	work := pump.HandlerFunc(func(context.Context, *pump.Task) error { return nil })
	working, stop := context.WithCancel(ctx)
	stopped := make(chan processor.Summary)
	go func() { stopped <- must(must(processor.New(cfg, work, processor.Options{})).Run(working)) }()

	end := must(runs.Wait(ctx, cfg, sent.Run, pump.WaitOptions{}))
	fmt.Println(end.Done, "of", end.Tasks, "done")
	stop()
	<-stopped
	// Output:
	// 3 of 3 done
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
