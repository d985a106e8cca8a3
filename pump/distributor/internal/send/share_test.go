package send

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/distributor/internal/pack"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
)

// An account that takes nothing holds a quarter of the memory at most, its even share a second later,
// and what is above that moves: the others go on as before, long before it is dark.
func TestAnAccountThatTakesNothingHoldsItsShareOfTheMemory(t *testing.T) {
	const accounts, rate, large = 8, 50, 60 << 10
	text := bytes.Repeat([]byte("A"), large)
	for name, rule := range map[string]azsim.Rule{
		"hangs":   {Fault: azsim.HangBefore},
		"refuses": {Fault: azsim.Answer, Status: 403, Code: "AuthenticationFailed"},
	} {
		t.Run(name, func(t *testing.T) {
			testworld.In(t, workload.Spec{}, accounts, 1, nil, func(t *testing.T, w *testworld.World) {
				p, stages, end := sending(t, w, rate)
				segments := p.Router.Current().Workload.Map.Segments
				var all []uint32
				for s := range uint32(segments) {
					all = append(all, s)
				}
				p.Router.marked(all, 1)
				p.Router.marked(all, 2)
				go p.Watch()
				for lane := range 4 {
					stages.Go(func() error {
						for n := lane; ; n += 4 {
							m := &pack.Message{Text: slices.Clone(text), Segment: uint32(n % segments), First: uint64(n), Tasks: 1}
							if p.Send(m) != nil {
								return nil // the end of the test
							}
						}
					})
				}
				time.Sleep(5 * time.Second)
				rule.Account, rule.Instance = "accountb", "d"
				w.Fault(rule, "PutMessage")
				sick := p.Router.shares["accountb"]
				began := time.Now()
				const weight = large + messageBytes
				most, even := p.total/4+4*weight, p.total/accounts+4*weight
				check := func(until time.Duration, bound int64) {
					for time.Since(began) < until {
						if held := sick.held.Load(); held > bound {
							t.Fatalf("after %v it holds %d bytes, want at most %d", time.Since(began), held, bound)
						}
						time.Sleep(50 * time.Millisecond)
					}
				}
				check(2500*time.Millisecond, most) // a second without an acknowledgement, and a look
				before := p.Count.Envelopes.Load()
				check(20*time.Second, even)
				took, can := p.Count.Envelopes.Load()-before, int64(17*rate*(accounts-1))
				if took < can*95/100 {
					t.Errorf("the others took %d of the %d messages that they can take", took, can)
				}
				end(nil)
				p.Wait()
				if err := stages.Wait(); err != nil {
					t.Error(err)
				}
				for name, s := range p.Router.shares {
					if held := s.held.Load(); held != 0 {
						t.Errorf("in the end account %s holds %d bytes", name, held)
					}
				}
			})
		})
	}
}
