package distributor_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/runs"
	"github.com/queuepump/queuepump/pump/source"
	"github.com/queuepump/queuepump/pump/storage/azure"
)

// A program sends tasks as they come up, all in one run, and in delivery mode once
// learns when they are done.
func ExampleSender() {
	sim := azsim.New(azsim.Config{Accounts: []azsim.Account{{Name: "one"}}})
	account, err := azure.Open(azure.Options{ConnectionString: sim.ConnectionString("one"), Transport: sim.Transport()})
	if err != nil {
		log.Fatal(err)
	}
	cfg := pump.Config{Workload: "orders", Delivery: pump.Once, Accounts: []pump.Account{{Storage: account}}}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	work := pump.HandlerFunc(func(ctx context.Context, t *pump.Task) error { return nil })
	p, err := processor.New(cfg, work, processor.Options{})
	if err != nil {
		log.Fatal(err)
	}
	working, stop := context.WithCancel(ctx)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		_, _ = p.Run(working)
	}()

	sender, err := distributor.NewSender(cfg, distributor.SenderOptions{})
	if err != nil {
		log.Fatal(err)
	}
	for _, customer := range []string{"Ada", "Grace", "Ada"} {
		order := source.Record{Key: []byte(customer), Body: []byte(`{"order":1}`)}
		if err := sender.Send(ctx, order); err != nil { // it is in a queue for good when this returns
			log.Fatal(err)
		}
	}
	sent, err := sender.Close(ctx)
	if err != nil {
		log.Fatal(err)
	}
	end, err := runs.Wait(ctx, cfg, sent.Run, runs.WaitOptions{})
	if err != nil {
		log.Fatal(err)
	}
	stop()
	<-stopped
	fmt.Println(end.Done, "of", end.Tasks, "done")
	// Output:
	// 3 of 3 done
}
