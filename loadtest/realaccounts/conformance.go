package realaccounts

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/pump/storage/storagetest"
)

// casesAtOnce is how many cases run side by side: most wait for one answer after the other.
const casesAtOnce = 8

// conformance runs the suite against the first account. A case that the account fails is run on the
// simulator as well, which shows on whose side the difference is.
func (r *runner) conformance(ctx context.Context) error {
	t := r.targets[0]
	began := time.Now()
	trial := storagetest.Trial{
		Open: func(via func(storagetest.Doer) storagetest.Doer) (storage.Account, error) {
			return r.open(t, partConformance, func(next storagetest.Doer) storagetest.Doer {
				return via(patient{next})
			})
		},
		Prefix: r.prefix + "c", Only: r.o.Cases, AtOnce: casesAtOnce,
	}
	outcomes := trial.Run(ctx)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	c := &Conformance{
		Cases: len(outcomes), Seconds: time.Since(began).Seconds(), Different: []CaseResult{},
	}
	var failed []string
	for _, o := range outcomes {
		if o.Failure != "" {
			failed = append(failed, o.Case)
			c.Different = append(c.Different, CaseResult{Case: o.Case, Account: o.Failure})
		}
	}
	c.Same = c.Cases - len(failed)
	for _, o := range onSimulator(ctx, failed) {
		for i := range c.Different {
			if d := &c.Different[i]; d.Case == o.Case {
				d.Simulator = o.Failure
				if o.Failure == "" {
					d.Simulator = "as the case says"
				}
			}
		}
	}
	r.report.Conformance = c
	return nil
}

// patient sends a request again that was refused because of a limit: cases put as much load on as
// this machine and the way to the account allow, and a limit is no difference.
type patient struct{ next storagetest.Doer }

// patience is how often that is.
const patience = 6

// Do sends a request; see [patient].
func (p patient) Do(req *http.Request) (*http.Response, error) {
	var body []byte
	if req.Body != nil {
		var err error
		if body, err = io.ReadAll(req.Body); err != nil {
			return nil, err
		}
	}
	for try := 0; ; try++ {
		once := req.Clone(req.Context())
		if req.Body != nil {
			once.Body = io.NopCloser(bytes.NewReader(body))
		}
		resp, err := p.next.Do(once)
		if err != nil || resp.StatusCode != http.StatusServiceUnavailable || try == patience {
			return resp, err
		}
		_ = resp.Body.Close()
		if err := wait(req.Context(), 100*time.Millisecond<<try); err != nil {
			return nil, err
		}
	}
}

// onSimulator runs some of the cases on a simulator in this process.
func onSimulator(ctx context.Context, cases []string) []storagetest.Outcome {
	if len(cases) == 0 {
		return nil
	}
	return storagetest.Trial{
		Open: func(via func(storagetest.Doer) storagetest.Doer) (storage.Account, error) {
			sim := azsim.New(azsim.Config{
				Accounts: []azsim.Account{{Name: simulatedName}}, Limits: azsim.NoLimits(),
			})
			return Account{Connection: sim.ConnectionString(simulatedName)}.open(via(sim.Transport()))
		},
		Prefix: mark + "sim", AtOnce: casesAtOnce,
		Only: func(name string) bool { return slices.Contains(cases, name) },
	}.Run(ctx)
}
