package ledger

import (
	"encoding/binary"
	"fmt"

	"github.com/queuepump/queuepump/codec"
)

// inFlight is what was begun of a segment and is neither recorded nor ended (P3.4). It belongs to
// an unbroken sequence of this process's own epochs: after another owner it is forgotten, and a
// later call with an earlier epoch does not concern what is in hand now. Within such a sequence a
// task is marked once at most, because a task that is found in hand is not begun.
type inFlight struct {
	runs    map[codec.RunID]nspans
	foreign map[string]bool
	loose   int // of all runs: see loosely
}

// Begun says of the tasks of a delivery what is to be done with each.
type Begun struct {
	Fresh    codec.NSet // to be started; now in hand
	Recorded codec.NSet // duplicates of tasks that are done, or in quarantine
	InHand   codec.NSet // begun by another delivery, whose outcome is not recorded yet
}

// Begin asks what is to be done with the tasks of a delivery and takes the fresh ones in
// hand, until they are recorded by Commit or given back by End. A task in quarantine is
// fresh again if its generation is above the recorded one (P4.4). It is ErrFenced if the segment
// is not fenced under the epoch, and ErrLedgerFull if a fresh task could not be recorded.
func (l *Ledger) Begin(
	segment uint32, epoch uint64, run codec.RunID, generation uint32, ns codec.NSet,
) (Begun, error) {
	return l.begins(segment, epoch, run, generation, ns, true)
}

// BeginClosed is Begin for tasks of a closed run that had tasks in quarantine: only those that are
// still in quarantine by the ledger are fresh; the others are done.
func (l *Ledger) BeginClosed(
	segment uint32, epoch uint64, run codec.RunID, generation uint32, ns codec.NSet,
) (Begun, error) {
	return l.begins(segment, epoch, run, generation, ns, false)
}

