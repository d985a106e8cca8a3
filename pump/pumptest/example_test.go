package pumptest_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/pumptest"
)

type Order struct{ Item string }

// A shop that is closed for its first eight hours.
func shop(opens time.Time) pump.Handler {
	return processor.JSON(func(ctx context.Context, o Order) error {
		switch {
		case o.Item == "":
			return pump.Reject(errors.New("it names no item"))
		case time.Now().Before(opens):
			return pump.Busy(time.Hour, errors.New("the shop is closed"))
		}
		return nil
	})
}

// A test of eight hours, which takes a moment.
func Example() {
	run("TestShop", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			opens := time.Now().Add(8 * time.Hour)
			w := pumptest.New(t, pump.Config{}, shop(opens), processor.Options{})
			w.Send(Order{"teapot"}, Order{"cup"}, Order{})
			w.Advance(7 * time.Hour)
			w.Done(0)
			w.Quarantined(1, "it names no item")
			w.Advance(2 * time.Hour)
			w.Done(2)
		})
	})
	// Output:
	// TestShop passes: true
}

// run is what `go test` does.
func run(name string, test func(t *testing.T)) {
	_ = flag.Set("test.v", "false")
	all := func(string, string) (bool, error) { return true, nil }
	passes := testing.RunTests(all, []testing.InternalTest{{Name: name, F: test}})
	fmt.Println(name, "passes:", passes)
}
