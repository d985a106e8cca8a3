package control

import (
	"context"
	"time"

	"github.com/queuepump/queuepump/pump/storage"
)

// clockAge is how long an estimate of the server's time is used. Until then a
// local clock may drift by a fraction of a second; a machine that was suspended,
// whose monotonic clock stood still, is late by no more than that.
const clockAge = 10 * time.Minute

// serverClock tells when a row becomes due by the server's clock.
type serverClock struct {
	table     storage.Table
	partition string
	timeout   time.Duration

	etag storage.ETag // what due is about
	due  time.Time    // local
	at   time.Time    // when it was worked out
}

// untilDue says how long until the idle row v is due: the time of its last
// write, by the server's clock, plus its period or ours, whichever is shorter.
// Zero or less is due.
func (c *serverClock) untilDue(ctx context.Context, v version[electionRow], every time.Duration) (time.Duration, error) {
	if v.etag != c.etag || time.Since(c.at) > clockAge {
		server, local, err := c.read(ctx)
		if err != nil {
			return 0, err
		}
		// A server that set its clock back must not make it longer than a period.
		var age time.Duration
		if !server.IsZero() && !v.modified.IsZero() { // else: a whole period from now
			age = max(0, server.Sub(v.modified))
		}
		c.etag, c.at, c.due = v.etag, local, local.Add(min(every, v.value.every)-age)
	}
	return time.Until(c.due), nil
}

// read gives a moment of the server's clock and a local moment that is not
// before it: the clock row is written, then read, and its stamp is from between.
// That another instance may write it in between does no harm, its stamp then is
// only nearer. All candidates share the row, so none is left behind by instances that are gone.
func (c *serverClock) read(ctx context.Context) (server, local time.Time, err error) {
	w := storage.Write{Mode: storage.Upsert, Entity: storage.Entity{
		Partition: c.partition, Row: "clock", Properties: map[string]any{formatProperty: int64(format)},
	}}
	call, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	// After a failure the row may hold an old stamp: only an acknowledged write will do.
	if _, err := c.table.Write(call, w); err != nil {
		return server, local, err
	}
	e, err := c.table.Read(call, c.partition, "clock")
	return e.Modified, time.Now(), err
}
