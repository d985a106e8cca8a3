package control

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/shardmap"
)

// Errors about workloads, wrapped with detail.
var (
	// ErrNoWorkload: the workload has no row. A distributor creates it.
	ErrNoWorkload = errors.New("the workload does not exist")
	// ErrReplaced: the row is not the one that was read before: something that
	// is pinned changed, or the map went back in time. Restart the process.
	ErrReplaced = errors.New("the workload was deleted and created again")
)

// MapMaxAge is how long after it was read a map may be used for Puts (P6.5,
// pump/DESIGN.md): a queue that is being removed waits that long for writers to notice.
const MapMaxAge = 30 * time.Second

// The delivery modes (P3.8).
const (
	DeliverAtLeastOnce = "at-least-once"
	DeliverOnce        = "once"
)

// WorkloadSpec is what a configuration says about a workload.
type WorkloadSpec struct {
	// Name is 1 to 63 of [A-Za-z0-9_-].
	Name string
	// Segments is S, a power of two, or 0 for shardmap.DefaultSegments of the
	// shards in a new workload and for whatever is pinned in one that exists.
	Segments int
	// Shared: segments have no owners and any instance takes anything.
	Shared bool
	// Shards are the queues. They make the map of a new workload; of one that
	// exists, only which queues they are is compared.
	Shards []shardmap.Shard
	// Delivery is DeliverAtLeastOnce or DeliverOnce.
	Delivery string
}

// Workload is a workload's row as it was read at one moment. It never changes;
// Refresh gives a newer one.
type Workload struct {
	Name     string
	Map      *shardmap.Map
	Delivery string
	Shared   bool
	// Reducer names what folds the tasks into states; empty if nothing does. See PinReducer.
	Reducer string
	// Changed is the row's last write, which is the last change of its map, by the
	// server's clock; zero if it was written by this process just now.
	Changed time.Time
	// Extra are the accounts of the spec that the map does not use, sorted;
	// only EnsureWorkload sets it.
	Extra []string

	table storage.Table
	etag  storage.ETag
	read  time.Time // when the read was sent
}

// Age is how long ago the row was read, counted from the moment the request was
// sent. The map is good for Puts while it is below MapMaxAge.
func (w *Workload) Age() time.Duration { return time.Since(w.read) }

