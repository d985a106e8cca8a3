package workload

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/testkit"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/shardmap"
)

// withAccount is a change that adds an account's one queue if it is not there.
func withAccount(name string) func(*shardmap.Map) ([]shardmap.Shard, error) {
	return func(m *shardmap.Map) ([]shardmap.Shard, error) {
		if slices.ContainsFunc(m.Shards, func(s shardmap.Shard) bool { return s.Account == name }) {
			return nil, nil
		}
		return append(slices.Clone(m.Shards), queues(name, 1)...), nil
	}
}

// drained is a change that sets an account's state, again and again.
func drained(name string, state shardmap.State) func(*shardmap.Map) ([]shardmap.Shard, error) {
	return func(m *shardmap.Map) ([]shardmap.Shard, error) {
		shards := slices.Clone(m.Shards)
		for i := range shards {
			if shards[i].Account == name {
				shards[i].State = state
			}
		}
		return shards, nil
	}
}

func states(m *shardmap.Map) map[string]shardmap.State {
	got := map[string]shardmap.State{}
	for _, s := range m.Shards {
		got[s.Account] = s.State
	}
	return got
}

func TestExtraAccountsOfAConfigurationAreNamedAndNotUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := testkit.NewServer().Client("me")
		must(t, errOf(Ensure(t.Context(), client, citySpec())))
		spec := citySpec()
		spec.Shards = append(append(queues("west", 2), spec.Shards...), queues("east", 1)...)
		w, err := Ensure(t.Context(), client, spec)
		must(t, err)
		if !slices.Equal(w.Extra, []string{"east", "west"}) || len(w.Map.Shards) != 4 {
			t.Errorf("extra %v, shards %v", w.Extra, w.Map.Shards)
		}
	})
}

func TestAChangeOfTheMapIsSeenByAllAndNoChangeWritesNothing(t *testing.T) {
	testkit.OnServer(t, "me", func(t *testing.T, server *testkit.Server, client *testkit.Client) {
		err := proof.ErrOf(ChangeMap(t.Context(), client, "city", withAccount("west")))
		proof.Is(t, err, pump.ErrNoWorkload, "no workload")
		w, err := Ensure(t.Context(), client, citySpec())
		must(t, err)
		changed, err := ChangeMap(t.Context(), client, "city", withAccount("west"))
		must(t, err)
		seen, err := w.Refresh(t.Context())
		must(t, err)
		if changed.Map.Version != 2 || !slices.Equal(homes(changed.Map), homes(seen.Map)) || seen.Changed.IsZero() {
			t.Errorf("changed to %v, seen %v", changed.Map, seen.Map)
		}
		before := len(server.Written())
		same, err := ChangeMap(t.Context(), client, "city", withAccount("west"))
		if err != nil || same.Map.Version != 2 || len(server.Written()) != before {
			t.Errorf("version %d after no change: %v", same.Map.Version, err)
		}
		refusal := errors.New("no")
		proof.Is(t, proof.ErrOf(ChangeMap(t.Context(), client, "city", func(*shardmap.Map) ([]shardmap.Shard, error) { return nil, refusal })), refusal)
		must(t, proof.ErrOf(ChangeMap(t.Context(), client, "city", drained("none", shardmap.Draining))))
		all := func(m *shardmap.Map) ([]shardmap.Shard, error) {
			shards := slices.Clone(m.Shards)
			for i := range shards {
				shards[i].State = shardmap.Draining
			}
			return shards, nil
		}
		proof.Is(t, proof.ErrOf(ChangeMap(t.Context(), client, "city", all)), shardmap.ErrNoActive)
	})
}

