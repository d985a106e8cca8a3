package row

import (
	"context"
	"testing"
	"testing/synctest"
)

func TestWhoWaitsForARequestThatPanicsGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f Flight
		begun, fail := make(chan struct{}), make(chan struct{})
		go func() {
			defer func() { _ = recover() }()
			_ = f.Do(t.Context(), func(context.Context) error { close(begun); <-fail; panic("a driver's mistake") })
		}()
		<-begun
		waited := make(chan error, 1)
		go func() { waited <- f.Do(t.Context(), func(context.Context) error { return nil }) }()
		synctest.Wait()
		close(fail)
		must(t, <-waited)
		acted := false
		if err := f.Do(t.Context(), func(context.Context) error { acted = true; return nil }); err != nil || !acted {
			t.Errorf("%v, acted %v", err, acted)
		}
	})
}
