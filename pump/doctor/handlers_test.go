package doctor_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/queuepump/queuepump/pump"
)

// handlerFaults are faults of handlers.
var handlerFaults = []fault{
	{
		name: "handlers that fail",
		plant: func(_ *testing.T, c *clinic) {
			c.work = func(context.Context, *pump.Task) error { return errors.New("tax service: 503") }
			c.Put("accounta", "work-00", 1, 100)
			time.Sleep(time.Minute)
		},
		want: []string{"error handlers-fail p01"}, says: ": tax service: 503", mends: "processor check",
	},
	{
		name: "handlers that hang",
		plant: func(_ *testing.T, c *clinic) {
			c.work = func(ctx context.Context, _ *pump.Task) error { <-ctx.Done(); return ctx.Err() }
			c.Put("accounta", "work-00", 1, 100)
			time.Sleep(2 * time.Minute)
		},
		want: []string{"error handlers-stuck p01"}, says: "that have not returned for long: 50, which are all", mends: "--task-timeout",
	},
	{
		name: "a handler that hangs",
		plant: func(_ *testing.T, c *clinic) {
			c.work = func(ctx context.Context, _ *pump.Task) error { <-ctx.Done(); return ctx.Err() }
			c.Put("accounta", "work-00", 1, 1)
			time.Sleep(2 * time.Minute)
		},
		want: []string{"warning handlers-stuck p01"}, says: "that have not returned for long: 1;", mends: "--task-timeout",
	},
	{
		name: "an endpoint that says not now",
		plant: func(_ *testing.T, c *clinic) {
			c.work = func(context.Context, *pump.Task) error { return pump.Busy(time.Second, errors.New("HTTP 429")) }
			c.Put("accounta", "work-00", 1, 100)
			time.Sleep(time.Minute)
		},
		want: []string{"warning not-now p01"}, says: "HTTP 429", mends: "--max-rate",
	},
}
