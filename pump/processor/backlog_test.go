package processor

import (
	"context"
	"testing"
	"time"
	"unsafe"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/storage"
)

func TestAMessageWhoseLeaseEndedBeforeItArrivedTakesNoRoom(t *testing.T) {
	// A get that is answered late, or a machine that slept: the keeper gives the
	// message up while its get still makes a delivery of it.
	inWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
		w.Put("accounta", "work-00", 2, 5)
		pr := w.processor(&testworld.Seen{}, Options{})
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
		tasks := w.Spread(100, 5)
		w.Fault(azsim.Rule{Fault: azsim.DelayAfter, Delay: 2700 * time.Millisecond, First: 12}, "GetMessages")
		h := &testworld.Seen{}
		pr := w.processor(h, Options{Visibility: 3 * time.Second})
		r := pr.newProcessing(t.Context())
		ready(t, r)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		if err := r.poller.run(ctx); err != nil {
			t.Fatal(err)
		}
		r.stop()
		if got := h.Tasks(); got != tasks || w.Left() != 0 {
			t.Errorf("%d of %d tasks, %d messages left", got, tasks, w.Left())
		}
		if b := r.backlog; b.bytes != 0 || b.unstarted != 0 || b.opened != 0 || b.reserved != 0 || b.promised != 0 {
			t.Errorf("not all room was given back: %d bytes, %d unstarted, %d opened, %d reserved", b.bytes, b.unstarted, b.opened, b.reserved)
		}
	})
}

// Room is kept for the texts that messages lately had, so that many gets of small ones may be under
// way; a large one counts at once, and never is less kept than a quarter of the largest there is.
func TestRoomIsKeptForTextsAsLargeAsTheyLatelyWere(t *testing.T) {
	o, err := Options{MaxBytes: 8 << 20}.withDefaults()
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
	o, err := Options{MaxBytes: 4 << 20}.withDefaults()
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
	b := newBacklog(&Options{Concurrency: 1, MaxBytes: 1 << 30}, false, func() {})
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
