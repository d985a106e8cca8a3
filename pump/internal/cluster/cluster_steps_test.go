package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/internal/testkit"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/shardmap"
)

// do plays one step. Its errors are mistakes of the script; what the cluster
// does wrong is the judge's to say.
func (w *clusterWorld) do(ctx context.Context, s clusterStep) error {
	for _, n := range s.machines {
		var err error
		if n == 0 {
			w.sim.SetClockOffset(s.span)
		} else {
			err = w.doTo(ctx, w.machine(n), s)
		}
		if err != nil {
			return err
		}
	}
	switch s.verb {
	case "dark":
		w.dark(s.span)
	case "drain", "add":
		return w.changeMap(ctx, s)
	case "wait":
		time.Sleep(s.span)
	case "settle":
		w.settle(ctx)
	case "check":
		w.check()
	case "remember":
		w.remember()
	case "unmoved":
		w.unmoved()
	}
	return nil
}

func (w *clusterWorld) doTo(ctx context.Context, m *clusterMachine, s clusterStep) error {
	w.mu.Lock()
	l := m.life
	w.mu.Unlock()
	there := l != nil && !l.over()
	until := time.Now().Add(s.span)
	switch s.verb {
	case "join", "watch":
		if there {
			return fmt.Errorf("machine %d has a process", m.number)
		}
		m.start(s.verb == "watch")
		return nil
	case "restart":
		watches := false
		if there {
			w.disturbed("crash", 0)
			l.kill()
		}
		if l != nil {
			watches = l.watches
		}
		m.start(watches)
		return nil
	case "clock", "drift":
		w.mu.Lock()
		defer w.mu.Unlock()
		if s.verb == "clock" {
			m.wall = s.span
			return nil
		}
		if m.rate = 1 + float64(s.number)/100; there {
			return fmt.Errorf("machine %d runs already", m.number)
		}
		return nil
	}
	if !there && slices.Contains([]string{"leave", "crash", "pause", "mark", "unmark"}, s.verb) {
		return fmt.Errorf("machine %d has no process", m.number)
	}
	if s.verb == "times" {
		if there {
			l.retime(m.shows(s.span), m.shows(time.Duration(s.number)*s.span))
		}
		return nil
	}
	w.disturbed(s.verb, s.span)
	switch s.verb {
	case "leave":
		l.leave()
	case "crash":
		l.kill()
	case "mark", "unmark":
		l.mark(s)
	}
	if s.verb == "slow" {
		// The pages of one answer are far apart, too.
		rule := w.sim.Inject(azsim.Rule{Instance: m.name + ".member", Operations: []string{"QueryEntities"}, Fault: azsim.DelayBefore, Delay: 700 * time.Millisecond, Probability: 0.5})
		time.AfterFunc(s.span, rule.Remove)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch s.verb {
	case "pause":
		l.pausedTo = later(l.pausedTo, until)
	case "partition":
		m.cutOffTo = later(m.cutOffTo, until)
	case "slow":
		m.slowTo = later(m.slowTo, until)
	case "lose":
		m.loseTo, m.loseShare = until, s.number
	case "fault":
		m.orders = append(m.orders, &clusterOrder{kind: s.word, row: s.row, left: s.number})
	}
	return nil
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// disturbed notes that something has begun that takes so long.
func (w *clusterWorld) disturbed(what string, d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events[what]++
	w.busyTo = later(w.busyTo, time.Now().Add(d))
	w.judge.calm = w.now()
}

// dark takes the control account away, half of the times by hanging.
func (w *clusterWorld) dark(d time.Duration) {
	w.disturbed("dark", d)
	w.mu.Lock()
	w.darkTo = later(w.darkTo, time.Now().Add(d))
	n := w.events["dark"]
	w.mu.Unlock()
	if testkit.Hash(w.script.seed, "dark", n)%2 == 0 {
		w.sim.Blackout("control", true)
	} else {
		w.sim.Hang("control", true)
	}
	time.AfterFunc(d, func() {
		w.mu.Lock()
		over := !time.Now().Before(w.darkTo)
		w.mu.Unlock()
		if over {
			w.sim.Blackout("control", false)
			w.disturbed("light", 0)
		}
	})
}

// changeMap drains or adds an account, trying for as long as the account is
// dark: an operator would.
func (w *clusterWorld) changeMap(ctx context.Context, s clusterStep) error {
	w.disturbed(s.verb, 0)
	w.lives.Go(func() {
		for {
			_, err := workload.ChangeMap(ctx, w.operator, "city", func(m *shardmap.Map) ([]shardmap.Shard, error) {
				shards := slices.Clone(m.Shards)
				if s.verb == "add" {
					return append(shards, w.queues(s.word)...), nil
				}
				for i := range shards {
					if shards[i].Account == s.word {
						shards[i].State = shardmap.Draining
					}
				}
				return shards, nil
			})
			if err == nil || ctx.Err() != nil {
				w.disturbed("changed", 0)
				return
			}
			w.note("operator", fmt.Sprint("changing the map: ", err))
			if errors.Is(err, shardmap.ErrShards) || errors.Is(err, shardmap.ErrNoActive) {
				w.wrongf("%s: %v", s, err)
				return
			}
			wait(ctx, 2*time.Second)
		}
	})
	return nil
}

// mark sets or clears a spill mark in the background; once that is acknowledged
// every view must show it.
func (l *clusterLife) mark(s clusterStep) {
	w := l.machine.world
	p := l.member()
	if p == nil {
		return
	}
	w.lives.Go(func() {
		ctx, cancel := context.WithTimeout(l.ctx, time.Minute)
		defer cancel()
		l.stopped("mark")
		change := p.MarkSpill
		if s.verb == "unmark" {
			change = p.ClearSpill
		}
		err := change(ctx, []uint32{uint32(s.number)}, s.second)
		w.mu.Lock()
		defer w.mu.Unlock()
		if err != nil {
			w.noteLocked(l.String(), fmt.Sprint(s, ": ", err))
			return
		}
		w.judge.marks[[2]int{s.number, s.second}] = s.verb == "mark"
	})
}
