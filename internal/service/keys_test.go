package service

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/pump/storage/azure"
)

// must ends a test with an error.
var must = proof.Must

// world is an account of the simulator, and a configuration with a key for it that changes.
type world struct {
	keys   *Keys
	log    proof.Buffer
	sim    *azsim.Sim
	key    atomic.Pointer[string]
	loaded atomic.Int64
}

const wrongKey = "d3Jvbmc="

func newWorld(t *testing.T) *world {
	w := &world{sim: azsim.New(azsim.Config{Accounts: []azsim.Account{{Name: "alpha"}}})}
	w.keys = NewKeys(slog.New(slog.NewTextHandler(&w.log, nil)), func() ([]pump.Account, error) {
		w.loaded.Add(1)
		return w.accounts()
	})
	w.keys.open = func(a pump.Account) (storage.Account, error) {
		return azure.Open(azure.Options{ConnectionString: a.ConnectionString, Transport: w.sim.Transport()})
	}
	w.set(w.right())
	return w
}

func (w *world) right() string {
	_, key, _ := strings.Cut(w.sim.ConnectionString("alpha"), "AccountKey=")
	key, _, _ = strings.Cut(key, ";")
	return key
}

func (w *world) set(key string) { w.key.Store(&key) }

func (w *world) accounts() ([]pump.Account, error) {
	key := *w.key.Load()
	if key == "" {
		return nil, errors.New("it is being written")
	}
	return []pump.Account{{ConnectionString: strings.Replace(w.sim.ConnectionString("alpha"), w.right(), key, 1)}}, nil
}

// adopt gives the account as a process has it.
func (w *world) adopt(t *testing.T) (storage.Account, func()) {
	t.Helper()
	accounts, err := w.accounts()
	must(t, err)
	take, err := w.keys.Adopt(accounts)
	must(t, err)
	return accounts[0].Storage, take
}

func TestAKeyIsReadAgainWhenItIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		right := w.right()
		w.set(wrongKey)
		a, take := w.adopt(t)
		take()
		q, tb := a.Queue("work"), a.Table("rows")
		ctx := t.Context()
		for range 100 {
			if err := q.Create(ctx); !storage.Is(err, storage.Auth) {
				t.Fatalf("the wrong key gives %v", err)
			}
		}
		synctest.Wait()
		proof.Same(t, w.loaded.Load(), 1, "the configuration was read … times")
		w.set("")
		time.Sleep(againAfter)
		_ = tb.Create(ctx)
		synctest.Wait()
		w.set(right)
		time.Sleep(againAfter)
		_ = tb.Create(ctx)
		synctest.Wait()
		proof.Is(t, errors.Join(q.Create(ctx), tb.Create(ctx)), nil, "the right key")
		must(t, proof.ErrOf(q.Put(ctx, []byte("x"), 0)))
		if ms, err := q.Get(ctx, 1, time.Minute); err != nil || len(ms) != 1 {
			t.Errorf("%d messages, %v", len(ms), err)
		}
		loaded := w.loaded.Load()
		time.Sleep(time.Hour)
		if err := q.Clear(ctx); err != nil || w.loaded.Load() != loaded {
			t.Errorf("%v, read %d times again without need", err, w.loaded.Load()-loaded)
		}
		log := w.log.String()
		if strings.Count(log, "the credential of an account is another") != 1 || !strings.Contains(log, "cannot be read again") || strings.Contains(log, right) {
			t.Errorf("the log says %s", log)
		}
	})
}

// TestAReloadTakesAnotherKey only once everything else of the configuration is good.
func TestAReloadTakesAnotherKey(t *testing.T) {
	w := newWorld(t)
	right := w.right()
	a, take := w.adopt(t)
	take()
	w.set(wrongKey)
	same, take := w.adopt(t)
	proof.Same(t, same, a, "the account is another handle after a reload")
	proof.Is(t, a.Queue("work").Create(t.Context()), nil, "before it is taken")
	take()
	if err := a.Queue("work").Create(t.Context()); !storage.Is(err, storage.Auth) {
		t.Errorf("once it is taken: %v", err)
	}
	w.set(right)
	_, take = w.adopt(t)
	take()
	must(t, a.Queue("work").Create(t.Context()))
	w.set("no base64!")
	accounts, _ := w.accounts()
	var ce *pump.ConfigError
	if _, err := w.keys.Adopt(accounts); !errors.As(err, &ce) || ce.Field != "accounts[0].connectionString" {
		t.Errorf("a key that is none gives %v", err)
	}
}

// A refused configuration adds no account: the mended file may name another one.
func TestAnAccountOfARefusedReloadIsForgotten(t *testing.T) {
	k := NewKeys(slog.New(slog.DiscardHandler), nil)
	at := func(endpoint string) []pump.Account {
		return []pump.Account{{Name: "alpha", Endpoint: endpoint + "?sv=2025-01-05&se=2100-01-01&sig=c2lnbmF0dXJlLW9mLXRoZS1hY2NvdW50"}}
	}
	must(t, proof.ErrOf(k.Adopt(at("https://wrong.queue.core.windows.net"))))
	if ends := k.all(); len(ends) > 0 {
		t.Errorf("the signature of an account that is not used is told of: %v", ends)
	}
	take, err := k.Adopt(at("https://alpha.queue.core.windows.net"))
	must(t, err)
	take()
	if ends := k.all(); len(ends) != 1 {
		t.Errorf("the signature of an account that is used is not told of: %v", ends)
	}
	proof.Says(t, proof.ErrOf(k.Adopt(at("https://other.queue.core.windows.net"))), "is another storage account")
}

func TestTheEndOfASignatureIsToldInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		sas := func(in time.Duration, layout string) string {
			return "sv=2025-01-05&ss=qt&se=" + strings.ReplaceAll(now.Add(in).UTC().Format(layout), ":", "%3A") + "&sig=c2lnbmF0dXJlLW9mLXRoZS1hY2NvdW50"
		}
		const day = 24 * time.Hour
		accounts := []pump.Account{
			{Name: "long", Endpoint: "https://long.queue.core.windows.net?" + sas(400*day, time.RFC3339)},
			{Name: "short", ConnectionString: "QueueEndpoint=https://short.queue.core.windows.net;TableEndpoint=https://short.table.core.windows.net;SharedAccessSignature=" + sas(8*day, "2006-01-02T15:04Z")},
			{Name: "keyed", ConnectionString: "AccountName=keyed;AccountKey=c2VjcmV0LWtleQ==;EndpointSuffix=core.windows.net"},
		}
		var log proof.Buffer
		k := NewKeys(slog.New(slog.NewTextHandler(&log, nil)), nil)
		take, err := k.Adopt(accounts)
		must(t, err)
		take()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go k.Run(ctx)
		lines := func(after time.Duration) int {
			time.Sleep(after)
			synctest.Wait()
			return strings.Count(log.String(), "account=short")
		}
		if n := lines(time.Minute); n != 0 || log.String() != "" {
			t.Errorf("eight days before the log says %s", log.String())
		}
		if n := lines(2 * day); n != 1 && n != 2 {
			t.Errorf("%d warnings two days later", n)
		}
		if n := lines(7 * day); n < 7 || n > 10 || !strings.Contains(log.String(), "has ended") {
			t.Errorf("%d warnings in nine days: %s", n, log.String())
		}
		if all := k.all(); len(all) != 2 || !all["long"].Equal(now.Add(400*day).UTC().Truncate(time.Second)) {
			t.Errorf("the ends are %v", all)
		}
	})
}
