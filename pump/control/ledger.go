package control

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump/storage"
)

// Errors of the ledger, wrapped with detail.
var (
	// ErrFenced: the segment's head belongs to another owner, or to a later hold, or
	// this one was never fenced. Nothing more will be recorded under it.
	ErrFenced = errors.New("the segment's ledger belongs to another owner")
	// ErrLedgerFull: what is to be recorded does not fit into what a segment may have stored.
	ErrLedgerFull = errors.New("the segment's ledger is full")
)

const (
	// maxLiveRuns bounds the runs of a segment, so that its counts fit a property of
	// 64 KiB: an id and two numbers of ten bytes at most.
	maxLiveRuns = 1800
	// bookedMost bounds what is stored of runs and foreign messages in a segment, beside maxState
	// for the state. Past bookedSoft nothing is begun that needs a record more, so that what has
	// begun can still be recorded.
	bookedMost = 1 << 20
	bookedSoft = bookedMost * 3 / 4
)

// State is a reducer's state of one segment, opaque to the ledger. Its methods are
// called by one goroutine at a time for each segment.
type State interface {
	// Load makes a state of what Store gave; of nil the state in which nothing was
	// folded yet. It must not keep stored.
	Load(stored []byte) (state any, err error)
	// Fold adds a contribution. It cannot fail, and the same contribution may be
	// folded again into a state that was loaded again, when a commit was lost.
	Fold(state, contribution any)
	// Store gives the state as bytes: at most 16 MiB, and 1 MiB when compressed.
	Store(state any) ([]byte, error)
}

// LedgerOptions says whose ledger it is and what it keeps.
type LedgerOptions struct {
	// Instance is this process's unique name; see [CheckInstance].
	Instance string
	// Record: what is done is kept (delivery mode once). Without it there is only
	// the state: nothing is recognised, and every contribution that is committed counts.
	Record bool
	// State is the reducer's; nil: there is none.
	State State
	// Log receives what happens. Default: nothing.
	Log *slog.Logger
}

// Ledger is what is done of the segments that this process holds (P3): for each
// live run which tasks are done and which stand in quarantine, which foreign
// messages were done last, and a reducer's state. It is kept in rows that only
// the segment's owner can write, and that alone decides who the owner is.
//
//	a segment         Fence: head at my epoch (CAS)      Drop
//	  not fenced ------------------------------> fenced -------> not fenced,
//	     ^                                         |             its own results
//	     |     the head is a foreign epoch's       |             can be committed
//	     +-----------------------------------------+             while the head is still mine
//
// Its methods may be called from many goroutines at once. Requests about one partition
// ([Ledger.Partition]) are made one after the other; those that wait for that end with their context.
type Ledger struct {
	table    storage.Table
	workload string
	options  LedgerOptions
	draw     Draw
	token    string // names this process as an owner

	segments   []ledgerSegment
	partitions []chan struct{} // each a lock, held while requests about the partition are made
}

// ledgerSegment is a segment as this process knows it.
type ledgerSegment struct {
	number uint32

	mu sync.Mutex // guards what follows; never held over a request
	// since and epoch are the first and the last epoch under which this process fenced the
	// segment, or tried to, without a foreign one between them; 0: none. Results of any
	// of them may be recorded while the head is still this process's.
	since, epoch uint64
	fenced       bool
	// image is what is stored, while fenced. Whoever holds the partition's lock may look at it
	// without mu and must change it with mu.
	image *image
	hand  hand
}

// OpenLedger gives the ledger of a workload; it makes no request.
func OpenLedger(t storage.Table, w *Workload, o LedgerOptions) *Ledger {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	l := &Ledger{
		table: t, workload: w.Name, options: o, draw: drawOf(t), token: tokenOf(t, o.Instance),
		segments:   make([]ledgerSegment, w.Map.Segments),
		partitions: make([]chan struct{}, (w.Map.Segments+partitionSegments-1)/partitionSegments),
	}
	for i := range l.segments {
		l.segments[i].number = uint32(i)
	}
	for i := range l.partitions {
		l.partitions[i] = make(chan struct{}, 1)
	}
	return l
}

// Partition is the partition of the table that holds a segment's rows. A commit
// is one transaction, or a few, of one partition.
func (l *Ledger) Partition(segment uint32) int { return int(segment) / partitionSegments }

func (l *Ledger) segment(number uint32) (*ledgerSegment, error) {
	if int(number) >= len(l.segments) {
		return nil, fmt.Errorf("segment %d of %d", number, len(l.segments))
	}
	return &l.segments[number], nil
}

func fencedOff(segment uint32, why string) error {
	return fmt.Errorf("segment %d: %w: %s", segment, ErrFenced, why)
}

// Fenced reports whether this process is the segment's writer under this epoch.
// It is quick. That it is can end at any moment, which a commit finds out.
func (l *Ledger) Fenced(segment uint32, epoch uint64) bool {
	s, err := l.segment(segment)
	if err != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fencedAs(epoch)
}

func (s *ledgerSegment) fencedAs(epoch uint64) bool { return s.fenced && s.epoch == epoch }

// Drop ends that segments are fenced, because their holds ended: nothing of them
// begins any more. Results of what was in hand can still be committed, and what is in hand
// stays so, for as long as no other owner was there.
func (l *Ledger) Drop(segments []uint32) {
	for _, number := range segments {
		if s, err := l.segment(number); err == nil {
			s.mu.Lock()
			s.fenced, s.image = false, nil
			s.mu.Unlock()
		}
	}
}

// lost forgets a segment whose head is another's: what is in hand of it is
// nobody's business any more.
func (s *ledgerSegment) lost() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since, s.epoch, s.fenced, s.image = 0, 0, false, nil
	s.hand = hand{}
}

// LiveRuns gives the runs of which something is recorded in the fenced segments, sorted.
func (l *Ledger) LiveRuns() []codec.RunID {
	live := map[codec.RunID]bool{}
	for i := range l.segments {
		s := &l.segments[i]
		s.mu.Lock()
		if s.image != nil {
			for id := range s.image.runs {
				live[id] = true
			}
		}
		s.mu.Unlock()
	}
	return slices.Clip(sortedRuns(live))
}
