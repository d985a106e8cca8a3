package coordination_test

import (
	"context"
	"fmt"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/coordination"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/pump/storage/azure"
)

// Two processes number their orders, and no number comes twice.
func ExampleIDRange() {
	ctx, table := context.Background(), newTable() // gates.Table(cfg) is that of a workload
	for _, process := range []string{"a", "b"} {
		ids := must(coordination.NewIDRange(table, "orders", "invoices", 1000)) // numbers a request
		fmt.Println(process, must(ids.Next(ctx)), must(ids.Next(ctx)))
	}
	// Output:
	// a 1 2
	// b 1001 1002
}

// One process at a time works on a key, and not again for a day.
func ExampleClaims() {
	ctx, table := context.Background(), newTable() // gates.Table(cfg) is that of a workload
	for _, process := range []string{"a", "b"} {
		claims := coordination.NewClaims(table, "orders", 24*time.Hour, process)
		task := coordination.TaskRef{Foreign: "a report, by " + process}
		claim, verdict, wait, err := claims.Claim(ctx, []byte("Oslo"), task)
		fmt.Println(process, verdict, wait.Round(time.Hour), err)
		if verdict == coordination.Granted {
			fmt.Println("done:", claim.Done(ctx, false)) // after the work
		}
	}
	// Output:
	// a granted 0s <nil>
	// done: <nil>
	// b fresh 24h0m0s <nil>
}

func newTable() storage.Table {
	sim := azsim.New(azsim.Config{Accounts: []azsim.Account{{Name: "one"}}})
	open := azure.Options{ConnectionString: sim.ConnectionString("one"), Transport: sim.Transport()}
	table := must(azure.Open(open)).Table("numbers")
	return must(table, table.Create(context.Background()))
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
