package worlds

import (
	"context"
	"fmt"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/source"
	"github.com/queuepump/queuepump/shardmap"
)

// simSend is how long a program waits for one Send.
const simSend = 40 * time.Second

// sends is a program that has some tasks at a time and sends them, each batch once: what a Send
// did not acknowledge may be in queues or not, and the program does not want to know.
func (p *simProcess) sends(ctx context.Context) error {
	w := p.world
	src := w.source(p.String())
	s, err := distributor.NewSender(p.config(), distributor.SenderOptions{Pack: w.plan.pack, BlobAbove: w.plan.blobAbove()})
	if err != nil {
		return err
	}
	before := src.n - simSendsLast
	for next := 0; next < before && ctx.Err() == nil; {
		size := min(1+int(p.roll(6, "batch", "", next)), before-next)
		d := w.plan.pace * time.Duration(size) / time.Duration(src.n)
		if !waits.Wait(ctx, d/2+time.Duration(p.roll(uint64(d)+1, "pace", "", next))) {
			break
		}
		_ = p.sendBatch(ctx, s, src, next, size)
		next += size
	}
	p.sendsLast(ctx, s, src)
	end, cancel := context.WithTimeout(p.alive, simPatience)
	defer cancel()
	_, err = s.Close(end)
	return err
}

// sendBatch sends some records, once.
func (p *simProcess) sendBatch(
	ctx context.Context, s *distributor.Sender, src *simSource, next, size int,
) error {
	w := p.world
	p.stopped("sends")
	var batch []source.Record
	for i := next; i < next+size; i++ {
		body := src.body(i)
		batch = append(batch, source.Record{Key: []byte(src.key(i)), ID: body, Body: src.sends(i)})
	}
	patience, cancel := context.WithTimeout(ctx, simSend)
	defer cancel()
	err := s.Send(patience, batch...)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil && !p.over() {
		for i := next; i < next+size; i++ {
			src.acknowledged[i] = true
		}
		w.counts["tasks acknowledged by Send"] += size
	}
	return err
}

// simSendsLast is how many records a program keeps back, of which it sends one after the other
// until a Send is acknowledged, when nothing goes wrong any more.
const simSendsLast = 8

// sendsLast has a program that lives on send again in the end: whatever ended its runs, and
// whatever its first Send met, it is no error for ever (A16).
func (p *simProcess) sendsLast(ctx context.Context, s *distributor.Sender, src *simSource) {
	w := p.world
	calm := func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.calmed > 0
	}
	for n := 0; !calm(); n++ {
		if !waits.Wait(ctx, 5*time.Second+time.Duration(p.roll(uint64(time.Second), "calm", "", n))) {
			return
		}
	}
	w.count("Senders that lived on")
	var err error
	for i := src.n - simSendsLast; i < src.n; i++ {
		wait := 40*time.Second + time.Duration(p.roll(uint64(time.Second), "last", "", i))
		if err = p.sendBatch(ctx, s, src, i, 1); err == nil || !waits.Wait(ctx, wait) {
			return
		}
	}
	if !p.over() && ctx.Err() == nil {
		w.wrongf("%s cannot send any more though nothing goes wrong: %v (A16)", p, err)
	}
}

// manySenders are programs with a Sender each, all of whose runs are open at once in one segment. A
// test has 2,500 (senders_many_test.go).
func (g *simSeeded) manySenders() {
	p := g.plan
	p.delivery, p.keys, p.tasks, p.pace = pump.Once, 1, 5+g.roll(30), g.seconds(20, 40)
	for g.last['s'] < 60 {
		g.last['s']++
		g.step(simStep{at: g.seconds(1, 20), verb: "start", who: fmt.Sprintf("s%d", g.last['s'])})
	}
	g.events = 2 + g.roll(5)
}

// newSentSource is what one life of a program sends. Which task of which run each record of it is,
// is known when it comes to a handler.
func newSentSource(plan *simPlan, name string) *simSource {
	n := max(1, plan.tasks/5) + simSendsLast
	return &simSource{plan: plan, name: name, n: n, sent: true, acknowledged: map[int]bool{}}
}

// learned: which task each of its records is, is known when it comes to a handler.
func (s *simSource) learned() bool { return s.sent || s.files != nil }

// isTask reports whether a record may be a task.
func (s *simSource) isTask(record int, key simKey) bool {
	if s.learned() {
		return key.segment == shardmap.Segment([]byte(s.key(record)), s.plan.segments)
	}
	of := s.tasks[key.segment]
	return key.n < uint64(len(of)) && of[key.n] == record
}

// tasksOf gives the records of a run's tasks in a segment, by their numbers; -1 is one that is not
// known.
func (w *simWorld) tasksOf(source *simSource, key simKey, sealed uint64) []int {
	if !source.learned() {
		return source.tasks[key.segment]
	}
	var records []int
	for key.n = 0; ; key.n++ {
		task := w.tasks[key]
		switch {
		case task != nil:
			records = append(records, task.record)
		case key.n < max(sealed, w.most[simKey{key.run, key.segment, 0}]):
			records = append(records, -1)
		default:
			return records
		}
	}
}

// checkSent judges what programs were told: what Send has acknowledged is one task, and that is
// done or in quarantine, whatever became of the program.
func (w *simWorld) checkSent(v *simVerdict) {
	identities := map[*simSource]map[int][]*simTask{}
	for _, t := range w.tasks {
		if t.source.sent {
			if identities[t.source] == nil {
				identities[t.source] = map[int][]*simTask{}
			}
			identities[t.source][t.record] = append(identities[t.source][t.record], t)
		}
	}
	for _, source := range w.sources {
		if !source.sent {
			continue
		}
		for i := range source.n {
			tasks := identities[source][i]
			switch {
			case !source.acknowledged[i]:
			case len(tasks) == 0:
				w.wrongf("lost: %q was acknowledged by Send and never handled", source.body(i))
			case len(tasks) > 1:
				w.wrongf("%q was sent once and is %d tasks (at work twice at the same time): %v", source.body(i), len(tasks), tasks)
			case v.ended[tasks[0].run]: // see checkPut
			default:
				w.checkTask(tasks[0].simKey, source.condemned(i), v.poison[tasks[0].simKey])
			}
		}
	}
}
