package azsim_test

import (
	"context"
	"fmt"
	"log"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
	"github.com/queuepump/queuepump/loadtest/azsim"
)

// A put whose answer is lost is put again by the SDK: two messages, and the
// program is told of neither the loss nor the duplicate.
func Example() {
	sim := azsim.New(azsim.Config{Accounts: []azsim.Account{{Name: "one"}}})
	puts := []string{"PutMessage"}
	lost := sim.Inject(azsim.Rule{Fault: azsim.AnswerLost, Operations: puts, First: 1})

	options := azqueue.ClientOptions{ClientOptions: azcore.ClientOptions{
		Transport: sim.Transport(), Retry: policy.RetryOptions{RetryDelay: 1},
	}}
	service, err := azqueue.NewServiceClientFromConnectionString(sim.ConnectionString("one"), &options)
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	if _, err := service.CreateQueue(ctx, "work", nil); err != nil {
		log.Fatal(err)
	}
	queue := service.NewQueueClient("work")
	_, err = queue.EnqueueMessage(ctx, "task 1", nil)
	fmt.Println("put:", err)

	all := &azqueue.DequeueMessagesOptions{NumberOfMessages: new(int32(32))}
	got, err := queue.DequeueMessages(ctx, all)
	if err != nil {
		log.Fatal(err)
	}
	for _, m := range got.Messages {
		fmt.Println("got:", *m.MessageText)
	}
	fmt.Println(lost)
	// Output:
	// put: <nil>
	// got: task 1
	// got: task 1
	// answer-lost operations=PutMessage first=1 (1 of 2 matching)
}
