package pump

import (
	"errors"
	"fmt"
)

// The errors of a workload and of its runs that callers tell apart.
var (
	// ErrNoWorkload says that no distributor has made a workload of that name.
	ErrNoWorkload = errors.New("the workload does not exist")
	// ErrNoRun says that a run never was, or that its row went with its retention.
	ErrNoRun = errors.New("there is no such run")
	// ErrRunState says that a run's state, or what it was sealed with, does not allow what was asked.
	ErrRunState = errors.New("the run does not allow this")
)

// ConfigError is a configuration that cannot be used.
type ConfigError struct {
	Field   string // as it stands in the configuration file, for example "accounts[1].queues"
	Problem string
	Fix     string
	Err     error // the cause, if another package found it
}

func (e *ConfigError) Error() string { return fmt.Sprintf("%s: %s; %s", e.Field, e.Problem, e.Fix) }

func (e *ConfigError) Unwrap() error { return e.Err }

// MismatchError says where a configuration disagrees with the row of a workload that exists.
type MismatchError struct {
	Workload string
	Field    string // as in the configuration: "segments", "delivery", "accounts"
	Problem  string
	Fix      string
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("workload %q: %s: %s; %s", e.Workload, e.Field, e.Problem, e.Fix)
}

// Invalid is the error of a field, as it stands in the configuration file: what is wrong with it,
// and what to write instead.
func Invalid(field, problem, fix string) *ConfigError {
	return &ConfigError{Field: field, Problem: problem, Fix: fix}
}
