package workload

import (
	"errors"
	"fmt"
	"slices"
	"strings"
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

// must ends a test with an error.
var must = proof.Must

// errOf is the error of a call whose result a test does not need.
func errOf(_ any, err error) error { return err }

func queues(account string, n int) (shards []shardmap.Shard) {
	for i := range n {
		shards = append(shards, shardmap.Shard{Account: account, Queue: fmt.Sprintf("city-%02d", i), Weight: 1})
	}
	return shards
}

func citySpec() Spec {
	return Spec{Name: "city", Shards: append(queues("north", 2), queues("south", 2)...), Delivery: string(pump.AtLeastOnce)}
}

func homes(m *shardmap.Map) (all []int) {
	for s := range m.Segments {
		all = append(all, m.Home(uint32(s)))
	}
	return all
}

func TestEnsureWorkloadCreatesTableAndRowAndLoadWorkloadReadsThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := testkit.NewServer()
		server.Exists = false
		client := server.Client("me")
		if _, err := Load(t.Context(), client, "city"); !errors.Is(err, pump.ErrNoWorkload) || err.Error() != `workload "city": the workload does not exist` {
			t.Errorf("no table: %v", err)
		}
		made, err := Ensure(t.Context(), client, citySpec())
		must(t, err)
		if made.Name != "city" || made.Map.Segments != 128 || made.Map.Version != 1 || made.Delivery != string(pump.AtLeastOnce) || made.Shared {
			t.Errorf("%+v", made)
		}
		loaded, err := Load(t.Context(), server.Client("other"), "city")
		must(t, err)
		if !slices.Equal(homes(loaded.Map), homes(made.Map)) || loaded.Delivery != made.Delivery {
			t.Error("another process reads another map")
		}
		proof.Is(t, proof.ErrOf(Load(t.Context(), client, "village")), pump.ErrNoWorkload, "no row")
	})
}

func TestOfManyWhoCreateAWorkloadAtOnceAllGetTheSameMap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := testkit.NewServer()
		server.Exists = false
		var mu sync.Mutex
		var maps [][]int
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				client := server.Client(fmt.Sprint(i))
				client.SetLatency(func(c testkit.Call) time.Duration {
					return time.Duration(testkit.Hash(7, c.Client+c.Op+c.Row, c.N)%20) * time.Millisecond
				})
				client.SetFault(func(c testkit.Call) testkit.Fault {
					if c.Op == "write" && c.N == 1 && i%2 == 0 {
						return testkit.LostAnswer
					}
					return testkit.Fault{}
				})
				// The order of the configuration differs from machine to machine,
				// and so would the indices of a map that each made for itself.
				spec := citySpec()
				slices.SortFunc(spec.Shards, func(a, b shardmap.Shard) int {
					return int(int64(testkit.Hash(uint64(i), a.Account+a.Queue, 0)>>1) - int64(testkit.Hash(uint64(i), b.Account+b.Queue, 0)>>1))
				})
				w, err := Ensure(t.Context(), client, spec)
				if err != nil {
					t.Errorf("%d: %v", i, err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				maps = append(maps, homes(w.Map))
			})
		}
		wg.Wait()
		for _, m := range maps {
			if !slices.Equal(m, maps[0]) {
				t.Fatal("two processes have different maps")
			}
		}
		proof.Same(t, len(server.Written()), 1, "the row was written … times")
	})
}

