// This file lets the credentials of storage accounts change while a process uses them: keys and
// shared access signatures in files are rotated there.

package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/queuepump/queuepump/internal/logs"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/pump/storage/azure"
)

// The time from a look at the configuration until a refused request, of the same account or of
// another one, brings the next look: if a credential is wrong, all requests are refused, many times
// a second.
const (
	againAfter = 2 * time.Second
	otherAfter = 200 * time.Millisecond
	// sayEvery is how often it is said that the configuration cannot be read.
	sayEvery = 15 * time.Second
)

// Keys are the credentials of a process's accounts. Many goroutines may use them at once.
type Keys struct {
	log  *slog.Logger
	load func() ([]pump.Account, error)
	open func(pump.Account) (storage.Account, error)

	looks   sync.Mutex // guards the accounts' looked, and looking
	looked  time.Time
	looking chan struct{} // closed when the configuration has been read; nil: it is not being read
	failed  logs.Limited  // it cannot be read

	mu       sync.Mutex // guards what follows
	accounts map[string]*account
	told     logs.Kinds // by account: the warning that its signature ends
}

// NewKeys makes keys that load reads again from where they stand.
func NewKeys(log *slog.Logger, load func() ([]pump.Account, error)) *Keys {
	return &Keys{
		log: log, load: load, open: open, accounts: map[string]*account{},
		failed: logs.Limited{Every: sayEvery}, told: logs.Kinds{Every: warnEvery},
	}
}

func open(a pump.Account) (storage.Account, error) { return azure.Open(options(a)) }

func options(a pump.Account) azure.Options {
	return azure.Options{
		Name: a.Name, ConnectionString: a.ConnectionString, Endpoint: a.Endpoint,
		TableEndpoint: a.TableEndpoint, BlobEndpoint: a.BlobEndpoint, Credential: a.Credential,
		AllowHTTP: a.AllowHTTP, ServiceVersion: a.ServiceVersion,
	}
}

// Adopt lets the credentials of a configuration's accounts change: it sets their Storage. Calling
// take also gives accounts that were adopted before the credentials of this configuration. Until
// then, and after an error (a [*pump.ConfigError]), nothing changes for those.
func (k *Keys) Adopt(accounts []pump.Account) (take func(), err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	handles := make([]*account, len(accounts))
	changed := map[*account]*opened{}
	for i, by := range accounts {
		o, place, err := k.opened(by)
		if err != nil {
			e := &pump.ConfigError{Field: fmt.Sprintf("accounts[%d]", i), Problem: err.Error(), Err: err}
			if w, ok := errors.AsType[*azure.OptionError](err); ok {
				e.Field, e.Problem, e.Fix = e.Field+"."+w.Field, w.Problem, w.Fix
			}
			return nil, e
		}
		a := k.accounts[o.Name()]
		switch {
		case a == nil:
			a = &account{name: o.Name(), place: place, keys: k}
			a.now.Store(o)
		case a.place != place:
			return nil, pump.Invalid(fmt.Sprintf("accounts[%d]", i),
				fmt.Sprintf("is another storage account than %q in the process that runs", o.Name()),
				"give it another name, or start the process again")
		case differ(a.now.Load().by, by):
			changed[a] = o
		}
		handles[i] = a
	}
	for i, a := range handles {
		accounts[i].Storage = a
	}
	return func() {
		k.mu.Lock()
		for _, a := range handles {
			k.accounts[a.name] = a
		}
		k.mu.Unlock()
		k.take(changed)
	}, nil
}

func (k *Keys) opened(by pump.Account) (o *opened, place string, err error) {
	st, err := k.open(by)
	if err != nil {
		return nil, "", err
	}
	if at, ok := st.(interface{ Place() string }); ok {
		place = at.Place()
	}
	return &opened{st, by}, place, nil
}

// differ reports whether accounts are opened in different ways.
func differ(x, y pump.Account) bool {
	return x.ConnectionString != y.ConnectionString || x.Endpoint != y.Endpoint ||
		x.TableEndpoint != y.TableEndpoint || x.BlobEndpoint != y.BlobEndpoint ||
		x.Credential != y.Credential
}

func (k *Keys) take(changed map[*account]*opened) {
	for a, o := range changed {
		a.now.Store(o)
		k.log.Info("the credential of an account is another", "account", a.name)
	}
}

// refused has the credentials read again because an account refused its own, unless they were read
// just before. It waits for the reading, but not for long: a file may hang.
func (k *Keys) refused(a *account, of *opened) {
	k.looks.Lock()
	now := time.Now()
	if k.looking == nil && a.now.Load() == of && now.Sub(a.looked) >= againAfter &&
		now.Sub(k.looked) >= otherAfter {
		a.looked, k.looked = now, now
		over := make(chan struct{})
		k.looking = over
		go func() {
			k.again()
			k.looks.Lock()
			k.looking = nil
			k.looks.Unlock()
			close(over)
		}()
	}
	looking := k.looking
	k.looks.Unlock()
	if looking == nil {
		return
	}
	most := time.NewTimer(againAfter)
	defer most.Stop()
	select {
	case <-looking:
	case <-most.C:
	}
}

// again takes only the present credentials of accounts in use from the configuration. A
// configuration that is wrong for the moment, for example while it is being written, changes
// nothing.
func (k *Keys) again() {
	accounts, err := k.load()
	if err != nil {
		k.failed.Say(k.log.Warn, "a credential is refused, and the configuration cannot be read again",
			"error", err)
		return
	}
	k.mu.Lock()
	changed := map[*account]*opened{}
	for _, by := range accounts {
		if a := k.accounts[by.Name]; a != nil && !differ(a.now.Load().by, by) {
			continue // opening a client costs more
		}
		o, place, err := k.opened(by)
		if err != nil {
			continue
		}
		a := k.accounts[o.Name()]
		if a != nil && a.place == place && differ(a.now.Load().by, by) {
			changed[a] = o
		}
	}
	k.mu.Unlock()
	k.take(changed)
}

// Run warns of signatures that end soon until ctx ends.
func (k *Keys) Run(ctx context.Context) {
	tick := time.NewTicker(renewLookEvery)
	defer tick.Stop()
	for {
		k.warn(time.Now())
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
