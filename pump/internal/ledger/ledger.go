package ledger

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/logs"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
)

// Errors of the ledger, wrapped with detail.
var (
	// ErrFenced: the segment's head belongs to another owner, or to a later hold, or this hold was
	// never fenced. Nothing more will be recorded under this hold.
	ErrFenced = errors.New("the segment's ledger belongs to another owner")
	// ErrLedgerFull: what is to be recorded does not fit into what a segment may have stored.
	ErrLedgerFull = errors.New("the segment's ledger is full")
	// ErrStateFull is an [ErrLedgerFull] about the reducer's state: these contributions would make it
	// too large, or such that it cannot be stored. Others may fit.
	ErrStateFull = fmt.Errorf("%w: there is no room for its reducer's state", ErrLedgerFull)
	// ErrTooManyRuns: a segment has the most live runs. It is an ErrLedgerFull that passes as runs
	// end.
	ErrTooManyRuns = fmt.Errorf("%w of live runs", ErrLedgerFull)
	// ErrTooManyForeign: a segment keeps the most names of done tasks without a run. It is an
	// ErrLedgerFull that passes as their messages are deleted, or the oldest names go.
	ErrTooManyForeign = fmt.Errorf("%w of foreign messages that may come again", ErrLedgerFull)
	// ErrResultsMoved: results were recorded since [Ledger.Results] was asked, by an own commit whose
	// answer was lost. The entry is to be committed again, with results that follow those.
	ErrResultsMoved = errors.New("other results of the run were recorded before these")
)

const (
	// maxLiveRuns bounds the runs of a segment, so that its counts fit countsParts properties of 64
	// KiB, each with countsPart runs: an id and two numbers of ten bytes at most. Each open Sender has
	// a live run in each segment with a task of it, and the head is written with each commit: 7,200
	// open runs are some 140 KB of it.
	maxLiveRuns = countsPart * countsParts
	countsPart  = 1800
	countsParts = 4
	countsBytes = countsPart * (16 + 2*10)
	// resultsParts are the properties of resultsPart bytes that hold where the runs' results are.
	resultsPart  = 60 << 10
	resultsParts = maxLiveRuns*resultsRoom/resultsPart + 1
	// restsMost bounds the rests of a segment: 28 bytes each at most stand in the head, which is
	// written with each commit.
	restsMost = 2400
	// bookedMost bounds what is stored of runs and foreign messages in a segment, beside maxState for
	// the state. Past bookedSoft no task begins that needs another record, so that begun tasks can
	// still be recorded.
	bookedMost = 1 << 20
	bookedSoft = bookedMost * 3 / 4
	// bookedSpare is left for what [image.grows] does not see: tasks of one chunk that are
	// settled with many generations have a set for each.
	bookedSpare = 16 << 10
)

// State is a reducer's state of one segment, opaque to the ledger. Its methods are
// called by one goroutine at a time for each segment.
type State interface {
	// Load makes a state from what Store gave, and the empty state from nil. It must not keep stored.
	Load(stored []byte) (state any, err error)
	// Fold adds a contribution. It cannot fail. After a lost commit the same contribution may be
	// folded again, into a state that was loaded again.
	Fold(state, contribution any)
	// Store gives the state as bytes: at most 16 MiB, and 1 MiB when compressed.
	Store(state any) ([]byte, error)
}

// Options says which owner the ledger has and what it keeps.
type Options struct {
	// Instance is this process's unique name; see [cluster.CheckInstance].
	Instance string
	// Record: what is done is kept (delivery mode once). Without it there is only the state: copies
	// are not recognised, and every committed contribution counts.
	Record bool
	// State is the reducer's, or nil.
	State State
	// Log receives what happens. Default: nothing.
	Log *slog.Logger
	// Old is told of segments whose rows came back older. It must be quick, and must not call the
	// ledger. May be nil.
	Old func(segments []uint32)
	// Names is how many names of tasks without a run a segment keeps at most, in a simulation that
	// has few. 0: MaxForeign.
	Names int
}

// Ledger is what is done in the segments that this process holds (P3): for each live run which
// tasks are done and which stand in quarantine, which done foreign messages may come again, and a
// reducer's state. It is kept in rows that only the segment's owner can write; the rows alone
// decide which process is the owner.
//
//	a segment      Fence: head at my epoch (CAS)    Load: pages     Drop
//	  not fenced ---------------------------> written --------> fenced ----> not fenced,
//	     ^                                       |                |          its own results
//	     |   the head is a foreign epoch's       |                |          can be committed
//	     +---------------------------------------+----------------+          while my head stands
//
// A segment without pages has all that it recorded in its head, so that it is fenced at once.
//
// Its methods may be called from many goroutines at once. Requests about one partition
// ([Ledger.Partition]) are made one after the other; a waiting request ends with its context.
type Ledger struct {
	table    storage.Table
	workload string
	options  Options
	draw     row.Draw
	token    string // names this process as an owner

	segments   []ledgerSegment
	partitions []chan struct{} // each a lock, held while requests about the partition are made

	aged      atomic.Pointer[time.Time] // see AgeForeign
	unwritten logs.Limited              // transactions are refused
}

