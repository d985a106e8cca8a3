package worlds

import (
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/processor"
)

// must ends a test with an error.
var must = proof.Must

// started is a processor at work.
type started = testworld.Started[*processor.Processor, processor.Summary]

// working is a distributor at work.
type working = testworld.Started[*distributor.Distributor, distributor.Summary]
