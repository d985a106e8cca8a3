package testworld

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/pump/storage/azure"
	"github.com/queuepump/queuepump/shardmap"
)

// Table is the control table.
func (w *World) Table() storage.Table { return queues.Open(&w.Cfg).Control }

// noToken is a credential whose tokens never come, such as one whose service the network drops.
type noToken struct{}

func (noToken) GetToken(
	ctx context.Context, _ policy.TokenRequestOptions,
) (azcore.AccessToken, error) {
	<-ctx.Done()
	return azcore.AccessToken{}, ctx.Err()
}

// WithoutToken makes an account of a configuration one for which no token comes.
func (w *World) WithoutToken(cfg *pump.Config, account int) {
	w.T.Helper()
	st, err := azure.Open(azure.Options{
		Endpoint:   "https://" + cfg.Accounts[account].Storage.Name() + ".queue.core.windows.net",
		Credential: noToken{}, Transport: w.Sim.Transport(),
	})
	proof.Must(w.T, err)
	cfg.Accounts[account].Storage = st
}

// Without takes an account out of the map.
func (w *World) Without(account string) {
	w.T.Helper()
	w.ChangeMap(func(old []shardmap.Shard) []shardmap.Shard {
		return slices.DeleteFunc(old, func(s shardmap.Shard) bool { return s.Account == account })
	})
}

// DrainAccount has an account drain.
func (w *World) DrainAccount(account string) {
	w.T.Helper()
	w.ChangeMap(func(old []shardmap.Shard) []shardmap.Shard {
		for i := range old {
			if old[i].Account == account {
				old[i].State = shardmap.Draining
			}
		}
		return old
	})
}

// In is how many messages lie in an account's work queues.
func (w *World) In(account string) (n int) {
	for _, s := range setup.Shards(w.Cfg) {
		if s.Account == account {
			n += w.Count(s.Account, s.Queue)
		}
	}
	return n
}

// Handling is one handling of a task by one instance.
type Handling struct {
	Instance   string
	Segment    uint32
	Epoch      uint64
	Task       string
	Began, End time.Time
	Cause      error // of its context's end
}

// Handlings notes which instance handles what, and when.
type Handlings struct {
	mu  sync.Mutex
	all []Handling
}

// Get is what was noted so far.
func (hs *Handlings) Get() []Handling {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	return slices.Clone(hs.all)
}

// Tasks is how many different tasks were handled to their end.
func (hs *Handlings) Tasks() int {
	seen := map[string]bool{}
	for _, h := range hs.Get() {
		if h.Cause == nil {
			seen[h.Task] = true
		}
	}
	return len(seen)
}

// Handler is the handler of an instance; a task takes d.
func (hs *Handlings) Handler(instance string, d time.Duration) pump.Handler {
	return pump.HandlerFunc(func(ctx context.Context, t *pump.Task) error {
		h := Handling{
			Instance: instance, Segment: t.Segment, Epoch: t.Epoch, Task: Identity(t), Began: time.Now(),
		}
		err := Pause(ctx, d)
		h.End, h.Cause = time.Now(), context.Cause(ctx)
		hs.mu.Lock()
		defer hs.mu.Unlock()
		hs.all = append(hs.all, h)
		return err
	})
}

// Check verifies that no segment was ever in two instances' hands at once, that
// its epochs never went back, and that nothing was done twice.
func (hs *Handlings) Check(t *testing.T) {
	t.Helper()
	bySegment := map[uint32][]Handling{}
	done := map[string]int{}
	for _, h := range hs.Get() {
		bySegment[h.Segment] = append(bySegment[h.Segment], h)
		if h.Cause == nil {
			done[h.Task]++
		}
	}
	for task, n := range done {
		if n > 1 {
			t.Errorf("%s was done %d times", task, n)
		}
	}
	for segment, all := range bySegment {
		slices.SortFunc(all, func(a, b Handling) int {
			return cmp.Or(a.Began.Compare(b.Began), a.End.Compare(b.End))
		})
		last := map[string]Handling{} // by instance, the handling that ended last
		var epoch uint64
		for _, h := range all {
			if h.Epoch == 0 || h.Epoch < epoch {
				t.Errorf("segment %d was handled with epoch %d after %d", segment, h.Epoch, epoch)
			}
			epoch = max(epoch, h.Epoch)
			for instance, o := range last {
				if instance != h.Instance && (h.Began.Before(o.End) || h.Epoch <= o.Epoch) {
					t.Errorf("segment %d: %s (epoch %d) until %v, %s (epoch %d) from %v",
						segment, instance, o.Epoch, o.End, h.Instance, h.Epoch, h.Began)
				}
			}
			if h.End.After(last[h.Instance].End) {
				last[h.Instance] = h
			}
		}
	}
}

// PutHome puts envelopes of n tasks of each of some segments into their homes.
func (w *World) PutHome(segments []uint32, n int) (tasks int) {
	w.T.Helper()
	m := w.ShardMap()
	for _, s := range segments {
		home := m.Shards[m.Home(s)]
		text := w.Envelope(s, n)
		for {
			_, err := w.Queue(home.Account, home.Queue).Put(w.T.Context(), text, 0)
			if err == nil {
				break
			}
			if !storage.Is(err, storage.Throttled) {
				w.T.Fatal(err)
			}
			time.Sleep(50 * time.Millisecond)
		}
		tasks += n
	}
	return tasks
}

// EverySegment lists all segments.
func (w *World) EverySegment() (all []uint32) {
	for s := range uint32(w.ShardMap().Segments) {
		all = append(all, s)
	}
	return all
}

// ShardMap is the map of the workload as it stands.
func (w *World) ShardMap() *shardmap.Map {
	w.T.Helper()
	wl, err := workload.Load(w.T.Context(), w.Table(), w.Cfg.Workload)
	proof.Must(w.T, err)
	return wl.Map
}

// View is the cluster as it is now.
func (w *World) View() *cluster.View {
	w.T.Helper()
	v, err := cluster.LoadView(w.T.Context(), w.Table(), w.Cfg.Workload)
	proof.Must(w.T, err)
	return v
}

// Settled waits until so many processors share the segments as planned.
func (w *World) Settled(processors int) *cluster.View {
	w.T.Helper()
	for range 1200 {
		if v := w.View(); len(v.Processors()) == processors && v.Settled() {
			return v
		}
		time.Sleep(100 * time.Millisecond)
	}
	w.T.Fatalf("not settled with %d processors", processors)
	return nil
}

// Owns lists the segments of an instance.
func Owns(v *cluster.View, instance string) (segments []uint32) {
	for s := range v.Owners {
		if m, ok := v.OwnerOf(uint32(s)); ok && m.Instance == instance {
			segments = append(segments, uint32(s))
		}
	}
	return segments
}

// ChangeMap changes the shards of the workload as an operator does.
func (w *World) ChangeMap(change func(shards []shardmap.Shard) []shardmap.Shard) *shardmap.Map {
	w.T.Helper()
	byMap := func(m *shardmap.Map) ([]shardmap.Shard, error) {
		return change(slices.Clone(m.Shards)), nil
	}
	wl, err := workload.ChangeMap(w.T.Context(), w.Table(), w.Cfg.Workload, byMap)
	proof.Must(w.T, err)
	return wl.Map
}

// SegmentOf finds a segment whose home is a shard.
func SegmentOf(m *shardmap.Map, home int) uint32 {
	for s := range uint32(m.Segments) {
		if m.Home(s) == home {
			return s
		}
	}
	panic("none")
}
