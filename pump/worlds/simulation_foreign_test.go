package worlds

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/queuepump/queuepump/pump"
)

// Worlds in which another program puts messages of its own into the work queues, beside a
// distributor. Ledgers keep few names of them there, an account is dark for long, and processors
// are started again meanwhile. What is recorded is not done again when the account answers (A14).

// foreignMessages are those worlds.
func (g *simSeeded) foreignMessages() {
	p := g.plan
	p.accounts, p.queues, p.limit, p.bad = 2, 1, 0, 0
	p.delivery, p.reducer, p.live = pump.Once, false, false
	p.foreign, p.keys, p.tasks, p.pack = 50+g.roll(12), 1, 20, 1+g.roll(4)
	p.work, p.handlers, p.visibility = 12*time.Second, 32+g.roll(16), 15*time.Second
	p.pace = g.seconds(20, 40)
	g.events, g.few = -1, true
	at := g.seconds(6, 9)
	span := g.seconds(60, 240)
	if g.roll(4) == 0 {
		span = g.seconds(1400, 1800)
	}
	g.step(simStep{at: at, verb: []string{"dark", "hang"}[g.roll(2)], who: "accountb", span: span})
	if g.roll(2) == 0 {
		g.step(simStep{at: at + g.seconds(20, 55), verb: "restart", who: "p1"})
	}
}

// simNames is how many names a segment keeps in worlds with messages of another program. Of more
// than a quarter of it the oldest go; those of messages that were delivered more than once stay
// for a while, and were they as many, further messages would wait for that.
const simNames = 64

// simForeign is a message of another program.
type simForeign struct {
	begun int
	done  time.Time   // when it was done last
	by    *simProcess // which did it
	times int
}

// simText is the text of such a message.
type simText struct {
	Key     string `json:"key"`
	Foreign int    `json:"foreign"`
}

// foreignMessage reports which one a task's body is.
func foreignMessage(body []byte) (n int, is bool) {
	var text simText
	if len(body) == 0 || body[0] != '{' || json.Unmarshal(body, &text) != nil {
		return 0, false
	}
	return text.Foreign, text.Foreign > 0
}

// otherProgram puts its messages, most of them early.
func (w *simWorld) otherProgram() {
	time.Sleep(3 * time.Second) // until queues are made
	for i := range w.plan.foreign {
		wait := w.plan.pace / time.Duration(8*w.plan.foreign)
		if i > w.plan.foreign*3/4 {
			wait *= 24
		}
		time.Sleep(wait/2 + time.Duration(w.roll(uint64(wait), "foreign", i)))
		account := w.sim.Accounts()[w.roll(uint64(w.plan.accounts), "foreign account", i)]
		queue := w.roll(uint64(w.plan.queues), "foreign queue", i)
		key := fmt.Sprint("key ", w.roll(uint64(w.plan.keys), "foreign key", i))
		q := w.sure(account).Queue(fmt.Sprintf("work-%02d", queue))
		text, err := json.Marshal(simText{key, i + 1})
		if err == nil {
			_, err = q.Put(context.Background(), text, 0)
		}
		if err != nil {
			continue // nobody has made the queue yet
		}
		w.mu.Lock()
		if w.foreign[i+1] == nil { // else a handler was faster than the answer
			w.foreign[i+1] = &simForeign{}
		}
		w.counts["messages of another program"]++
		w.mu.Unlock()
	}
}

// simRecorded is how long it takes at most until what is done is recorded where the control
// account answers.
const simRecorded = 20 * time.Second

// handleForeign is handle for a message of another program.
func (p *simProcess) handleForeign(ctx context.Context, n int) error {
	w := p.world
	w.mu.Lock()
	f := w.foreign[n]
	if f == nil {
		f = &simForeign{}
		w.foreign[n] = f
	}
	f.begun++
	by := f.by
	recorded := by != nil && time.Since(f.done) > simRecorded
	if recorded && (!by.dead || by.died.Sub(f.done) > simRecorded) {
		const again = "%s begins message %d of another program, which %s did and recorded %v before (A14)"
		w.wrong = append(w.wrong, fmt.Sprintf(again, p, n, by, time.Since(f.done)))
	}
	w.mu.Unlock()
	share := float64(w.roll(1<<20, fmt.Sprint("foreign work ", n), f.begun)) / (1 << 20)
	waitAny(ctx, p.alive, time.Microsecond+time.Duration(share*share*float64(w.plan.work)))
	w.turns.Of(p.String()).Turn("handled", fmt.Sprint("foreign ", n))
	p.stopped(fmt.Sprint("handle foreign ", n))
	switch {
	case p.over():
		return errSimDead
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	f.done, f.by = time.Now(), p
	f.times++
	w.noteLocked(p.String(), fmt.Sprint("does message ", n, " of another program"))
	return nil
}

// checkForeign: each message of another program was done.
func (w *simWorld) checkForeign() {
	for n, f := range w.foreign {
		if f.times == 0 {
			w.wrongf("lost: message %d of another program was begun %d times and never done", n, f.begun)
		}
	}
}
