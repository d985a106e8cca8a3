package row

import (
	"context"
	"sync"
)

// Flight lets one of many goroutines make the request that all of them need.
// Its zero value is ready.
//
// A singleflight.Group would be less code, but gives up what the callers rely on. Its Do does not
// let a waiting caller go when the caller's context ends. Its DoChan makes the call in another
// goroutine: the call may outlive the caller whose context it runs under, and a panic of the call
// ends the process. Here a panic stays with the caller, and a handler's panic is recovered. Neither
// Do nor DoChan tells a failure of the request, which is every caller's, from the end of its
// context, which is one caller's.
type Flight struct {
	mu    sync.Mutex
	under *attempt // nil: none is under way
}

type attempt struct {
	done chan struct{} // closed when what follows is set
	err  error
	own  bool // the only outcome is the caller's own end, which does not concern others
}

// Do calls act, or waits for the call that is under way and gives its outcome. The call runs under
// the context of the caller that made it. If that context ends first, Do returns nil to the others,
// as after a success, and they look and come again.
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
