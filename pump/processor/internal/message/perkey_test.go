package message

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/pump"
)

// opened is a backlog with an opened message that has a task of each of the keys.
func opened(t *testing.T, limits pump.PerKey, keys ...string) *Backlog {
	b := NewBacklog(BacklogOptions{Handlers: 4, MaxBytes: 1 << 30, Lease: time.Minute, PerKey: limits}, true, func() {})
	b.Busy = 4
	add(t, b, keys...)
	return b
}

func add(t *testing.T, b *Backlog, keys ...string) *Delivery {
	d := &Delivery{Count: len(keys), ID: fmt.Sprint(len(keys)), Dequeued: 1, Epoch: 1}
	for _, key := range keys {
		d.Tasks = append(d.Tasks, pump.Task{Key: []byte(key)})
	}
	b.Add([]*Delivery{d}, Reservation{})
	if b.ToOpen() != d || !b.Open(d) {
		t.Fatal("the message was not taken")
	}
	return d
}

func times(n int, key string) (keys []string) {
	for range n {
		keys = append(keys, key)
	}
	return keys
}

func keyOf(t Turn) string { return string(t.D.Tasks[t.D.At(t.From)].Key) }

// A thousand tasks of one key stand before the tasks of others, which start at once.
func TestTheFloodOfOneKeyDoesNotStandBeforeOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := opened(t, pump.PerKey{Concurrent: 1}, append(times(1000, "a"), "b", "b", "c", "")...)
		got := map[string]int{}
		off := 0
		for range 3 {
			turn := b.Next(0, time.Now(), nil)
			for ; turn.Off > 0; turn = b.Next(0, time.Now(), nil) {
				off++
			}
			got[keyOf(turn)]++
		}
		if turn := b.Next(0, time.Now(), nil); keyOf(turn) != "" || turn.Key != nil {
			t.Errorf("%q", keyOf(turn))
		}
		over := b.KeysOver()
		if got["a"] != 1 || got["b"] != 1 || got["c"] != 1 || off == 0 || over.Keys != 2 || over.Top[0].Key != "a" || over.Top[0].Tasks < 950 {
			t.Errorf("%v, %d put off, %+v", got, off, over)
		}
	})
}

// A limit that is raised counts at once for what is in hand.
func TestALimitByKeyIsReplacedWhileTasksWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := opened(t, pump.PerKey{Concurrent: 1}, times(5, "a")...)
		first := b.Next(0, time.Now(), nil)
		second := make(chan Turn)
		go func() { second <- b.Next(0, time.Now(), nil) }()
		synctest.Wait()
		b.SetPerKey(pump.PerKey{Concurrent: 2})
		if turn := <-second; keyOf(turn) != "a" || turn.Off > 0 {
			t.Errorf("%+v", turn)
		}
		b.SetPerKey(pump.PerKey{})
		for range 2 {
			if turn := b.Next(time.Second, time.Now(), first.Key); turn.Off > 0 {
				t.Errorf("%+v", turn)
			}
		}
	})
}

// The memory for keys is bounded. A key without room waits, and has room when others are idle.
func TestKeysAreCountedWithinABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := make([]string, mostKeys+1)
		for i := range keys {
			keys[i] = fmt.Sprint(i)
		}
		b := opened(t, pump.PerKey{Rate: 1. / 60}, keys...)
		b.keys.holds[0] = keyHold{epoch: 1, since: -time.Hour} // the buckets are not empty
		time.Sleep(time.Second)
		for range mostKeys {
			if turn := b.Next(0, time.Now(), nil); turn.Off > 0 {
				t.Fatalf("%+v", turn)
			}
			b.Busy = 4
		}
		if turn := b.Next(0, time.Now(), nil); turn.Off == 0 || len(b.keys.keys) > mostKeys {
			t.Errorf("%+v, %d keys", turn, len(b.keys.keys))
		}
		for _, s := range b.keys.keys {
			s.running = 0
		}
		time.Sleep(2 * time.Minute)
		add(t, b, "another")
		if turn := b.Next(0, time.Now(), nil); turn.Off > 0 || len(b.keys.keys) > 1 {
			t.Errorf("%+v, %d keys", turn, len(b.keys.keys))
		}
	})
}

// Where tasks have no key of their own, their lines are their keys.
func TestLongKeysAreCountedInLittleMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		line := strings.Repeat("line ", 8000)
		b := opened(t, pump.PerKey{Rate: 1}, line+"a", line+"b", line+"a")
		b.keys.holds[0] = keyHold{epoch: 1, since: -time.Hour}
		time.Sleep(time.Second)
		for _, want := range []string{line + "a", line + "b", line + "a"} {
			if turn := b.Next(0, time.Now(), nil); keyOf(turn) != want || turn.Off > 0 {
				t.Errorf("%.30q is started", keyOf(turn))
			}
			b.Busy = 4
		}
		bytes := 0
		for name := range b.keys.keys {
			bytes += len(name)
		}
		if len(b.keys.keys) != 2 || bytes > 1000 {
			t.Errorf("%d keys take %d bytes", len(b.keys.keys), bytes)
		}
	})
}

// After each change of the owner a bucket begins empty, and a message that is withdrawn takes its
// held tasks along.
func TestABucketIsEmptyAfterAChangeOfTheOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := opened(t, pump.PerKey{Rate: 10}, times(3, "a")...)
		d, began := b.Runnable[0], time.Now()
		if turn := b.Next(0, began, nil); turn.At.Sub(began) < 100*time.Millisecond || turn.At.Sub(began) > 110*time.Millisecond {
			t.Errorf("the first is started after %v", turn.At.Sub(began))
		}
		if n, _ := b.Withdraw(d); n != 2 || len(b.keys.keys["a"].held) > 0 {
			t.Errorf("%d are withdrawn, %d held", n, len(b.keys.keys["a"].held))
		}
		time.Sleep(time.Minute) // the bucket is full
		for epoch, want := range []time.Duration{0, 0, 100 * time.Millisecond} {
			d := add(t, b, "a")
			d.Epoch = max(1, uint64(epoch))
			began = time.Now()
			if turn := b.Next(0, began, nil); turn.At.Sub(began) < want || turn.At.Sub(began) > want+10*time.Millisecond {
				t.Errorf("epoch %d: after %v, want %v", d.Epoch, turn.At.Sub(began), want)
			}
		}
	})
}
