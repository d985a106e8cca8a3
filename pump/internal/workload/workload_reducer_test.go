package workload

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/testkit"
	"github.com/queuepump/queuepump/pump/storage"
)

func TestOfReducersAtOnceOneIsPinnedAndAllOthersAreRefusedWhateverAnswersAreLost(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := testkit.NewServer()
				must(t, errOf(Ensure(t.Context(), server.Client("first"), citySpec())))
				const n = 8
				refused := make([]error, n)
				var wg sync.WaitGroup
				for i := range n {
					wg.Go(func() {
						client := unsteady(server, fmt.Sprint(i), seed)
						w, err := Load(t.Context(), client, "city")
						if err == nil {
							_, err = w.PinReducer(t.Context(), fmt.Sprint("reducer ", i%2))
						}
						refused[i] = err
					})
					if i == n/2 { // a change of the map between them keeps what is pinned
						wg.Go(func() {
							_, err := ChangeMap(t.Context(), server.Client("operator"), "city", withAccount("west"))
							proof.Is(t, err, nil)
						})
					}
				}
				wg.Wait()
				time.Sleep(time.Minute) // what lands late has landed
				w, err := Load(t.Context(), server.Client("last"), "city")
				must(t, err)
				proof.Same(t, len(w.Map.Shards), 5, "shards of the map that was changed")
				for i, err := range refused {
					mismatch, is := errors.AsType[*pump.MismatchError](err)
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
		client := testkit.NewServer().Client("me")
		w, err := Ensure(t.Context(), client, citySpec())
		must(t, err)
		before := len(client.Sent())
		if same, err := w.PinReducer(t.Context(), ""); err != nil || same != w || len(client.Sent()) != before {
			t.Errorf("no reducer is wanted and none is there: %v, %d requests", err, len(client.Sent())-before)
		}
		pinned, err := w.PinReducer(t.Context(), "totals/1")
		if err != nil || pinned.Reducer != "totals/1" {
			t.Fatal(pinned, err)
		}
		if now, err := w.Refresh(t.Context()); err != nil || now.Reducer != "totals/1" {
			t.Errorf("what others read: %v, %v", now, err)
		}
		before = len(client.Sent())
		must(t, proof.ErrOf(pinned.PinReducer(t.Context(), "totals/1")))
		for _, name := range []string{"", "totals/2"} {
			_, err := pinned.PinReducer(t.Context(), name)
			proof.Says(t, err, `"totals/1"`, name, "reducer beside totals 1")
		}
		proof.Same(t, len(client.Sent())-before, 0, "requests to learn what the row said")
	})
}

func TestAReducerOfAWorkloadThatIsGoneIsNotPinned(t *testing.T) {
	testkit.OnServer(t, "me", func(t *testing.T, server *testkit.Server, client *testkit.Client) {
		w, err := Ensure(t.Context(), client, citySpec())
		must(t, err)
		server.Mu.Lock()
		delete(server.Rows, "city/workload")
		server.Mu.Unlock()
		proof.Is(t, proof.ErrOf(w.PinReducer(t.Context(), "totals/1")), pump.ErrNoWorkload)
		client.SetFault(func(testkit.Call) testkit.Fault { return testkit.LostRequest })
		if _, err := w.PinReducer(t.Context(), "totals/1"); !storage.Ambiguous(err) {
			t.Error(err)
		}
	})
}
