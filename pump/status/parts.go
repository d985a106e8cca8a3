package status

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/row"
)

// PartNotRead is a part of a [Status] that could not be read.
type PartNotRead struct {
	// Part is "time" (the server's), "election", "runs", "ledger" (what is exact of runs), "ends",
	// "gates", "keys" or "history" (of money).
	Part string `json:"part"`
	// AsOf is when a [Watcher] read what the status says of the part; null: the status says nothing of
	// it.
	AsOf *time.Time `json:"asOf"`
}

// part is a part of the rows that is read by itself, beside the others.
type part struct {
	name, shown string // in JSON, and for people
	// read may read a part of it and still give an error.
	read func(r *statusReader, ctx context.Context) error
	// take takes what another reader has read.
	take func(r, from *statusReader)
}

// parts are read once the view is known. The ledger is read with the runs, before them: if a run's
// row says "sealed" afterwards, nothing of the run had been pruned.
var parts = []part{
	{
		"time", "the server's time", (*statusReader).readTime,
		func(r, from *statusReader) { r.server, r.local = from.server, from.local },
	},
	{
		"election", "the election", (*statusReader).readElection,
		func(r, from *statusReader) { r.election, r.electionKnown = from.election, from.electionKnown },
	},
	{
		"runs", "the runs", (*statusReader).readRuns,
		func(r, from *statusReader) {
			r.runs, r.tallies, r.clients = from.runs, from.tallies, from.clients
		},
	},
	{"ledger", "the ledger", nil, func(r, from *statusReader) { r.recorded = from.recorded }},
	{
		"ends", "the ends of runs", (*statusReader).readEnds,
		func(r, from *statusReader) { r.waiting, r.endings = from.waiting, from.endings },
	},
	{
		"gates", "the gates", (*statusReader).readGates,
		func(r, from *statusReader) { r.gates = from.gates },
	},
	{
		"keys", "the claims", (*statusReader).readClaims,
		func(r, from *statusReader) { r.claims = from.claims },
	},
	{
		"history", "the history", (*statusReader).readMoney,
		func(r, from *statusReader) { r.last = from.last },
	},
}

// gather reads all rows, and the queues in the way it is given.
func (r *statusReader) gather(ctx context.Context, accounts func(context.Context)) error {
	var rows sync.WaitGroup
	err := r.readView(ctx)
	// The queues are those of the map or, without a map, of the configuration.
	rows.Go(func() { accounts(ctx) })
	r.electionKnown = errors.Is(err, pump.ErrNoWorkload) // there was none
	for _, p := range parts {
		if err == nil && p.read != nil {
			rows.Go(func() { r.note(p.name, p.shown, p.read(r, ctx)) })
		}
	}
	rows.Wait()
	return err
}

// note says what is wrong with a part, and whether it was read. Damaged rows do not count as a
// failed reading: the others were read, and the damaged ones stay damaged.
func (r *statusReader) note(name, shown string, err error) {
	if err != nil {
		r.problem("%s: %v", shown, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	damaged := errors.Is(err, row.ErrCorrupt) && !row.MayRetry(err) &&
		!errors.Is(err, context.DeadlineExceeded)
	if err == nil || damaged {
		r.asOf[name] = time.Now()
	} else {
		r.missed[name] = true
	}
}

// complete takes what could not be read from the previous reader, as far as that has it.
func (r *statusReader) complete(before *statusReader) {
	if before == nil || r.view == nil {
		return
	}
	for _, p := range parts {
		if at, known := before.asOf[p.name]; known && r.missed[p.name] {
			r.asOf[p.name] = at
			p.take(r, before)
		}
	}
}

// notRead fills in which parts could not be read.
func (r *statusReader) notRead(s *Status) {
	s.NotRead = []PartNotRead{}
	for _, p := range parts {
		if !r.missed[p.name] {
			continue
		}
		not := PartNotRead{Part: p.name}
		if at, known := r.asOf[p.name]; known {
			not.AsOf = new(r.byServer(at))
		}
		s.NotRead = append(s.NotRead, not)
	}
}
