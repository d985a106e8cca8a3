package testkit

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/queuepump/queuepump/codec"
)

// RunID is the id of the nth run of a test.
func RunID(n byte) codec.RunID { return codec.RunID{15: n, 0: n * 83} }

// Chaos is one seeded history over a table that loses and delays requests.
type Chaos struct {
	Seed   uint64
	Server *Server
	Quiet  time.Time // from then on nothing goes wrong
	End    time.Time
	Mu     sync.Mutex // of the test's notes
}

// Roll is a number below n, by what it is for.
func (c *Chaos) Roll(n uint64, what string, times int) uint64 {
	return Hash(c.Seed, what, times) % n
}

// Fault is what goes wrong with a request: about one in four does.
func (c *Chaos) Fault(this Call) Fault {
	if time.Now().After(c.Quiet) {
		return Fault{}
	}
	d := time.Duration(c.Roll(uint64(20*time.Second), this.Client+this.Op+this.Row+"d", this.N))
	switch p := c.Roll(100, this.Client+this.Op+this.Row, this.N); {
	case p < 8:
		return LostAnswer
	case p < 16:
		return LostRequest
	case p < 20:
		return LandsLate(d)
	case p < 22:
		return Fault{Hang: true, Act: p == 20}
	case p < 26:
		return Fault{Delayed: d / 4}
	}
	return Fault{}
}

// Sleeper is a machine whose wall clock a test moves on while its monotonic clock
// stands still.
type Sleeper struct{ at, by atomic.Int64 }

// Sleep moves the wall clock on.
func (s *Sleeper) Sleep(d time.Duration) { s.by.Store(int64(d)); s.at.Store(time.Now().UnixNano()) }

// Ahead is how far the wall clock is ahead of the monotonic one.
func (s *Sleeper) Ahead(at time.Time) time.Duration {
	if began := s.at.Load(); began == 0 || at.UnixNano() < began {
		return 0
	}
	return time.Duration(s.by.Load())
}