func TestAConfigurationThatDisagreesWithTheRowIsRefusedNamingFieldAndFix(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Spec)
		want   []string // one per mismatch: "field: part of the text"
	}{
		"the same":                          {func(*Spec) {}, nil},
		"in another order":                  {func(s *Spec) { slices.Reverse(s.Shards) }, nil},
		"segments said as pinned":           {func(s *Spec) { s.Segments = 128 }, nil},
		"another weight: the row wins":      {func(s *Spec) { s.Shards[0].Weight = 5 }, nil},
		"another state: the row wins":       {func(s *Spec) { s.Shards[0].State = shardmap.Draining }, nil},
		"other segments":                    {func(s *Spec) { s.Segments = 256 }, []string{"segments: set segments: 128 or leave it out"}},
		"shared":                            {func(s *Spec) { s.Shared = true }, []string{"segments: set segments: 128"}},
		"another delivery":                  {func(s *Spec) { s.Delivery = string(pump.Once) }, []string{"delivery: set delivery: at-least-once"}},
		"an account more: it is not in use": {func(s *Spec) { s.Shards = append(s.Shards, queues("west", 1)...) }, nil},
		"an account less: the row wins":     {func(s *Spec) { s.Shards = queues("north", 2) }, nil},
		"another number of queues": {
			func(s *Spec) { s.Shards = append(queues("north", 3), queues("south", 2)...) },
			[]string{`accounts: account "north" has 3 queues, but the workload uses 2 of it; set its queues: 2`},
		},
		"other queues": {
			func(s *Spec) { s.Shards[0].Queue = "town-00" },
			[]string{`accounts: account "north" has the queues city-01 town-00, but the workload uses city-00 city-01`},
		},
		"several at once": {func(s *Spec) { s.Segments, s.Delivery = 64, string(pump.Once) }, []string{"segments: it is 64", "delivery: it is once"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := testkit.NewServer().Client("me")
				made, err := Ensure(t.Context(), client, citySpec())
				must(t, err)
				spec := citySpec()
				c.change(&spec)
				again, err := Ensure(t.Context(), client, spec)
				if c.want == nil {
					must(t, err)
					if !slices.Equal(homes(again.Map), homes(made.Map)) || again.Map.Shards[0] != made.Map.Shards[0] {
						t.Error("the row's map did not win")
					}
					return
				}
				if err == nil {
					t.Fatal("accepted")
				}
				first, ok := errors.AsType[*pump.MismatchError](err)
				if !ok || first.Workload != "city" || !strings.HasPrefix(c.want[0], first.Field+": ") {
					t.Errorf("%#v is no mismatch of %s", err, c.want[0])
				}
				proof.Same(t, len(strings.Split(err.Error(), "\n")), len(c.want), "mismatches", err)
				for _, want := range c.want {
					field, text, _ := strings.Cut(want, ": ")
					if !strings.Contains(err.Error(), field+": ") || !strings.Contains(err.Error(), text) {
						t.Errorf("%q lacks %q", err, want)
					}
				}
				proof.Says(t, err, "make a new workload beside this one", "the way out")
			})
		})
	}
}

func TestAWorkloadThatWasSharedIsNotOpenedAsOwned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := testkit.NewServer().Client("me")
		spec := citySpec()
		spec.Shared = true
		must(t, proof.ErrOf(Ensure(t.Context(), client, spec)))
		_, err := Ensure(t.Context(), client, citySpec())
		proof.Says(t, err, "set segments: 0")
	})
}

func TestAWrongSpecIsRefusedBeforeAnyRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := testkit.NewServer().Client("me")
		for name, change := range map[string]func(*Spec){
			"a dot in the name":        func(s *Spec) { s.Name = "city.runs" },
			"no name":                  func(s *Spec) { s.Name = "" },
			"no delivery":              func(s *Spec) { s.Delivery = "" },
			"segments no power of two": func(s *Spec) { s.Segments = 100 },
			"no shards":                func(s *Spec) { s.Shards = nil },
		} {
			spec := citySpec()
			change(&spec)
			proof.Same(t, proof.ErrOf(Ensure(t.Context(), client, spec)) == nil, false, name, "is accepted")
		}
		proof.Same(t, proof.ErrOf(Load(t.Context(), client, "a/b")) == nil, false, "a/b is loaded")
		proof.Same(t, len(client.Sent()), 0, "requests")
	})
}

func TestATableThatIsBeingDeletedIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := testkit.NewServer()
		server.Exists = false
		client := server.Client("me")
		gone := time.Now().Add(40 * time.Second)
		client.SetFault(func(c testkit.Call) testkit.Fault {
			if c.Op == "create" && time.Now().Before(gone) {
				return testkit.Fault{Fail: true, Code: storage.Missing}
			}
			return testkit.Fault{}
		})
		must(t, proof.ErrOf(Ensure(t.Context(), client, citySpec())))
		// Refused for good is another matter.
		server.Exists = false
		client.SetFault(func(c testkit.Call) testkit.Fault {
			return map[bool]testkit.Fault{true: {Fail: true, Code: storage.Auth}}[c.Op == "create"]
		})
		began := time.Now()
		if _, err := Ensure(t.Context(), client, citySpec()); !storage.Is(err, storage.Auth) || time.Since(began) > time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

func TestRefreshSeesANewMapAndItsAgeCountsFromTheRequest(t *testing.T) {
	testkit.OnServer(t, "me", func(t *testing.T, server *testkit.Server, client *testkit.Client) {
		client.SetLatency(func(testkit.Call) time.Duration { return time.Second })
		w, err := Ensure(t.Context(), client, citySpec())
		must(t, err)
		proof.Same(t, w.Age(), time.Second, "age … right after a read of a second")
		time.Sleep(MapMaxAge)
		if w.Age() <= MapMaxAge {
			t.Errorf("age %v", w.Age())
		}
		same, err := w.Refresh(t.Context())
		must(t, err)
		if same.Map != w.Map || same.Age() != time.Second {
			t.Errorf("an unchanged row gave another map, or age %v", same.Age())
		}
		// What accounts drain will do.
		next, err := w.Map.Change(append(queues("north", 2), shardmap.Shard{Account: "south", Queue: "city-00", State: shardmap.Draining}, shardmap.Shard{Account: "south", Queue: "city-01"}))
		must(t, err)
		r := RowOf(client, "city")
		v, err := r.Read(t.Context())
		must(t, err)
		changed := v.Value
		changed.shards = next
		must(t, proof.ErrOf(r.TryWrite(t.Context(), v, changed)))
		newer, err := same.Refresh(t.Context())
		must(t, err)
		if newer.Map.Version != 2 || !slices.Equal(homes(newer.Map), homes(next)) {
			t.Errorf("version %d", newer.Map.Version)
		}
		client.SetFault(func(testkit.Call) testkit.Fault { return testkit.LostRequest })
		if _, err := newer.Refresh(t.Context()); !storage.Ambiguous(err) {
			t.Error(err)
		}
		client.SetFault(nil)

		// Deleted and made again with other segments, then not at all.
		other := citySpec()
		other.Segments = 64
		delete(server.Rows, "city/workload")
		proof.Is(t, proof.ErrOf(newer.Refresh(t.Context())), pump.ErrNoWorkload)
		must(t, proof.ErrOf(Ensure(t.Context(), client, other)))
		proof.Is(t, proof.ErrOf(newer.Refresh(t.Context())), ErrReplaced)
		delete(server.Rows, "city/workload")
		must(t, proof.ErrOf(Ensure(t.Context(), client, citySpec())))
		proof.Is(t, proof.ErrOf(newer.Refresh(t.Context())), ErrReplaced, "a map that went back")
	})
}

func TestADamagedWorkloadRowIsAnErrorAndNotOverwritten(t *testing.T) {
	for property, value := range map[string]any{"Map": []byte("junk"), "Segments": int64(64), "Delivery": "sometimes", "Shared": "no"} {
		t.Run(property, func(t *testing.T) {
			testkit.OnServer(t, "me", func(t *testing.T, server *testkit.Server, client *testkit.Client) {
				must(t, proof.ErrOf(Ensure(t.Context(), client, citySpec())))
				server.Rows["city/workload"].Properties[property] = value
				if _, err := Ensure(t.Context(), client, citySpec()); !errors.Is(err, row.ErrCorrupt) || !strings.Contains(err.Error(), property) {
					t.Error(err)
				}
				proof.Same(t, len(server.Written()), 1, "it was written")
			})
		})
	}
}
