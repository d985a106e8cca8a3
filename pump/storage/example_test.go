package storage_test

import (
	"context"
	"fmt"
	"log"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/pump/storage/azure"
)

// A row is changed only if it is as it was read, and an error says what it means.
func ExampleTable() {
	sim := azsim.New(azsim.Config{Accounts: []azsim.Account{{Name: "one"}}})
	account, err := azure.Open(azure.Options{
		ConnectionString: sim.ConnectionString("one"), Transport: sim.Transport(),
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx, table := context.Background(), account.Table("stock")
	if err := table.Create(ctx); err != nil {
		log.Fatal(err)
	}
	row := storage.Entity{Partition: "oslo", Row: "teapots"}
	tag, err := table.Write(ctx, storage.Write{Mode: storage.Insert, Entity: row})
	if err != nil {
		log.Fatal(err)
	}
	for _, left := range []int64{2, 1} {
		row.ETag, row.Properties = tag, map[string]any{"left": left}
		_, err := table.Write(ctx, storage.Write{Mode: storage.Replace, Entity: row})
		fmt.Println(left, "is written:", err == nil, "stale:", storage.Is(err, storage.Precondition))
	}
	// Output:
	// 2 is written: true stale: false
	// 1 is written: false stale: true
}
