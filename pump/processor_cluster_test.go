package pump

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/control"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/shardmap"
)

// handling is one handling of a task by one instance.
type handling struct {
	instance   string
	segment    uint32
	epoch      uint64
	task       string
	began, end time.Time
	cause      error // of its context's end
}

// handlings notes who handles what, and when.
type handlings struct {
	mu  sync.Mutex
	all []handling
}

func (hs *handlings) get() []handling {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	return slices.Clone(hs.all)
}

func (hs *handlings) tasks() int {
	seen := map[string]bool{}
	for _, h := range hs.get() {
		if h.cause == nil {
			seen[h.task] = true
		}
	}
	return len(seen)
}

// handler is the one of an instance; a task takes d.
func (hs *handlings) handler(instance string, d time.Duration) Handler {
	return HandlerFunc(func(ctx context.Context, t *Task) error {
		h := handling{instance: instance, segment: t.Segment, epoch: t.Epoch, task: identity(t), began: time.Now()}
		err := pause(ctx, d)
		h.end, h.cause = time.Now(), context.Cause(ctx)
		hs.mu.Lock()
		defer hs.mu.Unlock()
		hs.all = append(hs.all, h)
		return err
	})
}

// check verifies that no segment was ever in two instances' hands at once, that
// its epochs never went back, and that nothing was done twice.
func (hs *handlings) check(t *testing.T) {
	t.Helper()
	bySegment := map[uint32][]handling{}
	done := map[string]int{}
	for _, h := range hs.get() {
		bySegment[h.segment] = append(bySegment[h.segment], h)
		if h.cause == nil {
			done[h.task]++
		}
	}
	for task, n := range done {
		if n > 1 {
			t.Errorf("%s was done %d times", task, n)
		}
	}
	for segment, all := range bySegment {
		slices.SortFunc(all, func(a, b handling) int { return cmp.Or(a.began.Compare(b.began), a.end.Compare(b.end)) })
		last := map[string]handling{} // by instance, the one that ended last
		var epoch uint64
		for _, h := range all {
			if h.epoch == 0 || h.epoch < epoch {
				t.Errorf("segment %d was handled with epoch %d after %d", segment, h.epoch, epoch)
			}
			epoch = max(epoch, h.epoch)
			for instance, o := range last {
				if instance != h.instance && (h.began.Before(o.end) || h.epoch <= o.epoch) {
					t.Errorf("segment %d: %s (epoch %d) until %v, %s (epoch %d) from %v", segment, instance, o.epoch, o.end, h.instance, h.epoch, h.began)
				}
			}
			if h.end.After(last[h.instance].end) {
				last[h.instance] = h
			}
		}
	}
}

// putHome puts envelopes of n tasks of each of some segments into their homes.
func (w *world) putHome(segments []uint32, n int) (tasks int) {
	w.t.Helper()
	m := w.shardMap()
	for _, s := range segments {
		home := m.Shards[m.Home(s)]
		text := w.envelope(s, n)
		for {
			_, err := w.queue(home.Account, home.Queue).Put(w.t.Context(), text, 0)
			if err == nil {
				break
			}
			if !storage.Is(err, storage.Throttled) {
				w.t.Fatal(err)
			}
			time.Sleep(50 * time.Millisecond)
		}
		tasks += n
	}
	return tasks
}

// everySegment lists all segments.
func (w *world) everySegment() (all []uint32) {
	for s := range uint32(w.shardMap().Segments) {
		all = append(all, s)
	}
	return all
}

func (w *world) shardMap() *shardmap.Map {
	w.t.Helper()
	wl, err := control.LoadWorkload(w.t.Context(), w.table(), w.cfg.Workload)
	if err != nil {
		w.t.Fatal(err)
	}
	return wl.Map
}

// view is the cluster as it is now.
func (w *world) view() *control.View {
	w.t.Helper()
	v, err := control.LoadView(w.t.Context(), w.table(), w.cfg.Workload)
	if err != nil {
		w.t.Fatal(err)
	}
	return v
}