// ledgerSegment is a segment as this process knows it.
type ledgerSegment struct {
	number uint32

	mu sync.Mutex // guards what follows; never held over a request
	// since and epoch are the first and the last epoch under which this process fenced the segment, or
	// tried to, without a foreign epoch between them; 0 without one. Results of all these epochs may
	// be recorded while the head is still this process's.
	since, epoch uint64
	// written: the head is known to be this process's under epoch. It ends with the hold, or when the
	// head turns out to be another process's.
	written bool
	// While written, head or image is set: head as it was fenced, if its pages are not loaded yet, or
	// image, which is what is stored. A goroutine with the partition's lock may look at them without
	// mu and must change them with mu.
	head     *ledgerHead
	image    *image
	inFlight inFlight
	// deleted are names of foreign messages that go with the next commit.
	deleted map[string]bool
	// top is the highest known epoch of the head, and commits the count of commits in the head when
	// that epoch was this process's. Less means that the rows came back older.
	top, commits uint64
	// above: it is fenced under later epochs only. Older rows replaced the rows up to this epoch,
	// which may come back themselves: an epoch has one history.
	above uint64
}

// Open gives the ledger of a workload; it makes no request.
func Open(t storage.Table, w *workload.Workload, o Options) *Ledger {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	l := &Ledger{
		table: t, workload: w.Name, options: o, draw: row.DrawOf(t), token: row.TokenOf(t, o.Instance),
		segments:   make([]ledgerSegment, w.Map.Segments),
		partitions: make([]chan struct{}, (w.Map.Segments+PartitionSegments-1)/PartitionSegments),
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
func (l *Ledger) Partition(segment uint32) int { return int(segment) / PartitionSegments }

func (l *Ledger) segment(number uint32) (*ledgerSegment, error) {
	if int(number) >= len(l.segments) {
		return nil, fmt.Errorf("segment %d of %d", number, len(l.segments))
	}
	return &l.segments[number], nil
}

// use calls f with a segment, if there is such a one, while its lock is held.
func (l *Ledger) use(number uint32, f func(s *ledgerSegment)) {
	if s, err := l.segment(number); err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		f(s)
	}
}

func fencedOff(segment uint32, why string) error {
	return fmt.Errorf("segment %d: %w: %s", segment, ErrFenced, why)
}

// Fenced reports whether this process is the segment's writer under this epoch and knows what is
// recorded of it. It is quick. The fence can end at any moment, which a commit finds out.
func (l *Ledger) Fenced(segment uint32, epoch uint64) (is bool) {
	l.use(segment, func(s *ledgerSegment) { is = s.fencedAs(epoch) })
	return is
}

// Unloaded reports whether this process is the segment's writer under this epoch and [Ledger.Load]
// is still to read what is recorded of it. It is quick.
func (l *Ledger) Unloaded(segment uint32, epoch uint64) (is bool) {
	l.use(segment, func(s *ledgerSegment) {
		is = s.written && s.epoch == epoch && s.image == nil && epoch > s.above
	})
	return is
}

func (s *ledgerSegment) fencedAs(epoch uint64) bool {
	return s.written && s.epoch == epoch && s.image != nil && epoch > s.above
}

// drop ends that the segment is fenced. The caller holds mu.
func (s *ledgerSegment) drop() { s.written, s.head, s.image = false, nil, nil }

// Drop ends the fencing of segments whose holds ended: no task of them begins any more. Tasks in
// hand stay in hand, and their results can still be committed until another owner has fenced.
func (l *Ledger) Drop(segments []uint32) {
	for _, number := range segments {
		l.use(number, (*ledgerSegment).drop)
	}
}

// sees notes a head that was read, and reports whether it came back older (a fail-over, a restored
// table): epochs only grow, and so do the commits of their owner.
func (l *Ledger) sees(s *ledgerSegment, h *ledgerHead) (old bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return l.seesLocked(s, h)
}

func (l *Ledger) seesLocked(s *ledgerSegment, h *ledgerHead) (old bool) {
	mine := h.owner == l.token
	if old = h.epoch < s.top || h.epoch == s.top && mine && h.commits < s.commits; old {
		s.above = s.top
	}
	s.top, s.commits = h.epoch, 0 // so that it is told once
	if mine {
		s.commits = h.commits
	}
	return old
}

// tellOld says loudly that rows of the ledger came back older.
func (l *Ledger) tellOld(segments []uint32) {
	if len(segments) > 0 {
		l.options.Log.Error("rows of the ledger are those of some time ago, "+
			"as after a fail-over or in a restored table; what was recorded since is forgotten: "+
			"tasks may be done again, and runs may lack tasks that were done (see distributor runs repair)",
			"segments", len(segments), "first", slices.Min(segments))
		if l.options.Old != nil {
			l.options.Old(segments)
		}
	}
}

// lost forgets a segment whose head is another's: what is in hand of it is
// forgotten.
func (s *ledgerSegment) lost() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since, s.epoch = 0, 0
	s.drop()
	s.inFlight, s.deleted = inFlight{}, nil
}

