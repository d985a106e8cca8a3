package worlds

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/source"
	"github.com/queuepump/queuepump/shardmap"
)

// simSource is what is distributed: n records, of which everything is a function of the
// seed. The elected distributors read one source; each client has one of its own.
type simSource struct {
	plan *simPlan
	name string
	n    int
	// tasks says of each segment which record each task of it is; where, of each
	// record which task it is.
	tasks map[uint32][]int
	bads  int
	brief bool // one of very many, and read in the time of a part of its turn

	files *simFiles // what it is read from, and what it comes to changes; nil: it is made on the way

	// sent: it is what one life of a program sends, of which these records were acknowledged.
	sent         bool
	acknowledged map[int]bool
}

func newSimSource(plan *simPlan, name string, n int) *simSource {
	s := &simSource{plan: plan, name: name, n: n, tasks: map[uint32][]int{}}
	for i := range n {
		if s.bad(i) {
			s.bads++
			continue
		}
		segment := shardmap.Segment([]byte(s.key(i)), plan.segments)
		s.tasks[segment] = append(s.tasks[segment], i)
	}
	return s
}

func (s *simSource) roll(n uint64, what string, i int) uint64 {
	return testworld.SimHash(s.plan.seed, s.name, what, i) % n
}

func (s *simSource) bad(i int) bool {
	return !s.sent && s.files == nil && s.roll(100, "bad", i) < uint64(s.plan.bad)
}

func (s *simSource) key(i int) string {
	return "key " + strconv.Itoa(int(s.roll(uint64(s.plan.keys), "key", i)))
}

func (s *simSource) body(i int) string { return s.name + " " + strconv.Itoa(i) }

// simFate is what handling a record comes to.
type simFate uint8

const (
	simDone    simFate = iota
	simFails           // for some attempts
	simLater           // asks for a retry, once or twice
	simPanics          // once
	simRelease         // is put back once, without an attempt
	simRejected
	simHopeless // fails always
)

// live: it cannot be read again. Beside a named run only its own source is so.
func (s *simSource) live() bool { return s.plan.live && (s.name == "named" || !s.plan.named()) }

// fate of a record, and for how many attempts it is so.
func (s *simSource) fate(i int) (simFate, int) {
	if s.roll(100, "trouble", i) >= uint64(s.plan.trouble) {
		return simDone, 0
	}
	switch r := s.roll(20, "fate", i); {
	case r < 8:
		return simFails, 1 + int(s.roll(simAttempts-1, "attempts", i))
	case r < 12:
		return simLater, 1 + int(s.roll(2, "attempts", i))
	case r < 14:
		return simPanics, 1
	case r < 16:
		return simRelease, 1
	case r < 18:
		return simRejected, 0
	}
	return simHopeless, 0
}

// condemned: the record's task ends in quarantine.
func (s *simSource) condemned(i int) bool {
	f, _ := s.fate(i)
	return f >= simRejected
}

// sum is what a record adds to the state of a reducer.
func (s *simSource) sum(i int) int64 { return int64(s.roll(1000, "sum", i)) - 300 }

// simReading is the source as one process reads it.
type simReading struct {
	*simSource
	by *simProcess
}

func (s simReading) Fingerprint(context.Context) (string, error) {
	if s.live() {
		return "", nil
	}
	return fmt.Sprintf("%s %d", s.name, s.plan.seed), nil
}

func (s simReading) Open(_ context.Context, cursor []byte) (source.Reader, error) {
	r := &simReader{simReading: s}
	if len(cursor) > 0 {
		if s.live() {
			return nil, errors.New("a live source was opened at a cursor")
		}
		var err error
		if r.next, err = strconv.Atoi(string(cursor)); err != nil {
			return nil, err
		}
	}
	return r, nil
}

type simReader struct {
	simReading
	next int
}

// Next gives the records in bursts, as a disk or a network does.
func (r *simReader) Next(ctx context.Context) (source.Record, error) {
	const burst = 10
	if r.next >= r.n {
		return source.Record{}, io.EOF
	}
	if r.next%burst == 0 {
		d := r.plan.pace * burst / time.Duration(r.n)
		if r.brief {
			d = min(d, r.plan.every/4)
		}
		if !waits.Wait(ctx, d/2+time.Duration(r.roll(uint64(d)+1, "pace", r.next))) {
			return source.Record{}, context.Cause(ctx)
		}
		r.by.stopped("reads")
	}
	i := r.next
	r.next++
	if r.bad(i) {
		return source.Record{}, &source.BadInput{Where: r.body(i), Raw: []byte("bad " + r.body(i)), Err: testworld.ErrFlop}
	}
	return source.Record{Key: []byte(r.key(i)), ID: r.body(i), Body: r.sends(i)}, nil
}

func (r *simReader) AppendCursor(dst []byte) []byte { return strconv.AppendInt(dst, int64(r.next), 10) }
func (r *simReader) Progress() (int64, int64)       { return int64(r.next), int64(r.n) }
func (r *simReader) Close() error                   { return nil }

// recordOf is the record that a body names.
func recordOf(body []byte) (source string, i int, err error) {
	small, _, _ := strings.Cut(string(body), "\n")
	source, number, ok := strings.Cut(small, " ")
	if !ok {
		return "", 0, fmt.Errorf("%q is no body of a simulated task", body)
	}
	i, err = strconv.Atoi(number)
	return source, i, err
}
