package send

import (
	"testing"

	"github.com/queuepump/queuepump/pump/distributor/internal/pack"
	"github.com/queuepump/queuepump/pump/internal/queues"
)

// Outside of simulations a turn costs a comparison: nothing is joined or allocated.
func TestATurnOfNobodyIsFree(t *testing.T) {
	s := &queues.Queue{Account: &queues.Account{Name: "north"}, Name: "work-00"}
	m := &message{Message: &pack.Message{Text: []byte("text")}}
	if n := testing.AllocsPerRun(1000, func() {
		s.Turn.Wait("put", m.name(s.Turn))
		s.Turn.Wait("pay", queues.OpPut.String(), s.Account.Name, s.Name, s.Digest(m.Text))
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
