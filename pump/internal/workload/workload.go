package workload

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/shardmap"
)

// Errors about workloads, wrapped with detail.
var (
	// ErrDeleting: an operator deletes the workload, or has begun to.
	ErrDeleting = errors.New("the workload is being deleted: " +
		"distributor workload delete has marked it, and no process takes part in it any more")
	// ErrRolledBack: the row is an older version of the one that was read before.
	ErrRolledBack = errors.New("the workload's row came back as it was some time ago: " +
		"its account failed over, or the table was restored")
	// ErrReplaced: the row that was read before was deleted and made again. Restart the process.
	ErrReplaced = errors.New("the workload was deleted and made again while " +
		"this process was running, and this process does not touch the new one; restart it")
)

// MapMaxAge is how long after it was read a map may be used for Puts (P6.5,
// docs/protocols.md): a queue that is being removed waits that long for writers to notice.
const MapMaxAge = 30 * time.Second

// Spec is what a configuration says about a workload.
type Spec struct {
	// Name is 1 to 63 of [A-Za-z0-9_-].
	Name string
	// Segments is S, a multiple of 64, or 0 for shardmap.DefaultSegments of the shards in a new
	// workload and for the pinned value of an existing one.
	Segments int
	// Shared: segments have no owners and any instance takes anything.
	Shared bool
	// Shards are the queues. They make the map of a new workload; with an existing one only the list
	// of queues is compared.
	Shards []shardmap.Shard
	// Guessed are the accounts whose number of queues is a default: with an existing workload it is
	// not compared.
	Guessed map[string]bool
	// Delivery is that of a pump.Config.
	Delivery string
	// ForeignKey names the field that is the key of other programs' messages; empty: none in a new
	// workload, and the pinned value of an existing one.
	ForeignKey string
	// Maker, if set, sees to it that the workload is made in one account only.
	Maker *Maker
}

// Workload is a workload's row as it was read at one moment. It never changes;
// Refresh gives a newer one.
type Workload struct {
	Name     string
	Map      *shardmap.Map
	Delivery string
	Shared   bool
	// Incarnation tells a workload from an earlier one of its name. It is random, and
	// empty for a workload that was made by a version without it.
	Incarnation string
	// ForeignKey names the field that is the key of other programs' messages; empty: they have none.
	ForeignKey string
	// Reducer names what folds the tasks into states; empty if nothing does. See PinReducer.
	Reducer string
	// Made is when it was made, by the clock of the distributor that made it, for people; zero if an
	// older version made it.
	Made time.Time
	// Changed is the row's last write, which is the last change of its map, by the
	// server's clock; zero if it was written by this process just now.
	Changed time.Time
	// Deleting is when its deletion was begun, by the clock of that process; zero if it was not.
	Deleting time.Time
	// Paused is an operator's mark: no task of the workload is to be started now.
	Paused Pause
	// PausedParts are the runs and keys that are paused by themselves.
	PausedParts PausedParts
	// Ended are the runs that operators have ended lately, the last one last.
	Ended []EndedRun
	// Settings are the values that operators have set for all processes; nil: none.
	Settings Settings
	// Extra are the accounts of the spec that the map does not use, sorted;
	// Ensure sets it, and the distributor when it reads the row again.
	Extra []string

	Table  storage.Table
	etag   storage.ETag
	read   time.Time // when the read was sent
	origin uint64    // see Row
}

// PutBack reports whether the map had gone back and was put back by a process that knew it.
func (w *Workload) PutBack() bool { return w.origin > 0 && w.origin < w.Map.Version }

// Age is how long ago the row was read, counted from the moment the request was sent. The map is
// good for Puts while it is below MapMaxAge. The wall clock counts if it says more: the monotonic
// clock stands still while a machine is suspended.
func (w *Workload) Age() time.Duration {
	return max(time.Since(w.read), time.Now().Round(0).Sub(w.read.Round(0)))
}

// Ensure makes the table and the workload's row if they are not there, and otherwise checks that
// the row agrees with the spec. A pinned value that disagrees is a [*pump.MismatchError], or
// several joined, naming field and fix. The row's map wins over the spec's accounts, weights and
// states (P6.6): accounts that only the spec has are the result's Extra, not an error, and accounts
// that only the row has are for the caller to judge, which knows its credentials. It is
// an error if the spec and the map have different queues of one account, because tasks would stay
// in queues that this process does not know. Any number of processes may call Ensure at once: all
// get the same map. It gives up after a minute.
func Ensure(ctx context.Context, t storage.Table, spec Spec) (*Workload, error) {
	if err := spec.valid(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, row.Patience)
	defer cancel()
	r := RowOf(t, spec.Name)
	for lost := 0; ; {
		v, err := r.MustReadOrCreate(ctx)
		if err == nil && v.Absent() {
			if lost > 0 && spec.Maker != nil {
				err = spec.Maker.stepAside(ctx, anchorRowOf(t, spec.Name), lost)
			}
			if err == nil {
				// The first to insert makes the map; the others read it.
				v, err = spec.makeRow(ctx, r)
			}
			if errors.Is(err, row.ErrLost) {
				lost++
				continue
			}
		}
		if err != nil {
			return nil, fmt.Errorf("workload %q: %w", spec.Name, err)
		}
		w := FromRow(t, spec.Name, v)
		w.Extra = spec.Extra(w)
		if err := w.standing(); err != nil {
			return w, err
		}
		return w, spec.Check(w)
	}
}