// settled waits until so many processors share the segments as planned.
func (w *world) settled(processors int) *control.View {
	w.t.Helper()
	for range 1200 {
		if v := w.view(); len(v.Processors()) == processors && v.Settled() {
			return v
		}
		time.Sleep(100 * time.Millisecond)
	}
	w.t.Fatalf("not settled with %d processors", processors)
	return nil
}

// owns lists the segments of an instance.
func owns(v *control.View, instance string) (segments []uint32) {
	for s := range v.Owners {
		if m, ok := v.OwnerOf(uint32(s)); ok && m.Instance == instance {
			segments = append(segments, uint32(s))
		}
	}
	return segments
}

func (w *world) join(instance string, h Handler, o ProcessorOptions) *started {
	w.t.Helper()
	return w.start(w.processorOf(instance, h, o))
}

func TestS1EachTaskIsHandledByTheOwnerOfItsSegment(t *testing.T) {
	inWorld(t, 2, 4, nil, func(t *testing.T, w *world) {
		var hs handlings
		p, q := w.join("p", hs.handler("p", 0), ProcessorOptions{}), w.join("q", hs.handler("q", 0), ProcessorOptions{})
		v := w.settled(2)
		time.Sleep(10 * time.Second) // both have seen it
		tasks := 0
		for range 20 {
			tasks += w.putHome(w.everySegment(), 3)
			time.Sleep(5 * time.Second)
		}
		sp, sq := p.end(), q.end()
		hs.check(t)
		if hs.tasks() != tasks || w.left() != 0 {
			t.Errorf("%d of %d tasks, %d messages left", hs.tasks(), tasks, w.left())
		}
		for _, h := range hs.get() {
			if owner, _ := v.OwnerOf(h.segment); owner.Instance != h.instance || v.Owners[h.segment].Epoch != h.epoch {
				t.Fatalf("segment %d of %s, epoch %d, was handled by %s with epoch %d", h.segment, owner.Instance, v.Owners[h.segment].Epoch, h.instance, h.epoch)
			}
		}
		for _, s := range []ProcessorSummary{sp, sq} {
			if s.Handled != int64(tasks/2) || s.Passed+s.Forwarded+s.Released != 0 {
				t.Errorf("with four queues each, %s: %+v", s.Instance, s)
			}
		}
	})
}

func TestJoiningAndLeavingInMidRunHandsOverWithoutDoingAnythingTwice(t *testing.T) {
	for _, queues := range []int{1, 4} {
		t.Run(fmt.Sprintf("%d queues", 2*queues), func(t *testing.T) {
			inWorld(t, 2, queues, nil, func(t *testing.T, w *world) {
				var hs handlings
				o := ProcessorOptions{Concurrency: 40}
				const each = 700 * time.Millisecond
				p := w.join("p", hs.handler("p", each), o)
				tasks := 0
				put := func() {
					tasks += w.putHome(w.everySegment(), 4)
					time.Sleep(3 * time.Second)
				}
				put()
				q := w.join("q", hs.handler("q", each), o)
				put()
				put()
				r := w.join("r", hs.handler("r", each), o)
				put()
				sp := p.end()
				put()
				put()
				sq := q.end()
				put()
				time.Sleep(time.Minute)
				sr := r.end()
				hs.check(t)
				if hs.tasks() != tasks || w.left() != 0 {
					t.Errorf("%d of %d tasks, %d messages left", hs.tasks(), tasks, w.left())
				}
				for _, s := range []ProcessorSummary{sp, sq, sr} {
					if s.Handled == 0 || s.Lost != 0 || s.Failed != 0 {
						t.Errorf("%+v", s)
					}
				}
				if n := len(w.view().Members); n != 0 {
					t.Errorf("%d members after all have left", n)
				}
			})
		})
	}
}

