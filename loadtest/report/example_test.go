package report_test

import (
	"bytes"
	"fmt"
	"log"

	"github.com/queuepump/queuepump/loadtest/report"
)

// A result that `loadtest run` saved is read, for a check of your own.
func ExampleRead() {
	var file bytes.Buffer
	result := report.Result{Format: report.Format, Scenario: "soak", Against: report.Simulated}
	result.Tasks = report.Tasks{Sent: 100, Handled: 99, Lost: 1}
	if err := result.Write(&file); err != nil {
		log.Fatal(err)
	}
	read, err := report.Read(&file)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(read.Scenario, "handled", read.Tasks.Handled, "of", read.Tasks.Sent, "tasks")
	// Output:
	// soak handled 99 of 100 tasks
}
