package worlds

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/coordination"
	"github.com/queuepump/queuepump/pump/gates"
	"github.com/queuepump/queuepump/pump/internal/waits"
)

// Worlds in which rows that stand by themselves are gone, or come back as they were before: those of
// the election, of a range of ids, of a claim and of a gate.

// The partitions of these rows. The key that is claimed has its row in the fourth one of claims.
const (
	simElection = "work.election"
	simIDs      = "work.ids"
	simClaims   = "work.claims.3"
	simGates    = "work.gates"
	simClaimed  = "the key"
	simWent     = "rows that were lost or came back: " // counts, by partition
)

const (
	simInterval    = 6 * time.Second // for which a claim is good
	simCoordinates = 60              // so often a program takes a number and claims the key
)

// lostRows has three programs that take numbers and claim a key, a gate that is opened, and two to
// four of the partitions lost or rolled back, in the midst of runs or between them.
func (g *simSeeded) lostRows() {
	p := g.plan
	p.live, p.gated, p.pace = false, true, max(p.pace, g.seconds(30, 60))
	g.roles = "ddp"
	g.join('d')
	for g.last['x'] = 1; g.last['x'] < 4; g.last['x']++ {
		g.step(simStep{at: g.seconds(1, 5), verb: "operate", who: fmt.Sprintf("x%d", g.last['x']), order: []string{"coordinate"}})
	}
	g.step(simStep{at: g.seconds(3, 8), verb: "operate", who: "x4", order: []string{"release"}})
	rows := []string{simElection, simIDs, simClaims, simGates}
	for i := range 2 + g.roll(3) {
		j := i + g.roll(len(rows)-i)
		rows[i], rows[j] = rows[j], rows[i]
		s := simStep{at: g.seconds(12, 40), verb: "lose", who: rows[i]}
		if g.roll(2) == 0 {
			g.step(simStep{at: g.seconds(2, 12), verb: "keep", who: rows[i]})
			s.verb = "back"
		}
		g.step(s)
	}
}

// simCoordinated is what programs were given of rows that stand by themselves. It is guarded by
// world.mu.
type simCoordinated struct {
	given map[string]bool // numbers, by whom, and by any
	until time.Time       // to when the key is claimed
	asked time.Time       // when that was asked for
	doubt time.Time       // to when the row may say less than it should
}

func (c *simCoordinated) doubts(more time.Duration) {
	c.doubt = slices.MaxFunc([]time.Time{time.Now(), c.doubt}, time.Time.Compare).Add(more)
}

// coordinates is a program that takes numbers and claims the key.
func (p *simProcess) coordinates(ctx context.Context, cfg pump.Config) error {
	table, err := gates.Table(cfg)
	if err != nil {
		return err
	}
	ids, err := coordination.NewIDRange(table, "work", "orders", 1+int(p.roll(8, "size", "", 0)))
	claims := coordination.NewClaims(table, "work", simInterval, p.String())
	for n := 0; n < simCoordinates && err == nil && ctx.Err() == nil; n++ {
		waits.Wait(ctx, time.Second/2+time.Duration(p.roll(uint64(time.Second), "coordinates", "", n)))
		if id, err := ids.Next(ctx); err == nil {
			p.judgeNumber(id)
		}
		asked := time.Now()
		task := coordination.TaskRef{Segment: uint32(p.name[1]), N: uint64(n)}
		if claim, verdict, _, err := claims.Claim(ctx, []byte(simClaimed), task); err == nil && verdict == coordination.Granted {
			p.judgeClaim(claim, asked)
			waits.Wait(ctx, time.Duration(p.roll(uint64(2*time.Second), "claimed", "", n)))
			_ = claim.Done(ctx, false)
		}
	}
	return err
}

// judgeNumber: no process is given a number twice. No other one is given it, unless the row was lost
// or came back.
func (p *simProcess) judgeNumber(id uint64) {
	w := p.world
	w.mu.Lock()
	defer w.mu.Unlock()
	c, mine, any := &w.coordinated, fmt.Sprint(id, " ", p), fmt.Sprint(id)
	if c.given[mine] || c.given[any] && w.counts[simWent+simIDs] == 0 {
		w.wrong = append(w.wrong, fmt.Sprintf("%s was given number %d, which was given before", p, id))
	}
	c.given[mine], c.given[any] = true, true
	w.counts["numbers given"]++
}

// judgeClaim: the key is granted once in an interval, unless its row was lost or came back since that
// was asked for, or the clock by which it is good jumped shortly before.
func (p *simProcess) judgeClaim(claim *coordination.Claim, asked time.Time) {
	w := p.world
	w.mu.Lock()
	defer w.mu.Unlock()
	c := &w.coordinated
	if asked.After(c.doubt) && c.asked.After(c.doubt) && time.Now().Before(c.until) {
		w.wrong = append(w.wrong, fmt.Sprintf("%s was granted the key, which is claimed for %v more", p, time.Until(c.until)))
	}
	c.until, c.asked = claim.Until, asked
	w.counts["claims granted"]++
}
