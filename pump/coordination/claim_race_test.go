package coordination

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/testkit"
	"github.com/queuepump/queuepump/pump/internal/workload"
)

func TestOfTenThatRaceForAKeyOneIsGrantedAnInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := testkit.Simulated()
		for _, rule := range []azsim.Rule{
			{Fault: azsim.AnswerLost, Probability: 0.1},
			{Fault: azsim.FailBefore, Probability: 0.1},
			{Fault: azsim.AnswerAfter, Probability: 0.05},
			{Fault: azsim.Answer, Probability: 0.05},
		} {
			rule.Service = "table"
			sim.Inject(rule)
		}
		const intervals = 20
		granted := make([]int, intervals)
		var mu sync.Mutex
		began := time.Now()
		var wg sync.WaitGroup
		for i := range 10 {
			name := fmt.Sprint("p", i)
			c := claimsOf(testkit.OverTheWire(t, sim, name), name, time.Hour)
			wg.Go(func() {
				for round := range intervals {
					time.Sleep(time.Until(began.Add(time.Duration(round) * (time.Hour + time.Minute))))
					claim := claimBern(t, c, taskN(uint64(100*round+i)))
					if claim == nil {
						continue
					}
					mu.Lock()
					granted[round]++
					mu.Unlock()
					time.Sleep(10 * time.Minute)
					for claim.Done(t.Context(), false) != nil {
					}
				}
			})
		}
		wg.Wait()
		for round, n := range granted {
			proof.Same(t, n, 1, "interval", round, "granted")
		}
	})
}

// claimBern claims the key until there is a verdict, nil if that is no.
func claimBern(t *testing.T, c *Claims, task TaskRef) *Claim {
	for range 10 {
		claim, verdict, _, err := c.Claim(t.Context(), []byte("Bern"), task)
		if err == nil {
			if verdict == Busy {
				t.Errorf("busy with %s, which no other process has", task)
			}
			return claim
		}
	}
	t.Error("no verdict")
	return nil
}

// held is one claim as the world saw it.
type held struct {
	key, process   string
	task           TaskRef
	from, to       time.Time // granted; stopped, or Until if its process died
	asked          time.Time
	failed, doubts bool // how it stopped; whether that got through is not known
}

// claimWorld is one seeded history of processes that claim, work, die and come
// again over a table that loses and delays what it likes.
type claimWorld struct {
	testkit.Chaos
	interval time.Duration
	held     []*held
}

func (w *claimWorld) process(t *testing.T, p int) {
	for life := 0; time.Now().Before(w.End); life++ {
		name := fmt.Sprintf("p%d.%d", p, life)
		client := w.Server.Client(name)
		client.SetFault(w.Fault)
		offset := time.Duration(w.Roll(1200, name+" clock", 0))*time.Second - 10*time.Minute
		c := NewClaims(row.Seeded(testkit.Skewed{Table: client, By: offset}, testkit.SeededDraw(w.Seed, name)), "city", w.interval, name)
		alive, die := context.WithTimeout(t.Context(), time.Duration(w.Roll(uint64(4*w.interval), name+" dies", 0)))
		var hands sync.WaitGroup
		for hand := range 2 {
			hands.Go(func() {
				for n := 0; alive.Err() == nil && time.Now().Before(w.End); n++ {
					w.work(alive, c, fmt.Sprintf("%s/%d", name, hand), n)
				}
			})
		}
		hands.Wait()
		die()
	}
}

