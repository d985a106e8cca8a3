package row

import (
	"context"
	"sync"
)

// Flight lets one of many goroutines make the request that all of them need.
// Its zero value is ready.
//
// A singleflight.Group would be less code, but gives up what the callers rely on. Its Do does
// not let one who waits go when its own context ends. Its DoChan makes the call in another
// goroutine: the call may outlive the caller whose context it runs under, and a panic of it
// ends the process, where here it stays with its caller, whose handler's panic is recovered.
// Neither tells a failure of the request, which is every caller's, from the end of the context
// that it was made under, which is one caller's.
type Flight struct {
	mu    sync.Mutex
	under *attempt // nil: none is under way
}

type attempt struct {
	done chan struct{} // closed when what follows is set
	err  error
	own  bool // there is no outcome but the caller's own end, which says nothing to others
}

// Do calls act, or waits for the call that is under way and gives its outcome.
// The call runs under the context of the caller who made it; when that one ends first,
// do returns nil, as after a success, and the caller looks and comes again.
func (f *Flight) Do(ctx context.Context, act func(context.Context) error) error {
	f.mu.Lock()
	if a := f.under; a != nil {
		f.mu.Unlock()
		select {
		case <-a.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if a.own {
			return nil
		}
		return a.err
	}
	a := &attempt{done: make(chan struct{}), own: true} // that stays so if act panics
	f.under = a
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.under = nil
		f.mu.Unlock()
		close(a.done)
	}()
	err := act(ctx)
	a.err, a.own = err, err != nil && ctx.Err() != nil
	return err
}
