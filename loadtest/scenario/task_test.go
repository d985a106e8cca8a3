package scenario

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/queuepump/queuepump/internal/proof"
)

func TestATaskReadsAsItWasWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := task{
			n: rapid.Uint64Range(0, 1<<47).Draw(t, "n"), at: time.Duration(rapid.Int64Range(0, 1<<46).Draw(t, "at")) * time.Microsecond,
			sent: time.Duration(rapid.Int64Range(0, 1<<46).Draw(t, "sent")) * time.Microsecond, group: rapid.Uint8().Draw(t, "group"),
		}
		size := rapid.IntRange(MinTaskBytes, 2000).Draw(t, "size")
		body := appendTask(nil, "0123abcd", want, size)
		if len(body) != size || !json.Valid(body) {
			t.Fatalf("%d bytes, want %d: %s", len(body), size, body)
		}
		if got, ok := readTask(body, "0123abcd"); !ok || got != want {
			t.Fatalf("got %+v, %v, want %+v", got, ok, want)
		}
		if _, ok := readTask(body, "0123abce"); ok {
			t.Fatal("a task of another test was taken for one of this")
		}
	})
}

func TestWhateverIsInAQueueIsNoTask(t *testing.T) {
	good := appendTask(nil, "0123abcd", task{n: 1}, MinTaskBytes)
	rapid.Check(t, func(t *rapid.T) {
		body := slices.Clone(good)
		body[rapid.IntRange(0, offPad-1).Draw(t, "at")] = rapid.Byte().Draw(t, "byte")
		readTask(body[:rapid.IntRange(0, len(body)).Draw(t, "length")], "0123abcd") // does not panic
		readTask(rapid.SliceOf(rapid.Byte()).Draw(t, "any"), "0123abcd")
	})
	r := newRecorder("0123abcd")
	r.sent.Store(5)
	r.begins(appendTask(nil, "0123abcd", task{n: 1 << 46}, MinTaskBytes)) // would be terabytes of bits
	r.begins([]byte("hello"))
	r.begins(appendTask(nil, "0123abcd", task{n: 4}, MinTaskBytes))
	r.begins(appendTask(nil, "0123abcd", task{n: 4}, MinTaskBytes))
	if r.strangers != 2 || r.handled != 1 || r.duplicates != 1 || len(r.seen) != 1 {
		t.Errorf("%d strangers, %d handled, %d twice, %d words", r.strangers, r.handled, r.duplicates, len(r.seen))
	}
}

func TestTheScheduleIsEvenWhateverHappens(t *testing.T) {
	s := schedule{loads: []load{
		{until: time.Second, rate: 4},
		{until: 3 * time.Second},
		{until: 4 * time.Second, rate: 2, burst: 2, group: 7},
		{until: 5 * time.Second, rate: asTaken, window: 9},
		{until: 6 * time.Second, rate: 1},
	}}
	var at []time.Duration
	now := time.Duration(0)
	taken := 0
	for {
		d, ok := s.next(now)
		if !ok {
			break
		}
		if d.taken {
			taken++
			now = d.at + 400*time.Millisecond
			if d.load.window != 9 || d.load.until != 5*time.Second || d.at < 4*time.Second {
				t.Errorf("%+v", d)
			}
			continue
		}
		proof.Same(t, d.group == 7, d.at == 3*time.Second && len(at) < 6, d, "in the burst, as number", len(at))
		at = append(at, d.at)
	}
	ms := time.Millisecond
	proof.Alike(t, at, []time.Duration{0, 250 * ms, 500 * ms, 750 * ms, 3000 * ms, 3000 * ms, 3000 * ms, 3500 * ms, 5000 * ms}, "due at")
	proof.Same(t, taken, 3, "taken in a second at one in 400 ms")
	s = schedule{loads: []load{{until: time.Second, rate: 4}, {until: 2 * time.Second, rate: asTaken}, {until: 3 * time.Second, rate: 2}}}
	s.next(0)
	proof.Same(t, s.rest(), 5, "left")
}

func TestAmountsAreRoundAndEndWithAll(t *testing.T) {
	for n, want := range map[int][]int{1: {1}, 2: {1, 2}, 3: {1, 2, 3}, 10: {1, 2, 5, 10}, 64: {1, 2, 5, 10, 20, 50, 64}, 100: {1, 2, 5, 10, 20, 50, 100}} {
		proof.Alike(t, amounts(n), want, n)
	}
}
