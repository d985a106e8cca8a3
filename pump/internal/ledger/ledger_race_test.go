package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/testkit"
)

// Owners fight for segments over the driver that ships, while answers are lost, requests are late
// and tables throttle. Nothing tells an owner that it has lost a segment: each claims a new epoch
// from time to time, fences, and works on under it for as long as the ledger lets it. The reducer's
// state lists who did what, so it tells how often each task took effect.

var ledgerSeeds = flag.Int("ledger.seeds", 24, "how many fights about ledgers are played")

// effects is a state that lists for each task who did it, in which delivery.
type effects struct{}

func (effects) Load(stored []byte) (any, error) {
	s := map[string][]string{}
	if stored == nil {
		return s, nil
	}
	return s, json.Unmarshal(stored, &s)
}

func (effects) Fold(state, contribution any) {
	c := contribution.([2]string)
	s := state.(map[string][]string)
	s[c[0]] = append(s[c[0]], c[1])
}

func (effects) Store(state any) ([]byte, error) { return json.Marshal(state) }

// arena is what the fighters have in common: who may claim, and what must be.
type arena struct {
	t        *testing.T
	segments []uint32
	tasks    uint64 // of each segment, of one run

	mu       sync.Mutex
	epochs   map[uint32]uint64 // claimed last
	fates    []fate
	recorded map[[2]uint64]bool // segment and task of what was said to be recorded
	wrong    []string
}

// fate is what a fighter was told about a delivery.
type fate struct {
	segment uint32
	ns      codec.NSet
	by      string
	err     error
}

func (a *arena) claim(draw *rand.Rand) []cluster.Hold {
	a.mu.Lock()
	defer a.mu.Unlock()
	var holds []cluster.Hold
	for _, s := range a.segments {
		if draw.IntN(2) == 0 {
			a.epochs[s]++
			holds = append(holds, cluster.Hold{Segment: s, Epoch: a.epochs[s]})
		}
	}
	return holds
}

// fight is one process: claim, fence, work, commit, sometimes give up, again and again.
func (a *arena) fight(ctx context.Context, l *Ledger, name string, seed uint64) {
	draw := rand.New(rand.NewPCG(seed, uint64(len(name))<<8|uint64(name[0])))
	held := map[uint32]uint64{}
	deliveries := 0
	for ctx.Err() == nil {
		if holds := a.claim(draw); draw.IntN(4) == 0 {
			call, cancel := context.WithTimeout(ctx, time.Duration(1+draw.IntN(30))*time.Second)
			fenced, _ := fenceAll(call, l, holds)
			cancel()
			for _, h := range holds {
				if slices.Contains(fenced, h.Segment) {
					held[h.Segment] = h.Epoch
				}
			}
		}
		if draw.IntN(6) == 0 {
			l.Drop([]uint32{a.segments[draw.IntN(len(a.segments))]})
		}
		var wg sync.WaitGroup
		for partition := range 2 {
			entries := a.deliver(l, held, partition, draw, name, &deliveries)
			patience := time.Duration(1+draw.IntN(60)) * time.Second
			wg.Go(func() { a.commit(ctx, l, entries, name, patience) })
		}
		time.Sleep(time.Duration(draw.IntN(2000)) * time.Millisecond)
		wg.Wait()
	}
}

// deliver begins what it finds to be fresh in random deliveries, and gives some of it back.
func (a *arena) deliver(l *Ledger, held map[uint32]uint64, partition int, draw *rand.Rand, name string, deliveries *int) (entries []*Entry) {
	for _, s := range slices.Sorted(maps.Keys(held)) {
		if l.Partition(s) != partition {
			continue
		}
		for range draw.IntN(4) {
			from := draw.Uint64N(a.tasks)
			set := ns(from, min(a.tasks, from+1+draw.Uint64N(8)))
			begun, err := l.Begin(s, held[s], testkit.RunID(1), 0, set)
			if err != nil || begun.Fresh.Len() == 0 {
				continue
			}
			a.mustBeFresh(s, held[s], begun.Fresh, name)
			if draw.IntN(5) == 0 {
				l.End(s, held[s], testkit.RunID(1), begun.Fresh)
				continue
			}
			*deliveries++
			by := fmt.Sprintf("%s/%d", name, *deliveries)
			e := &Entry{Segment: s, Epoch: held[s], Run: testkit.RunID(1), Done: begun.Fresh}
			for n := range begun.Fresh.All() {
				e.Contributions = append(e.Contributions, Contribution{n, [2]string{fmt.Sprint(n), by}})
			}
			entries = append(entries, e)
		}
	}
	return entries
}

// mustBeFresh is why a new owner fences before its first get: nothing that is recorded from
// then on is unknown to it. (An owner that another has followed may not know yet.)
func (a *arena) mustBeFresh(segment uint32, epoch uint64, set codec.NSet, name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for n := range set.All() {
		if a.epochs[segment] == epoch && a.recorded[[2]uint64{uint64(segment), n}] {
			a.wrong = append(a.wrong, fmt.Sprintf("segment %d, task %d: begun by %s under epoch %d, the newest, and recorded before", segment, n, name, epoch))
		}
	}
}

