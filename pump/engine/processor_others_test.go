package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/verify"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/settings"
	"github.com/queuepump/queuepump/shardmap"
)

// joinNudged starts a processor that others can nudge, and that nudges them.
func (w *procWorld) joinNudged(instance string, h pump.Handler, o ProcessorOptions, all *[]*procStarted) {
	w.t.Helper()
	cfg := w.config(instance, w.cfg.Accounts[0].Queues)
	cfg.Admin = "127.0.0.1:8080"
	cfg.Nudge = func(_ context.Context, n pump.Nudge) error {
		for _, p := range *all {
			if p.of.cfg.Instance == n.Instance {
				p.of.Nudged(n)
			}
		}
		return nil
	}
	p, err := NewProcessor(cfg, h, o)
	if err != nil {
		w.t.Fatal(err)
	}
	*all = append(*all, w.start(p))
}

func TestP7OneQueueWithManyOwnersWorks(t *testing.T) {
	verify.Only(t)
	for _, owners := range []int{2, 4, 16} {
		t.Run(fmt.Sprintf("%d owners", owners), func(t *testing.T) {
			procInWorld(t, 1, 1, nil, func(t *testing.T, w *procWorld) {
				var hs handlings
				var all []*procStarted
				for i := range owners {
					name := fmt.Sprintf("p%02d", i)
					w.joinNudged(name, hs.handler(name, 10*time.Millisecond), ProcessorOptions{}, &all)
				}
				v := w.settled(owners)
				time.Sleep(10 * time.Second)
				began := time.Now()
				tasks := 0
				for range 10 {
					tasks += w.putHome(w.everySegment(), 5)
				}
				for hs.tasks() < tasks && time.Since(began) < 10*time.Minute {
					time.Sleep(100 * time.Millisecond)
				}
				took := time.Since(began)
				var passed, envelopes, split int64
				for _, p := range all {
					p.stop()
				}
				for _, p := range all {
					<-p.done
					s := p.summary
					passed += s.Passed
					envelopes += s.Envelopes
					split += s.Split
					// What came back often enough to be suspicious is split, innocent or not (P4.2).
					if p.err != nil || s.Handled != int64(tasks/owners) || s.Released != s.Split*int64(tasks/640) || s.Lost+s.Failed != 0 {
						t.Errorf("%v, %+v", p.err, s)
					}
				}
				hs.check(t)
				for _, h := range hs.get() {
					if owner, _ := v.OwnerOf(h.segment); owner.Instance != h.instance {
						t.Fatalf("segment %d of %s was handled by %s", h.segment, owner.Instance, h.instance)
					}
				}
				if own := envelopes - passed; w.left() != 0 || passed == 0 || own < 640 || own > 640+4*split || split > 640/20 {
					t.Errorf("%d messages left, %d of %d deliveries passed on", w.left(), passed, envelopes)
				}
				if took > time.Minute {
					t.Errorf("640 messages took %v", took)
				}
				t.Logf("640 messages of %d owners: %v, %.1f deliveries each", owners, took, float64(envelopes)/640)
			})
		})
	}
}

func TestP7OneSilentOwnerDoesNotStarveTheOthers(t *testing.T) {
	verify.Only(t)
	procInWorld(t, 1, 1, nil, func(t *testing.T, w *procWorld) {
		var hs handlings
		// A member that holds its segments and never reads a queue.
		cfg := w.config("silent", 1)
		mute := w.processorOf("silent", &seen{}, ProcessorOptions{}).newProcessing(t.Context())
		ready(t, mute)
		var all []*procStarted
		for i := range 3 {
			name := fmt.Sprint("p", i)
			all = append(all, w.join(name, hs.handler(name, 0), ProcessorOptions{}))
		}
		v := w.settled(4)
		time.Sleep(10 * time.Second)
		silent := owns(v, cfg.Instance)
		if len(silent) != 16 {
			t.Fatalf("%d segments are the silent one's", len(silent))
		}
		for range 30 { // at the head of the queue
			w.putHome(silent, 1)
		}
		var others []uint32
		for _, s := range w.everySegment() {
			if !slices.Contains(silent, s) {
				others = append(others, s)
			}
		}
		began := time.Now()
		tasks := 0
		for range 10 {
			tasks += w.putHome(others, 1)
		}
		for hs.tasks() < tasks && time.Since(began) < 30*time.Minute {
			time.Sleep(100 * time.Millisecond)
		}
		took := time.Since(began)
		if hs.tasks() != tasks || took > 3*time.Minute {
			t.Errorf("%d of %d tasks of the others in %v", hs.tasks(), tasks, took)
		}
		t.Logf("480 messages behind 480 of a silent owner: %v", took)
		for _, p := range all {
			p.end()
		}
		mute.stop()
	})
}