func TestAHandOverWaitsForWhatRunsAndReturnsWhatWasNotStarted(t *testing.T) {
	inWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		var hs handlings
		p := w.join("p", hs.handler("p", 8*time.Second), ProcessorOptions{Concurrency: 2})
		w.settled(1)
		q := w.join("q", &seen{}, ProcessorOptions{})
		moves := owns(w.settled(2), "q")
		q.end()
		w.settled(1)
		// Two tasks run for 8 s, the others of their envelope wait; all of it is to be q's.
		tasks := w.putHome(moves[:1], 9)
		for len(hs.get()) == 0 {
			time.Sleep(100 * time.Millisecond)
		}
		began := time.Now()
		q = w.join("q", hs.handler("q", time.Second), ProcessorOptions{})
		v := w.settled(2)
		if d := time.Since(began); d < 7*time.Second || d > 15*time.Second {
			t.Errorf("the hand-over took %v, the tasks in hand 8 s", d)
		}
		if again := owns(v, "q"); !slices.Equal(again, moves) {
			t.Fatalf("%v moved, before %v", again, moves)
		}
		time.Sleep(time.Minute)
		sp, sq := p.end(), q.end()
		hs.check(t)
		if hs.tasks() != tasks || sp.Failed+sp.Retried+sp.Lost != 0 || sp.Released == 0 || sp.Released != sq.Handled {
			t.Errorf("%d of %d tasks, %+v, %+v", hs.tasks(), tasks, sp, sq)
		}
	})
}

func TestAfterACrashTheOthersTakeOverItsSegmentsAndItsTasks(t *testing.T) {
	inWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
		var hs handlings
		p := w.join("p", hs.handler("p", 5*time.Second), ProcessorOptions{})
		q := w.join("q", hs.handler("q", 100*time.Millisecond), ProcessorOptions{})
		w.settled(2)
		tasks := w.putHome(w.everySegment(), 2)
		time.Sleep(time.Second)
		w.fault(azsim.Rule{Fault: azsim.FailBefore}) // nothing of p's arrives any more
		began := time.Now()
		v := w.settled(1)
		// Lease and margin, and as long as a member may need to notice.
		if d := time.Since(began); d > 35*time.Second || len(owns(v, "q")) != len(v.Owners) {
			t.Errorf("taken over after %v, %d segments", d, len(owns(v, "q")))
		}
		more := w.putHome(w.everySegment(), 1)
		// What p had in hand is hidden until its leases end.
		time.Sleep(2 * time.Minute)
		q.end()
		seen := map[string]bool{}
		for _, h := range hs.get() {
			if h.instance == "q" {
				seen[h.task] = true
			}
		}
		if hs.tasks() != tasks+more || w.left() != 0 {
			t.Errorf("%d of %d tasks, %d messages left", hs.tasks(), tasks+more, w.left())
		}
		p.stop()
		<-p.done
	})
}

func TestP7OneQueueWithFourOwnersWorks(t *testing.T) {
	inWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
		var hs handlings
		var all []*started
		for i := range 4 {
			name := fmt.Sprint("p", i)
			all = append(all, w.join(name, hs.handler(name, 10*time.Millisecond), ProcessorOptions{}))
		}
		v := w.settled(4)
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
		var passed, envelopes int64
		for _, p := range all {
			s := p.end()
			passed += s.Passed
			envelopes += s.Envelopes
			if s.Handled != int64(tasks/4) || s.Released+s.Lost+s.Failed != 0 {
				t.Errorf("%+v", s)
			}
		}
		hs.check(t)
		for _, h := range hs.get() {
			if owner, _ := v.OwnerOf(h.segment); owner.Instance != h.instance {
				t.Fatalf("segment %d of %s was handled by %s", h.segment, owner.Instance, h.instance)
			}
		}
		if w.left() != 0 || passed == 0 || passed != envelopes-640 {
			t.Errorf("%d messages left, %d of %d deliveries passed on", w.left(), passed, envelopes)
		}
		if took > time.Minute {
			t.Errorf("640 messages took %v", took)
		}
		t.Logf("640 messages of 4 owners: %v, %.1f deliveries each", took, float64(envelopes)/640)
	})
}

