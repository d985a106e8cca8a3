package processor

import (
	"context"

	"github.com/queuepump/queuepump/pump/reduce"
)

// pinReducer makes sure that all processors of the workload reduce by the same reducer, or by none.
func (r *processing) pinReducer(ctx context.Context) error {
	name := ""
	if reducer, is := r.handler.(reduce.Reducing); is {
		name = reducer.Reducer()
	}
	w, err := r.workload.PinReducer(ctx, name)
	if err != nil {
		return err
	}
	r.workload = w
	return nil
}