func TestP64AStrayIsBroughtHomeAndAMarkedSpillIsNot(t *testing.T) {
	procInWorld(t, 3, 1, nil, func(t *testing.T, w *procWorld) {
		hs := map[string]*handlings{}
		var all []*procStarted
		for _, name := range []string{"p", "q", "r"} {
			hs[name] = &handlings{}
			all = append(all, w.join(name, hs[name].handler(name, 0), ProcessorOptions{}))
		}
		v := w.settled(3)
		time.Sleep(10 * time.Second)
		m := v.Workload.Map
		segment := segmentOf(m, 0)
		owner, _ := v.OwnerOf(segment)
		at := m.Choices(segment)[1]
		keeper := v.Keeper(at)
		if owner.Instance == keeper {
			t.Fatalf("%s has both queues", keeper)
		}
		account, queue := w.queueOf(m, at)
		w.putText(account, queue, w.envelope(segment, 3))
		w.putText(account, queue, w.foreignOf(m, segment))
		time.Sleep(20 * time.Second)
		if n := hs[owner.Instance].tasks(); n != 4 || w.left() != 0 {
			t.Errorf("the owner has handled %d strays of 4, %d messages left", n, w.left())
		}
		got := hs[owner.Instance].get()
		if !slices.ContainsFunc(got, func(h handling) bool { return strings.HasPrefix(h.task, queue+"/") }) {
			t.Errorf("the message of another program has lost its identity: %+v", got)
		}

		if err := all[0].of.running.Load().member.Load().MarkSpill(t.Context(), []uint32{segment}, 1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		w.putText(account, queue, w.envelope(segment, 2))
		time.Sleep(20 * time.Second)
		if n := hs[owner.Instance].tasks(); n != 6 || w.left() != 0 {
			t.Errorf("the owner has handled %d tasks of 6, %d messages left", n, w.left())
		}
		var forwarded int64
		for _, p := range all {
			forwarded += p.end().Forwarded
		}
		if forwarded != 2 {
			t.Errorf("%d messages were brought home, want the two strays", forwarded)
		}
	})
}

func TestP63TheOwnerTakesAMarkBackWhenNothingComesByItAnyMore(t *testing.T) {
	procInWorld(t, 3, 1, nil, func(t *testing.T, w *procWorld) {
		h := &seen{}
		p := w.join("p", h, ProcessorOptions{})
		q := w.join("q", h, ProcessorOptions{})
		v := w.settled(2)
		m := v.Workload.Map
		segments := []uint32{segmentOf(m, 0), segmentOf(m, 1)}
		if err := p.of.running.Load().member.Load().MarkSpill(t.Context(), segments, 1); err != nil {
			t.Fatal(err)
		}
		marked := time.Now()
		at := m.Choices(segments[0])[1]
		account, queue := w.queueOf(m, at)
		var last time.Time
		for range 6 { // for a minute and a half messages come by the first mark
			time.Sleep(15 * time.Second)
			w.putText(account, queue, w.envelope(segments[0], 1))
			last = time.Now()
		}
		if v := w.view(); v.Spills == nil || v.Spills[segments[0]] != 1<<1 || v.Spills[segments[1]] != 0 && time.Since(marked) > 2*time.Minute {
			t.Errorf("marks %v", v.Spills)
		}
		for v := w.view(); v.Spills != nil && v.Spills[segments[0]] != 0; v = w.view() {
			if time.Since(last) > 5*time.Minute {
				t.Fatal("the mark is still there")
			}
			time.Sleep(time.Second)
		}
		if d := time.Since(last); d < spillQuiet || d > spillQuiet+30*time.Second {
			t.Errorf("the mark was taken back %v after the last message", d)
		}
		// While the home is dark a mark stays.
		homeAccount, _ := w.queueOf(m, m.Home(segments[0]))
		if homeAccount == w.cfg.Control {
			homeAccount, _ = w.queueOf(m, m.Home(segments[1]))
			segments[0] = segments[1]
		}
		if err := p.of.running.Load().member.Load().MarkSpill(t.Context(), segments[:1], 2); err != nil {
			t.Fatal(err)
		}
		w.sim.Blackout(homeAccount, true)
		time.Sleep(5 * time.Minute)
		if v := w.view(); v.Spills == nil || v.Spills[segments[0]] != 1<<2 {
			t.Error("the mark was taken back although the home is dark")
		}
		w.sim.Blackout(homeAccount, false)
		time.Sleep(2 * time.Minute)
		if v := w.view(); v.Spills != nil && v.Spills[segments[0]] != 0 {
			t.Error("the mark is still there")
		}
		p.end()
		q.end()
		h.expect(t, 6, 6)
	})
}

func TestAnAccountThatDrainsIsReadUntilItIsEmptyWhileEverythingRuns(t *testing.T) {
	procInWorld(t, 3, 2, nil, func(t *testing.T, w *procWorld) {
		var hs handlings
		o := ProcessorOptions{Concurrency: 8}
		p, q := w.join("p", hs.handler("p", 50*time.Millisecond), o), w.join("q", hs.handler("q", 50*time.Millisecond), o)
		w.settled(2)
		tasks := 0
		for range 5 {
			tasks += w.putHome(w.everySegment(), 10)
		}
		m := w.changeMap(func(shards []shardmap.Shard) []shardmap.Shard {
			for i := range shards {
				if shards[i].Account == "accountb" {
					shards[i].State = shardmap.Draining
				}
			}
			return shards
		})
		for range 5 {
			for _, s := range m.Shards[:] {
				if s.State == shardmap.Draining && m.Loads()[slices.Index(m.Shards, s)] != 0 {
					t.Fatal("a draining queue is a home")
				}
			}
			tasks += w.putHome(w.everySegment(), 4)
			time.Sleep(time.Second)
		}
		time.Sleep(2 * time.Minute)
		if n := w.count("accountb", "work-00") + w.count("accountb", "work-01"); n != 0 {
			t.Errorf("%d messages are left in the draining account", n)
		}
		// A straggler, put by somebody with an old map, is found as well.
		w.putText("accountb", "work-01", w.envelope(5, 1))
		tasks++
		time.Sleep(20 * time.Second)
		// And then it may be removed.
		w.changeMap(func(shards []shardmap.Shard) []shardmap.Shard {
			return slices.DeleteFunc(shards, func(s shardmap.Shard) bool { return s.State == shardmap.Draining })
		})
		time.Sleep(20 * time.Second)
		before := w.sim.Stats().Count("accountb", "GetMessages")
		tasks += w.putHome(w.everySegment(), 1)
		time.Sleep(time.Minute)
		if n := w.sim.Stats().Count("accountb", "GetMessages") - before; n != 0 {
			t.Errorf("%d gets of queues that were removed", n)
		}
		p.end()
		q.end()
		hs.check(t)
		if hs.tasks() != tasks || w.left() != 0 {
			t.Errorf("%d of %d tasks, %d messages left", hs.tasks(), tasks, w.left())
		}
	})
}

func TestAnAddedAccountIsReadByWhoHasItsCredentials(t *testing.T) {
	procInWorld(t, 2, 2, nil, func(t *testing.T, w *procWorld) {
		w.changeMap(func(shards []shardmap.Shard) []shardmap.Shard { return shards[:2] }) // only accounta
		h := &seen{}
		with := w.join("with", h, ProcessorOptions{})
		cfg := w.config("without", 2)
		cfg.Accounts = cfg.Accounts[:1]
		pr, err := NewProcessor(cfg, h, ProcessorOptions{})
		if err != nil {
			t.Fatal(err)
		}
		without := w.start(pr)
		w.settled(2)
		time.Sleep(10 * time.Second)
		tasks := w.putHome(w.everySegment(), 1)
		time.Sleep(10 * time.Second)
		h.expect(t, tasks, tasks)
		w.changeMap(func(shards []shardmap.Shard) []shardmap.Shard {
			return append(shards, settings.Shards(w.cfg)[2:]...)
		})
		w.settled(2)
		time.Sleep(10 * time.Second)
		if w.logged("queues cannot be read here") == 0 {
			t.Error("no alarm of the one without credentials")
		}
		m := w.shardMap()
		v := w.view()
		for s := range uint32(64) {
			owner, _ := v.OwnerOf(s)
			if owner.Instance == "with" || m.Shards[m.Home(s)].Account == "accounta" {
				tasks += w.putHome([]uint32{s}, 1)
			}
		}
		time.Sleep(20 * time.Second)
		h.expect(t, tasks, tasks)
		with.end()
		without.end()
	})
}

func TestInASharedWorkloadAnybodyTakesAnything(t *testing.T) {
	procInSharedWorldOf(t, 1, 2, nil, func(t *testing.T, w *procWorld) {
		var hs handlings
		var all []*procStarted
		for _, name := range []string{"p", "q", "r"} {
			all = append(all, w.join(name, hs.handler(name, 200*time.Millisecond), ProcessorOptions{Concurrency: 4}))
		}
		time.Sleep(10 * time.Second)
		tasks := 0
		for range 200 { // of one segment, in any queue
			w.putText("accounta", "work-00", w.envelope(7, 1))
			w.putText("accounta", "work-01", w.envelope(7, 1))
			tasks += 2
		}
		time.Sleep(time.Minute)
		by := map[string]int{}
		for _, h := range hs.get() {
			by[h.instance]++
			if h.epoch != 0 {
				t.Fatalf("a shared segment has epoch %d", h.epoch)
			}
		}
		if hs.tasks() != tasks || by["p"] < 20 || by["q"] < 20 || by["r"] < 20 {
			t.Errorf("%d of %d tasks, by %v", hs.tasks(), tasks, by)
		}
		if n := len(w.view().Members); n != 3 {
			t.Errorf("%d members", n)
		}
		for _, p := range all {
			if s := p.end(); s.Passed+s.Forwarded+s.Lost != 0 {
				t.Errorf("%+v", s)
			}
		}
	})
}
