package source_test

import (
	"context"
	"fmt"
	"log"

	"github.com/queuepump/queuepump/pump/source"
)

// A source of your own is a sequence: rows of a database, say. It cannot be read again, so a run
// of it is not resumed.
func ExampleFromSeq() {
	orders := source.FromSeq(func(yield func(source.Record, error) bool) {
		for _, customer := range []string{"Ada", "Grace"} {
			if !yield(source.Record{Key: []byte(customer), Body: []byte("an order")}, nil) {
				return
			}
		}
	})
	ctx := context.Background()
	reader, err := orders.Open(ctx, nil) // distributor.New(cfg, orders, ...) does this
	if err != nil {
		log.Fatal(err)
	}
	for range 2 {
		record, err := reader.Next(ctx)
		fmt.Printf("%s: %s, %v\n", record.Key, record.Body, err)
	}
	_, err = reader.Next(ctx)
	fmt.Println(err)
	// Output:
	// Ada: an order, <nil>
	// Grace: an order, <nil>
	// EOF
}
