package processor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/shardmap"
)

// joinNudged starts a processor that others can nudge, and that nudges them.
func joinNudged(w *testworld.World, instance string, h pump.Handler, o Options, all *[]*started) {
	w.T.Helper()
	cfg := w.Config(instance, w.Cfg.Accounts[0].Queues)
	cfg.Admin = "127.0.0.1:8080"
	cfg.Nudge = func(_ context.Context, n pump.Nudge) error {
		for _, p := range *all {
			if p.Of.cfg.Instance == n.Instance {
				p.Of.Nudged(n)
			}
		}
		return nil
	}
	p, err := New(cfg, h, o)
	must(w.T, err)
	*all = append(*all, testworld.Start(w.T, p))
}

func TestP7OneQueueWithManyOwnersWorks(t *testing.T) {
	proof.Only(t)
	for _, owners := range []int{2, 4, 16} {
		t.Run(fmt.Sprintf("%d owners", owners), func(t *testing.T) {
			testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
				var hs testworld.Handlings
				var all []*started
				for i := range owners {
					name := fmt.Sprintf("p%02d", i)
					joinNudged(w, name, hs.Handler(name, 10*time.Millisecond), Options{}, &all)
				}
				v := w.Settled(owners)
				time.Sleep(10 * time.Second)
				began := time.Now()
				tasks := 0
				for range 10 {
					tasks += w.PutHome(w.EverySegment(), 5)
				}
				for hs.Tasks() < tasks && time.Since(began) < 10*time.Minute {
					time.Sleep(100 * time.Millisecond)
				}
				took := time.Since(began)
				var passed, envelopes, split int64
				for _, p := range all {
					p.Stop()
				}
				for _, p := range all {
					<-p.Done
					s := p.Summary
					passed += s.Passed
					envelopes += s.Envelopes
					split += s.Split
					// A message that came back often enough to be suspicious is split, innocent
					// or not (P4.2).
					if p.Err != nil || s.Handled != int64(tasks/owners) || s.Released != s.Split*int64(tasks/640) || s.Lost+s.Failed != 0 {
						t.Errorf("%v, %+v", p.Err, s)
					}
				}
				hs.Check(t)
				for _, h := range hs.Get() {
					if owner, _ := v.OwnerOf(h.Segment); owner.Instance != h.Instance {
						t.Fatalf("segment %d of %s was handled by %s", h.Segment, owner.Instance, h.Instance)
					}
				}
				if own := envelopes - passed; w.Left() != 0 || passed == 0 || own < 640 || own > 640+4*split || split > 640/20 {
					t.Errorf("%d messages left, %d of %d deliveries passed on", w.Left(), passed, envelopes)
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
	proof.Only(t)
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		var hs testworld.Handlings
		// A member that holds its segments and never reads a queue.
		cfg := w.Config("silent", 1)
		mute := testworld.Made(w, New, "silent", &testworld.Seen{}, Options{}).newProcessing(t.Context())
		ready(t, mute)
		var all []*started
		for i := range 3 {
			name := fmt.Sprint("p", i)
			all = append(all, testworld.Begun(w, New, name, hs.Handler(name, 0), Options{}))
		}
		v := w.Settled(4)
		time.Sleep(10 * time.Second)
		silent := testworld.Owns(v, cfg.Instance)
		if len(silent) != 16 {
			t.Fatalf("%d segments are the silent one's", len(silent))
		}
		for range 30 { // at the head of the queue
			w.PutHome(silent, 1)
		}
		var others []uint32
		for _, s := range w.EverySegment() {
			if !slices.Contains(silent, s) {
				others = append(others, s)
			}
		}
		began := time.Now()
		tasks := 0
		for range 10 {
			tasks += w.PutHome(others, 1)
		}
		for hs.Tasks() < tasks && time.Since(began) < 30*time.Minute {
			time.Sleep(100 * time.Millisecond)
		}
		took := time.Since(began)
		if hs.Tasks() != tasks || took > 3*time.Minute {
			t.Errorf("%d of %d tasks of the others in %v", hs.Tasks(), tasks, took)
		}
		t.Logf("480 messages behind 480 of a silent owner: %v", took)
		for _, p := range all {
			p.End()
		}
		mute.stop()
	})
}

func TestP64AStrayIsBroughtHomeAndAMarkedSpillIsNot(t *testing.T) {
	testworld.In(t, testworld.Plain, 3, 1, nil, func(t *testing.T, w *testworld.World) {
		hs := map[string]*testworld.Handlings{}
		var all []*started
		for _, name := range []string{"p", "q", "r"} {
			hs[name] = &testworld.Handlings{}
			all = append(all, testworld.Begun(w, New, name, hs[name].Handler(name, 0), Options{}))
		}
		v := w.Settled(3)
		time.Sleep(10 * time.Second)
		m := v.Workload.Map
		segment := testworld.SegmentOf(m, 0)
		owner, _ := v.OwnerOf(segment)
		at := m.Choices(segment)[1]
		sweeper := v.Sweeper(at)
		if owner.Instance == sweeper {
			t.Fatalf("%s has both queues", sweeper)
		}
		account, queue := m.Shards[at].Account, m.Shards[at].Queue
		w.PutText(account, queue, w.Envelope(segment, 3))
		w.PutText(account, queue, foreignOf(t, m, segment))
		time.Sleep(20 * time.Second)
		if n := hs[owner.Instance].Tasks(); n != 4 || w.Left() != 0 {
			t.Errorf("the owner has handled %d strays of 4, %d messages left", n, w.Left())
		}
		got := hs[owner.Instance].Get()
		if !slices.ContainsFunc(got, func(h testworld.Handling) bool { return strings.HasPrefix(h.Task, queue+"/") }) {
			t.Errorf("the message of another program has lost its identity: %+v", got)
		}

		must(t, all[0].Of.running.Load().Member.Load().MarkSpill(t.Context(), []uint32{segment}, 1))
		time.Sleep(10 * time.Second)
		w.PutText(account, queue, w.Envelope(segment, 2))
		time.Sleep(20 * time.Second)
		if n := hs[owner.Instance].Tasks(); n != 6 || w.Left() != 0 {
			t.Errorf("the owner has handled %d tasks of 6, %d messages left", n, w.Left())
		}
		var forwarded int64
		for _, p := range all {
			forwarded += p.End().Forwarded
		}
		proof.Same(t, forwarded, 2, "messages were brought home")
	})
}

func TestP63TheOwnerTakesAMarkBackWhenNothingComesByItAnyMore(t *testing.T) {
	testworld.In(t, testworld.Plain, 3, 1, nil, func(t *testing.T, w *testworld.World) {
		h := &testworld.Seen{}
		p := testworld.Begun(w, New, "p", h, Options{})
		q := testworld.Begun(w, New, "q", h, Options{})
		v := w.Settled(2)
		m := v.Workload.Map
		segments := []uint32{testworld.SegmentOf(m, 0), testworld.SegmentOf(m, 1)}
		must(t, p.Of.running.Load().Member.Load().MarkSpill(t.Context(), segments, 1))
		marked := time.Now()
		at := m.Choices(segments[0])[1]
		account, queue := m.Shards[at].Account, m.Shards[at].Queue
		var last time.Time
		for range 6 { // for a minute and a half messages come by the first mark
			time.Sleep(15 * time.Second)
			w.PutText(account, queue, w.Envelope(segments[0], 1))
			last = time.Now()
		}
		if v := w.View(); v.Spills == nil || v.Spills[segments[0]] != 1<<1 || v.Spills[segments[1]] != 0 && time.Since(marked) > 2*time.Minute {
			t.Errorf("marks %v", v.Spills)
		}
		for v := w.View(); v.Spills != nil && v.Spills[segments[0]] != 0; v = w.View() {
			if time.Since(last) > 5*time.Minute {
				t.Fatal("the mark is still there")
			}
			time.Sleep(time.Second)
		}
		if d := time.Since(last); d < spillQuiet || d > spillQuiet+30*time.Second {
			t.Errorf("the mark was taken back %v after the last message", d)
		}
		// While the home is dark a mark stays.
		homeAccount := m.Shards[m.Home(segments[0])].Account
		if homeAccount == w.Cfg.Control {
			homeAccount = m.Shards[m.Home(segments[1])].Account
			segments[0] = segments[1]
		}
		must(t, p.Of.running.Load().Member.Load().MarkSpill(t.Context(), segments[:1], 2))
		w.Sim.Blackout(homeAccount, true)
		time.Sleep(5 * time.Minute)
		if v := w.View(); v.Spills == nil || v.Spills[segments[0]] != 1<<2 {
			t.Error("the mark was taken back although the home is dark")
		}
		w.Sim.Blackout(homeAccount, false)
		time.Sleep(2 * time.Minute)
		if v := w.View(); v.Spills != nil && v.Spills[segments[0]] != 0 {
			t.Error("the mark is still there")
		}
		p.End()
		q.End()
		h.Expect(t, 6, 6)
	})
}

func TestAnAccountThatDrainsIsReadUntilItIsEmptyWhileEverythingRuns(t *testing.T) {
	testworld.In(t, testworld.Plain, 3, 2, nil, func(t *testing.T, w *testworld.World) {
		var hs testworld.Handlings
		o := Options{Concurrency: 8}
		p, q := testworld.Begun(w, New, "p", hs.Handler("p", 50*time.Millisecond), o), testworld.Begun(w, New, "q", hs.Handler("q", 50*time.Millisecond), o)
		w.Settled(2)
		tasks := 0
		for range 5 {
			tasks += w.PutHome(w.EverySegment(), 10)
		}
		m := w.ChangeMap(func(shards []shardmap.Shard) []shardmap.Shard {
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
			tasks += w.PutHome(w.EverySegment(), 4)
			time.Sleep(time.Second)
		}
		time.Sleep(2 * time.Minute)
		proof.Same(t, w.Count("accountb", "work-00")+w.Count("accountb", "work-01"), 0,
			"messages are left in the draining account")
		// A straggler, put by somebody with an old map, is found as well.
		w.PutText("accountb", "work-01", w.Envelope(5, 1))
		tasks++
		time.Sleep(20 * time.Second)
		// And then it may be removed.
		w.ChangeMap(func(shards []shardmap.Shard) []shardmap.Shard {
			return slices.DeleteFunc(shards, func(s shardmap.Shard) bool { return s.State == shardmap.Draining })
		})
		time.Sleep(20 * time.Second)
		before := w.Sim.Stats().Count("accountb", "GetMessages")
		tasks += w.PutHome(w.EverySegment(), 1)
		time.Sleep(time.Minute)
		proof.Same(t, w.Sim.Stats().Count("accountb", "GetMessages")-before, 0,
			"gets of queues that were removed")
		p.End()
		q.End()
		hs.Check(t)
		if hs.Tasks() != tasks || w.Left() != 0 {
			t.Errorf("%d of %d tasks, %d messages left", hs.Tasks(), tasks, w.Left())
		}
	})
}

func TestAnAddedAccountIsReadByWhoHasItsCredentials(t *testing.T) {
	testworld.In(t, testworld.Plain, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		w.ChangeMap(func(shards []shardmap.Shard) []shardmap.Shard { return shards[:2] }) // only accounta
		h := &testworld.Seen{}
		with := testworld.Begun(w, New, "with", h, Options{})
		cfg := w.Config("without", 2)
		cfg.Accounts = cfg.Accounts[:1]
		pr, err := New(cfg, h, Options{})
		must(t, err)
		without := testworld.Start(w.T, pr)
		w.Settled(2)
		time.Sleep(10 * time.Second)
		tasks := w.PutHome(w.EverySegment(), 1)
		time.Sleep(10 * time.Second)
		h.Expect(t, tasks, tasks)
		w.ChangeMap(func(shards []shardmap.Shard) []shardmap.Shard {
			return append(shards, setup.Shards(w.Cfg)[2:]...)
		})
		w.Settled(2)
		time.Sleep(10 * time.Second)
		if w.Logged("queues cannot be read here") == 0 {
			t.Error("no alarm of the one without credentials")
		}
		m := w.ShardMap()
		v := w.View()
		for s := range uint32(64) {
			owner, _ := v.OwnerOf(s)
			if owner.Instance == "with" || m.Shards[m.Home(s)].Account == "accounta" {
				tasks += w.PutHome([]uint32{s}, 1)
			}
		}
		time.Sleep(20 * time.Second)
		h.Expect(t, tasks, tasks)
		with.End()
		without.End()
	})
}

func TestInASharedWorkloadAnybodyTakesAnything(t *testing.T) {
	testworld.In(t, testworld.Shared, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		var hs testworld.Handlings
		var all []*started
		for _, name := range []string{"p", "q", "r"} {
			all = append(all, testworld.Begun(w, New, name, hs.Handler(name, 200*time.Millisecond), Options{Concurrency: 4}))
		}
		time.Sleep(10 * time.Second)
		tasks := 0
		for range 200 { // of one segment, in any queue
			w.PutText("accounta", "work-00", w.Envelope(7, 1))
			w.PutText("accounta", "work-01", w.Envelope(7, 1))
			tasks += 2
		}
		time.Sleep(time.Minute)
		by := map[string]int{}
		for _, h := range hs.Get() {
			by[h.Instance]++
			if h.Epoch != 0 {
				t.Fatalf("a shared segment has epoch %d", h.Epoch)
			}
		}
		if hs.Tasks() != tasks || by["p"] < 20 || by["q"] < 20 || by["r"] < 20 {
			t.Errorf("%d of %d tasks, by %v", hs.Tasks(), tasks, by)
		}
		proof.Same(t, len(w.View().Members), 3, "members")
		for _, p := range all {
			if s := p.End(); s.Passed+s.Forwarded+s.Lost != 0 {
				t.Errorf("%+v", s)
			}
		}
	})
}

// foreignOf is a text that no distributor made, of a segment.
func foreignOf(t *testing.T, m *shardmap.Map, segment uint32) []byte {
	for i := range 10_000 {
		text := fmt.Appendf(nil, "plain text %d", i)
		if shardmap.Segment(text, m.Segments) == segment {
			return text
		}
	}
	t.Fatal("none found")
	return nil
}
