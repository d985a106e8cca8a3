package service

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/queuepump/queuepump/internal/through"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/storage"
)

// account is a storage account whose credential may change while it is in use. Requests that were
// begun go on with the old one.
type account struct {
	name  string
	place string
	now   atomic.Pointer[opened]
	keys  *Keys
	// looked is when a refusal last had the credentials read again; Keys.looks guards it.
	looked time.Time
}

// opened is an account with one credential.
type opened struct {
	storage.Account
	by pump.Account // how it was opened
}

func (a *account) Name() string { return a.name }

// Place tells whether two handles are of one account; see package azure.
func (a *account) Place() string { return a.place }

func (a *account) Queue(name string) storage.Queue {
	open := func(o *opened) storage.Queue { return o.Queue(name) }
	return through.Queue{Called: name, Way: (&handles[storage.Queue]{of: a, open: open}).do}
}

func (a *account) Table(name string) storage.Table {
	open := func(o *opened) storage.Table { return o.Table(name) }
	return through.Table{Called: name, Way: (&handles[storage.Table]{of: a, open: open}).do}
}

func (a *account) Container(name string) storage.Container {
	open := func(o *opened) storage.Container { return o.Container(name) }
	return through.Container{Called: name, Way: (&handles[storage.Container]{of: a, open: open}).do}
}

func (a *account) Queues(ctx context.Context, prefix string) (names []string, err error) {
	of := a.now.Load()
	if names, err = of.Queues(ctx, prefix); a.another(of, err) {
		names, err = a.now.Load().Queues(ctx, prefix)
	}
	return names, err
}

// another reports whether the credential of a refused request has changed by now. Then the request
// should be made once more, which no budget counts, so that a rotated key does not make requests
// wait. A service that refuses has not acted.
func (a *account) another(of *opened, err error) bool {
	if err == nil || !storage.Is(err, storage.Auth) {
		return false
	}
	if a.now.Load() == of {
		a.keys.refused(a, of)
	}
	return a.now.Load() != of
}

// handles gives a queue, table or container of an account by the present credential.
type handles[T any] struct {
	of   *account
	open func(*opened) T
	kept atomic.Pointer[handle[T]]
}

// handle is a queue, table or container of an account as it was opened.
type handle[T any] struct {
	of *opened
	it T
}

// current gives the handle by the account's present credential, and keeps it until the credential
// changes.
func (hs *handles[T]) current() *handle[T] {
	now := hs.of.now.Load()
	h := hs.kept.Load()
	if h == nil || h.of != now {
		h = &handle[T]{now, hs.open(now)}
		hs.kept.Store(h)
	}
	return h
}

// do makes a request, and once more if its credential has changed by then.
func (hs *handles[T]) do(_ string, request func(T) error) error {
	h := hs.current()
	err := request(h.it)
	if hs.of.another(h.of, err) {
		err = request(hs.current().it)
	}
	return err
}