// TestAChangeWhoseAnswerIsLostIsNotAppliedTwice: after it, and before it could be
// read back, another change undoes it; made again it would undo that one.
func TestAChangeWhoseAnswerIsLostIsNotAppliedTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := testkit.NewServer()
		me, other := server.Client("me"), server.Client("other")
		must(t, errOf(Ensure(t.Context(), me, citySpec())))
		me.SetFault(func(c testkit.Call) testkit.Fault {
			if c.Op == "write" {
				return testkit.LostAnswer
			}
			if c.Op == "read" && c.N > 2 { // the read-back: the other one comes first
				return testkit.Fault{Delayed: time.Second}
			}
			return testkit.Fault{}
		})
		var wg sync.WaitGroup
		wg.Go(func() {
			time.Sleep(100 * time.Millisecond)
			_, err := ChangeMap(t.Context(), other, "city", drained("south", shardmap.Active))
			proof.Is(t, err, nil)
		})
		calls := 0
		w, err := ChangeMap(t.Context(), me, "city", func(m *shardmap.Map) ([]shardmap.Shard, error) {
			calls++
			return drained("south", shardmap.Draining)(m)
		})
		wg.Wait()
		if err != nil || calls != 1 || w.Map.Version != 3 || states(w.Map)["south"] != shardmap.Active {
			t.Errorf("asked %d times, version %d, %v: %v", calls, w.Map.Version, states(w.Map), err)
		}
	})
}

// unsteady is a client whose requests take their time, get lost, lose their answers or land late.
func unsteady(server *testkit.Server, name string, seed uint64) *testkit.Client {
	client := server.Client(name)
	client.SetLatency(func(c testkit.Call) time.Duration {
		return time.Duration(1+testkit.Hash(seed, c.Client+c.Op+c.Row, c.N)%40) * time.Millisecond
	})
	client.SetFault(func(c testkit.Call) testkit.Fault {
		switch testkit.Hash(seed, "fault"+c.Client+c.Op, c.N) % 6 {
		case 0:
			return testkit.LostAnswer
		case 1:
			return testkit.LostRequest
		case 2:
			return testkit.LandsLate(time.Duration(testkit.Hash(seed, "late"+c.Client, c.N)%500) * time.Millisecond)
		}
		return testkit.Fault{}
	})
	return client
}

func TestOfManyChangesAtOnceEachIsAppliedOnceWhateverAnswersAreLost(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := testkit.NewServer()
				must(t, errOf(Ensure(t.Context(), server.Client("first"), citySpec())))
				const n = 12
				var wg sync.WaitGroup
				for i := range n {
					wg.Go(func() {
						client := unsteady(server, fmt.Sprint(i), seed)
						// No idempotent change on purpose: twice would be seen.
						_, err := ChangeMap(t.Context(), client, "city", func(m *shardmap.Map) ([]shardmap.Shard, error) {
							shards := slices.Clone(m.Shards)
							shards[0].Weight++
							return shards, nil
						})
						proof.Is(t, err, nil, i)
					})
				}
				wg.Wait()
				time.Sleep(time.Minute) // what lands late has landed
				w, err := Load(t.Context(), server.Client("last"), "city")
				must(t, err)
				if w.Map.Version != n+1 || w.Map.Shards[0].Weight != n+1 {
					t.Errorf("version %d and weight %v after %d changes", w.Map.Version, w.Map.Shards[0].Weight, n)
				}
			})
		})
	}
}

func TestAChangeThatCannotBeKnownIsAnAmbiguousError(t *testing.T) {
	testkit.OnServer(t, "me", func(t *testing.T, server *testkit.Server, client *testkit.Client) {
		must(t, errOf(Ensure(t.Context(), client, citySpec())))
		dark := false
		client.SetFault(func(c testkit.Call) testkit.Fault {
			if dark = dark || c.Op == "write"; dark {
				return testkit.LostRequest
			}
			return testkit.Fault{}
		})
		begun := time.Now()
		if _, err := ChangeMap(t.Context(), client, "city", withAccount("west")); !storage.Ambiguous(err) || time.Since(begun) > 2*row.Patience {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
	})
}

func TestTheServersTimeIsNotTheMachines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := testkit.NewServer()
		server.Offset = -10 * time.Minute
		now, local, err := ServerTime(t.Context(), server.Client("me"), "city")
		must(t, err)
		if off := local.Sub(now); off < 10*time.Minute || off > 10*time.Minute+time.Second {
			t.Errorf("the server is %v behind", off)
		}
	})
}
