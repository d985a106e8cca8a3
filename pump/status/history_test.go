package status

import (
	"testing"

	"github.com/queuepump/queuepump/pump/internal/sampling"
)

func TestTheHistoryReachesAsFarBackAsItsRows(t *testing.T) {
	if HistorySpan != sampling.Span {
		t.Errorf("it says %v, and the rows are for %v", HistorySpan, sampling.Span)
	}
}