// work is one delivery of one of a few tasks.
func (w *claimWorld) work(alive context.Context, c *Claims, hand string, n int) {
	key := fmt.Sprint("key", w.Roll(2, hand+" key", n))
	task := TaskRef{Segment: uint32(len(key)), N: w.Roll(3, hand+" task", n), Foreign: key + "/" + fmt.Sprint(w.Roll(3, hand+" task", n))}
	asked := time.Now()
	claim, _, wait, err := c.Claim(alive, []byte(key), task)
	if err != nil || claim == nil {
		sleep(alive, min(wait, w.interval/4)+time.Duration(w.Roll(uint64(2*time.Second), hand+" pause", n)))
		return
	}
	h := &held{key: key, process: hand, task: task, from: time.Now(), to: claim.Until, asked: asked}
	w.Mu.Lock()
	w.held = append(w.held, h)
	w.Mu.Unlock()
	// Mostly shorter than the interval; sometimes not.
	sleep(alive, time.Duration(w.Roll(uint64(w.interval+w.interval/8), hand+" works", n)))
	if alive.Err() != nil {
		return // died at work: the claim stands until it is too old
	}
	if to := time.Now(); to.Before(h.to) {
		h.to = to
	}
	h.failed = w.Roll(3, hand+" fails", n) == 0
	if err := claim.Done(alive, h.failed); err != nil && !errors.Is(err, ErrClaimTaken) {
		h.doubts = true
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// check is origins B2 to B4: of a key no two claims at once, and no two starts
// within an interval but of a task that failed.
func (w *claimWorld) check(t *testing.T) (retries int) {
	slices.SortStableFunc(w.held, func(a, b *held) int { return a.from.Compare(b.from) })
	last := map[string]*held{}
	for _, h := range w.held {
		before := last[h.key]
		last[h.key] = h
		if before == nil {
			continue
		}
		retry := before.failed && before.task == h.task
		if retry && h.from.Sub(before.from) < w.interval {
			retries++
		}
		switch {
		case h.from.Before(before.to):
			t.Errorf("seed %d: %s: %s got it at %v although %s had it from %v to %v", w.Seed, h.key, h.process, h.from, before.process, before.from, before.to)
		// A claim starts when its write lands, after it was asked for.
		case h.from.Sub(before.asked) < w.interval && !retry:
			t.Errorf("seed %d: %s: %s got it for %s at %v, %v after %s for %s (failed %v)",
				w.Seed, h.key, h.process, h.task, h.from, h.from.Sub(before.asked), before.process, before.task, before.failed)
		}
	}
	return retries
}

func TestWhateverHappensAKeyHasOneOwnerAndItsInterval(t *testing.T) {
	proof.Only(t)
	const seeds = 60
	total, retries := 0, 0
	for seed := range uint64(seeds) {
		synctest.Test(t, func(t *testing.T) {
			w := &claimWorld{Chaos: testkit.Chaos{Seed: seed, Server: testkit.NewServer()}, interval: 2 * time.Minute}
			w.Server.Offset = time.Duration(w.Roll(1200, "server clock", 0))*time.Second - 10*time.Minute
			w.End = time.Now().Add(time.Hour)
			w.Quiet = w.End
			var wg sync.WaitGroup
			for p := range 5 {
				wg.Go(func() { w.process(t, p) })
			}
			wg.Wait()
			total += len(w.held)
			retries += w.check(t)
			time.Sleep(time.Minute) // what lands late
		})
	}
	t.Logf("%d seeds: %d claims granted, %d of them retries within the interval", seeds, total, retries)
	if total < seeds*30 || retries < seeds {
		t.Error("hardly anything happened")
	}
}

func TestClaimsAreSpreadOverPartitions(t *testing.T) {
	client := testkit.NewServer().Client("a")
	used := map[string]int{}
	for i := range 1600 {
		r, part := claimRowOf(client, "city", fmt.Append(nil, "key ", i))
		if !strings.HasSuffix(r.Partition, fmt.Sprintf(".claims.%x", part)) || len(r.Key) != 64 {
			t.Fatalf("%s in part %d", r.Object(), part)
		}
		used[r.Partition]++
	}
	for partition, n := range used {
		if n < 50 {
			t.Errorf("%s has %d of 1,600", partition, n)
		}
	}
	proof.Same(t, len(used), workload.ClaimParts, "partitions")
}

func TestAFewRequestsAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := testkit.NewServer().Client("a")
		c := claimsOf(client, "a", time.Minute)
		for i := range 1000 {
			claim, _, _, err := c.Claim(t.Context(), fmt.Append(nil, "key ", i), taskN(uint64(i)))
			must(t, err)
			mustEnd(t, claim, false)
			if _, verdict, _, err := c.Claim(t.Context(), fmt.Append(nil, "key ", i), taskN(0)); i > 0 && verdict != Fresh || err != nil {
				t.Fatal(verdict, err)
			}
		}
		// A read and two writes, and a read of the second claim; a clock of two
		// requests in each partition, which is good for ten minutes.
		proof.Same(t, len(client.Sent()), 4*1000+2*workload.ClaimParts,
			"requests for 1,000 keys that were claimed twice")
	})
}
