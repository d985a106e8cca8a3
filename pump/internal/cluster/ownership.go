package cluster

import (
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/queuepump/queuepump/pump/internal/row"
)

// claimAttempts is how often a member tries to get its change into an owner row
// against other writers before it looks at the cluster again.
const claimAttempts = 6

// change is a claim or a giving-up of one segment: the entry as it was judged, and as it is to be.
// A judgement of an entry stays true while the entry stays the same: a gone incarnation never comes
// back, and an owner whose trust is over can only trust again after a claim, which changes the
// entry. So a change may be tried on a later version of the row, without another look at the
// members, if the entry in it is still `from`.
type change struct {
	segment  uint32
	from, to Owner
}

func (c change) claims() bool { return c.to.Instance != "" }

// verdicts are what a look at the cluster means for this member's segments.
type verdicts struct {
	changes []change // to be written, by segment
	lost    []uint32 // held, void or not, and another's now
	drain   []uint32 // held, and planned for another: the hand-over begins
	raised  int      // of the changes, claims because the ledger was ahead
	pending bool     // there is something to wait for, so look again soon
}

// judge compares what is held with what was read. It changes only the state of each holding's
// hand-over.
func (p *Presence) judge(v *View) verdicts {
	var out verdicts
	rank := v.Rank(p.options.Instance)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.leaving {
		rank = -1
	}
	me := Owner{Instance: p.options.Instance, Incarnation: p.incarnation}
	for s, planned := range v.Plan() {
		if v.bad[ownerRowIndex(s)] {
			continue // no member can change it, so what is held stays held
		}
		entry, h := v.Owners[s], p.holds[s]
		mine := entry.Instance == me.Instance && entry.Incarnation == me.Incarnation
		forMe := rank >= 0 && planned == rank
		if h != nil && !h.void {
			p.judgeHeld(&out, uint32(s), entry, h, mine, forMe)
			continue
		}
		next := Owner{me.Instance, me.Incarnation, max(entry.Epoch, p.above[s]) + 1}
		claim := change{uint32(s), entry, next}
		gone := v.alive(entry) < 0
		switch {
		case claim.to.Epoch <= row.MaxEpoch &&
			(mine && forMe || // an answer was lost, or trust: adopted with another epoch
				gone && forMe ||
				rank >= 0 && !mine && p.loop.observer.forAnyone(v, uint32(s))):
			out.changes = append(out.changes, claim)
			continue
		case mine:
			out.changes = append(out.changes, change{uint32(s), entry, Owner{Epoch: entry.Epoch}})
		case forMe:
			out.pending = true // its owner is to give it up
		}
		if h != nil {
			out.lost = append(out.lost, uint32(s))
		}
	}
	out.pending = out.pending || len(out.changes) > 0
	return out
}

// judgeHeld is judge for a segment that is held.
func (p *Presence) judgeHeld(out *verdicts, s uint32, entry Owner, h *holding, mine, forMe bool) {
	switch {
	case !mine || entry.Epoch != h.epoch:
		out.lost = append(out.lost, s)
	case forMe:
		h.draining = time.Time{} // the plan may have turned back
		if above := p.above[s]; h.epoch <= above && above < row.MaxEpoch {
			out.changes = append(out.changes,
				change{s, entry, Owner{entry.Instance, entry.Incarnation, above + 1}})
			out.raised++
		}
	default:
		out.pending = true
		if h.draining.IsZero() {
			h.draining = time.Now()
			out.drain = append(out.drain, s)
		}
	}
}

// attend does what a look at the cluster calls for and reports whether to look
// again soon.
func (p *Presence) attend(v *View) (pending bool) {
	todo := p.judge(v)
	p.end(todo.lost, errTakenOver)
	if len(todo.lost) > 0 {
		p.options.Log.Warn("segments are another's now", "segments", len(todo.lost))
	}
	p.drained(append(todo.lost, todo.drain...))
	if todo.raised > 0 {
		p.options.Log.Warn("segments are claimed again above epochs that their ledgers had: "+
			"rows of the control account are those of some time ago, "+
			"as after a fail-over, in a restored table or where rows were removed",
			"segments", todo.raised)
	}
	if len(todo.changes)+len(p.readyToGive(v)) == 0 {
		return todo.pending
	}
	ctx, cancel := p.beforeBeat()
	defer cancel()
	p.giveWay(ctx, p.row.Object())
	ready := p.readyToGive(v) // more may be by now
	// This comes before the entries are written: this member must never trust a segment that another
	// can claim.
	p.end(segmentsOf(ready), errHandedOver)
	changes := append(p.confirm(ctx, v, todo.changes), ready...)
	byRow := make([][]change, len(v.owners))
	for _, c := range changes {
		byRow[ownerRowIndex(int(c.segment))] = append(byRow[ownerRowIndex(int(c.segment))], c)
	}
	// Each member begins with another row: members that claim after the same news would otherwise meet
	// at one row after the other, and all but one would lose.
	first := int(xxhash.Sum64String(p.options.Instance) % uint64(len(byRow)))
	for k := range byRow {
		i := (first + k) % len(byRow)
		if row := byRow[i]; len(row) > 0 {
			v = p.changeRow(ctx, v, i, row)
		}
	}
	return true
}

func segmentsOf(changes []change) []uint32 {
	list := make([]uint32, len(changes))
	for i, c := range changes {
		list[i] = c.segment
	}
	return list
}

// readyToGive lists the segments in hand-over without work in hand, or drained for a lease (or
// Grace). Only a look that succeeded leads here: while the control plane is dark no segment is
// given up (P5.6).
func (p *Presence) readyToGive(v *View) []change {
	most := p.times.Lease
	if p.options.HandOver != nil {
		most = max(most, p.options.HandOver())
	}
	if p.loop.self.Value.Draining {
		most = max(most, p.options.Grace)
	}
	var out []change
	for s, since := range p.draining() {
		if since.IsZero() || v.bad[ownerRowIndex(s)] {
			continue
		}
		busy := p.options.InHand != nil && p.options.InHand(uint32(s))
		if busy && time.Since(since) < most {
			continue
		}
		out = append(out, change{uint32(s), v.Owners[s], Owner{Epoch: v.Owners[s].Epoch}})
	}
	return out
}

// draining gives for each segment since when it is handed over.
func (p *Presence) draining() []time.Time {
	p.mu.RLock()
	defer p.mu.RUnlock()
	since := make([]time.Time, len(p.holds))
	for s, h := range p.holds {
		if h != nil && !h.void {
			since[s] = h.draining
		}
	}
	return since
}
