package row

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/storage"
)

// Draw gives 64 random bits for something that an operation on an object needs
// by chance: a jitter, a nonce. It may be called from many goroutines at once.
type Draw func(operation, object string) uint64

// Seeded gives a handle of the same table on which the control plane takes
// jitter and nonces from draw instead of the system's random source, so that a
// simulation has the same history for the same seed (P9, docs/protocols.md). It must be
// the outermost wrapper of the table that is handed to this package.
func Seeded(t storage.Table, draw Draw) storage.Table { return SeededTable{Table: t, Draw: draw} }

// SeededTable is a table with a source of draws and a clock of its own: see [Seeded] and
// [Suspended].
type SeededTable struct {
	storage.Table
	Draw  Draw // nil: by chance
	clock waits.Clock
}

// Suspended gives a handle of the same table for a process on a machine that a simulation suspends:
// ahead says by how much its wall clock has moved on more than its monotonic clock at a time. It
// keeps the draw of a Seeded table; like Seeded it must be the outermost wrapper.
func Suspended(t storage.Table, ahead func(at time.Time) time.Duration) storage.Table {
	s, ok := t.(SeededTable)
	if !ok {
		s.Table = t
	}
	s.clock.Ahead = ahead
	return s
}

// ClockOf is the clock for the trust of a process that reaches rows through the table.
func ClockOf(t storage.Table) waits.Clock {
	s, _ := t.(SeededTable)
	return s.clock
}

// DrawOf is the source of a table's draws: its own source, or the system's random source.
func DrawOf(t storage.Table) Draw {
	if s, ok := t.(SeededTable); ok && s.Draw != nil {
		return s.Draw
	}
	return func(string, string) uint64 {
		var b [8]byte
		_, _ = rand.Read(b[:]) // never fails: it ends the program instead
		return binary.LittleEndian.Uint64(b[:])
	}
}

// TokenOf names a process: its instance and a random part, which tells it from an
// earlier process of the same name, whose rows it must not take for its own.
func TokenOf(t storage.Table, instance string) string {
	return fmt.Sprintf("%s#%016x", instance, DrawOf(t)("incarnation", instance))
}

// InstanceOf is the instance of a leader's token.
func InstanceOf(token string) string {
	if i := strings.LastIndexByte(token, '#'); i >= 0 {
		return token[:i]
	}
	return token
}

// Nonce is 128 bits: two writers with the same nonce would each take the other's write for its own.
func (d Draw) Nonce(object string) string {
	return fmt.Sprintf("%016x%016x", d("nonce", object), d("nonce", object))
}

// SeededRunID draws the id of a new run of a workload as a simulation does: 128 bits that are not
// secret and differ from every other run's. Outside of simulations see [codec.NewRunID].
func SeededRunID(d Draw, workload string) (id codec.RunID) {
	binary.BigEndian.PutUint64(id[:8], d("run", workload))
	binary.BigEndian.PutUint64(id[8:], d("run", workload))
	return id
}

// Jitter spreads a duration over [3/4, 1] of it, to the nanosecond, so that
// equal timers of many processes neither fire together nor tie.
func (d Draw) Jitter(operation, object string, of time.Duration) time.Duration {
	if of <= 0 {
		return 0
	}
	return of - time.Duration(d(operation, object)%uint64(of/4+1))
}

// Spread is from 0 to most.
func (d Draw) Spread(operation, object string, most time.Duration) time.Duration {
	if most <= 0 {
		return 0
	}
	return time.Duration(d(operation, object) % uint64(most+1))
}

// Pause waits before attempt number `attempt` (1 is the first retry): twice as long each time up to
// longest, jittered, and at least as long as the service asked for. After a refusal it begins with
// a quarter of longest: a partition must not be filled by a thousand processes that each ask again
// a few times within the first half second. It returns early when the context ends.
func (d Draw) Pause(
	ctx context.Context, object string, attempt int, longest time.Duration, err error,
) {
	if storage.Is(err, storage.Throttled) {
		attempt += 3
	}
	wait := longest
	if attempt < 6 {
		wait = max(longest>>(6-attempt), time.Millisecond)
	}
	wait = d.Jitter("pause", object, wait)
	if e, ok := StorageError(err); ok {
		wait = max(wait, min(e.RetryAfter, longest))
	}
	waits.Sleep(ctx, wait, nil)
}
