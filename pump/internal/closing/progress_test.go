package closing

import (
	"testing"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/internal/ledger"
)

func TestARunIsCompleteWhenInEverySegmentWhatIsRecordedIsWhatWasSealed(t *testing.T) {
	for name, c := range map[string]struct {
		sealed, done, quarantined []uint64
		complete, closable        bool
	}{
		"all done":              {[]uint64{2, 0, 3}, []uint64{2, 0, 3}, []uint64{0, 0, 0}, true, true},
		"one in quarantine":     {[]uint64{2, 0, 3}, []uint64{2, 0, 2}, []uint64{0, 0, 1}, true, false},
		"one missing":           {[]uint64{2, 0, 3}, []uint64{2, 0, 2}, []uint64{0, 0, 0}, false, false},
		"the sums agree":        {[]uint64{2, 0, 3}, []uint64{3, 0, 2}, []uint64{0, 0, 0}, false, false},
		"more than was sealed":  {[]uint64{2, 0, 3}, []uint64{2, 1, 3}, []uint64{0, 0, 0}, false, false},
		"nothing was recorded":  {[]uint64{2, 0, 3}, nil, nil, false, false},
		"nothing was in it":     {[]uint64{0, 0, 0}, nil, nil, true, true},
		"all are in quarantine": {[]uint64{1, 0, 0}, []uint64{0, 0, 0}, []uint64{1, 0, 0}, true, false},
	} {
		var p *ledger.RunProgress
		if c.done != nil {
			p = &ledger.RunProgress{Done: c.done, Quarantined: c.quarantined}
		}
		proof.Same(t, complete(c.sealed, p), c.complete, name, "complete")
		proof.Same(t, closable(c.sealed, p), c.closable, name, "closable")
		if err := checkRecorded(c.sealed, p); (err != nil) != (name == "more than was sealed" || name == "the sums agree") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
