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

// A handler of orders in JSON. A body that does not decode is rejected, with its reason.
func ExampleJSON() {
	type order struct{ Count int }
	h := processor.JSON(func(ctx context.Context, o order) error {
		fmt.Println(o.Count, "at attempt", processor.TaskOf(ctx).Attempt)
		return nil
	})
	fmt.Println(h.Handle(context.Background(), &pump.Task{Attempt: 2, Body: []byte(`{"count":5}`)}))
	fmt.Println(h.Handle(context.Background(), &pump.Task{Attempt: 1, Body: []byte(`{"count":"5"}`)}))
	// Output:
	// 5 at attempt 2
	// <nil>
	// the body does not decode into processor_test.order: field "Count": a string does not fit int
}

// Middleware sees the tasks of each call of the handler, and their outcomes.
func ExampleMiddleware() {
	sim := azsim.New(azsim.Config{Accounts: []azsim.Account{{Name: "one"}}})
	cfg, ctx := pump.Config{Workload: "orders"}, context.Background()
	cfg.Accounts = []pump.Account{{ConnectionString: must(sim.Listen("", "")).ConnectionString("one")}}
	orders := source.Lines("-")
	orders.Stdin = strings.NewReader("nonsense\n")
	must(must(distributor.New(cfg, orders, distributor.Options{})).Run(ctx))

	said := func(ctx context.Context, tasks []*pump.Task, next processor.Next) []error {
		errs := next(ctx, tasks)
		for i, t := range tasks {
			is, _ := pump.OutcomeOf(errs[i])
			fmt.Println(string(t.Body), "is", is)
		}
		return errs
	}
	handler := pump.HandlerFunc(func(ctx context.Context, t *pump.Task) error {
		return pump.Reject(errors.New("it is not an order"))
	})
	must(must(processor.New(cfg, handler, processor.Options{
		Use: []processor.Middleware{said}, UntilIdle: 500 * time.Millisecond,
	})).Run(ctx))
	// Output:
	// nonsense is rejected
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
