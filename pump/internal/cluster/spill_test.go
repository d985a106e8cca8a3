package cluster

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
)

func TestSpillMarksOfManyAreMergedWhateverAnswersAreLost(t *testing.T) {
	inCrowd(t, 8, 64, func(t *testing.T, c *crowd) {
		c.sim.Inject(azsim.Rule{Operations: []string{"MergeEntity", "InsertEntity"}, Fault: azsim.AnswerLost, Probability: 0.2})
		var members []*testMember
		for i := range 5 {
			members = append(members, c.join(fmt.Sprint("m", i)))
		}
		var wg sync.WaitGroup
		for i, m := range members {
			wg.Go(func() {
				own := []uint32{uint32(i), uint32(10 + i), 63}
				proof.Is(t, m.MarkSpill(t.Context(), own, 1+i%2), nil)
			})
		}
		wg.Wait()
		want := make([]uint8, 64)
		for i := range 5 {
			want[i] |= 1 << (1 + i%2)
			want[10+i] |= 1 << (1 + i%2)
		}
		want[63] = 1<<1 | 1<<2
		proof.Alike(t, c.load().Spills, want, "marks")
		time.Sleep(10 * time.Second)
		proof.Alike(t, members[0].View().Spills, want, "a member sees")
		for i := range uint32(64) {
			for choice := 1; choice <= 2; choice++ {
				must(t, members[i%5].ClearSpill(t.Context(), []uint32{i}, choice))
			}
		}
		got := c.load().Spills
		proof.Same(t, got == nil, true, "no marks after all were cleared", got)
	})
}

func TestAMarkThatIsThereCostsNoWriteAndANewOneNudgesTheOwner(t *testing.T) {
	inCrowd(t, 8, 64, func(t *testing.T, c *crowd) {
		a := c.join("a")
		c.settle(5 * time.Second)
		var nudged atomic.Int64
		d := c.join("d", func(o *Options) {
			o.Role = RoleDistributor
			o.Nudge = func(to []Member) {
				nudged.Add(int64(len(to)))
				c.nudge(to)
			}
		})
		time.Sleep(10 * time.Second)
		nudged.Store(0)
		must(t, d.MarkSpill(t.Context(), []uint32{3}, 2))
		time.Sleep(500 * time.Millisecond)
		if v := a.View(); v.Spills == nil || v.Spills[3] != 1<<2 || nudged.Load() != 1 {
			t.Errorf("the owner sees %v after %d nudges", v.Spills, nudged.Load())
		}
		before := c.sim.Stats()
		must(t, d.MarkSpill(t.Context(), []uint32{3}, 2))
		after := c.sim.Stats()
		proof.Same(t, after.Count("", "MergeEntity")-before.Count("", "MergeEntity"), 0, "writes")
	})
}

func TestAWrongMarkIsRefusedAndADamagedRowOfMarksIsNotOverwritten(t *testing.T) {
	inCrowd(t, 8, 64, func(t *testing.T, c *crowd) {
		a := c.join("a")
		for _, choice := range []int{-1, 0, 3} {
			proof.Same(t, a.MarkSpill(t.Context(), []uint32{1}, choice) == nil, false, "choice", choice)
		}
		proof.Same(t, a.MarkSpill(t.Context(), []uint32{64}, 1) == nil, false, "segment 64")
		must(t, a.MarkSpill(t.Context(), []uint32{1}, 1))
		c.spoil("spill", "Marks", []byte("short"))
		proof.Says(t, a.MarkSpill(t.Context(), []uint32{2}, 1), "city/spill", "over a damaged row")
		time.Sleep(10 * time.Second)
		if v := a.View(); len(v.Damaged) != 1 || a.trusted() != 64 {
			t.Errorf("damaged %v, trusted %d", v.Damaged, a.trusted())
		}
	})
}
