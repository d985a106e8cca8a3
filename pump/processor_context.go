package pump

import (
	"context"
	"sync"
)

// taskContext is the context of the tasks that one slot takes of one delivery. Each
// slot needs its own, because the time for one task may be over while others have
// theirs. But there are as many for a message as there are slots, and few handlers wait
// for the end: it becomes one of package context's, registered with the delivery's,
// when somebody asks for that.
type taskContext struct {
	context.Context // the delivery's

	mu    sync.Mutex // guards what follows
	real  context.Context
	stop  context.CancelCauseFunc
	ended bool // before real was made
	cause error
}

// end ends the context; a second end does nothing.
func (c *taskContext) end(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.real != nil:
		c.stop(cause)
	case !c.ended && c.Context.Err() == nil: // else the delivery's end was first
		c.ended, c.cause = true, cause
	}
}

// made is the real context. It is called with mu held.
func (c *taskContext) made() context.Context {
	switch {
	case c.real != nil:
	case c.ended: // whatever has become of the delivery since
		c.real, c.stop = context.WithCancelCause(context.WithoutCancel(c.Context))
		c.stop(c.cause)
	default:
		c.real, c.stop = context.WithCancelCause(c.Context)
	}
	return c.real
}

func (c *taskContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.made().Done()
}

func (c *taskContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.real == nil && !c.ended {
		return c.Context.Err()
	}
	return c.made().Err()
}

// Value also answers package context itself, when it looks for the cause of the end
// or for what a derived context can be registered with.
func (c *taskContext) Value(key any) any {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.real == nil && !c.ended {
		return c.Context.Value(key)
	}
	return c.made().Value(key)
}
