package pump_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strings"
	"sync/atomic"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/source"
)

// Distribute lines of JSON and handle each, here on two simulated accounts in this process. On
// Azure the ConnectionString of an account is the one that Azure shows.
func Example() {
	sim := azsim.New(azsim.Config{Accounts: []azsim.Account{{Name: "one"}, {Name: "two"}}})
	server, err := sim.Listen("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = server.Close() }()
	ctx, cfg := context.Background(), pump.Config{Workload: "cities", Accounts: []pump.Account{
		{ConnectionString: server.ConnectionString("one")},
		{ConnectionString: server.ConnectionString("two")},
	}}

	cities := source.JSONLines("-", "city") // a file, or the standard input, which is here a text
	cities.Stdin = strings.NewReader(`{"city":"Oslo","people":709}
{"city":"Bern","people":134}
{"city":"Riga","people":605}
`)
	d, err := distributor.New(cfg, cities, distributor.Options{})
	if err != nil {
		log.Fatal(err)
	}
	sent, err := d.Run(ctx)
	if err != nil {
		log.Fatal(err)
	}

	var bytes atomic.Int64
	handler := pump.HandlerFunc(func(ctx context.Context, t *pump.Task) error {
		bytes.Add(int64(len(t.Body))) // the work; it may be called for the same task again
		return nil
	})
	p, err := processor.New(cfg, handler, processor.Options{UntilIdle: 500 * time.Millisecond})
	if err != nil {
		log.Fatal(err)
	}
	done, err := p.Run(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(sent.Tasks, "tasks sent,", done.Handled, "handled,", bytes.Load(), "bytes")
	// Output:
	// 3 tasks sent, 3 handled, 84 bytes
}

// What the errors of a handler mean for its task.
func ExampleOutcomeOf() {
	cause := errors.New("the database says no")
	for _, err := range []error{
		nil, cause, pump.Reject(cause), pump.RetryAfter(time.Hour, cause),
		pump.Busy(time.Minute, cause), // no attempt is counted
	} {
		fmt.Println(pump.OutcomeOf(err))
	}
	// Output:
	// done 0s
	// failed 0s
	// rejected 0s
	// retry 1h0m0s
	// busy 1m0s
}
