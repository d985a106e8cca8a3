package distributor

import (
	"testing"

	"github.com/queuepump/queuepump/pump/internal/queues"
)

// Outside of simulations a turn costs a comparison: nothing is joined or allocated.
func TestATurnOfNobodyIsFree(t *testing.T) {
	s := &queues.Queue{Account: &queues.Account{Name: "north"}, Name: "work-00"}
	c := &parcel{message: &message{text: []byte("text")}}
	if n := testing.AllocsPerRun(1000, func() {
		s.Turn.Wait("place", c.name(s.Turn))
		s.Turn.Wait("pay", queues.OpPut.String(), s.Account.Name, s.Name, s.Digest(c.text))
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
