package reduce

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/queuepump/queuepump/pump"
)

// Reducer makes a [pump.Handler] whose tasks have no effect of their own but contribute to a state,
// which is kept beside the ledger: a task's contribution and the record that the task
// is done are one conditional write. With [pump.Once] each task that is done is in the state
// exactly once, also after a crash, a pause or a second delivery; with [pump.AtLeastOnce] a task
// that is delivered again is in it again.
//
// Each segment has a state. Only the segment's owner changes it, and it goes with the segment from
// one processor to the next; [Reducer.States] reads all states. All tasks of a key are in the state
// of the key's segment. A state may take 1 MiB compressed and 16 MiB before that. Tasks that do not
// fit, or make a state that Encode refuses, wait before Map, are tried less and less often, and go
// into quarantine as [codec.ReasonStateFull] when results have been refused for an hour. The log,
// the metric state_used and readiness tell of a full state, and the log already of a half-full one.
// A state that grows with the number of tasks, and not of the things that they are about, belongs
// elsewhere. A state is written whenever tasks of its segment are recorded, so a small one is
// cheaper.
//
// Give the result of [Reducer.Handler] to [processor.New] as it is: behind another Handler, or with
// processor.Options.MinInterval or Discard, it does not work. The workload must not be
// [pump.Shared]. All processors of a workload use the same Reducer: the workload pins its Name.
type Reducer[S, D any] struct {
	// Name says what the states mean and how they are encoded: 1 to 200 bytes of printable text,
	// "totals/2" for example. It is pinned in the workload when its first processor starts, and a
	// processor with another one, or with none, refuses to work. Change it whenever the reducer cannot
	// go on with older states.
	Name string
	// Map makes a task's contribution. It is called like Handle in [pump.Handler], many at once and
	// again after a failure, and its errors mean the same. It must neither keep parts of the task in D
	// (Key and Body are only valid until it returns) nor change anything outside, as its result may be
	// dropped and made again.
	Map func(ctx context.Context, t *pump.Task) (D, error)
	// Fold adds a contribution to a state, which is the zero S at first. One goroutine at a time calls
	// it for a segment, in any order of tasks, and again from an earlier state when a write was lost:
	// it must do nothing but change *state. A panic in it ends the process, as it is not known what it
	// left behind.
	Fold func(state *S, d D)
	// Encode and Decode store a state; both or neither is given. Default: JSON. Equal
	// states should have equal bytes.
	Encode func(state *S) ([]byte, error)
	Decode func(stored []byte) (S, error)
}

// maxReducerName bounds Reducer.Name, which stands in each state.
const maxReducerName = 200

var errNotReducing = errors.New(
	"a Reducer does nothing as a Handler behind another one; give it to processor.New itself",
)

// Handler is what a processor is given. It may be made more than once.
func (r *Reducer[S, D]) Handler() pump.Handler { return handler[S, D]{r} }

// handler is a Reducer as a processor takes it (ledger.Reducing), which turns its states into bytes
// and back:
//
//	1 byte   1, the version of this layout
//	uvarint  length of the reducer's name
//	         the name
//	         the state, by Encode
type handler[S, D any] struct{ *Reducer[S, D] }

const storedVersion = 1

// Handle fails: a processor does not call it, and any other caller would drop what the task
// contributes.
func (r handler[S, D]) Handle(context.Context, *pump.Task) error { return errNotReducing }

// Pinned is the name.
func (r handler[S, D]) Pinned() string { return r.Name }

// Check says what is wrong with the reducer.
func (r handler[S, D]) Check() error {
	bad := func(problem, fix string) error {
		return pump.Invalid("reducer", problem, fix)
	}
	switch {
	case r.Name == "" || len(r.Name) > maxReducerName || !printable(r.Name):
		return bad(
			fmt.Sprintf("%.80q is not a reducer's name", r.Name),
			fmt.Sprintf("use 1 to %d bytes of printable text", maxReducerName),
		)
	case r.Map == nil || r.Reducer.Fold == nil:
		return bad("it has no Map or no Fold", "give both")
	case (r.Encode == nil) != (r.Decode == nil):
		return bad("only one of Encode and Decode is given", "give both, or leave both out for JSON")
	}
	// A type that cannot be encoded (JSON of a channel) shows before the first task is taken.
	b, err := r.Store(new(S))
	if err == nil {
		_, err = r.Load(b)
	}
	if err != nil {
		return &pump.ConfigError{
			Field:   "reducer",
			Problem: fmt.Sprintf("the zero state cannot be stored: %v", err),
			Fix:     "give an Encode and a Decode that can",
			Err:     err,
		}
	}
	return nil
}

func printable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool {
		return r < ' ' || r == 0x7f || r == utf8.RuneError
	})
}

// Contribute is what a task adds to the state of its segment.
func (r handler[S, D]) Contribute(ctx context.Context, t *pump.Task) (any, error) {
	return r.Map(ctx, t)
}

// Load gives a *S; nil bytes stand for a segment without a state.
func (r handler[S, D]) Load(stored []byte) (any, error) {
	if len(stored) == 0 {
		return new(S), nil
	}
	name, encoded, err := cutStored(stored)
	if err != nil {
		return nil, err
	}
	if name != r.Name {
		return nil, pump.Invalid("reducer", fmt.Sprintf("it is %q, but the state was made by %q",
			r.Name, name), "use that one, or another workload")
	}
	state := new(S)
	if r.Decode == nil {
		err = json.Unmarshal(encoded, state)
	} else {
		*state, err = r.Decode(encoded)
	}
	if err != nil {
		return nil, fmt.Errorf("decode a state of reducer %q: %w", r.Name, err)
	}
	return state, nil
}

// cutStored tells which reducer made a state, and gives the state's own bytes.
func cutStored(stored []byte) (name string, encoded []byte, err error) {
	if len(stored) == 0 || stored[0] != storedVersion {
		return "", nil, fmt.Errorf(
			"the state of a reducer begins with %.4q: this program reads version %d", stored,
			storedVersion,
		)
	}
	n, size := binary.Uvarint(stored[1:])
	rest := stored[1+max(size, 0):]
	if size <= 0 || n > maxReducerName || n > uint64(len(rest)) {
		return "", nil, errors.New("the state of a reducer is cut short in the reducer's name")
	}
	return string(rest[:n]), rest[n:], nil
}

// Fold shadows the Reducer's: a nil contribution is the zero D, as D may be an interface.
func (r handler[S, D]) Fold(state, contribution any) {
	d, _ := contribution.(D)
	r.Reducer.Fold(state.(*S), d)
}

func (r handler[S, D]) Store(state any) ([]byte, error) {
	s := state.(*S)
	var encoded []byte
	var err error
	if r.Encode == nil {
		encoded, err = json.Marshal(s)
	} else {
		encoded, err = r.Encode(s)
	}
	if err != nil {
		return nil, fmt.Errorf("encode a state of reducer %q: %w", r.Name, err)
	}
	var b bytes.Buffer
	b.Grow(len(encoded) + len(r.Name) + 3)
	b.WriteByte(storedVersion)
	b.Write(binary.AppendUvarint(nil, uint64(len(r.Name))))
	b.WriteString(r.Name)
	b.Write(encoded)
	return b.Bytes(), nil
}
