package control

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/pump/storage"
)

func TestOfReducersAtOnceOneIsPinnedAndAllOthersAreRefusedWhateverAnswersAreLost(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newFakeServer()
				if _, err := EnsureWorkload(t.Context(), server.client("first"), citySpec()); err != nil {
					t.Fatal(err)
				}
				const n = 8
				refused := make([]error, n)
				var wg sync.WaitGroup
				for i := range n {
					wg.Go(func() {
						client := server.client(fmt.Sprint(i))
						client.setLatency(func(c call) time.Duration {
							return time.Duration(1+hash(seed, c.client+c.op+c.row, c.n)%40) * time.Millisecond
						})
						client.setFault(func(c call) fault {
							switch hash(seed, "fault"+c.client+c.op, c.n) % 6 {
							case 0:
								return lostAnswer
							case 1:
								return lostRequest
							case 2:
								return landsLate(time.Duration(hash(seed, "late"+c.client, c.n)%500) * time.Millisecond)
							}
							return fault{}
						})
						w, err := LoadWorkload(t.Context(), client, "city")
						if err == nil {
							_, err = w.PinReducer(t.Context(), fmt.Sprint("reducer ", i%2))
						}
						refused[i] = err
					})
					if i == n/2 { // a change of the map between them keeps what is pinned
						wg.Go(func() {
							if _, err := ChangeMap(t.Context(), server.client("operator"), "city", withAccount("west")); err != nil {
								t.Error(err)
							}
						})
					}
				}
				wg.Wait()
				time.Sleep(time.Minute) // what lands late has landed
				w, err := LoadWorkload(t.Context(), server.client("last"), "city")
				if err != nil {
					t.Fatal(err)
				}
				if len(w.Map.Shards) != 5 {
					t.Errorf("the map was not changed: %v", w.Map.Shards)
				}
				for i, err := range refused {
					mismatch, is := errors.AsType[*MismatchError](err)
					switch ours := w.Reducer == fmt.Sprint("reducer ", i%2); {
					case ours && err != nil:
						t.Errorf("%d has the pinned reducer: %v", i, err)
					case !ours && (!is || mismatch.Field != "reducer"):
						t.Errorf("%d has another reducer than %q: %v", i, w.Reducer, err)
					}
				}
			})
		})
	}
}

func TestAPinnedReducerCostsNoRequestAndIsNotDoneWithout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := newFakeServer().client("me")
		w, err := EnsureWorkload(t.Context(), client, citySpec())
		if err != nil {
			t.Fatal(err)
		}
		before := len(client.sent())
		if same, err := w.PinReducer(t.Context(), ""); err != nil || same != w || len(client.sent()) != before {
			t.Errorf("no reducer is wanted and none is there: %v, %d requests", err, len(client.sent())-before)
		}
		pinned, err := w.PinReducer(t.Context(), "totals/1")
		if err != nil || pinned.Reducer != "totals/1" {
			t.Fatal(pinned, err)
		}
		if now, err := w.Refresh(t.Context()); err != nil || now.Reducer != "totals/1" {
			t.Errorf("what others read: %v, %v", now, err)
		}
		before = len(client.sent())
		if _, err := pinned.PinReducer(t.Context(), "totals/1"); err != nil {
			t.Error(err)
		}
		for _, name := range []string{"", "totals/2"} {
			_, err := pinned.PinReducer(t.Context(), name)
			if err == nil || !strings.Contains(err.Error(), `"totals/1"`) {
				t.Errorf("reducer %q beside totals/1: %v", name, err)
			}
		}
		if n := len(client.sent()) - before; n != 0 {
			t.Errorf("%d requests to learn what the row said", n)
		}
	})
}

func TestAReducerOfAWorkloadThatIsGoneIsNotPinned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newFakeServer()
		client := server.client("me")
		w, err := EnsureWorkload(t.Context(), client, citySpec())
		if err != nil {
			t.Fatal(err)
		}
		server.mu.Lock()
		delete(server.rows, "city/workload")
		server.mu.Unlock()
		if _, err := w.PinReducer(t.Context(), "totals/1"); !errors.Is(err, ErrNoWorkload) {
			t.Error(err)
		}
		client.setFault(func(call) fault { return lostRequest })
		if _, err := w.PinReducer(t.Context(), "totals/1"); !storage.Ambiguous(err) {
			t.Error(err)
		}
	})
}
