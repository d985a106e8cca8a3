package worlds

import (
	"fmt"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/workload"
)

// Worlds in which one partition of the ledger is not well while the others are, and worlds in which
// what handlers use takes no task now.

// slowPartitions, darkPartitions and damagedPartitions are partitions of the ledger that are not well
// for a while, beside others that are.
func (g *simSeeded) slowPartitions() {
	r := azsim.Rule{Fault: azsim.DelayBefore, Delay: g.seconds(2, 20)}
	if g.roll(2) == 0 {
		r = azsim.Rule{Fault: azsim.Answer, Probability: []float64{0.5, 0.9, 1}[g.roll(3)]}
	}
	g.sickPartition(r)
}

func (g *simSeeded) darkPartitions() {
	g.sickPartition(azsim.Rule{Fault: []azsim.FaultKind{azsim.HangBefore, azsim.FailBefore, azsim.AnswerAfter}[g.roll(3)]})
}

func (g *simSeeded) damagedPartitions() {
	g.sickPartition(azsim.Rule{Fault: azsim.Damage})
}

// sickPartition lets one of several partitions suffer. Runs of few tasks come and go meanwhile, most
// of which have none in it.
func (g *simSeeded) sickPartition(r azsim.Rule) {
	g.someAccounts()
	p := g.plan
	p.delivery, p.segments, p.accounts, p.keys = pump.Once, 128<<g.roll(2), 1+g.roll(2), 300
	r.Partition = fmt.Sprintf("work.ledger.%02d", g.roll(p.segments/64))
	span := g.while()
	if p.runs = 20; span > simElsewhere {
		p.every = 5 * time.Second
	} else {
		p.every = span / 20
	}
	s := simStep{at: g.begins(), verb: "fault", span: span, rule: r}
	g.step(s)
}

// simElsewhere is within which time a run ends that has no task in a partition that is not well, in
// a world where nothing else goes wrong: as if it were well.
const simElsewhere = 4 * time.Minute

// judgeElsewhere judges, before a partition is well again, what has become of runs that were sealed
// long ago and have no task in it.
func (w *simWorld) judgeElsewhere(s simStep) {
	if s.rule.Partition == "" || s.span <= simElsewhere || !w.plan.calmBut("fault") {
		return
	}
	var partition uint32
	if _, err := fmt.Sscanf(s.rule.Partition, "work.ledger.%d", &partition); err != nil {
		return
	}
	for _, r := range w.runsNow() {
		if r.State != workload.RunSealed || time.Since(r.Ended) < simElsewhere || w.touches(r, partition) {
			continue
		}
		w.wrongf("stuck: run %v, whose tasks are elsewhere, is not closed %v after its end while partition %d is not well",
			r.ID, time.Since(r.Ended), partition)
	}
}

// touches says that a run has tasks in a partition of the ledger.
func (w *simWorld) touches(r workload.Run, partition uint32) bool {
	for segment, n := range r.Sealed {
		if n > 0 && uint32(segment)/64 == partition {
			return true
		}
	}
	return false
}

// notNow are worlds in which what handlers use says "not now" for a while, to all or to one process. No
// task is in quarantine for it.
func (g *simSeeded) notNow() {
	g.someAccounts()
	g.plan.work = min(g.plan.work, 2*time.Second)
	g.step(simStep{at: g.seconds(3, 12), verb: "busy", who: []string{"all", "all", "p1"}[g.roll(3)], span: g.while()})
}

// saysNotNow says that what the handlers of a process use takes no task now.
func (w *simWorld) saysNotNow(p *simProcess) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if now.After(w.busy["all"]) && now.After(w.busy[p.name]) {
		return false
	}
	w.counts["met "+simMetNotNow]++
	return true
}
