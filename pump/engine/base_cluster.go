package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/settings"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/shardmap"
)

func (w *baseWorld) table() storage.Table { return queues.Open(&w.cfg, row.TableName).Control }

// change changes the map as `distributor accounts` does.
func (w *baseWorld) change(shards func(old []shardmap.Shard) []shardmap.Shard) {
	w.t.Helper()
	_, err := workload.ChangeMap(w.t.Context(), w.table(), w.cfg.Workload, func(m *shardmap.Map) ([]shardmap.Shard, error) {
		return shards(slices.Clone(m.Shards)), nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *baseWorld) without(account string) {
	w.t.Helper()
	w.change(func(old []shardmap.Shard) []shardmap.Shard {
		return slices.DeleteFunc(old, func(s shardmap.Shard) bool { return s.Account == account })
	})
}

func (w *baseWorld) drainAccount(account string) {
	w.t.Helper()
	w.change(func(old []shardmap.Shard) []shardmap.Shard {
		for i := range old {
			if old[i].Account == account {
				old[i].State = shardmap.Draining
			}
		}
		return old
	})
}

func (w *baseWorld) look() *cluster.View {
	w.t.Helper()
	v, err := cluster.LoadView(w.t.Context(), w.table(), w.cfg.Workload)
	if err != nil {
		w.t.Fatal(err)
	}
	return v
}

// in is how many messages lie in an account's work queues.
func (w *baseWorld) in(account string) (n int) {
	for _, s := range settings.Shards(w.cfg) {
		if s.Account == account {
			n += w.count(s.Account, s.Queue)
		}
	}
	return n
}

// handling is one handling of a task by one instance.
type handling struct {
	instance   string
	segment    uint32
	epoch      uint64
	task       string
	began, end time.Time
	cause      error // of its context's end
}

// handlings notes who handles what, and when.
type handlings struct {
	mu  sync.Mutex
	all []handling
}

func (hs *handlings) get() []handling {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	return slices.Clone(hs.all)
}

func (hs *handlings) tasks() int {
	seen := map[string]bool{}
	for _, h := range hs.get() {
		if h.cause == nil {
			seen[h.task] = true
		}
	}
	return len(seen)
}

// handler is the one of an instance; a task takes d.
func (hs *handlings) handler(instance string, d time.Duration) pump.Handler {
	return pump.HandlerFunc(func(ctx context.Context, t *pump.Task) error {
		h := handling{instance: instance, segment: t.Segment, epoch: t.Epoch, task: identity(t), began: time.Now()}
		err := pause(ctx, d)
		h.end, h.cause = time.Now(), context.Cause(ctx)
		hs.mu.Lock()
		defer hs.mu.Unlock()
		hs.all = append(hs.all, h)
		return err
	})
}

// check verifies that no segment was ever in two instances' hands at once, that
// its epochs never went back, and that nothing was done twice.
func (hs *handlings) check(t *testing.T) {
	t.Helper()
	bySegment := map[uint32][]handling{}
	done := map[string]int{}
	for _, h := range hs.get() {
		bySegment[h.segment] = append(bySegment[h.segment], h)
		if h.cause == nil {
			done[h.task]++
		}
	}
	for task, n := range done {
		if n > 1 {
			t.Errorf("%s was done %d times", task, n)
		}
	}
	for segment, all := range bySegment {
		slices.SortFunc(all, func(a, b handling) int { return cmp.Or(a.began.Compare(b.began), a.end.Compare(b.end)) })
		last := map[string]handling{} // by instance, the one that ended last
		var epoch uint64
		for _, h := range all {
			if h.epoch == 0 || h.epoch < epoch {
				t.Errorf("segment %d was handled with epoch %d after %d", segment, h.epoch, epoch)
			}
			epoch = max(epoch, h.epoch)
			for instance, o := range last {
				if instance != h.instance && (h.began.Before(o.end) || h.epoch <= o.epoch) {
					t.Errorf("segment %d: %s (epoch %d) until %v, %s (epoch %d) from %v", segment, instance, o.epoch, o.end, h.instance, h.epoch, h.began)
				}
			}
			if h.end.After(last[h.instance].end) {
				last[h.instance] = h
			}
		}
	}
}

// putHome puts envelopes of n tasks of each of some segments into their homes.
func (w *baseWorld) putHome(segments []uint32, n int) (tasks int) {
	w.t.Helper()
	m := w.shardMap()
	for _, s := range segments {
		home := m.Shards[m.Home(s)]
		text := w.envelope(s, n)
		for {
			_, err := w.queue(home.Account, home.Queue).Put(w.t.Context(), text, 0)
			if err == nil {
				break
			}
			if !storage.Is(err, storage.Throttled) {
				w.t.Fatal(err)
			}
			time.Sleep(50 * time.Millisecond)
		}
		tasks += n
	}
	return tasks
}

// everySegment lists all segments.
func (w *baseWorld) everySegment() (all []uint32) {
	for s := range uint32(w.shardMap().Segments) {
		all = append(all, s)
	}
	return all
}

func (w *baseWorld) shardMap() *shardmap.Map {
	w.t.Helper()
	wl, err := workload.Load(w.t.Context(), w.table(), w.cfg.Workload)
	if err != nil {
		w.t.Fatal(err)
	}
	return wl.Map
}

// view is the cluster as it is now.
func (w *baseWorld) view() *cluster.View {
	w.t.Helper()
	v, err := cluster.LoadView(w.t.Context(), w.table(), w.cfg.Workload)
	if err != nil {
		w.t.Fatal(err)
	}
	return v
}

// settled waits until so many processors share the segments as planned.
func (w *baseWorld) settled(processors int) *cluster.View {
	w.t.Helper()
	for range 1200 {
		if v := w.view(); len(v.Processors()) == processors && v.Settled() {
			return v
		}
		time.Sleep(100 * time.Millisecond)
	}
	w.t.Fatalf("not settled with %d processors", processors)
	return nil
}

// owns lists the segments of an instance.
func owns(v *cluster.View, instance string) (segments []uint32) {
	for s := range v.Owners {
		if m, ok := v.OwnerOf(uint32(s)); ok && m.Instance == instance {
			segments = append(segments, uint32(s))
		}
	}
	return segments
}

// queueOf is the queue of a shard of the map.
func (w *baseWorld) queueOf(m *shardmap.Map, i int) (account, queue string) {
	return m.Shards[i].Account, m.Shards[i].Queue
}

// foreignOf is a text that no distributor made, of a segment.
func (w *baseWorld) foreignOf(m *shardmap.Map, segment uint32) []byte {
	for i := range 10_000 {
		text := fmt.Appendf(nil, "plain text %d", i)
		if shardmap.Segment(text, m.Segments) == segment {
			return text
		}
	}
	w.t.Fatal("none found")
	return nil
}

// changeMap changes the shards of the workload as an operator does.
func (w *baseWorld) changeMap(change func(shards []shardmap.Shard) []shardmap.Shard) *shardmap.Map {
	w.t.Helper()
	wl, err := workload.ChangeMap(w.t.Context(), w.table(), w.cfg.Workload, func(m *shardmap.Map) ([]shardmap.Shard, error) {
		return change(slices.Clone(m.Shards)), nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return wl.Map
}

// segmentOf finds a segment whose home is a shard.
func segmentOf(m *shardmap.Map, home int) uint32 {
	for s := range uint32(m.Segments) {
		if m.Home(s) == home {
			return s
		}
	}
	panic("none")
}
