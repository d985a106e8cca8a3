package election

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/testkit"
)

// chaos is one seeded history of several distributors that crash, are cut off,
// give up and come back, over a table that loses and delays what it likes.
type chaos struct {
	testkit.Chaos
	terms    map[*Term]bool // of processes that live
	acked    map[codec.RunID]uint64
	runs     int
	finished []time.Time
	wrong    []string
}

func (c *chaos) errorf(format string, args ...any) {
	c.wrong = append(c.wrong, fmt.Sprintf(format, args...))
}

// machine starts one process after another until the end.
func (c *chaos) machine(ctx context.Context, name string) {
	for life := 0; ctx.Err() == nil; life++ {
		c.process(ctx, fmt.Sprintf("%s.%d", name, life))
		time.Sleep(time.Duration(c.Roll(uint64(40*time.Second), name+"down", life)))
	}
}

// process looks, leads and distributes until it crashes.
func (c *chaos) process(ctx context.Context, name string) {
	client := c.Server.Client(name)
	client.SetFault(c.Fault)
	client.SetLatency(func(this testkit.Call) time.Duration {
		return time.Millisecond + time.Duration(c.Roll(uint64(300*time.Millisecond), name+this.Op+this.Row+"l", this.N))
	})
	table := row.Seeded(client, testkit.SeededDraw(c.Seed, name))
	e := New(table, "city", Options{Instance: name})
	for n := 0; ctx.Err() == nil; n++ {
		term := stand(ctx, e)
		if term == nil {
			return
		}
		c.won(name, term)
		crashed := c.lead(name, n, client, term)
		c.Mu.Lock()
		delete(c.terms, term)
		c.Mu.Unlock()
		if crashed {
			<-term.done // nothing of it is heard any more
			return
		}
	}
}

func (c *chaos) won(name string, term *Term) {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	for other := range c.terms {
		if other.Trusted(); other.Context().Err() == nil {
			c.errorf("%s leads with epoch %d while epoch %d is trusted", name, term.Epoch, other.Epoch)
		}
	}
	c.terms[term] = true
	if r := term.Resume; r != nil && checkpointOf(r.Checkpoint) < c.acked[r.Run] {
		c.errorf("epoch %d resumes at %d, but %d was saved", term.Epoch, checkpointOf(r.Checkpoint), c.acked[r.Run])
	}
}

func checkpointOf(b []byte) uint64 {
	if len(b) < 8 {
		return 0
	}
	return binary.BigEndian.Uint64(b)
}

// lead distributes: ten saves and then Finish, unless something comes between.
func (c *chaos) lead(name string, n int, client *testkit.Client, term *Term) (crashed bool) {
	ctx := term.Context()
	defer func() {
		if !crashed {
			term.Abandon(context.Background())
		}
	}()
	var run codec.RunID
	var at uint64
	if term.Resume != nil {
		run, at = term.Resume.Run, checkpointOf(term.Resume.Checkpoint)
	} else {
		c.Mu.Lock()
		c.runs++
		binary.BigEndian.PutUint64(run[:], uint64(c.runs))
		c.Mu.Unlock()
		if term.Begin(ctx, run) != nil {
			return false
		}
	}
	for at < 10 {
		event := uint64(100)
		if time.Now().Before(c.Quiet) {
			event = c.Roll(100, name+"event", n*100+int(at))
		}
		switch {
		case event < 4:
			client.Dies()
			return true
		case event < 7: // cut off for longer than a lease, then back
			back := time.Now().Add(30 * time.Second)
			client.SetFault(func(this testkit.Call) testkit.Fault {
				if time.Now().Before(back) {
					return testkit.Fault{Hang: true}
				}
				return c.Fault(this)
			})
		case event < 10:
			return false
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(time.Duration(c.Roll(uint64(4*time.Second), name+"work", n*100+int(at)))):
		}
		at++
		if term.Save(ctx, binary.BigEndian.AppendUint64(nil, at)) != nil {
			return false
		}
		c.Mu.Lock()
		c.acked[run] = max(c.acked[run], at)
		c.Mu.Unlock()
	}
	if term.Finish(ctx) == nil {
		c.Mu.Lock()
		c.finished = append(c.finished, time.Now())
		c.Mu.Unlock()
	}
	return false
}

