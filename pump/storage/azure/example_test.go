package azure_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/storage/azure"
)

// Put a message into a queue and take it back. An account of Azure needs no Transport, and has an
// Endpoint and a Credential where keys are not allowed.
func ExampleOpen() {
	sim := azsim.New(azsim.Config{Accounts: []azsim.Account{{Name: "one"}}})
	account, err := azure.Open(azure.Options{
		ConnectionString: sim.ConnectionString("one"), Transport: sim.Transport(),
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx, queue := context.Background(), account.Queue("work")
	if err := queue.Create(ctx); err != nil {
		log.Fatal(err)
	}
	receipt, err := queue.Put(ctx, []byte("task 1"), time.Minute) // nobody gets it for a minute
	fmt.Println("put:", err)
	fmt.Println("taken back:", queue.Delete(ctx, receipt))
	// Output:
	// put: <nil>
	// taken back: <nil>
}