// EnsureWorkload makes the table and the workload's row if they are not there,
// and otherwise checks that the row agrees with the spec. What is pinned and
// disagrees is a [*MismatchError], or several joined, naming field and fix. The
// row's map wins over the spec's accounts, weights and states (P6.6): accounts
// that only the spec has are no error but the result's Extra, and those that only
// the row has are for the caller to judge, who knows for which it has credentials. Other
// queues of an account than the map's are an error, because tasks would stay in
// queues that this process does not know. It may be called by any number of
// processes at once: all get the same map. It gives up after a minute.
func EnsureWorkload(ctx context.Context, t storage.Table, spec WorkloadSpec) (*Workload, error) {
	if err := spec.valid(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r := workloadRowOf(t, spec.Name)
	for {
		v, err := r.mustRead(ctx)
		if storage.Is(err, storage.Missing) {
			if err := createTable(ctx, t); err != nil {
				return nil, err
			}
			v, err = r.mustRead(ctx)
		}
		if err == nil && v.absent() {
			// To place the segments on a thousand queues takes a second, so only who finds no row does it.
			first, wrong := spec.first()
			if wrong != nil {
				return nil, wrong
			}
			// Whoever inserts first makes the map; losing is reading the winner's.
			if v, err = r.tryWrite(ctx, v, first); errors.Is(err, errLost) {
				continue
			}
		}
		if err != nil {
			return nil, fmt.Errorf("workload %q: %w", spec.Name, err)
		}
		w := workloadFrom(t, spec.Name, v)
		w.Extra = spec.Extra(w)
		return w, spec.Check(w)
	}
}

// LoadWorkload reads the workload's row. It is ErrNoWorkload if there is none.
func LoadWorkload(ctx context.Context, t storage.Table, name string) (*Workload, error) {
	if err := checkWorkloadName(name); err != nil {
		return nil, err
	}
	v, err := workloadRowOf(t, name).mustRead(ctx)
	if storage.Is(err, storage.Missing) {
		return nil, fmt.Errorf("workload %q: %w", name, ErrNoWorkload) // nor has it a table
	}
	if err != nil {
		return nil, fmt.Errorf("workload %q: %w", name, err)
	}
	if v.absent() {
		return nil, fmt.Errorf("workload %q: %w", name, ErrNoWorkload)
	}
	return workloadFrom(t, name, v), nil
}

// Refresh reads the row once more and gives what it says now, with the same Map
// if that did not change. It is one request, tried again only by the caller:
// while it fails, the old map ages. It is ErrReplaced or ErrNoWorkload if the
// row is no later version of the same workload.
func (w *Workload) Refresh(ctx context.Context) (*Workload, error) {
	v, err := workloadRowOf(w.table, w.Name).read(ctx)
	if err != nil {
		return nil, fmt.Errorf("workload %q: %w", w.Name, err)
	}
	if v.absent() {
		return nil, fmt.Errorf("workload %q: %w", w.Name, ErrNoWorkload)
	}
	return w.later(workloadFrom(w.table, w.Name, v))
}

// later gives now, unless it is no later version of the same workload.
func (w *Workload) later(now *Workload) (*Workload, error) {
	if now.etag == w.etag {
		now.Map = w.Map
		return now, nil
	}
	switch {
	case now.Map.Segments != w.Map.Segments || now.Delivery != w.Delivery || now.Shared != w.Shared:
		return nil, fmt.Errorf("workload %q: %w: segments, delivery or sharing differ", w.Name, ErrReplaced)
	case now.Map.Version < w.Map.Version:
		return nil, fmt.Errorf("workload %q: %w: its map has version %d after %d", w.Name, ErrReplaced, now.Map.Version, w.Map.Version)
	}
	return now, nil
}

// createTable waits for an older table of that name to be gone (about 40 s).
func createTable(ctx context.Context, t storage.Table) error {
	for attempt := 1; ; attempt++ {
		call, cancel := context.WithTimeout(ctx, requestTimeout)
		err := t.Create(call)
		cancel()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil || !mayRetry(err) && !storage.Is(err, storage.Missing) {
			return fmt.Errorf("creating table %s: %w", t.Name(), err)
		}
		drawOf(t).pause(ctx, t.Name(), attempt, requestTimeout/5, err)
	}
}

// workloadRow is the row's content.
type workloadRow struct {
	shards   *shardmap.Map
	delivery string
	shared   bool
	reducer  string
	changes  []string // ids of the map's last changes, oldest first; see ChangeMap
}

func workloadFrom(t storage.Table, name string, v version[workloadRow]) *Workload {
	return &Workload{
		Name: name, Map: v.value.shards, Delivery: v.value.delivery, Shared: v.value.shared, Reducer: v.value.reducer, Changed: v.modified,
		table: t, etag: v.etag, read: v.sent,
	}
}

func workloadRowOf(t storage.Table, name string) row[workloadRow] {
	return row[workloadRow]{
		table: t, partition: name, key: "workload", timeout: requestTimeout,
		encode: func(w workloadRow) map[string]any {
			// It was marshalled once before, when the map was made or read.
			stored, _ := w.shards.MarshalBinary()
			props := map[string]any{
				"Segments": int64(w.shards.Segments), "Delivery": w.delivery, "Shared": w.shared,
				"Map": stored, "MapVersion": fmt.Sprint(w.shards.Version),
			}
			if w.reducer != "" {
				props["Reducer"] = w.reducer
			}
			if len(w.changes) > 0 {
				props["Changes"] = strings.Join(w.changes, " ")
			}
			return props
		},
		decode: func(f *fields) workloadRow {
			w := workloadRow{shards: new(shardmap.Map), delivery: f.text("Delivery"), shared: f.flag("Shared"), reducer: f.text("Reducer"), changes: strings.Fields(f.text("Changes"))}
			if err := w.shards.UnmarshalBinary(f.binary("Map")); err != nil {
				f.fail("Map", err.Error())
			}
			// Pinned twice on purpose: a map of another S must never get in.
			if f.integer("Segments") != int64(w.shards.Segments) {
				f.fail("Segments", "is not the number of segments of the map")
			}
			if w.delivery != DeliverAtLeastOnce && w.delivery != DeliverOnce {
				f.fail("Delivery", fmt.Sprintf("is %q", w.delivery))
			}
			return w
		},
	}
}

// Dots separate the parts of a partition key, so a name has none.
var validName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,63}$`)

func checkWorkloadName(name string) error {
	if !validName.MatchString(name) {
		return fmt.Errorf("workload name %q: use 1 to 63 of letters, digits, - and _", name)
	}
	return nil
}