func (m *image) live() int { return len(m.runs) - m.rests }

// eachImage visits what is stored of the fenced segments. Visit holds the segment's mu.
func (l *Ledger) eachImage(visit func(s *ledgerSegment)) {
	for i := range l.segments {
		s := &l.segments[i]
		s.mu.Lock()
		if s.image != nil {
			visit(s)
		}
		s.mu.Unlock()
	}
}

// LiveRuns gives the runs with records in the fenced segments, rests left out, sorted.
func (l *Ledger) LiveRuns() []codec.RunID {
	live := map[codec.RunID]bool{}
	l.eachImage(func(s *ledgerSegment) {
		for id, b := range s.image.runs {
			if b.rest == 0 {
				live[id] = true
			}
		}
	})
	return slices.Clip(sortedRuns(live))
}

// Keeps gives those of the given runs that have records in a fenced segment, rests included.
func (l *Ledger) Keeps(runs []codec.RunID) (kept []codec.RunID) {
	has := map[codec.RunID]bool{}
	l.eachImage(func(s *ledgerSegment) {
		for _, id := range runs {
			if s.image.runs[id] != nil {
				has[id] = true
			}
		}
	})
	return sortedRuns(has)
}

// OldRests gives the runs with rests older than the hour before (hours since 1970). For each fenced
// segment with more than half of the rests that it may have, it also gives the oldest beyond that
// half. The runs' rows say whether they may go.
func (l *Ledger) OldRests(before uint64) (aged, crowded []codec.RunID) {
	old, beyond := map[codec.RunID]bool{}, map[codec.RunID]bool{}
	l.eachImage(func(s *ledgerSegment) {
		var rests []restCount
		for id, b := range s.image.runs {
			switch {
			case b.rest == 0:
			case b.rest < before:
				old[id] = true
			case s.image.rests > restsMost/2:
				rests = append(rests, restCount{run: id, hour: b.rest})
			}
		}
		slices.SortFunc(rests, func(a, b restCount) int {
			return cmp.Or(cmp.Compare(a.hour, b.hour), workload.CompareRuns(a.run, b.run))
		})
		for _, r := range rests[:max(0, len(rests)-restsMost/2)] {
			beyond[r.run] = true
		}
	})
	return sortedRuns(old), sortedRuns(beyond)
}

// Use is how much of its bounds a segment uses.
type Use struct {
	Segment uint32
	Runs    int // live ones, of MaxLiveRuns
	Pages   int // of MaxPages
	// Bytes is what is stored of runs and foreign messages, of MaxBytes.
	Bytes int
	// Foreign are names of done tasks without a run, of MaxForeign. [Ledger.Use] knows them,
	// ReadSums does not.
	Foreign int
}

// The bounds of a [Use].
const (
	MaxLiveRuns = maxLiveRuns
	MaxPages    = maxPages
	// MaxBytes is the size from which no task begins that needs another record; begun tasks find room.
	MaxBytes   = bookedSoft
	MaxForeign = maxForeign
)

// Fullest is the largest part of a bound that is used: 1 is all of it.
func (u Use) Fullest() float64 {
	return max(float64(u.Runs)/MaxLiveRuns, float64(u.Pages)/MaxPages, float64(u.Bytes)/MaxBytes,
		float64(u.Foreign)/MaxForeign)
}

// Use gives the fenced segment that is nearest to one of its bounds.
func (l *Ledger) Use() (most Use) {
	l.eachImage(func(s *ledgerSegment) {
		u := Use{
			Segment: s.number, Runs: s.image.live(), Pages: len(s.image.layout.pages), Bytes: s.image.booked,
			Foreign: len(s.image.foreign.known),
		}
		if u.Fullest() > most.Fullest() {
			most = u
		}
	})
	return most
}
