package worlds

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/bodies"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/quarantine"
	"github.com/queuepump/queuepump/pump/storage"
)

// Worlds in which some tasks are large. A task is handled with the body that was sent. In the end,
// when all runs are over and quarantine is empty, no body is left.

// simAbove is the largest body that stands in a message. simAllOver is within which time of the end of a
// world no body is left: runs that nobody continues are given up and forgotten meanwhile.
const (
	simAbove   = 1 << 10
	simAllOver = 12 * time.Hour
)

func (p *simPlan) blobAbove() int {
	if p.bodies {
		return simAbove
	}
	return 0
}

// simLarge is what large bodies end with.
var simLarge = sync.OnceValue(func() []byte { return testworld.Incompressible(simAbove + 2000) })

// sends is what a record's task is sent with. One of three is large.
func (s *simSource) sends(i int) []byte {
	body := []byte(s.body(i))
	if s.plan.bodies && s.roll(3, "large", i) == 0 {
		body = append(append(body, '\n'), simLarge()[:simAbove+int(s.roll(2000, "size", i))]...)
	}
	return body
}

// largeTasks are those worlds: processes die around each request that a body needs, and blobs are in
// trouble by themselves. In others, operators are at work, runs are paused, or rows of runs come back.
func (g *simSeeded) largeTasks() {
	p := g.plan
	p.bodies, p.delivery, p.live, p.accounts, p.tasks = true, pump.Once, false, 2+g.roll(2), min(p.tasks, 400)
	switch g.roll(5) {
	case 0, 1:
		g.operators()
	case 2:
		g.lostRuns()
	case 3:
		g.pausedParts()
	case 4: // what an operator drops may never be handled, which the judge of what is sent does not know
		g.roles = "sdp"
		g.join('s')
	}
	p.results = !p.reducer && g.roll(3) == 0
	for range 1 + g.roll(4) {
		name, at := []string{"p1", "p2", "d1"}[g.roll(3)], g.seconds(2, 50)
		point := []string{"object", "object", "put"}[g.roll(3)]
		if name[0] == 'p' {
			point = []string{"fetch", "fetch", "commit", "delete", "poison"}[g.roll(5)]
		}
		g.step(simStep{at: at, verb: "crash", who: name, after: g.roll(2) == 0, point: point, nth: 1 + g.roll(8)})
		g.step(simStep{at: at + g.seconds(5, 40), verb: "restart", who: name})
	}
	g.blobFaults()
}

// judgeBody compares what a handler was given with what was sent.
func judgeBody(s *simSource, record int, body []byte) error {
	if !s.plan.bodies || bytes.Equal(body, s.sends(record)) {
		return nil
	}
	return fmt.Errorf("record %d of source %s came with a body of %d bytes that is not what was sent", record, s.name, len(body))
}

// emptied has an operator empty quarantine hours later, when what was looked at there can be seen
// again and rows of runs may be gone. In half of the worlds what is there is redriven first: all of it has its bodies.
func (w *simWorld) emptied(ctx context.Context) {
	waits.Wait(ctx, time.Hour+time.Minute+time.Duration(w.roll(6, "hours in quarantine", 0))*time.Hour)
	w.mu.Lock()
	clear(w.judge.shut) // tasks of closed runs are redriven
	w.mu.Unlock()
	q, err := w.operator(ctx)
	if err == nil && w.roll(2, "redriven", 0) == 0 {
		// Not what is of no run: the world's stray messages are.
		again := quarantine.Filter{Reasons: []string{codec.ReasonAttempts, codec.ReasonRejected, codec.ReasonEndsProcess, codec.ReasonRunEnded}}
		err = q.Redrive(ctx, again, quarantine.Options{Again: true}, func(o quarantine.Outcome) bool {
			w.count("redriven hours later: " + o.Outcome)
			return true
		})
		waits.Wait(ctx, 10*time.Minute)
	}
	if err != nil {
		w.wrongf("quarantine cannot be emptied: %v", err)
	}
	w.drops(ctx)
}

func (w *simWorld) operator(ctx context.Context) (*quarantine.Quarantine, error) {
	c := w.judgeConfig()
	c.Nudge = func(context.Context, pump.Nudge) error { return errSimLost }
	return quarantine.Open(ctx, c)
}

// drops has an operator drop what is in quarantine. What is kept, or comes later, is dropped the next time.
func (w *simWorld) drops(ctx context.Context) {
	found := 0
	for _, name := range w.sim.Accounts() {
		for _, text := range w.sim.Texts(name, workload.PoisonQueue("work")) {
			found++
			h, err := codec.ReadHeader(text)
			if err == nil && h.Body != (codec.BodyRef{}) {
				w.count("large tasks that were in quarantine hours later")
			}
			if err == nil && h.Cause != nil && strings.Contains(h.Cause.Detail, bodies.ErrGone.Error()) {
				w.wrongf("lost: %v/%d/%v is in quarantine: %s", h.Run, h.Segment, h.Tasks, h.Cause.Detail)
			}
		}
	}
	if found == 0 {
		return
	}
	q, err := w.operator(ctx)
	if err == nil {
		err = q.Drop(ctx, quarantine.Filter{}, quarantine.Options{}, func(o quarantine.Outcome) bool {
			w.count("dropped hours later: " + o.Outcome)
			return true
		})
	}
	if err != nil {
		w.wrongf("quarantine cannot be emptied: %v", err)
	}
}

// leftOfBodies counts the bodies that are there.
func (w *simWorld) leftOfBodies(ctx context.Context, tell bool) (left int) {
	if !w.plan.bodies {
		return 0
	}
	for _, name := range w.sim.Accounts() {
		for b, err := range w.sure(name).Container(bodies.Container("work")).List(ctx, "", "") {
			if storage.Is(err, storage.Gone) || storage.Is(err, storage.Missing) {
				break
			}
			if err != nil {
				w.wrongf("the world's mistake: bodies cannot be listed: %v", err)
				break
			}
			if left++; tell {
				run, _ := bodies.RunOf(b.Name)
				w.wrongf("the body %s/%s is left, of a run of state %q", name, b.Name, w.stateOf(ctx, run.String()))
			}
		}
	}
	return left
}

func (w *simWorld) stateOf(ctx context.Context, id string) string {
	all, err := w.runs(ctx)
	for _, r := range all {
		if r.ID.String() == id {
			return fmt.Sprintf("%s over %t rest %d", r.State, r.Over, r.Rest)
		}
	}
	return fmt.Sprint("none ", err)
}
