package scenario_test

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/queuepump/queuepump/loadtest/scenario"
)

// The load tests that there are, and what one says of an option that cannot be.
func ExampleRun() {
	fmt.Println("soak:", slices.Contains(scenario.Names(), "soak"))
	options := scenario.Options{Scenario: "soak", TaskBytes: 1}
	_, err := scenario.Run(context.Background(), scenario.World{}, options)
	var wrong *scenario.OptionError
	fmt.Println(errors.As(err, &wrong), err)
	// Output:
	// soak: true
	// true task-bytes: 1 is out of range; use 128 to 32768
}