func TestP7OneSilentOwnerDoesNotStarveTheOthers(t *testing.T) {
	inWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
		var hs handlings
		// A member that holds its segments and never reads a queue.
		cfg := w.config("silent", 1)
		mute := w.processorOf("silent", &seen{}, ProcessorOptions{}).newProcessing(t.Context())
		mute.ready(t)
		var all []*started
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
		if hs.tasks() != tasks || took > 2*time.Minute {
			t.Errorf("%d of %d tasks of the others in %v", hs.tasks(), tasks, took)
		}
		t.Logf("480 messages behind 480 of a silent owner: %v", took)
		for _, p := range all {
			p.end()
		}
		mute.stop()
	})
}

// queueOf is the queue of a shard of the map.
func (w *world) queueOf(m *shardmap.Map, i int) (account, queue string) {
	return m.Shards[i].Account, m.Shards[i].Queue
}

func TestP64AStrayIsBroughtHomeAndAMarkedSpillIsNot(t *testing.T) {
	inWorld(t, 3, 1, nil, func(t *testing.T, w *world) {
		hs := map[string]*handlings{}
		var all []*started
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

		if err := all[0].of.running.Load().member.Load().markSpill(t.Context(), []uint32{segment}, 1); err != nil {
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

// foreignOf is a text that no distributor made, of a segment.
func (w *world) foreignOf(m *shardmap.Map, segment uint32) []byte {
	for i := range 10_000 {
		text := fmt.Appendf(nil, "plain text %d", i)
		if shardmap.Segment(text, m.Segments) == segment {
			return text
		}
	}
	w.t.Fatal("none found")
	return nil
}

func TestP63TheOwnerTakesAMarkBackWhenNothingComesByItAnyMore(t *testing.T) {
	inWorld(t, 3, 1, nil, func(t *testing.T, w *world) {
		h := &seen{}
		p := w.join("p", h, ProcessorOptions{})
		q := w.join("q", h, ProcessorOptions{})
		v := w.settled(2)
		m := v.Workload.Map
		segments := []uint32{segmentOf(m, 0), segmentOf(m, 1)}
		if err := p.of.running.Load().member.Load().markSpill(t.Context(), segments, 1); err != nil {
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
		if err := p.of.running.Load().member.Load().markSpill(t.Context(), segments[:1], 2); err != nil {
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

// changeMap changes the shards of the workload as an operator does.
func (w *world) changeMap(change func(shards []shardmap.Shard) []shardmap.Shard) *shardmap.Map {
	w.t.Helper()
	wl, err := control.ChangeMap(w.t.Context(), w.table(), w.cfg.Workload, func(m *shardmap.Map) ([]shardmap.Shard, error) {
		return change(slices.Clone(m.Shards)), nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return wl.Map
}

func TestAnAccountThatDrainsIsReadUntilItIsEmptyWhileEverythingRuns(t *testing.T) {
	inWorld(t, 3, 2, nil, func(t *testing.T, w *world) {
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
	inWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
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
			return append(shards, w.cfg.shards()[2:]...)
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
	inSharedWorldOf(t, 1, 2, nil, func(t *testing.T, w *world) {
		var hs handlings
		var all []*started
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

func TestP56HandlingGoesOnWhileTheControlPlaneIsDarkForAMinute(t *testing.T) {
	inWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
		var hs handlings
		p, q := w.join("p", hs.handler("p", 7*time.Second), ProcessorOptions{}), w.join("q", hs.handler("q", 7*time.Second), ProcessorOptions{})
		before := w.settled(2)
		dark := w.sim.Inject(azsim.Rule{Service: "table", Fault: azsim.FailBefore})
		began, tasks := time.Now(), 0
		m := before.Workload.Map
		for time.Since(began) < time.Minute {
			for _, s := range []uint32{1, 17, 40, 60} {
				account, queue := w.queueOf(m, m.Home(s))
				w.putText(account, queue, w.envelope(s, 2))
				tasks += 2
			}
			time.Sleep(3 * time.Second)
		}
		if n := hs.tasks(); n < tasks*8/10 {
			t.Errorf("%d of %d tasks in the dark", n, tasks)
		}
		if trouble := p.of.running.Load().trouble(); !strings.Contains(trouble, "control account") {
			t.Errorf("the trouble is %q", trouble)
		}
		dark.Remove()
		time.Sleep(40 * time.Second)
		after := w.settled(2)
		for s := range uint32(64) {
			a, _ := before.OwnerOf(s)
			b, _ := after.OwnerOf(s)
			if a.Instance != b.Instance {
				t.Errorf("segment %d went from %s to %s because the control plane was dark", s, a.Instance, b.Instance)
			}
		}
		if trouble := p.of.running.Load().trouble(); trouble != "" {
			t.Errorf("the trouble is still %q", trouble)
		}
		sp, sq := p.end(), q.end()
		hs.check(t)
		if hs.tasks() != tasks || sp.Failed+sq.Failed+sp.Retried+sq.Retried+sp.Lost+sq.Lost != 0 {
			t.Errorf("%d of %d tasks, %+v, %+v", hs.tasks(), tasks, sp, sq)
		}
	})
}

func TestLeavingIsBoundedWhileTheControlPlaneIsDark(t *testing.T) {
	inWorld(t, 2, 1, nil, func(t *testing.T, w *world) {
		h := &seen{}
		p := w.join("p", h, ProcessorOptions{})
		w.settled(1)
		w.sim.Inject(azsim.Rule{Service: "table", Fault: azsim.HangBefore})
		time.Sleep(10 * time.Second)
		began := time.Now()
		p.end()
		if d := time.Since(began); d > leaveWithin+time.Second {
			t.Errorf("it took %v to leave", d)
		}
	})
}

func TestALoneProcessorWorksAtOnce(t *testing.T) {
	inWorld(t, 2, 4, nil, func(t *testing.T, w *world) {
		w.putHome(w.everySegment(), 1)
		h := &seen{}
		began := time.Now()
		p := w.join("p", h, ProcessorOptions{})
		for h.tasks() < 64 {
			time.Sleep(time.Millisecond)
			if time.Since(began) > time.Minute {
				t.Fatal("nothing is done")
			}
		}
		// Ten requests of 10 ms, one after the other: the workload's row, the member's, the
		// view, the claim, the run's row, and a get.
		if d := h.started().Sub(began); d > 100*time.Millisecond {
			t.Errorf("the first task after %v", d)
		}
		t.Logf("the first task after %v, all after %v", h.started().Sub(began), time.Since(began))
		if s := p.end(); s.Passed != 0 {
			t.Errorf("%+v", s)
		}
	})
}

func TestUntilIdleWaitsForSegmentsThatAreOnTheirWay(t *testing.T) {
	inWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
		var hs handlings
		p := w.join("p", hs.handler("p", 30*time.Second), ProcessorOptions{Concurrency: 256})
		w.settled(1)
		tasks := w.putHome(w.everySegment(), 2)
		time.Sleep(2 * time.Second)
		// p has it all in hand for half a minute; q is to have half of the segments.
		q := w.join("q", hs.handler("q", 0), ProcessorOptions{UntilIdle: 5 * time.Second})
		time.Sleep(10 * time.Second)
		select {
		case <-q.done:
			t.Errorf("q has left while segments were on their way to it: %+v", q.summary)
		default:
		}
		p.stop()
		<-p.done
		more := w.putHome(w.everySegment(), 1)
		<-q.done
		if hs.tasks() != tasks+more || w.left() != 0 || q.err != nil {
			t.Errorf("%d of %d tasks, %d messages left, %v", hs.tasks(), tasks+more, w.left(), q.err)
		}
		hs.check(t)
	})
}

func TestUntilIdleAProcessorWithoutSegmentsLeaves(t *testing.T) {
	inWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
		p := w.join("p", &seen{}, ProcessorOptions{})
		w.settled(1)
		// More processors than segments there are to share.
		var rest []*started
		for i := range 70 {
			rest = append(rest, w.join(fmt.Sprintf("q%02d", i), &seen{}, ProcessorOptions{UntilIdle: 20 * time.Second}))
		}
		began := time.Now()
		for _, q := range rest {
			<-q.done
			if q.err != nil {
				t.Error(q.err)
			}
		}
		if d := time.Since(began); d > 3*time.Minute {
			t.Errorf("the last has left after %v", d)
		}
		v := w.settled(1)
		if n := len(owns(v, "p")); n != 64 {
			t.Errorf("%d segments are p's", n)
		}
		p.end()
	})
}

func TestP82ANudgeMakesAQueueDueAndCostsLittleHoweverManyArrive(t *testing.T) {
	inWorld(t, 1, 4, nil, func(t *testing.T, w *world) {
		h := &seen{}
		p := w.join("p", h, ProcessorOptions{})
		w.settled(1)
		time.Sleep(5 * time.Minute) // to the longest back-off
		for range 5 {
			w.put("accounta", "work-02", 1, 1)
			before := h.deliveries()
			put := time.Now()
			p.of.Nudged(Nudge{Queue: "accounta/work-02"})
			for h.deliveries() == before {
				time.Sleep(time.Millisecond)
			}
			if d := time.Since(put); d > 50*time.Millisecond {
				t.Errorf("begun %v after the nudge", d)
			}
			time.Sleep(time.Minute)
		}
		before := w.requests("GetMessages")
		for range 10_000 {
			p.of.Nudged(Nudge{Queue: "accounta/work-02"})
			p.of.Nudged(Nudge{Queue: "accounta/work-99"})
			p.of.Nudged(Nudge{Queue: "elsewhere/work-02"})
			time.Sleep(time.Millisecond)
		}
		if n := w.requests("GetMessages") - before; n < 20 || n > 60 {
			t.Errorf("%d gets in 10 s of a thousand nudges a second", n)
		}
		// A queue in trouble is left to its back-off.
		dark := w.fault(azsim.Rule{Fault: azsim.FailBefore}, "GetMessages")
		time.Sleep(time.Minute)
		hits := dark.Hits()
		for range 10_000 {
			p.of.Nudged(Nudge{Queue: "accounta/work-02"})
			time.Sleep(time.Millisecond)
		}
		if n := dark.Hits() - hits; n > 10 {
			t.Errorf("%d gets in 10 s of queues in trouble", n)
		}
		p.end()
		p.of.Nudged(Nudge{Queue: "accounta/work-02"}) // nobody is there
	})
}

func TestAnIdleFleetCostsABoundedNumberOfGetsTogether(t *testing.T) {
	for _, c := range []struct{ accounts, queues, processors int }{{8, 4, 10}, {1, 1, 16}, {1, 4, 40}} {
		t.Run(fmt.Sprintf("%d queues, %d processors", c.accounts*c.queues, c.processors), func(t *testing.T) {
			inWorld(t, c.accounts, c.queues, nil, func(t *testing.T, w *world) {
				var all []*started
				for i := range c.processors {
					all = append(all, w.join(fmt.Sprintf("p%02d", i), &seen{}, ProcessorOptions{}))
				}
				w.settled(c.processors)
				time.Sleep(3 * time.Minute)
				before := w.requests("GetMessages")
				time.Sleep(5 * time.Minute)
				rate := float64(w.requests("GetMessages")-before) / 300
				if rate > 1.2*pollIdleRate || rate < 0.1 {
					t.Errorf("%.1f gets a second", rate)
				}
				t.Logf("%.1f gets a second", rate)
				for _, p := range all {
					p.stop()
				}
				for _, p := range all {
					<-p.done
				}
			})
		})
	}
}
