package workload

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/shardmap"
)

// Pause is an operator's mark in a workload's row: no task of the workload is to be started; see
// "Pause" in docs/protocols.md. The zero value: not paused.
type Pause struct {
	Since time.Time // by the clock of the operator's machine
	By    string
}

// Is reports whether there is a mark.
func (p Pause) Is() bool { return !p.Since.IsZero() }

func (p Pause) encode(props map[string]any) {
	if p.Is() {
		props["Paused"], props["PausedBy"] = p.Since, row.Clip(p.By)
	}
}

// SetPause marks a workload as paused, or with the zero Pause takes the mark away, and gives the
// workload as it is then. A paused workload keeps its mark: people ask since when nothing is
// started. Changed is false if there was nothing to change. It is applied once at most and gives up
// after a minute, as ChangeMap.
func SetPause(
	ctx context.Context, t storage.Table, workload string, p Pause,
) (w *Workload, changed bool, err error) {
	if p.Is() {
		p.Since = p.Since.UTC().Truncate(time.Microsecond) // as it is stored
	}
	return changeRow(ctx, t, workload, func(is Row) (Row, bool, error) {
		if is.paused.Is() == p.Is() {
			return is, false, nil
		}
		is.paused = p
		return is, true, nil
	})
}

// PausedPart is an operator's mark: no task of a run, or of a key, is started until it is resumed;
// see "Pause" in docs/protocols.md.
type PausedPart struct {
	Run   codec.RunID `json:"run"` // zero: the mark is of a key
	Key   []byte      `json:"key,omitempty"`
	Since time.Time   `json:"since"` // by the clock of the operator's machine
	By    string      `json:"by"`
	// Seen is when this process saw the mark first.
	Seen time.Time `json:"-"`
}

// MaxPausedParts is how many paused runs and keys a workload has at most: each is compared with
// each task, and all are in one property.
const MaxPausedParts = 16

// MaxPausedKey is the longest key that can be paused, in bytes.
const MaxPausedKey = 512

// ErrPausedParts is the error of SetPausedPart if too many runs and keys are paused.
var ErrPausedParts = errors.New("no more runs and keys can be paused at the same time")

// String names the run or key.
func (p *PausedPart) String() string {
	if p.Run.IsZero() {
		return fmt.Sprintf("key %q", p.Key)
	}
	return "run " + p.Run.String()
}

// PausedParts are the marks of a workload.
type PausedParts []PausedPart

// Run is the mark of a run, or nil.
func (l PausedParts) Run(run codec.RunID) *PausedPart { return l.Find(PausedPart{Run: run}) }

// Key is the mark of a key, or nil.
func (l PausedParts) Key(key []byte) *PausedPart { return l.Find(PausedPart{Key: key}) }

// HasKeyOf reports whether there is the mark of a key whose segment this is.
func (l PausedParts) HasKeyOf(segment uint32, segments int) bool {
	return slices.ContainsFunc(l, func(p PausedPart) bool {
		return p.Run.IsZero() && shardmap.Segment(p.Key, segments) == segment
	})
}

// Find is the mark of the same run or key, or nil.
func (l PausedParts) Find(of PausedPart) *PausedPart {
	for i := range l {
		if p := &l[i]; p.Run == of.Run && bytes.Equal(p.Key, of.Key) {
			return p
		}
	}
	return nil
}

// SetPausedPart pauses a run or a key, or with no Since lets it go on. A paused one stays paused
// since its first mark. Changed is false if there was nothing to change. It is applied once at most
// and gives up after a minute, as [ChangeMap].
func SetPausedPart(
	ctx context.Context, t storage.Table, workload string, p PausedPart,
) (w *Workload, changed bool, err error) {
	pauses := !p.Since.IsZero()
	p.Since, p.By = p.Since.UTC().Truncate(time.Microsecond), row.Clip(p.By)
	return changeRow(ctx, t, workload, func(is Row) (Row, bool, error) {
		old, list := is.pausedParts.Find(p), slices.Clone(is.pausedParts)
		switch {
		case pauses == (old != nil):
			return is, false, nil
		case pauses && len(list) >= MaxPausedParts:
			return is, false, ErrPausedParts
		case pauses:
			is.pausedParts = append(list, p)
		default:
			is.pausedParts = slices.DeleteFunc(list, func(q PausedPart) bool {
				return PausedParts{q}.Find(p) != nil
			})
		}
		return is, true, nil
	})
}

func encodePausedParts(list PausedParts) string {
	text, _ := json.Marshal(list) // no part can fail
	return string(text)
}

func decodePausedParts(f *row.Fields) (list PausedParts) {
	text := f.Text("PausedParts")
	if text == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		f.Fail("PausedParts", "is not a list of paused runs and keys: "+err.Error())
		return nil
	}
	for i := range list {
		p := &list[i]
		if p.Run.IsZero() == (len(p.Key) == 0) || len(p.Key) > MaxPausedKey ||
			list[:i].Find(*p) != nil {
			f.Fail("PausedParts", fmt.Sprintf("entry %d is not a mark of a run or a key", i))
			return nil
		}
		p.By = row.Clip(p.By)
	}
	return list
}
