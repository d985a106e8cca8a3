package storagetest_test

import (
	"context"
	"fmt"
	"log"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/pump/storage/azure"
	"github.com/queuepump/queuepump/pump/storage/storagetest"
)

// An answer is lost on the wire: nobody can tell whether the message was put. It was.
func ExampleWire() {
	sim, wire := azsim.New(azsim.Config{Accounts: []azsim.Account{{Name: "one"}}}), &storagetest.Wire{}
	account, err := azure.Open(azure.Options{
		ConnectionString: sim.ConnectionString("one"), Transport: wire.Through(sim.Transport()),
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx, queue := context.Background(), account.Queue("work")
	if err := queue.Create(ctx); err != nil {
		log.Fatal(err)
	}
	wire.Break(storagetest.LoseAnswer, 1)
	_, err = queue.Put(ctx, []byte("task 1"), 0)
	fmt.Println("maybe done:", storage.Ambiguous(err))
	count, err := queue.Count(ctx)
	fmt.Println("messages:", count, err)
	// Output:
	// maybe done: true
	// messages: 1 <nil>
}
