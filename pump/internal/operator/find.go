package operator

import (
	"context"
	"fmt"
	"strings"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/workload"
)

// RunsNamed is how many runs an error names at most.
const RunsNamed = 8

// runDigits is how many digits of a run's id a user writes at least: the first 4 of two among
// a hundred runs are the same once in 13 times, but who reads 4 off a screen is told so.
const runDigits = 4

// RunDigits reads what a user wrote for a run: a whole id, or its first digits.
func RunDigits(text string) (digits string, whole pump.RunID, err error) {
	digits = strings.ToLower(strings.TrimSpace(text))
	bad := func(problem string) (string, pump.RunID, error) {
		return "", pump.RunID{}, pump.Invalid("run", problem, "see: distributor runs list")
	}
	switch {
	case len(digits) > 2*len(whole) || strings.Trim(digits, "0123456789abcdef") != "":
		return bad(fmt.Sprintf("%q is not the id of a run, which is 32 of 0-9 and "+
			"a-f, nor the beginning of one", text))
	case len(digits) < runDigits:
		return bad(fmt.Sprintf("%q is too short for the beginning of a run's id; write %d digits or more",
			text, runDigits))
	case len(digits) < 2*len(whole):
		return digits, whole, nil
	}
	if whole, err = codec.ParseRunID(digits); err != nil || whole.IsZero() {
		return bad(fmt.Sprintf("%q is not the id of a run", text))
	}
	return digits, whole, nil
}

// FindRun gives the one run whose id is, or begins with, what a user wrote.
func (o *Session) FindRun(ctx context.Context, id string) (pump.RunID, error) {
	digits, whole, err := RunDigits(id)
	if err != nil || !whole.IsZero() {
		return whole, err
	}
	found, err := o.Runs().Find(ctx, digits, RunsNamed+1)
	switch {
	case err != nil:
		return pump.RunID{}, err
	case len(found) == 0:
		return pump.RunID{}, fmt.Errorf("run %s: %w; see: distributor runs list "+
			"(of a run whose row is gone only the whole id is known)", digits, workload.ErrNoRun)
	case len(found) == 1:
		return found[0], nil
	}
	var names []string
	for _, f := range found[:min(len(found), RunsNamed)] {
		names = append(names, f.String())
	}
	if len(found) > RunsNamed {
		names = append(names, "and others")
	}
	return pump.RunID{}, pump.Invalid("run", fmt.Sprintf("the ids of several runs begin with %s: %s",
		digits, strings.Join(names, ", ")), "write more digits")
}
