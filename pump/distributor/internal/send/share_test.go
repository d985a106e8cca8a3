package send

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
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
				const weight = 2 * large
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
				must(t, stages.Wait())
				for name, s := range p.Router.shares {
					proof.Same(t, s.held.Load(), 0, "in the end account", name, "holds … bytes")
				}
			})
		})
	}
}

// saturated sends large messages to all segments of a world, each of four lanes to its own, as fast
// as the accounts take them, until the returned function is called.
func saturated(t *testing.T, w *testworld.World, rate float64, helped bool) (p *Putter, end func()) {
	p, stages, over := sending(t, w, rate)
	text := bytes.Repeat([]byte("A"), 30<<10)
	segments := p.Router.Current().Workload.Map.Segments
	var all []uint32
	for s := range uint32(segments) {
		all = append(all, s)
	}
	if helped {
		p.Router.marked(all, 1)
		p.Router.marked(all, 2)
	}
	go p.Watch()
	for lane := range 4 {
		stages.Go(func() error {
			keys := rand.New(rand.NewPCG(1, uint64(lane)))
			for n := lane; ; n += 4 {
				segment := uint32(keys.IntN(segments/4)*4 + lane)
				m := &pack.Message{Text: slices.Clone(text), Segment: segment, First: uint64(n), Tasks: 1}
				if p.Send(m) != nil {
					return nil // the end of the test
				}
			}
		})
	}
	return p, func() {
		over(nil)
		p.Wait()
		proof.Is(t, stages.Wait(), nil)
	}
}

// Accounts that are well need no help, however full the memory is: of a few one or another always
// holds its share of it.
func TestAccountsThatAreAllBusyNeedNoHelp(t *testing.T) {
	for _, accounts := range []int{2, 3, 4, 8} {
		testworld.In(t, workload.Spec{}, accounts, 2, nil, func(t *testing.T, w *testworld.World) {
			p, end := saturated(t, w, 100, false)
			full, strained := 0, 0
			for range 25 { // the map is too old for puts after 30 s
				time.Sleep(time.Second)
				if heldBy(p.Router.Current().sinks) > p.total/2 {
					full++
				}
				if p.Router.Current().Strained() {
					strained++
				}
			}
			if full < 20 || strained > 0 {
				t.Errorf("of %d accounts some asked for help in %d of 25 looks, with the memory full in %d",
					accounts, strained, full)
			}
			end()
		})
	}
}

// An account that is much slower than the others, though never silent, does not hold them to its
// pace: what it has no room for goes to them.
func TestASlowAccountDoesNotHoldUpTheOthers(t *testing.T) {
	testworld.In(t, workload.Spec{}, 4, 1, nil, func(t *testing.T, w *testworld.World) {
		w.Fault(azsim.Rule{
			Account: "accountb", Instance: "d", Fault: azsim.DelayBefore, Delay: 4 * time.Second,
		}, "PutMessage")
		p, end := saturated(t, w, 200, true)
		time.Sleep(15 * time.Second)
		before := p.Count.Envelopes.Load()
		time.Sleep(10 * time.Second)
		if took := p.Count.Envelopes.Load() - before; took < 10*3*200*9/10 {
			t.Errorf("%d messages were taken in ten seconds", took)
		}
		if p.Router.Current().sinks[1].state() == dark {
			t.Error("it is dark")
		}
		end()
	})
}

// Room at an account's share, or in a queue, is for all lanes that wait for it: the one that is woken
// may go another way by now, and nothing else would wake the other while the account is silent.
func TestRoomWakesEachLaneThatWaitsForIt(t *testing.T) {
	testworld.In(t, workload.Spec{}, 2, 1, nil, func(t *testing.T, w *testworld.World) {
		p, _, end := sending(t, w, 50)
		s := p.Router.Current().sinks[0]
		for _, c := range []struct {
			name       string
			fill, free func()
		}{
			{"share", func() { s.share.take(p.total) }, func() { s.share.take(-p.total) }},
			{"queue", func() { s.waiting = make([]*message, 1000) }, func() { s.drain() }},
		} {
			c.fill()
			var passed atomic.Int32
			for range 3 {
				go func() {
					if p.awaitRoom(&message{route: p.Router.Current()}, s) == nil {
						passed.Add(1)
					}
				}()
			}
			synctest.Wait()
			if n := passed.Load(); n > 0 {
				t.Errorf("%s: %d lanes find room where there is none", c.name, n)
			}
			c.free()
			synctest.Wait()
			proof.Same(t, passed.Load(), 3, c.name, "lanes go on")
		}
		end(nil)
	})
}

// A message that an account never acknowledged, and that went elsewhere, says nothing of it hours later.
func TestAnAccountWithoutMessagesIsNotSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShare()
		for range 2 {
			s.take(1)
			s.sent()
			before := s.isSilent()
			if time.Sleep(time.Hour); before || !s.isSilent() {
				t.Errorf("silent: %v at once, %v an hour later", before, s.isSilent())
			}
			s.take(-1)
		}
	})
}
