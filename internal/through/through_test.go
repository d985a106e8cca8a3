package through_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"testing"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/internal/through"
	"github.com/queuepump/queuepump/pump/storage"
)

var errRefused = errors.New("refused")

// listed has blobs, and refuses after the first so many of its first list.
type listed struct {
	storage.Container
	refuses, lists int
}

func (c *listed) List(context.Context, string, string) iter.Seq2[storage.Blob, error] {
	c.lists++
	return func(yield func(storage.Blob, error) bool) {
		for n := range 3 {
			if n == c.refuses && c.lists == 1 {
				yield(storage.Blob{}, errRefused)
				return
			}
			if !yield(storage.Blob{Name: fmt.Sprint(n)}, nil) {
				return
			}
		}
	}
}

func TestAListIsMadeAgainOnlyBeforeItGaveSomething(t *testing.T) {
	again := func(c *listed) through.Way[storage.Container] {
		return func(_ string, request func(storage.Container) error) error {
			if request(c) == nil {
				return nil
			}
			return request(c)
		}
	}
	for refuses, want := range []string{"012", "0refused", "01refused", "012"} {
		got := ""
		c := &listed{refuses: refuses}
		for b, err := range (through.Container{Way: again(c)}).List(t.Context(), "", "") {
			if got += b.Name; err != nil {
				got += err.Error()
			}
		}
		proof.Same(t, got, want, "refused after", refuses)
	}
	for b := range (through.Container{Way: again(&listed{refuses: 3})}).List(t.Context(), "", "") {
		if b.Name == "1" {
			break // a second yield after it would panic
		}
	}
}