// judge reads the history of the row, which cannot lie.
func (c *chaos) judge() {
	var last electionRow
	var lastAt time.Time
	idle := true
	leaders := map[uint64]string{}
	for _, e := range c.Server.Written() {
		if e.Row != "election" {
			continue
		}
		f := &row.Fields{Props: e.Properties}
		now := decodeElection(f)
		if f.Err != nil {
			c.errorf("stored: %v", f.Err)
		}
		if token, ok := leaders[now.epoch]; ok && now.leader != "" && token != now.leader {
			c.errorf("epoch %d had the leaders %s and %s", now.epoch, token, now.leader)
		}
		leaders[now.epoch] = max(leaders[now.epoch], now.leader)
		switch {
		case now.epoch == last.epoch && now.beats <= last.beats, now.epoch != last.epoch && now.epoch != last.epoch+1:
			c.errorf("epoch %d beat %d follows epoch %d beat %d", now.epoch, now.beats, last.epoch, last.beats)
		case now.epoch != last.epoch && idle:
			if !now.run.IsZero() || len(now.checkpoint) != 0 {
				c.errorf("epoch %d is a new distribution and has run %s", now.epoch, now.run)
			}
			if early := last.every - e.Modified.Sub(lastAt); last.epoch > 0 && early > 0 {
				c.errorf("epoch %d began %v before it was due", now.epoch, early)
			}
		case now.epoch != last.epoch && (now.run != last.run || string(now.checkpoint) != string(last.checkpoint)):
			c.errorf("epoch %d continues run %s at %x, but %s was at %x", now.epoch, now.run, now.checkpoint, last.run, last.checkpoint)
		case now.run == last.run && checkpointOf(now.checkpoint) < checkpointOf(last.checkpoint) && now.phase == Running:
			c.errorf("run %s went back", now.run)
		}
		last, lastAt, idle = now, e.Modified, now.phase == Idle
	}
	// Lively again once nothing goes wrong: at most a watch, a run and a period
	// after, then a distribution every two minutes at the most.
	late := 0
	for _, at := range c.finished {
		if at.After(c.Quiet) {
			late++
		}
	}
	if late < 2 {
		c.errorf("%d distributions ended in the quiet time", late)
	}
}

// TestWhateverGoesWrongOneLeadsAtATimeAndNothingSavedIsLost: of any history,
// no instance wins while another trusts; epochs grow by one and have one leader each;
// what was saved is what is resumed; nothing begins before it is due; and when
// nothing goes wrong any more distributions go on.
func TestWhateverGoesWrongOneLeadsAtATimeAndNothingSavedIsLost(t *testing.T) {
	wins := 0
	rapid.Check(t, func(rt *rapid.T) {
		seed := rapid.Uint64().Draw(rt, "seed")
		machines := rapid.IntRange(2, 4).Draw(rt, "machines")
		c := &chaos{Chaos: testkit.Chaos{Seed: seed}, terms: map[*Term]bool{}, acked: map[codec.RunID]uint64{}}
		synctest.Test(t, func(t *testing.T) {
			c.Server = testkit.NewServer()
			c.Quiet = time.Now().Add(10 * time.Minute)
			c.End = c.Quiet.Add(6 * time.Minute)
			ctx, cancel := context.WithDeadline(t.Context(), c.End)
			defer cancel()
			var wg sync.WaitGroup
			for i := range machines {
				wg.Go(func() { c.machine(ctx, fmt.Sprint("m", i)) })
			}
			wg.Wait()
			c.judge()
		})
		wins += len(c.acked)
		if len(c.wrong) > 0 {
			rt.Fatalf("seed %d, %d machines:\n%s", seed, machines, strings.Join(c.wrong, "\n"))
		}
	})
	if wins == 0 {
		t.Error("no instance ever led")
	}
}

func TestTheSameSeedGivesTheSameHistory(t *testing.T) {
	history := func(seed uint64) (all []string) {
		c := &chaos{Chaos: testkit.Chaos{Seed: seed}, terms: map[*Term]bool{}, acked: map[codec.RunID]uint64{}}
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			c.Server = testkit.NewServer()
			c.Quiet = began.Add(10 * time.Minute)
			ctx, cancel := context.WithDeadline(t.Context(), c.Quiet)
			defer cancel()
			var wg sync.WaitGroup
			for i := range 4 {
				wg.Go(func() { c.machine(ctx, fmt.Sprint("m", i)) })
			}
			wg.Wait()
			for _, e := range c.Server.Written() {
				all = append(all, fmt.Sprint(e.Modified.Sub(began.Round(0)), " ", e.Row, " ", e.Properties["Leader"], e.Properties["Beats"], e.Properties[row.NonceProperty]))
			}
		})
		return all
	}
	for seed := range uint64(3) {
		a, b, other := history(seed), history(seed), history(seed+100)
		for i := range min(len(a), len(b)) {
			if a[i] != b[i] {
				t.Fatalf("seed %d: write %d is %s and then %s", seed, i, a[i], b[i])
			}
		}
		if len(a) != len(b) || len(a) < 50 || slices.Equal(a, other) {
			t.Errorf("seed %d: %d and %d writes, %d with another seed", seed, len(a), len(b), len(other))
		}
	}
}
