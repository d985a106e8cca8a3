package election

import (
	"context"
	"time"

	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/storage"
)

// schedule tells when an idle election row becomes due by the server's clock.
type schedule struct {
	clock row.ServerClock

	etag storage.ETag // what due is about
	due  time.Time    // local
	at   time.Time    // when it was worked out
}

// untilDue says how long until the idle row v is due: the time of its last write, by the server's
// clock, plus the shorter of its period and this candidate's. Zero or less is due.
func (s *schedule) untilDue(
	ctx context.Context, v row.Version[electionRow], every time.Duration,
) (time.Duration, error) {
	if v.ETag != s.etag || time.Since(s.at) > row.ClockAge {
		server, local, err := s.clock.Read(ctx)
		if err != nil {
			return 0, err
		}
		// A server that set its clock back must not make it longer than a period.
		var age time.Duration
		if !server.IsZero() && !v.Modified.IsZero() { // else: a whole period from now
			age = max(0, server.Sub(v.Modified))
		}
		s.etag, s.at, s.due = v.ETag, local, local.Add(min(every, v.Value.every)-age)
	}
	return time.Until(s.due), nil
}
