package control

import (
	"context"
	"sync"
	"time"

	"github.com/queuepump/queuepump/pump/storage"
)

const (
	// clockAge is how long an estimate of the server's time is used. Until then a
	// local clock may drift by a fraction of a second; a machine that was suspended,
	// whose monotonic clock stood still, is late by no more than that.
	clockAge = 10 * time.Minute
	// clockDrift is the part of a local duration by which a local clock may
	// run too fast: twice what time daemons correct a clock by (500 ppm).
	clockDrift = 1000
)

// serverClock tells the time by the server's clock, so that two machines' clocks
// are never compared (P5.3, pump/DESIGN.md). It asks the partition whose rows it
// is about, because the parts of a service have clocks of their own. Its methods
// may be called from many goroutines at once.
type serverClock struct {
	table     storage.Table
	partition string
	timeout   time.Duration

	refresh flight
	mu      sync.Mutex // guards what follows
	server  time.Time  // a moment of the server's clock ...
	local   time.Time  // ... and a local one that is not before it
}

// atLeast gives a time that the server's clock has certainly reached, late by a
// round trip and a thousandth of the ten minutes after which it is learned anew. It
// is zero if the service stamps no rows.
func (c *serverClock) atLeast(ctx context.Context) (time.Time, error) {
	for {
		if now, known := c.estimate(); known {
			return now, nil
		}
		if err := c.refresh.do(ctx, c.learn); err != nil {
			return time.Time{}, err
		}
	}
}

func (c *serverClock) estimate() (now time.Time, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.local.IsZero() || time.Since(c.local) > clockAge {
		return time.Time{}, false
	}
	if c.server.IsZero() {
		return time.Time{}, true
	}
	return c.server.Add(slowest(time.Since(c.local))), true
}

// slowest is how much time has passed at least when a local clock says d.
func slowest(d time.Duration) time.Duration { return d - d/clockDrift }

func (c *serverClock) learn(ctx context.Context) error {
	if _, known := c.estimate(); known {
		return nil // another goroutine was quicker
	}
	server, local, err := c.read(ctx)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.server, c.local = server, local
	return nil
}

// read gives a moment of the server's clock and a local moment that is not
// before it: the clock row is written, then read, and its stamp is from between.
// That another instance may write it in between does no harm, its stamp then is
// only nearer. All instances share the row, so none is left behind by those that are gone.
func (c *serverClock) read(ctx context.Context) (server, local time.Time, err error) {
	w := storage.Write{Mode: storage.Upsert, Entity: storage.Entity{
		Partition: c.partition, Row: clockKey, Properties: map[string]any{formatProperty: int64(format)},
	}}
	call, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	// After a failure the row may hold an old stamp: only an acknowledged write will do.
	if _, err := c.table.Write(call, w); err != nil {
		return server, local, err
	}
	e, err := c.table.Read(call, c.partition, clockKey)
	return e.Modified, time.Now(), err
}

// clockKey is the row that is only written to learn the time.
const clockKey = "clock"
