package control

import (
	"context"
	"time"

	"github.com/queuepump/queuepump/pump/storage"
)

// schedule tells when an idle election row becomes due by the server's clock.
type schedule struct {
	clock serverClock

	etag storage.ETag // what due is about
	due  time.Time    // local
	at   time.Time    // when it was worked out
}

// untilDue says how long until the idle row v is due: the time of its last
// write, by the server's clock, plus its period or ours, whichever is shorter.
// Zero or less is due.
func (s *schedule) untilDue(ctx context.Context, v version[electionRow], every time.Duration) (time.Duration, error) {
	if v.etag != s.etag || time.Since(s.at) > clockAge {
		server, local, err := s.clock.read(ctx)
		if err != nil {
			return 0, err
		}
		// A server that set its clock back must not make it longer than a period.
		var age time.Duration
		if !server.IsZero() && !v.modified.IsZero() { // else: a whole period from now
			age = max(0, server.Sub(v.modified))
		}
		s.etag, s.at, s.due = v.etag, local, local.Add(min(every, v.value.every)-age)
	}
	return time.Until(s.due), nil
}
