package processor

import (
	"testing"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/internal/testworld"
)

// must ends a test with an error.
var must = proof.Must

// ready does what Run does before it polls.
func ready(t *testing.T, r *run) {
	t.Helper()
	must(t, r.connect(t.Context()))
	must(t, r.join(t.Context()))
	r.launch()
	r.Member.Load().Admit()
}

// started is a processor at work.
type started = testworld.Started[*Processor, Summary]
