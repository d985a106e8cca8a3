package doctor_test

import (
	"context"
	"fmt"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/doctor"
)

// The doctor says what is wrong, and which command or change mends it.
func ExampleCheck() {
	cfg := pump.Config{Workload: "Orders", Accounts: []pump.Account{
		{ConnectionString: "UseDevelopmentStorage=true"},
	}}
	report := doctor.Check(context.Background(), cfg, doctor.Options{})
	for _, f := range report.Findings {
		fmt.Printf("%s, %s: %s\n%s\n", f.Severity, f.Check, f.Problem, f.Fix)
	}
	fmt.Println("failed:", report.Failed())
	// Output:
	// error, configuration: workload: "Orders" is not a workload name
	// edit pump.yaml: use 3 to 40 of a-z, 0-9 and single dashes, beginning with a letter
	// failed: true
}