// Load reads the workload's row. It fails with pump.ErrNoWorkload without a row. For a workload
// that is being deleted it gives the workload and ErrDeleting.
func Load(ctx context.Context, t storage.Table, name string) (*Workload, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	v, err := RowOf(t, name).MustRead(ctx)
	if row.NoTable(err) {
		return nil, fmt.Errorf("workload %q: %w", name, pump.ErrNoWorkload) // nor is there a table
	}
	if err != nil {
		return nil, fmt.Errorf("workload %q: %w", name, err)
	}
	if v.Absent() {
		return nil, fmt.Errorf("workload %q: %w", name, pump.ErrNoWorkload)
	}
	w := FromRow(t, name, v)
	return w, w.standing()
}

// standing is nil for a workload that is not being deleted.
func (w *Workload) standing() error {
	if w.Deleting.IsZero() {
		return nil
	}
	return fmt.Errorf("workload %q: %w", w.Name, ErrDeleting)
}

// Refresh reads the row once more and gives what it says now, with the same Map if that did not
// change. It is one request, tried again only by the caller: while it fails, the old map ages. It
// is ErrReplaced or pump.ErrNoWorkload if the row is not the same or a later version of the
// workload; see [Lost].
func (w *Workload) Refresh(ctx context.Context) (*Workload, error) {
	v, err := RowOf(w.Table, w.Name).Read(ctx)
	if err != nil {
		return nil, fmt.Errorf("workload %q: %w", w.Name, err)
	}
	if v.Absent() {
		return nil, w.Deleted()
	}
	return w.Later(FromRow(w.Table, w.Name, v))
}

// Lost reports whether an error of a look at a workload says that the workload that a process began
// with is gone: its row is marked, was deleted, or made again. Waiting does not mend it.
func Lost(err error) bool {
	return errors.Is(err, ErrReplaced) || errors.Is(err, pump.ErrNoWorkload) ||
		errors.Is(err, ErrDeleting)
}

// Deleted is the error for a process that has read the workload and finds its row gone: a
// pump.ErrNoWorkload that says what to do.
func (w *Workload) Deleted() error {
	return fmt.Errorf("workload %q: %w any more: it was deleted while this process was running; "+
		"restart the process if the workload shall exist again", w.Name, pump.ErrNoWorkload)
}

// Later gives now, with an error unless it is the same or a later version of the same workload.
func (w *Workload) Later(now *Workload) (*Workload, error) {
	if now.etag == w.etag {
		now.Map = w.Map
		return now, nil
	}
	err := w.Replaced(now)
	if errors.Is(err, ErrRolledBack) {
		err = w.putBack(err)
	}
	return now, err
}

// Replaced compares with a later reading of the row. It is nil for the same workload, an
// [ErrDeleting] if that is being deleted, and otherwise an [ErrReplaced] that says how it shows.
// Only the incarnation always shows it: a workload that was made again may have the same queues and
// the same version of its map.
func (w *Workload) Replaced(now *Workload) error {
	switch {
	case now.Incarnation != w.Incarnation:
		return fmt.Errorf("workload %q: %w (its incarnation is %q, not %q)",
			w.Name, ErrReplaced, now.Incarnation, w.Incarnation)
	case now.Map.Segments != w.Map.Segments || now.Delivery != w.Delivery || now.Shared != w.Shared ||
		now.ForeignKey != w.ForeignKey:
		return fmt.Errorf("workload %q: %w (segments, delivery, sharing or the key "+
			"of foreign messages differ)",
			w.Name, ErrReplaced)
	case now.origin < w.origin:
		return fmt.Errorf("workload %q: %w (its map is that of version %d, and was that of version %d)",
			w.Name, ErrRolledBack, now.origin, w.origin)
	case now.etag != w.etag && now.Map.Version == w.Map.Version && !sameMap(now.Map, w.Map):
		return fmt.Errorf("workload %q: %w (its row came back as it was some time "+
			"ago and was changed then: its map has version %d as before, and other queues)", w.Name,
			ErrReplaced, now.Map.Version)
	}
	return now.standing()
}

// Row is the row's content.
type Row struct {
	shards   *shardmap.Map
	delivery string
	shared   bool
	reducer  string
	// foreignKey never changes: by another key a message would be in another segment, whose ledger
	// does not know its done tasks.
	foreignKey string
	// incarnation is drawn when the row is made, and never changes.
	incarnation string
	made        time.Time
	deleting    time.Time
	paused      Pause
	pausedParts PausedParts
	ended       []EndedRun
	settings    Settings
	// origin is the version with which the map was made: a map that was put back has a new version,
	// and its origin. 0: its version.
	origin  uint64
	changes []string // ids of the row's last changes, oldest first; see changeRow
}

