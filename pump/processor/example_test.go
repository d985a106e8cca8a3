package processor_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/source"
)

// What the handler returns decides what becomes of its task.
func Example() {
	sim := azsim.New(azsim.Config{Accounts: []azsim.Account{{Name: "one"}}})
	cfg, ctx := pump.Config{Workload: "orders"}, context.Background()
	cfg.Accounts = []pump.Account{{ConnectionString: must(sim.Listen("", "")).ConnectionString("one")}}
	orders := source.Lines("-") // a file, or the standard input, which is here a text
	orders.Stdin = strings.NewReader("2 teapots\nnonsense\n1 cup\n")
	must(must(distributor.New(cfg, orders, distributor.Options{})).Run(ctx))

	handler := pump.HandlerFunc(func(ctx context.Context, t *pump.Task) error {
		if string(t.Body) == "nonsense" {
			return pump.Reject(errors.New("it is not an order")) // to quarantine
		}
		return nil // done; any other error: it is tried again later
	})
	p := must(processor.New(cfg, handler, processor.Options{UntilIdle: 500 * time.Millisecond}))
	done := must(p.Run(ctx))
	fmt.Println(done.Handled, "handled,", done.Quarantined, "in quarantine")
	// Output:
	// 2 handled, 1 in quarantine
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
