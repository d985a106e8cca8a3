package processor

import (
	"context"
	"testing"
	"time"
	"unsafe"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/processor/internal/message"
	"github.com/queuepump/queuepump/pump/storage"
)

func TestAMessageWhoseLeaseEndedBeforeItArrivedTakesNoRoom(t *testing.T) {
	// A get that is answered late, or a machine that slept: the keeper gives the
	// message up while its get still makes a delivery of it.
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		w.Put("accounta", "work-00", 2, 5)
		pr := testworld.Made(w, New, "p", &testworld.Seen{}, Options{})
		r := pr.newProcessing(t.Context())
		b := message.NewBacklog(r.o.room(), false, func() {})
		late, good := &message.Delivery{Count: 5, Text: []byte("late")}, &message.Delivery{Count: 3, Text: []byte("good")}
		if n, unopened := b.Withdraw(late); n != 0 || unopened {
			t.Fatal("what is not there yet was withdrawn from it")
		}
		refused := b.Add([]*message.Delivery{late, good}, message.Reservation{})
		if len(refused) != 1 || refused[0] != late {
			t.Errorf("refused %v, want the one that no worker should start", refused)
		}
		if len(b.Unopened) != 1 || b.Unstarted != 3 || b.Bytes != 4 {
			t.Errorf("%d messages of %d tasks and %d bytes wait, want 1 of 3 and 4", len(b.Unopened), b.Unstarted, b.Bytes)
		}
	})
}

func TestGetsThatAreAnsweredAfterTheLeaseLeaveTheProcessorWhole(t *testing.T) {
	testworld.In(t, testworld.Plain, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		tasks := w.Spread(100, 5)
		w.Fault(azsim.Rule{Fault: azsim.DelayAfter, Delay: 2700 * time.Millisecond, First: 12}, "GetMessages")
		h := &testworld.Seen{}
		pr := testworld.Made(w, New, "p", h, Options{Visibility: 3 * time.Second})
		r := pr.newProcessing(t.Context())
		ready(t, r)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		must(t, r.poller.Run(ctx))
		r.stop()
		if got := h.Tasks(); got != tasks || w.Left() != 0 {
			t.Errorf("%d of %d tasks, %d messages left", got, tasks, w.Left())
		}
		if b := r.backlog; b.Bytes != 0 || b.Unstarted != 0 || b.Opened != 0 || b.Reserved != 0 || b.Promised != 0 {
			t.Errorf("not all room was given back: %d bytes, %d unstarted, %d opened, %d reserved", b.Bytes, b.Unstarted, b.Opened, b.Reserved)
		}
	})
}

// Room is kept for the texts that messages lately had, so that many gets of small ones may be under
// way; a large one counts at once, and never is less kept than a quarter of the largest there is.
func TestRoomIsKeptForTextsAsLargeAsTheyLatelyWere(t *testing.T) {
	o, err := Options{MaxBytes: 8 << 20}.withDefaults()
	must(t, err)
	b := message.NewBacklog(o.room(), false, func() {})
	b.Took, b.Busy = 1e-3, 0
	gets := func() (n int, bytes int64) {
		var rooms []message.Reservation
		for b.Rate = 1e9; ; b.Rate = 1e9 {
			b.Measured = time.Now()
			room := b.Reserve(false)
			if room.Messages == 0 {
				break
			}
			n += room.Messages
			rooms = append(rooms, room)
		}
		bytes = b.Promised
		for _, room := range rooms {
			b.GiveBack(room)
		}
		return n, bytes
	}
	bring := func(messages, size int) {
		for range messages {
			d := &message.Delivery{Count: 1, Text: make([]byte, size)}
			if refused := b.Add([]*message.Delivery{d}, message.Reservation{}); len(refused) > 0 {
				t.Fatal("refused")
			}
			b.Withdraw(d)
			b.Free(d, 0)
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
	if b.Promised != 0 || b.Bytes != 0 {
		t.Errorf("%d bytes promised and %d held at the end", b.Promised, b.Bytes)
	}
}

// An opened message counts with all its memory: of small tasks the lists are more than the
// records.
func TestAnOpenedMessageCountsWithTheListsOfItsTasks(t *testing.T) {
	builder := codec.NewBuilder(0)
	builder.Reset(codec.Header{Workload: "w", Run: pump.RunID{1}})
	for n := range uint64(2000) {
		must(t, proof.ErrOf(builder.Add(codec.Task{N: n, Key: []byte("key"), Body: []byte("a small task")})))
	}
	text, _, err := builder.Seal(nil)
	must(t, err)
	o, err := Options{MaxBytes: 4 << 20}.withDefaults()
	must(t, err)
	b := message.NewBacklog(o.room(), true, func() {})
	b.Rate = 1e9
	taken := 0
	for range 64 {
		d := &message.Delivery{Text: text}
		d.Header, err = codec.ReadHeader(text)
		must(t, err)
		d.Count = d.Header.Tasks.Len()
		if refused := b.Add([]*message.Delivery{d}, message.Reservation{}); len(refused) > 0 {
			t.Fatal("refused")
		}
		taken += len(text)
	}
	opened := 0
	for d := b.ToOpen(); d != nil; d = b.ToOpen() {
		env, err := codec.Open(text, codec.Limits{})
		must(t, err)
		list := d.Unpacked(env.Tasks)
		for i := range env.Tasks {
			taken += len(env.Tasks[i].Key) + len(env.Tasks[i].Body)
		}
		taken += len(env.Tasks)*int(unsafe.Sizeof(env.Tasks[0])) + len(list)*int(unsafe.Sizeof(list[0]))
		opened++
		if !b.Open(d) {
			t.Fatal("not taken")
		}
		d.Env, d.Tasks = env, list
	}
	if opened < 4 || int64(taken) > o.MaxBytes {
		t.Errorf("%d were opened, and take %d bytes with what waits; %d are allowed", opened, taken, o.MaxBytes)
	}
}

// BenchmarkHandOut is what giving a task to a slot and noting its end costs the backlog.
func BenchmarkHandOut(bench *testing.B) {
	b := message.NewBacklog(Options{Concurrency: 1, MaxBytes: 1 << 30}.room(), false, func() {})
	ended := time.Now()
	for bench.Loop() {
		if len(b.Runnable) == 0 {
			d := &message.Delivery{Count: 1000}
			b.Add([]*message.Delivery{d}, message.Reservation{})
			if b.ToOpen() != d || !b.Open(d) {
				bench.Fatal("the message was not taken")
			}
			b.Free(d, 0)
		}
		b.Next(time.Microsecond, ended, nil)
		ended = time.Now()
	}
}
