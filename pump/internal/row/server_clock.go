package row

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/queuepump/queuepump/pump/storage"
)

const (
	// ClockAge is how long an estimate of the server's time is used. Until then a local clock may
	// drift by a fraction of a second; a suspended machine, whose monotonic clock stood still, is late
	// by no more than that.
	ClockAge = 10 * time.Minute
	// ClockDrift is the part of a local duration by which a local clock may
	// run too fast: twice what time daemons correct a clock by (500 ppm).
	ClockDrift = 1000
)

// ServerClock tells the time by the server's clock, so that two machines' clocks
// are never compared (P5.3, docs/protocols.md). It asks the partition whose rows it
// is about, because the parts of a service have clocks of their own. Its methods
// may be called from many goroutines at once.
type ServerClock struct {
	Table     storage.Table
	Partition string
	Timeout   time.Duration
	// Age is how long an estimate is used, if that is less than ClockAge and not 0: for that long it
	// may be ahead of a server's clock that was set back.
	Age time.Duration

	refresh Flight
	mu      sync.Mutex // guards what follows
	server  time.Time  // a moment of the server's clock ...
	local   time.Time  // ... and a local one that is not before it
}

// AtLeast gives a time that the server's clock has certainly reached, late by a round trip and a
// thousandth of the ten minutes after which it is learned again. It is zero if the service stamps
// no rows.
func (c *ServerClock) AtLeast(ctx context.Context) (time.Time, error) {
	for {
		if now, known := c.estimate(); known {
			return now, nil
		}
		if err := c.refresh.Do(ctx, c.learn); err != nil {
			return time.Time{}, err
		}
	}
}

func (c *ServerClock) estimate() (now time.Time, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.local.IsZero() || time.Since(c.local) > min(cmp.Or(c.Age, ClockAge), ClockAge) {
		return time.Time{}, false
	}
	if c.server.IsZero() {
		return time.Time{}, true
	}
	return c.server.Add(Slowest(time.Since(c.local))), true
}

// Slowest is how much time has passed at least when a local clock says d.
func Slowest(d time.Duration) time.Duration { return d - d/ClockDrift }

func (c *ServerClock) learn(ctx context.Context) error {
	if _, known := c.estimate(); known {
		return nil // another goroutine was quicker
	}
	server, local, err := c.Read(ctx)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.server, c.local = server, local
	return nil
}

// Read gives a moment of the server's clock and a local moment that is not before it: the clock row
// is written, then read, and its stamp is from between. If another instance writes the row in
// between, that does no harm: the stamp is then nearer. All instances share the row, so ended
// instances do not leave rows behind.
func (c *ServerClock) Read(ctx context.Context) (server, local time.Time, err error) {
	w := storage.Write{Mode: storage.Upsert, Entity: storage.Entity{
		Partition: c.Partition, Row: ClockKey, Properties: map[string]any{FormatProperty: int64(Format)},
	}}
	call, cancel := bounded(ctx, c.Timeout)
	defer cancel()
	// After a failure the row may hold an old stamp: only an acknowledged write will do.
	if _, err := c.Table.Write(call, w); err != nil {
		return server, local, err
	}
	e, err := c.Table.Read(call, c.Partition, ClockKey)
	return e.Modified, time.Now(), err
}

// ClockKey is the row that is only written to learn the time.
const ClockKey = "clock"
