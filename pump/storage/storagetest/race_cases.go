package storagetest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/queuepump/queuepump/pump/storage"
)

// racers is how many take part in a race.
const racers = 16

// race lets sixteen goroutines run at once and waits for them.
func race(run func(i int)) {
	var all sync.WaitGroup
	start := make(chan struct{})
	for i := range racers {
		all.Go(func() {
			<-start
			run(i)
		})
	}
	close(start)
	all.Wait()
}

// oneWins has sixteen goroutines do what only one can; the others get an error of the code.
func (c *C) oneWins(others storage.Code, what string, run func(i int) error) {
	var wins atomic.Int64
	race(func(i int) {
		if err := run(i); err == nil {
			wins.Add(1)
		} else {
			c.want(others, err, "a loser's "+what)
		}
	})
	if wins.Load() != 1 {
		c.Fatalf("%d of sixteen won with their %s", wins.Load(), what)
	}
}

// Cases about many clients at once: azsim/AZURE.md C3, R1 to R4.
var raceCases = []testCase{
	{name: "of sixteen writers at one ETag exactly one wins", run: func(c *C) {
		t := c.table()
		etag := c.write(t, insert("p", "r", map[string]any{"winner": int64(-1)}))
		for round := range 20 {
			var winner atomic.Int64
			var next atomic.Value
			c.oneWins(storage.Precondition, fmt.Sprintf("write of round %d", round), func(i int) error {
				mode := []storage.Mode{storage.Replace, storage.Merge}[i%2]
				e, err := t.Write(c.ctx, write(mode, "p", "r", etag, map[string]any{"winner": int64(i)}))
				if err == nil {
					winner.Store(int64(i))
					next.Store(e)
				}
				return err
			})
			e, err := t.Read(c.ctx, "p", "r")
			c.must(err)
			if e.Properties["winner"] != winner.Load() || e.ETag != next.Load() {
				c.Fatalf("round %d: %d won, the row says %+v", round, winner.Load(), e)
			}
			etag = e.ETag
		}
	}},
	{name: "of sixteen inserts of one row exactly one wins", run: func(c *C) {
		t := c.table()
		for round := range 10 {
			row := fmt.Sprintf("r%d", round)
			c.oneWins(storage.Exists, "insert of "+row, func(i int) error {
				return errOf(t.Write(c.ctx, insert("p", row, map[string]any{"i": int64(i)})))
			})
		}
	}},
	{
		name: "of sixteen transactions over one contested row exactly one is done, whole",
		run: func(c *C) {
			t := c.table()
			for round := range 5 {
				contested := fmt.Sprintf("contested%d", round)
				c.oneWins(storage.Exists, "transaction over "+contested, func(i int) error {
					var writes []storage.Write
					for n := range 5 {
						writes = append(writes, insert("p", fmt.Sprintf("own%d.%d.%d", round, i, n), nil))
					}
					writes = append(writes, insert("p", contested, map[string]any{"winner": int64(i)}))
					_, err := t.Transact(c.ctx, writes)
					c.index(err, 5, "a loser's transaction")
					return err
				})
			}
			all := c.rows(t, storage.Query{Partition: "p"})
			if len(all) != 5*6 {
				c.Errorf("%d rows of 5 transactions of 6", len(all))
			}
		},
	},
	{name: "of sixteen getters no two get one message", run: func(c *C) {
		q := c.queue()
		// Over a network a put may go without an answer, and its message may be there or not.
		var doubtful atomic.Int64
		race(func(i int) {
			for n := range 20 {
				_, err := q.Put(c.ctx, fmt.Appendf(nil, "%d.%d", i, n), 0)
				switch {
				case storage.Ambiguous(err):
					doubtful.Add(1)
				case err != nil:
					c.Errorf("%v", err)
				}
			}
		})
		var mu sync.Mutex
		seen := map[string]bool{}
		race(func(int) {
			for {
				ms, err := q.Get(c.ctx, storage.MaxGet, time.Hour)
				if err != nil {
					c.Errorf("%v", err)
					return
				}
				if len(ms) == 0 {
					return
				}
				mu.Lock()
				for _, m := range ms {
					if seen[string(m.Text)] || m.Dequeued != 1 {
						c.Errorf("%s was delivered twice (count %d)", m.Text, m.Dequeued)
					}
					seen[string(m.Text)] = true
				}
				mu.Unlock()
			}
		})
		if lost := racers*20 - len(seen); lost > int(doubtful.Load()) || lost > racers {
			c.Errorf("%d of %d messages were delivered, %d puts had no answer", len(seen), racers*20,
				doubtful.Load())
		}
	}},
	{name: "of sixteen deletes with one receipt exactly one wins", run: func(c *C) {
		q := c.queue()
		for range 5 {
			c.put(q, "x")
			m := c.get(q, time.Hour)
			c.oneWins(storage.Gone, "delete", func(int) error { return q.Delete(c.ctx, m.Receipt) })
		}
	}},
	{
		name: "of sixteen renewals with one receipt exactly one wins and its receipt lives",
		run: func(c *C) {
			q := c.queue()
			c.put(q, "x")
			r := c.get(q, time.Hour).Receipt
			for range 5 {
				var next atomic.Value
				c.oneWins(storage.Gone, "renewal", func(int) error {
					n, err := q.Renew(c.ctx, r, time.Hour)
					if err == nil {
						next.Store(n)
					}
					return err
				})
				r = next.Load().(storage.Receipt)
			}
			c.must(q.Delete(c.ctx, r))
		},
	},
}