func (l *Ledger) begins(
	segment uint32, epoch uint64, run codec.RunID, generation uint32, ns codec.NSet, live bool,
) (Begun, error) {
	s, err := l.segment(segment)
	if err != nil {
		return Begun{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.fencedAs(epoch) {
		return Begun{}, fencedOff(segment, fmt.Sprintf("it is not fenced under epoch %d", epoch))
	}
	if !l.options.Record {
		return Begun{Fresh: ns}, nil
	}
	book, marks := s.image.runs[run], s.inFlight.runs[run]
	if book == nil && !live {
		return Begun{Recorded: ns}, nil // its last task in quarantine was done or dropped
	}
	recorded, rest := book.divide(ns, generation)
	var inHand, fresh nspans
	for _, sp := range rest {
		marks.divide(sp.from, sp.to, &inHand, &fresh)
	}
	if err := s.room(run, book, fresh); err != nil {
		return Begun{}, err
	}
	if len(fresh) > 0 {
		if s.inFlight.runs == nil {
			s.inFlight.runs = map[codec.RunID]nspans{}
		}
		s.inFlight.loose -= loosely(marks)
		for _, sp := range fresh {
			marks = marks.add(sp.from, sp.to)
		}
		s.inFlight.loose += loosely(marks)
		s.inFlight.runs[run] = marks
	}
	if len(recorded) == 0 && len(inHand) == 0 {
		return Begun{Fresh: ns}, nil
	}
	return Begun{Fresh: fresh.set(), Recorded: recorded.set(), InHand: inHand.set()}, nil
}

// room reports whether the tasks to be begun can be recorded later, with all that is in hand.
// *Without it tasks begun within the bound grew beyond it and were refused after their effect, once
// a minute.*
func (s *ledgerSegment) room(run codec.RunID, book *runBook, fresh nspans) error {
	if len(fresh) == 0 {
		return nil
	}
	if book == nil && len(s.inFlight.runs[run]) == 0 {
		runs := s.image.live()
		for id := range s.inFlight.runs {
			if s.image.runs[id] == nil {
				runs++
			}
		}
		if runs >= maxLiveRuns {
			return tooManyRuns(s.number, run)
		}
	}
	if !s.fits(loosely(fresh), func() int { return s.image.grows(run, fresh) }) {
		return tooScattered(s.number, run)
	}
	if s.image.booked <= bookedSoft {
		return nil
	}
	for _, sp := range fresh {
		for index := sp.from >> chunkBits; index <= (sp.to-1)>>chunkBits; index++ {
			if book == nil || book.chunks[index] == nil && index > book.floor>>chunkBits {
				return tooScattered(s.number, run)
			}
		}
	}
	return nil
}

// fits reports whether there is room for what is in hand and so much more. The exact most is asked
// only if a quick bound says that it matters.
func (s *ledgerSegment) fits(loose int, more func() int) bool {
	left := bookedMost - bookedSpare - s.image.booked - len(s.inFlight.foreign)*foreignRoom
	if s.inFlight.loose+loose <= left {
		return true
	}
	left -= more()
	for run, marks := range s.inFlight.runs {
		left -= s.image.grows(run, marks)
	}
	return left >= 0
}

// loosely is at least what grows gives for tasks of a run, with any records of it.
func loosely(tasks nspans) (most int) {
	for _, sp := range tasks {
		chunks := (sp.to-1)>>chunkBits - sp.from>>chunkBits + 1
		most += int(sp.to-sp.from)*8 + int(chunks)*128
	}
	return most
}

// grows is the most by which the records of a run grow when some tasks are settled: each task may
// be done, or stand in quarantine.
func (m *image) grows(run codec.RunID, tasks nspans) (most int) {
	book := m.runs[run]
	if most = binary.MaxVarintLen64; book == nil { // a floor
		most += blockRecordMost
	}
	n := 0 // tasks of the chunk
	for i, sp := range tasks {
		for from := sp.from; from < sp.to; {
			index := from >> chunkBits
			to := min(sp.to-1, from|(chunkSize-1)) + 1
			n += int(to - from)
			if from = to; from < sp.to || i+1 == len(tasks) || tasks[i+1].from>>chunkBits > index {
				most += m.chunkGrows(run, book, index, n)
				n = 0
			}
		}
	}
	return most
}

// chunkGrows is the part of one chunk. A set has a head, and a task makes a run of length one at
// worst; a task that leaves quarantine also cuts a run there in two.
func (m *image) chunkGrows(run codec.RunID, book *runBook, index uint64, tasks int) (most int) {
	const setHead, task = 24, 4
	old := m.layout.get(chunkKey(run, index))
	most = len(old) + min(tasks, 2)*setHead + tasks*task
	if book != nil && book.chunks[index] != nil && len(book.chunks[index].poison) > 0 {
		most += tasks * task
	}
	if most = max(0, min(most, maxRecord)-len(old)); old == nil {
		most += blockRecordMost
	}
	return most
}

func tooManyRuns(segment uint32, run codec.RunID) error {
	return fmt.Errorf("segment %d, run %s: %w: %d runs are all that it may have, "+
		"and tasks of further runs wait until others have ended; "+
		"end runs that no process continues with: distributor runs end RUN",
		segment, run, ErrTooManyRuns, maxLiveRuns)
}

func tooScattered(segment uint32, run codec.RunID) error {
	return fmt.Errorf("segment %d, run %s: %w: what is done of it is too scattered to be kept; "+
		"let what was begun before be finished first, or use more segments",
		segment, run, ErrLedgerFull)
}

// End takes tasks out of hand that will not be recorded now: they failed, were not finished, or are
// handed back. epoch is that of their Begin; if another owner was there since, End does nothing.
func (l *Ledger) End(segment uint32, epoch uint64, run codec.RunID, ns codec.NSet) {
	l.use(segment, func(s *ledgerSegment) { s.end(epoch, run, ns) })
}

// mine reports whether an epoch is in this process's unbroken sequence.
func (s *ledgerSegment) mine(epoch uint64) bool {
	return s.since != 0 && epoch >= s.since && epoch <= s.epoch
}

func (s *ledgerSegment) end(epoch uint64, run codec.RunID, ns codec.NSet) {
	marks := s.inFlight.runs[run]
	if len(marks) == 0 || ns.Len() == 0 || !s.mine(epoch) {
		return
	}
	s.inFlight.loose -= loosely(marks)
	for from, to := range ns.Spans() {
		marks = marks.remove(from, to)
	}
	s.inFlight.loose += loosely(marks)
	if len(marks) == 0 {
		delete(s.inFlight.runs, run)
		return
	}
	s.inFlight.runs[run] = marks
}
