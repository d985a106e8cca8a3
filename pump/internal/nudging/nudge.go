package nudging

import (
	"context"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/waits"
)

const (
	// nudgeTimeout is what a nudge may take. A process that is not reached in that time is busy or
	// gone, and learns by its own polling.
	nudgeTimeout = 500 * time.Millisecond
	// AtOnce are under way at most, MostWaiting wait for their turn; more
	// are dropped. 256 is a gate opened, or a map changed, before a large cluster.
	AtOnce      = 16
	MostWaiting = 256 // see AtOnce
	// Every is how often at most one process is nudged about the same thing. Sooner news is sent once,
	// at the end of that time: the last counts.
	Every = 250 * time.Millisecond
	// Spread is the time over which nudges of the same moment are spread: two events of one instant
	// have no order (P9).
	Spread = time.Millisecond
)

// Sender sends hints to other processes. Its caller never waits and gets no result: a hint that
// cannot be sent is dropped.
type Sender struct {
	send   func(ctx context.Context, n pump.Nudge) error
	log    *slog.Logger
	jitter waits.Jitter
	ctx    context.Context // its end is the end of all nudges
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex // guards what follows
	closed  bool
	sending int
	queue   []pump.Nudge
	recent  map[string]*recentNudge // by subject
}

// recentNudge is a nudge that was sent less than Every ago.
type recentNudge struct {
	again *pump.Nudge // came since
	timer *time.Timer
}

// NewSender makes a sender of hints, by Config.Nudge or over HTTP. It ends with ctx, or Close.
func NewSender(ctx context.Context, cfg *pump.Config) *Sender {
	send := cfg.Nudge
	if send == nil {
		send = NewClient().send
	}
	ctx, cancel := context.WithCancel(ctx)
	return &Sender{
		send:   send,
		log:    cfg.Log,
		jitter: waits.Jitter(cfg.Instance),
		ctx:    ctx,
		cancel: cancel,
		recent: map[string]*recentNudge{},
	}
}

// Nudge sends one, unless one about the same thing was sent just now.
func (s *Sender) Nudge(about string, n pump.Nudge) {
	if n.Address == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	if r := s.recent[about]; r != nil {
		r.again = &n
		return
	}
	s.start(about, n)
	r := &recentNudge{}
	r.timer = time.AfterFunc(Every, func() { s.settle(about, r) })
	s.recent[about] = r
}

// settle is the end of Every after a nudge: news since then is sent now; without news the nudge is
// forgotten.
func (s *Sender) settle(about string, r *recentNudge) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || r.again == nil {
		delete(s.recent, about)
		return
	}
	s.start(about, *r.again)
	r.again = nil
	r.timer.Reset(Every)
}

// start sends a nudge when there is a place; s.mu is held.
func (s *Sender) start(about string, n pump.Nudge) {
	switch {
	case s.sending < AtOnce:
		s.sending++
		// By subject and time: a count would depend on which of the same instant comes first.
		late := time.Duration(s.jitter.Float("nudge", about,
			uint64(time.Now().UnixNano())) * float64(Spread))
		s.wg.Go(func() {
			waits.Wait(s.ctx, late)
			s.sendFrom(n)
		})
	case len(s.queue) < MostWaiting:
		s.queue = append(s.queue, n)
	}
}

// sendFrom sends a nudge and then those that wait.
func (s *Sender) sendFrom(n pump.Nudge) {
	for more := true; more; {
		ctx, cancel := context.WithTimeout(s.ctx, nudgeTimeout)
		err := s.send(ctx, n)
		cancel()
		if err != nil {
			s.log.Debug("a nudge was lost", "instance", n.Instance, "address", n.Address, "error", err)
		}
		s.mu.Lock()
		if more = len(s.queue) > 0; more {
			n, s.queue = s.queue[0], s.queue[1:]
		} else {
			s.sending--
		}
		s.mu.Unlock()
	}
}

// Close refuses further nudges, gives waiting nudges the time of one, and ends.
func (s *Sender) Close() {
	s.mu.Lock()
	s.closed = true
	for _, r := range s.recent {
		r.timer.Stop()
	}
	s.mu.Unlock()
	late := time.AfterFunc(nudgeTimeout, s.cancel)
	s.wg.Wait()
	late.Stop()
	s.cancel()
}

// Send sends nudges at once, a few at a time, and gives the number of those
// that were taken.
func Send(ctx context.Context, cfg *pump.Config, nudges []pump.Nudge) int {
	send := cfg.Nudge
	if send == nil {
		send = NewClient().send
	}
	var taken atomic.Int64
	var g errgroup.Group
	g.SetLimit(AtOnce)
	for _, n := range nudges {
		if n.Address == "" {
			continue
		}
		g.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, nudgeTimeout)
			defer cancel()
			if err := send(ctx, n); err != nil {
				cfg.Log.Debug("a nudge was lost", "instance", n.Instance, "address", n.Address, "error", err)
				return nil
			}
			taken.Add(1)
			return nil
		})
	}
	_ = g.Wait()
	return int(taken.Load())
}

// NudgeOwner does so by a view, on behalf of an instance.
func (s *Sender) NudgeOwner(v *cluster.View, by, queue string, segment uint32) {
	n := pump.Nudge{Queue: queue}
	if v.Owners != nil {
		if owner, ok := v.OwnerOf(segment); ok && owner.Instance != by {
			s.Nudge(n.Queue+" "+owner.Instance, To(&owner, n))
		}
		return
	}
	if all := v.Processors(); len(all) > 0 {
		name := all[s.jitter.Pick(len(all), "nudge", n.Queue, uint64(time.Now().UnixNano()))]
		for i := range v.Members {
			if v.Members[i].Instance == name {
				s.Nudge(n.Queue, To(&v.Members[i], n))
			}
		}
	}
}

// To addresses a nudge to a member.
func To(to *cluster.Member, n pump.Nudge) pump.Nudge {
	n.Address, n.Instance, n.Here = to.Admin, to.Instance, to.Host != "" && to.Host == HostName()
	return n
}

// HostName is this machine's name, empty if it has none.
var HostName = sync.OnceValue(func() string {
	host, err := os.Hostname()
	if err != nil {
		return ""
	}
	return host
})
