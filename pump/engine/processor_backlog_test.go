package engine

import (
	"context"
	"fmt"
	"testing"
	"time"
	"unsafe"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/verify"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/settings"
	"github.com/queuepump/queuepump/pump/storage"
)

func TestAMessageWhoseLeaseEndedBeforeItArrivedTakesNoRoom(t *testing.T) {
	// A get that is answered late, or a machine that slept: the keeper gives the
	// message up while its get still makes a delivery of it.
	inWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
		w.put("accounta", "work-00", 2, 5)
		pr := w.processor(&seen{}, ProcessorOptions{})
		r := pr.newProcessing(t.Context())
		b := newBacklog(r.o, false, func() {})
		late, good := &delivery{count: 5, text: []byte("late")}, &delivery{count: 3, text: []byte("good")}
		if n, unopened := b.withdraw(late); n != 0 || unopened {
			t.Fatal("what is not there yet was withdrawn from it")
		}
		refused := b.add([]*delivery{late, good}, reservation{})
		if len(refused) != 1 || refused[0] != late {
			t.Errorf("refused %v, want the one that nobody should start", refused)
		}
		if len(b.inbox) != 1 || b.unstarted != 3 || b.bytes != 4 {
			t.Errorf("%d messages of %d tasks and %d bytes wait, want 1 of 3 and 4", len(b.inbox), b.unstarted, b.bytes)
		}
	})
}

func TestGetsThatAreAnsweredAfterTheLeaseLeaveTheProcessorWhole(t *testing.T) {
	inWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		tasks := w.spread(100, 5)
		w.fault(azsim.Rule{Fault: azsim.DelayAfter, Delay: 2700 * time.Millisecond, First: 12}, "GetMessages")
		h := &seen{}
		pr := w.processor(h, ProcessorOptions{Visibility: 3 * time.Second})
		r := pr.newProcessing(t.Context())
		ready(t, r)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		if err := r.poller.run(ctx); err != nil {
			t.Fatal(err)
		}
		r.stop()
		if got := h.tasks(); got != tasks || w.left() != 0 {
			t.Errorf("%d of %d tasks, %d messages left", got, tasks, w.left())
		}
		if b := r.backlog; b.bytes != 0 || b.unstarted != 0 || b.opened != 0 || b.reserved != 0 || b.promised != 0 {
			t.Errorf("not all room was given back: %d bytes, %d unstarted, %d opened, %d reserved", b.bytes, b.unstarted, b.opened, b.reserved)
		}
	})
}

// However long a task takes, a lone processor gets through: nothing is fetched
// only to be given back, and the handlers are kept busy.
func TestSlowHandlersAreKeptBusyAndNothingIsFetchedInVain(t *testing.T) {
	verify.Only(t)
	for _, took := range []time.Duration{time.Second, 20 * time.Second, 60 * time.Second, 10 * time.Minute} {
		for _, each := range []int{1, 10, 200} {
			t.Run(fmt.Sprintf("%v, %d a message", took, each), func(t *testing.T) {
				inWorld(t, 1, 4, nil, func(t *testing.T, w *world) {
					const rounds = 6
					tasks := w.spread(64*rounds/each/4+1, each)
					h := &seen{work: func(ctx context.Context, _ *pump.Task) error { return pause(ctx, took) }}
					s := w.drain(h, ProcessorOptions{Concurrency: 64, Timeout: -1, UntilIdle: 10 * time.Second})
					h.expect(t, tasks, tasks)
					ideal := time.Duration((tasks+63)/64) * took
					spent := time.Duration(s.Seconds*float64(time.Second)) - 10*time.Second
					t.Logf("%d tasks in %v, at best %v; %d messages taken, %d tasks released", tasks, spent, ideal, s.Envelopes, s.Released)
					if s.Released > 0 || s.Lost > 0 || s.Envelopes != int64(tasks/each) {
						t.Errorf("%d messages of %d tasks: %+v", tasks/each, tasks, s)
					}
					if spent > ideal+ideal/10+took+5*time.Second {
						t.Errorf("%d tasks of %v took %v, at best %v", tasks, took, spent, ideal)
					}
				})
			})
		}
	}
}

// Memory is bounded also where the handlers are not what holds things up: what
// waits to be settled is in memory as well.
func TestMemoryForWhatWaitsToBeSettledIsBounded(t *testing.T) {
	for _, c := range []struct {
		name string
		text func(w *world) []byte
	}{
		{"failed tasks that cannot be put back", func(*world) []byte { return incompressible(40 << 10) }},
		{"messages that cannot be quarantined", func(w *world) []byte {
			b := codec.NewBuilder(0)
			b.Reset(codec.Header{Workload: "other", Run: w.run})
			if _, err := b.Add(codec.Task{Body: incompressible(40 << 10)}); err != nil {
				w.t.Fatal(err)
			}
			text, _, err := b.Seal(nil)
			if err != nil {
				w.t.Fatal(err)
			}
			return text
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, 1, 4, nil, func(t *testing.T, w *world) {
				text := c.text(w)
				for range 50 {
					for _, s := range settings.Shards(w.cfg) {
						w.putText(s.Account, s.Queue, text)
					}
				}
				w.fault(azsim.Rule{Fault: azsim.FailBefore}, "PutMessage", "UpdateMessage", "DeleteMessage")
				h := &seen{work: func(context.Context, *pump.Task) error { return errFlop }}
				p := w.start(w.processor(h, ProcessorOptions{MaxBytes: 4 << 20, Grace: time.Second}))
				time.Sleep(20 * time.Second)
				// None was settled, so all that were taken are held.
				taken := int(p.end().Envelopes)
				if most := (4 << 20) / (40 << 10); taken > most || taken < 20 {
					t.Errorf("%d messages of 40 KiB or more were held, at most %d may be", taken, most)
				}
			})
		})
	}
}

