package worlds

import (
	"context"
	"time"

	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/backoff"
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
	s, err := distributor.NewSender(p.config(), distributor.SenderOptions{Pack: w.plan.pack})
	if err != nil {
		return err
	}
	for next := 0; next < src.n && ctx.Err() == nil; {
		size := min(1+int(p.roll(6, "batch", "", next)), src.n-next)
		d := w.plan.pace * time.Duration(size) / time.Duration(src.n)
		if !backoff.Wait(ctx, d/2+time.Duration(p.roll(uint64(d)+1, "pace", "", next))) {
			break
		}
		p.stopped("sends")
		var batch []source.Record
		for i := next; i < next+size; i++ {
			batch = append(batch, source.Record{Key: []byte(src.key(i)), ID: src.body(i), Body: []byte(src.body(i))})
		}
		patience, cancel := context.WithTimeout(ctx, simSend)
		err = s.Send(patience, batch...)
		cancel()
		w.mu.Lock()
		if err == nil && !p.over() {
			for i := next; i < next+size; i++ {
				src.acknowledged[i] = true
			}
			w.counts["tasks acknowledged by Send"] += size
		}
		w.mu.Unlock()
		next += size
	}
	end, cancel := context.WithTimeout(p.alive, simPatience)
	defer cancel()
	_, err = s.Close(end)
	return err
}

// newSentSource is what one life of a program sends. A record's task and run are known when it
// comes to a handler.
func newSentSource(plan *simPlan, name string) *simSource {
	return &simSource{plan: plan, name: name, n: max(1, plan.tasks/5), sent: true, acknowledged: map[int]bool{}}
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

// tasksOf gives the records of a run's tasks in a segment, by their numbers; -1 is an unknown one.
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

// checkSent judges what programs were told. Each record that Send has acknowledged is one task, and
// that is done or in quarantine, even if the program died.
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