func (a *arena) commit(ctx context.Context, l *Ledger, entries []*Entry, name string, patience time.Duration) {
	left := entries
	for len(left) > 0 {
		call, cancel := context.WithTimeout(ctx, patience)
		l.Commit(call, left)
		cancel()
		// Who does not know asks again; only the end of everything leaves it open.
		left = slices.DeleteFunc(slices.Clone(left), func(e *Entry) bool {
			return e.Err == nil || errors.Is(e.Err, ErrFenced) || ctx.Err() != nil
		})
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range entries {
		by := ""
		if len(e.Contributions) > 0 {
			by = e.Contributions[0].Value.([2]string)[1]
		}
		a.fates = append(a.fates, fate{e.Segment, e.Done, by, e.Err})
		for n := range e.Done.All() {
			if e.Err == nil {
				a.recorded[[2]uint64{uint64(e.Segment), n}] = true
			}
		}
	}
}

// judge compares what is stored with what everybody was told.
func (a *arena) judge(ctx context.Context, l *Ledger) (wrong []string) {
	wrong = slices.Clone(a.wrong)
	told := map[string]bool{} // segment, task, delivery that were said to be recorded
	for _, f := range a.fates {
		for n := range f.ns.All() {
			if f.err == nil {
				told[fmt.Sprint(f.segment, " ", n, " ", f.by)] = true
			}
		}
	}
	for r, err := range ReadRecord(ctx, l.table, l.workload, len(l.segments)) {
		if err != nil {
			return append(wrong, err.Error())
		}
		if !slices.Contains(a.segments, r.Segment) {
			continue
		}
		var state map[string][]string
		if len(r.State()) > 0 {
			if err := json.Unmarshal(r.State(), &state); err != nil {
				return append(wrong, err.Error())
			}
		}
		for n := range a.tasks {
			by := state[fmt.Sprint(n)]
			if r.Done(testkit.RunID(1), n) != (len(by) == 1) {
				wrong = append(wrong, fmt.Sprintf("segment %d, task %d: done %v, took effect by %v", r.Segment, n, r.Done(testkit.RunID(1), n), by))
			}
			for _, by := range by {
				delete(told, fmt.Sprint(r.Segment, " ", n, " ", by))
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(told)) {
		wrong = append(wrong, fmt.Sprintf("segment, task, delivery %s: said to be recorded, and is not", key))
	}
	return wrong
}

// faultsOf is what goes wrong on one seed.
func faultsOf(sim *azsim.Sim, seed uint64) {
	draw := rand.New(rand.NewPCG(seed, 99))
	operations := []string{"Batch", "Batch", "QueryEntities", "GetEntity", ""}
	kinds := []azsim.FaultKind{
		azsim.AnswerLost, azsim.AnswerLost, azsim.HangAfter, azsim.HangBefore, azsim.FailBefore, azsim.AnswerAfter, azsim.Answer, azsim.DelayBefore, azsim.DelayAfter, azsim.CutBody,
	}
	for range 1 + draw.IntN(5) {
		r := azsim.Rule{Service: "table", Fault: kinds[draw.IntN(len(kinds))], Probability: 0.05 + 0.4*draw.Float64()}
		if op := operations[draw.IntN(len(operations))]; op != "" {
			r.Operations = []string{op}
		}
		if r.Fault == azsim.DelayBefore || r.Fault == azsim.DelayAfter {
			r.Delay = time.Duration(1+draw.IntN(15_000)) * time.Millisecond
		}
		sim.Inject(r)
	}
}

// fightOf plays one seed and gives what is wrong after it.
func fightOf(t *testing.T, seed uint64) (wrong []string, recorded int) {
	synctest.Test(t, func(t *testing.T) {
		sim := azsim.New(azsim.Config{Accounts: []azsim.Account{{Name: "north"}}, Seed: seed, Latency: 20 * time.Millisecond})
		table := testkit.OverTheWire(t, sim, "setup")
		must(t, table.Create(t.Context()))
		a := &arena{t: t, segments: []uint32{3, 4, 5, 70, 71}, tasks: 60, epochs: map[uint32]uint64{}, recorded: map[[2]uint64]bool{}}
		faultsOf(sim, seed)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		var wg sync.WaitGroup
		for _, name := range []string{"a", "b", "c"} {
			l := openBook(t, testkit.OverTheWire(t, sim, name), name, func(o *Options) { o.State = effects{} }).Ledger
			wg.Go(func() { a.fight(ctx, l, name, seed) })
		}
		wg.Wait()
		time.Sleep(time.Minute) // what is late has landed
		wrong = a.judge(t.Context(), openBook(t, testkit.OverTheWire(t, sim, "judge"), "judge").Ledger)
		for _, f := range a.fates {
			if f.err == nil {
				recorded += f.ns.Len()
			}
		}
	})
	return wrong, recorded
}

func TestFightingOwnersRecordATaskOnceAndWhatTheySayIsRecordedIs(t *testing.T) {
	proof.Only(t)
	for seed := range uint64(*ledgerSeeds) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			wrong, recorded := fightOf(t, seed)
			for _, w := range wrong[:min(5, len(wrong))] {
				t.Error(w)
			}
			if recorded == 0 {
				t.Error("nothing was recorded")
			}
		})
	}
}
