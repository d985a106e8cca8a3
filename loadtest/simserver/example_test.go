package simserver_test

import (
	"context"
	"fmt"
	"log"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/loadtest/simserver"
)

// A put whose answer is lost is put again by the SDK, which says nothing of it.
func Example() {
	sim, err := simserver.New(azsim.Config{Accounts: []azsim.Account{{Name: "one"}}})
	if err != nil {
		log.Fatal(err)
	}
	defer sim.Close()
	lost, err := simserver.ParseFault("lost-answer op=PutMessage first=1")
	if err != nil {
		log.Fatal(err)
	}
	if err := sim.SetFaults(lost); err != nil {
		log.Fatal(err)
	}

	options := azqueue.ClientOptions{ClientOptions: azcore.ClientOptions{Transport: sim.Transport()}}
	service, err := azqueue.NewServiceClientFromConnectionString(sim.ConnectionString("one"), &options)
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	queue := service.NewQueueClient("work")
	if _, err := queue.Create(ctx, nil); err != nil {
		log.Fatal(err)
	}
	_, err = queue.EnqueueMessage(ctx, "task 1", nil)
	fmt.Println("put:", err)
	state, err := queue.GetProperties(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("messages:", *state.ApproximateMessagesCount)
	// Output:
	// put: <nil>
	// messages: 2
}
