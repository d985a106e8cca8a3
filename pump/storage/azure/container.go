package azure

import (
	"context"
	"errors"
	"iter"

	"github.com/queuepump/queuepump/pump/storage"
)

// container is a handle on one container.
type container struct {
	account *account
	name    string
}

var errNoBlobs = errors.New("this driver does not drive blobs yet")

func (a *account) Container(name string) storage.Container { return &container{a, name} }

func (c *container) Name() string { return c.name }

func (c *container) fail(op string) error {
	return c.account.invalid(storage.Invalid, op, c.name, errNoBlobs)
}

func (c *container) Create(context.Context) error { return c.fail("create") }

func (c *container) Put(context.Context, string, []byte, map[string]string) error {
	return c.fail("put")
}

func (c *container) Get(context.Context, string, int64, int64) (storage.Blob, error) {
	return storage.Blob{}, c.fail("get")
}

func (c *container) Delete(context.Context, string) error { return c.fail("delete") }

func (c *container) List(context.Context, string, string) iter.Seq2[storage.Blob, error] {
	return func(yield func(storage.Blob, error) bool) { yield(storage.Blob{}, c.fail("list")) }
}
