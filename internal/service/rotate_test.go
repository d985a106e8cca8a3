package service

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/source"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/pump/storage/azure"
)

// fleet are accounts whose keys stand in one file, and processes that read it.
type fleet struct {
	sim *azsim.Sim
	log proof.Buffer

	mu   sync.Mutex // guards what follows
	file map[string]string
}

func newFleet(accounts int) *fleet {
	f := &fleet{file: map[string]string{}}
	var all []azsim.Account
	for i := range accounts {
		all = append(all, azsim.Account{Name: fmt.Sprintf("account%03d", i)})
	}
	f.sim = azsim.New(azsim.Config{Accounts: all, Seed: 5, Latency: 10 * time.Millisecond})
	for _, name := range f.sim.Accounts() {
		f.file[name] = f.sim.ConnectionString(name)
	}
	return f
}

// accounts is the configuration as the file stands.
func (f *fleet) accounts() (all []pump.Account, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range f.sim.Accounts() {
		all = append(all, pump.Account{Name: name, ConnectionString: f.file[name], Queues: 1})
	}
	return all, nil
}

// process gives the configuration of a process, and its keys.
func (f *fleet) process(t *testing.T, name string) (pump.Config, *Keys) {
	t.Helper()
	k := NewKeys(slog.New(slog.NewTextHandler(&f.log, nil)), f.accounts)
	k.open = func(a pump.Account) (storage.Account, error) {
		return azure.Open(azure.Options{ConnectionString: a.ConnectionString, Transport: f.sim.Transport().As(name)})
	}
	accounts, _ := f.accounts()
	take, err := k.Adopt(accounts)
	must(t, err)
	take()
	log := slog.New(slog.NewTextHandler(&f.log, nil))
	return pump.Config{Workload: "work", Instance: name, Accounts: accounts, Delivery: pump.Once, Log: log}, k
}

// handled notes how old tasks are when they are handled.
type handled struct {
	mu     sync.Mutex
	times  map[string]int
	oldest time.Duration
}

func (h *handled) Handle(_ context.Context, t *pump.Task) error {
	at, err := strconv.ParseInt(strings.Fields(string(t.Body))[1], 10, 64)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.times[string(t.Body)]++
	h.oldest = max(h.oldest, time.Since(time.Unix(0, at)))
	return err
}

// runs has a processor work until stop is called.
func runs(t *testing.T, cfg pump.Config, h *handled) (stop func()) {
	t.Helper()
	p, err := processor.New(cfg, h, processor.Options{Concurrency: 64})
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := p.Run(ctx)
		done <- err
	}()
	return func() {
		cancel()
		proof.Is(t, <-done, nil)
	}
}

// check demands that each task was handled once, and none late.
func (h *handled) check(t *testing.T, sent int, most time.Duration) {
	t.Helper()
	proof.Same(t, len(h.times), sent, "tasks are handled")
	for body, n := range h.times {
		proof.Same(t, n, 1, body, "handled … times")
	}
	if h.oldest > most {
		t.Errorf("a task was %v old when it was handled", h.oldest)
	}
}

// The keys of all accounts are rotated one after the other under load, and each old key dies at
// once: the file has the new one a moment later. Every second account is also told of by SIGHUP.
// Nothing is lost, and no account pauses for more than ten seconds.
func TestKeysAreRotatedUnderLoad(t *testing.T) {
	accounts := 10
	if !proof.Less(t) {
		accounts = 250
	}
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(accounts)
		h := &handled{times: map[string]int{}}
		var stops []func()
		var all []*Keys
		for _, name := range []string{"p", "q"} {
			cfg, keys := f.process(t, name)
			stops = append(stops, runs(t, cfg, h))
			all = append(all, keys)
		}
		cfg, keys := f.process(t, "s")
		all = append(all, keys)
		s, err := distributor.NewSender(cfg, distributor.SenderOptions{})
		must(t, err)
		// As many tasks are sent at once as wait for their acknowledgements.
		sent := 0
		var sending sync.WaitGroup
		send := func(d time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
				body := fmt.Sprintf("%d %d", sent, time.Now().UnixNano())
				sending.Go(func() {
					proof.Is(t, s.Send(t.Context(), source.Record{Key: []byte(body), Body: []byte(body)}), nil)
				})
				sent++
			}
		}
		send(time.Minute) // all have begun
		h.mu.Lock()
		h.oldest = 0
		h.mu.Unlock()
		for i, name := range f.sim.Accounts() {
			f.sim.RollKey(name)
			send(300 * time.Millisecond)
			f.mu.Lock()
			f.file[name] = f.sim.ConnectionString(name)
			f.mu.Unlock()
			for _, k := range all {
				if i%2 == 0 {
					continue
				}
				now, _ := f.accounts()
				take, err := k.Adopt(now)
				must(t, err)
				take()
			}
			send(700 * time.Millisecond)
		}
		sending.Wait()
		must(t, proof.ErrOf(s.Close(t.Context())))
		time.Sleep(time.Minute)
		for _, stop := range stops {
			stop()
		}
		h.check(t, sent, 10*time.Second)
		t.Logf("the oldest of %d tasks was %v old", sent, h.oldest)
		if t.Failed() {
			t.Log(f.log.String())
		}
	})
}