// FromRow is the workload that a row holds.
func FromRow(t storage.Table, name string, v row.Version[Row]) *Workload {
	origin := v.Value.origin
	if origin == 0 && v.Value.shards != nil {
		origin = v.Value.shards.Version
	}
	return &Workload{
		Name: name, origin: origin, Map: v.Value.shards, Delivery: v.Value.delivery,
		Shared: v.Value.shared, Reducer: v.Value.reducer,
		ForeignKey: v.Value.foreignKey, Incarnation: v.Value.incarnation, Made: v.Value.made,
		Changed: v.Modified, Deleting: v.Value.deleting,
		Paused: v.Value.paused, PausedParts: v.Value.pausedParts, Ended: v.Value.ended,
		Settings: v.Value.settings, Table: t, etag: v.ETag, read: v.Sent,
	}
}

// A map is stored in properties of mapPart bytes, a small one in the first alone.
const (
	mapPart  = 60 << 10
	mapParts = shardmap.MaxBytes / mapPart
)

// keyedFormat is the layout of a row with a foreign key. A program that does not know it would
// look for other programs' messages in other segments, so it must not take part.
const keyedFormat = 2

// RowOf is the row of a workload, in the table of any account.
func RowOf(t storage.Table, name string) row.Row[Row] {
	return row.Row[Row]{
		Table: t, Partition: name, Key: "workload", Timeout: row.RequestTimeout, Newest: keyedFormat,
		Encode: func(w Row) map[string]any {
			// It was marshalled once before, when the map was made or read.
			stored, _ := w.shards.MarshalBinary()
			props := map[string]any{
				"Segments": int64(w.shards.Segments), "Delivery": w.delivery, "Shared": w.shared,
				"MapVersion": fmt.Sprint(w.shards.Version),
			}
			row.PutParts(props, "Map", mapPart, stored)
			if w.reducer != "" {
				props["Reducer"] = w.reducer
			}
			if w.foreignKey != "" {
				props["ForeignKey"], props[row.FormatProperty] = w.foreignKey, int64(keyedFormat)
			}
			if w.incarnation != "" {
				props["Incarnation"] = w.incarnation
			}
			if !w.made.IsZero() {
				props["Made"] = w.made
			}
			if !w.deleting.IsZero() {
				props["Deleting"] = w.deleting
			}
			w.paused.encode(props)
			if len(w.pausedParts) > 0 {
				props["PausedParts"] = encodePausedParts(w.pausedParts)
			}
			if len(w.ended) > 0 {
				props["Ended"] = encodeEnded(w.ended)
			}
			if len(w.settings) > 0 {
				props["Settings"] = row.Pack(w.settings)
			}
			if w.origin > 0 {
				props["MapOrigin"] = fmt.Sprint(w.origin)
			}
			if len(w.changes) > 0 {
				props["Changes"] = strings.Join(w.changes, " ")
			}
			return props
		},
		Decode: func(f *row.Fields) Row {
			w := Row{
				shards: new(shardmap.Map), delivery: f.Text("Delivery"), shared: f.Flag("Shared"),
				reducer: f.Text("Reducer"), foreignKey: f.Text("ForeignKey"),
				incarnation: f.Text("Incarnation"), made: f.Moment("Made"), deleting: f.Moment("Deleting"),
				changes:     strings.Fields(f.Text("Changes")),
				paused:      Pause{Since: f.Moment("Paused"), By: f.Line("PausedBy")},
				pausedParts: decodePausedParts(f), ended: decodeEnded(f), settings: decodeSettings(f),
			}
			if of := f.Text("MapOrigin"); of != "" {
				var err error
				if w.origin, err = strconv.ParseUint(of, 10, 64); err != nil {
					f.Fail("MapOrigin", err.Error())
				}
			}
			if err := w.shards.UnmarshalBinary(f.Parts("Map", mapParts)); err != nil {
				f.Fail("Map", err.Error())
			}
			// Pinned twice on purpose: a map of another S must never get in.
			if f.Integer("Segments") != int64(w.shards.Segments) {
				f.Fail("Segments", "is not the number of segments of the map")
			}
			if w.delivery != string(pump.AtLeastOnce) && w.delivery != string(pump.Once) {
				f.Fail("Delivery", fmt.Sprintf("is %q", w.delivery))
			}
			return w
		},
	}
}

// Dots separate the parts of a partition key, so a name has none.
var validName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,63}$`)

// CheckName says what is wrong with a workload's name; nil: nothing.
func CheckName(name string) error {
	if !validName.MatchString(name) {
		return fmt.Errorf("workload name %q: use 1 to 63 of letters, digits, - and _", name)
	}
	return nil
}

// PoisonQueue is the queue of each account that its quarantined messages go to.
func PoisonQueue(workload string) string { return workload + "-poison" }
