package pump

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// A task's context cannot be told from one that package context makes: whatever is
// looked at, in whatever order, before and after either end.
func TestTaskContextIsLikeAnyOther(t *testing.T) {
	type keyType struct{}
	own, parents := errors.New("own end"), errors.New("the delivery's end")
	rapid.Check(t, func(t *rapid.T) {
		newParent := func() (context.Context, context.CancelCauseFunc) {
			return context.WithCancelCause(context.WithValue(context.Background(), keyType{}, "value"))
		}
		parent1, endParent1 := newParent()
		parent2, endParent2 := newParent()
		want, endWant := context.WithCancelCause(parent1)
		got := &taskContext{Context: parent2}
		defer func() { endWant(nil); got.end(nil); endParent1(nil); endParent2(nil) }()
		ended := func(ctx context.Context) bool {
			select {
			case <-ctx.Done():
				return true
			default:
				return false
			}
		}
		for range rapid.IntRange(1, 8).Draw(t, "steps") {
			switch rapid.SampledFrom([]string{"own end", "end without cause", "parent's end", "done", "err", "cause", "value", "derived", "deadline"}).Draw(t, "step") {
			case "own end":
				endWant(own)
				got.end(own)
			case "end without cause":
				endWant(nil)
				got.end(nil)
			case "parent's end":
				endParent1(parents)
				endParent2(parents)
			case "done":
				if a, b := ended(want), ended(got); a != b {
					t.Fatalf("done: %v, want %v", b, a)
				}
			case "err":
				if a, b := want.Err(), got.Err(); a != b {
					t.Fatalf("err: %v, want %v", b, a)
				}
			case "cause":
				if a, b := context.Cause(want), context.Cause(got); a != b {
					t.Fatalf("cause: %v, want %v", b, a)
				}
			case "value":
				if v := got.Value(keyType{}); v != "value" {
					t.Fatalf("value: %v", v)
				}
			case "derived":
				a, endA := context.WithTimeout(want, time.Hour)
				b, endB := context.WithTimeout(got, time.Hour)
				if a.Err() != b.Err() || context.Cause(a) != context.Cause(b) {
					t.Fatalf("derived: %v of %v, want %v of %v", b.Err(), context.Cause(b), a.Err(), context.Cause(a))
				}
				endA()
				endB()
			case "deadline":
				if _, ok := got.Deadline(); ok {
					t.Fatal("a deadline from nowhere")
				}
			}
		}
	})
}

// What waits for the end of a task's context, or was derived from it, learns of it.
func TestEndOfATaskContextReachesWhoWaits(t *testing.T) {
	cause := errors.New("cause")
	for name, end := range map[string]func(c *taskContext, parent context.CancelCauseFunc){
		"its own":        func(c *taskContext, _ context.CancelCauseFunc) { c.end(cause) },
		"the delivery's": func(_ *taskContext, parent context.CancelCauseFunc) { parent(cause) },
	} {
		synctest.Test(t, func(t *testing.T) {
			parent, endParent := context.WithCancelCause(t.Context())
			c := &taskContext{Context: parent}
			derived, endDerived := context.WithTimeout(c, time.Hour)
			defer endDerived()
			called := make(chan struct{})
			context.AfterFunc(c, func() { close(called) })
			var wg sync.WaitGroup
			for _, ctx := range []context.Context{c, derived} {
				wg.Go(func() { <-ctx.Done() })
			}
			end(c, endParent)
			wg.Wait()
			<-called
			if context.Cause(derived) != cause || context.Cause(c) != cause {
				t.Errorf("%s end: %v, %v", name, context.Cause(derived), context.Cause(c))
			}
			endParent(nil)
		})
	}
}
