package pack

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/queuepump/queuepump/pump/source"
)

// Receipt is for a caller that waits until some tasks are acknowledged. Acknowledgements come
// envelope by envelope, in any order, from any goroutine; so one slow queue delays only the callers
// with tasks in it.
type Receipt struct {
	open atomic.Int64  // tasks neither acknowledged nor refused
	Done chan struct{} // closed when all tasks are acknowledged

	mu   sync.Mutex // guards what follows
	errs []error    // of refused tasks
}

// receiptPart is how many of its tasks are in one envelope.
type receiptPart struct {
	source.Receipt
	Tasks int64
}

// NewReceipt makes the receipt of so many tasks.
func NewReceipt(tasks int) *Receipt {
	r := &Receipt{Done: make(chan struct{})}
	r.open.Store(int64(tasks))
	return r
}

// addReceipt notes that another task of a receipt is in an envelope.
func addReceipt(parts []receiptPart, r source.Receipt) []receiptPart {
	if r == nil {
		return parts
	}
	if last := len(parts) - 1; last >= 0 && parts[last].Receipt == r {
		parts[last].Tasks++
		return parts
	}
	return append(parts, receiptPart{r, 1})
}

// Acknowledge notes that so many tasks lie in a queue.
func (r *Receipt) Acknowledge(tasks int64) {
	if r.open.Add(-tasks) == 0 {
		close(r.Done)
	}
}

// Refuse says that a task cannot be sent.
func (r *Receipt) Refuse(err error) {
	r.mu.Lock()
	r.errs = append(r.errs, err)
	r.mu.Unlock()
	r.Acknowledge(1)
}

// Err is why tasks were refused, when all is done.
func (r *Receipt) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return errors.Join(r.errs...)
}