func TestWhatOneAccountCannotSettleLeavesMemoryForTheOthers(t *testing.T) {
	inWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
		text := incompressible(40 << 10)
		for range 60 {
			for _, s := range settings.Shards(w.cfg) {
				w.putText(s.Account, s.Queue, text)
			}
		}
		w.fault(azsim.Rule{Account: "accounta", Fault: azsim.FailBefore}, "PutMessage", "UpdateMessage", "DeleteMessage")
		h := &seen{work: func(context.Context, *pump.Task) error { return errFlop }}
		p := w.start(w.processor(h, ProcessorOptions{MaxBytes: 4 << 20, Grace: time.Second, Retry: pump.RetryPolicy{Base: time.Hour}}))
		time.Sleep(30 * time.Second)
		left := 0
		for _, q := range []string{"work-00", "work-01"} {
			left += w.visible("accountb", q)
		}
		if left > 0 {
			t.Errorf("%d or more messages of the healthy account are left after 30 s", left)
		}
		p.end()
	})
}

// Room is kept for the texts that messages lately had, so that many gets of small ones may be under
// way; a large one counts at once, and never is less kept than a quarter of the largest there is.
func TestRoomIsKeptForTextsAsLargeAsTheyLatelyWere(t *testing.T) {
	o, err := ProcessorOptions{MaxBytes: 8 << 20}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	b := newBacklog(&o, false, func() {})
	b.took, b.busy = 1e-3, 0
	gets := func() (n int, bytes int64) {
		var rooms []reservation
		for b.rate = 1e9; ; b.rate = 1e9 {
			b.measured = time.Now()
			room := b.reserve()
			if room.messages == 0 {
				break
			}
			n += room.messages
			rooms = append(rooms, room)
		}
		bytes = b.promised
		for _, room := range rooms {
			b.giveBack(room)
		}
		return n, bytes
	}
	bring := func(messages, size int) {
		for range messages {
			d := &delivery{count: 1, text: make([]byte, size)}
			if refused := b.add([]*delivery{d}, reservation{}); len(refused) > 0 {
				t.Fatal("refused")
			}
			b.withdraw(d)
			b.free(d, 0)
		}
	}
	if n, bytes := gets(); n != 128 || bytes != 8<<20 {
		t.Errorf("at first %d messages and %d bytes, want 128 of 64 KiB", n, bytes)
	}
	bring(2000, 500)
	if n, bytes := gets(); n != 512 || bytes != 8<<20 {
		t.Errorf("after small ones %d messages and %d bytes, want 512 of 16 KiB", n, bytes)
	}
	bring(1, storage.MaxText)
	if n, _ := gets(); n != 128 {
		t.Errorf("after a large one %d messages, want 128", n)
	}
	if b.promised != 0 || b.bytes != 0 {
		t.Errorf("%d bytes promised and %d held at the end", b.promised, b.bytes)
	}
}

// What an opened message takes counts as a whole: of small tasks the lists are more than the records.
func TestAnOpenedMessageCountsWithTheListsOfItsTasks(t *testing.T) {
	builder := codec.NewBuilder(0)
	builder.Reset(codec.Header{Workload: "w", Run: pump.RunID{1}})
	for n := range uint64(2000) {
		if _, err := builder.Add(codec.Task{N: n, Key: []byte("key"), Body: []byte("a small task")}); err != nil {
			t.Fatal(err)
		}
	}
	text, _, err := builder.Seal(nil)
	if err != nil {
		t.Fatal(err)
	}
	o, err := ProcessorOptions{MaxBytes: 4 << 20}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	b := newBacklog(&o, true, func() {})
	b.rate = 1e9
	taken := 0
	for range 64 {
		d := &delivery{text: text}
		if d.header, err = codec.ReadHeader(text); err != nil {
			t.Fatal(err)
		}
		d.count = d.header.Tasks.Len()
		if refused := b.add([]*delivery{d}, reservation{}); len(refused) > 0 {
			t.Fatal("refused")
		}
		taken += len(text)
	}
	opened := 0
	for d := b.toOpen(); d != nil; d = b.toOpen() {
		env, err := codec.Open(text, codec.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		list := d.unpacked(env.Tasks)
		for i := range env.Tasks {
			taken += len(env.Tasks[i].Key) + len(env.Tasks[i].Body)
		}
		taken += len(env.Tasks)*int(unsafe.Sizeof(env.Tasks[0])) + len(list)*int(unsafe.Sizeof(list[0]))
		opened++
		if !b.open(d) {
			t.Fatal("not taken")
		}
		d.env, d.tasks = env, list
	}
	if opened < 4 || int64(taken) > o.MaxBytes {
		t.Errorf("%d were opened, and take %d bytes with what waits; %d are allowed", opened, taken, o.MaxBytes)
	}
}

// BenchmarkHandOut is what giving a task to a slot and noting its end costs the backlog.
func BenchmarkHandOut(bench *testing.B) {
	b := newBacklog(&ProcessorOptions{Concurrency: 1, MaxBytes: 1 << 30}, false, func() {})
	ended := time.Now()
	for bench.Loop() {
		if len(b.ready) == 0 {
			d := &delivery{count: 1000, place: opening, unstarted: 1000}
			b.unstarted += d.count
			if !b.open(d) {
				bench.Fatal("the message was not taken")
			}
		}
		b.next(time.Microsecond, ended)
		ended = time.Now()
	}
}
