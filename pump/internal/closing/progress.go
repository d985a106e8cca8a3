package closing

import (
	"fmt"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/ledger"
	"github.com/queuepump/queuepump/pump/internal/workload"
)

// complete decides that nothing of a sealed run is left to do: in every segment the done tasks and
// those in quarantine make up the sealed tasks (P4.5). That is decided only here, and only by what
// is recorded. An empty count of a queue proves nothing: the count is approximate, and a gone
// message was done, or lost.
func complete(sealed []uint64, p *ledger.RunProgress) bool {
	for s, n := range sealed {
		if settledOf(p, s) != n {
			return false
		}
	}
	return true
}

// closable decides that a run can be closed (P3.7): it is complete, and has no task in quarantine
// that could come back.
func closable(sealed []uint64, p *ledger.RunProgress) bool {
	_, quarantined := p.Sums()
	return quarantined == 0 && complete(sealed, p)
}

// lacking gives the segments in which tasks are neither done nor in quarantine.
func lacking(sealed []uint64, p *ledger.RunProgress) (lack []pump.SegmentLack) {
	for s, n := range sealed {
		if settled := settledOf(p, s); settled < n {
			lack = append(lack, pump.SegmentLack{Segment: uint32(s), Tasks: n - settled})
		}
	}
	return lack
}

// settledOf is how many tasks of a segment are done or in quarantine. P may be nil without records.
func settledOf(p *ledger.RunProgress, segment int) uint64 {
	if p == nil || segment >= len(p.Done) {
		return 0
	}
	return p.Done[segment] + p.Quarantined[segment]
}

// checkRecorded finds a segment with more records than sealed tasks: the sealed counts are not this
// run's, or the ledger is damaged. Such a run cannot be judged.
func checkRecorded(sealed []uint64, p *ledger.RunProgress) error {
	for s, n := range sealed {
		if settled := settledOf(p, s); settled > n {
			return fmt.Errorf("segment %d: %w: %d of %d", s, workload.ErrOverfull, settled, n)
		}
	}
	if p != nil && len(p.Done) != len(sealed) {
		return fmt.Errorf(
			"%w: it was sealed with %d segments, and the workload has %d", workload.ErrOverfull,
			len(sealed), len(p.Done),
		)
	}
	return nil
}

// ProgressOf is what the ledger and the run's row say together. If the run is closed, all of it is
// done, and the ledger may no longer know it.
func ProgressOf(run *workload.Run, done, quarantined uint64) pump.RunProgress {
	r := pump.RunProgress{Done: done, Quarantined: quarantined}
	switch run.State {
	case workload.RunClosed:
		// For a run closed with tasks in quarantine the ledger knows those that are still there.
		if run.Rest == 0 {
			r.Quarantined = 0
		}
		r.Done = run.Tasks - min(run.Tasks, r.Quarantined)
	case workload.RunSealed:
	default:
		return r
	}
	total := run.Tasks
	settled := min(r.Done+r.Quarantined, total)
	left := total - settled
	percent := 100.
	if left > 0 {
		percent = min(100*float64(settled)/float64(total), 99.99)
	}
	r.Total, r.Remaining, r.Percent = &total, &left, &percent
	return r
}
