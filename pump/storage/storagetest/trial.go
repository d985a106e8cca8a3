package storagetest

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/queuepump/queuepump/pump/storage"
)

// Trial is a run of the cases without a test: by a program, against an account that outlives it.
type Trial struct {
	// Open opens the account; every request must go through via. It is called once a case.
	Open func(via func(Doer) Doer) (storage.Account, error)
	// Prefix begins the names of queues and tables: a lower-case letter, then those and digits.
	Prefix string
	// Only are the cases that are run; nil: all.
	Only func(name string) bool
	// AtOnce is how many run side by side; below 1 is one.
	AtOnce int
}

// Outcome is how a case of a [Trial] ended.
type Outcome struct {
	Case    string
	Failure string // empty: the account does as the case says
	Took    time.Duration
}

// Run runs the cases that do not need virtual time, and drops what each has made. Outcomes come in
// the order of the cases. It begins no case after the end of ctx.
func (t Trial) Run(ctx context.Context) []Outcome {
	var outcomes []*Outcome
	slots := make(chan struct{}, max(t.AtOnce, 1))
	var all sync.WaitGroup
	for i, tc := range allCases() {
		if tc.virtual || t.Only != nil && !t.Only(tc.name) {
			continue
		}
		slots <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		o := &Outcome{Case: tc.name}
		outcomes = append(outcomes, o)
		all.Go(func() {
			defer func() { <-slots }()
			began := time.Now()
			o.Failure = t.judge(ctx, i, tc)
			o.Took = time.Since(began)
		})
	}
	all.Wait()
	ended := make([]Outcome, len(outcomes))
	for i, o := range outcomes {
		ended[i] = *o
	}
	return ended
}

// judge runs one case, and gives what was wrong.
func (t Trial) judge(ctx context.Context, i int, tc testCase) string {
	ctx, cancel := context.WithTimeout(ctx, caseTimeout)
	defer cancel()
	c := caseOf(ctx, t.Prefix, i)
	c.doing = true
	var err error
	if c.Account, err = t.Open(c.Wire.Through); err != nil {
		return err.Error()
	}
	c.do(tc.run)
	return strings.Join(c.failed, "\n")
}
