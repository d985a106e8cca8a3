package distributor

import (
	"time"

	"github.com/queuepump/queuepump/pump/internal/backoff"
)

// health is what puts have shown of one queue. It decides when the queue's
// segments may be put elsewhere (P6.3) and when they come home:
//
//	         nothing acknowledged for darkAfter, and puts failed without an answer or
//	         fill the outbox without one, or for darkRefused, and all were throttled
//	  +------+ ---------------------------------------------------> +------+
//	  | open |                                                      | dark |
//	  +------+ <--------------------------------------------------- +------+
//	   |    ^    a probe is acknowledged, and the hold is over
//	   |    |
//	   |    |  room whenever asked and no throttle for crowdCalm,
//	   |    |  or no throttle for crowdForget
//	   v    |
//	+---------+  no room for crowdAfter, and throttled after that, lately
//	| crowded |  (a crowded queue may turn dark like an open one)
//	+---------+
//
// An open queue takes all messages of its segments. A dark one takes none but a
// probe every probeEvery: a parcel of one of its segments that goes there first and,
// if that fails, to the others' queue; "takes messages" is proved by nothing less. A
// crowded one goes on taking what it can, and only what finds no room goes
// elsewhere, so that being at its limit is no reason to flap: its load does not
// fall when others help.
//
// A queue that turns dark again soon after it came back is held dark for a
// while, longer each time: each return costs its tasks darkAfter of waiting.
type health struct {
	dark, crowded bool

	silent     time.Time // when the first put since the last acknowledgement was sent; zero: none
	unanswered int       // puts since then that ended without an answer
	throttled  time.Time // the last one

	full  time.Time // since when there has been no room; zero: there was, when last asked
	tight time.Time // when there was last no room, or a throttle while crowded

	darkAt, openAt time.Time
	hold           time.Duration
	probed         time.Time // when the last probe ended, or the queue turned dark
	probing        bool
	probes         uint64
}

// A put takes 5 to 50 ms, so that five seconds of nothing but failures are no
// hiccup, and yet short beside the ten for which a checkpoint waits for
// envelopes. One lost answer of a slow source is no darkness either: it takes two.
// A queue that only throttles answers, and may ask for a pause of seconds itself.
const (
	darkAfter    = 5 * time.Second
	darkFailures = 2
	darkRefused  = 30 * time.Second

	// A probe is one put that may be sent twice, so three seconds are cheap; they and what a
	// probe may take (queues.TroubledTimeout) are how long a queue that is back stands idle.
	probeEvery  = 3 * time.Second
	relapse     = time.Minute // turning dark again within this after coming back
	holdFirst   = 15 * time.Second
	holdLongest = 5 * time.Minute

	// A lone throttle lowers the budget for 15 s (budgetCut), in which a full outbox is that
	// throttle's doing. Whoever sends as fast as accounts take has a full outbox all the time,
	// and a few throttles at the moment in which an account is added: only those that come
	// when there has been no room for seconds say that others should help. Every message that
	// goes elsewhere costs several deliveries, and is handled many seconds late.
	crowdAfter    = 5 * time.Second
	crowdThrottle = 20 * time.Second
	crowdCalm     = 15 * time.Second
	crowdForget   = 30 * time.Second
)

// sent is a put that goes out now.
func (h *health) sent(now time.Time) {
	if h.silent.IsZero() {
		h.silent = now
	}
}

// acknowledged is a put that was.
func (h *health) acknowledged(now time.Time) {
	h.silent, h.unanswered = time.Time{}, 0
	if h.dark && now.Sub(h.darkAt) >= h.hold {
		h.dark, h.openAt = false, now
	}
	h.endProbe(now)
	h.calm(now)
}

// lost is a put that ended without an answer.
func (h *health) lost(now time.Time) {
	h.sent(now) // a straggler from before the last acknowledgement
	h.unanswered++
	h.endProbe(now)
	if h.unanswered >= darkFailures && now.Sub(h.silent) >= darkAfter {
		h.darken(now)
	}
}

// answered is a put that was turned down by a queue or an account that is not
// dark: it has other troubles, which somebody must see to.
func (h *health) answered(now time.Time) {
	h.silent, h.unanswered = time.Time{}, 0
	h.endProbe(now)
}

// refused is a put that was throttled.
func (h *health) refused(now time.Time) {
	h.sent(now)
	h.throttled = now
	if h.crowded {
		h.tight = now
	}
	h.endProbe(now)
	if now.Sub(h.silent) >= darkRefused {
		h.darken(now)
	}
}

func (h *health) darken(now time.Time) {
	if h.dark {
		return
	}
	switch {
	case h.openAt.IsZero() || now.Sub(h.openAt) >= max(relapse, h.hold):
		h.hold = 0
	default:
		h.hold = min(max(2*h.hold, holdFirst), holdLongest)
	}
	h.dark, h.darkAt, h.probed = true, now, now
}

// probe reports whether a probe of a dark queue is due, and begins it.
func (h *health) probe(now time.Time, j backoff.Jitter, name string) bool {
	if !h.dark || h.probing || now.Sub(h.probed) < j.Around(probeEvery, "probe", name, h.probes) {
		return false
	}
	h.probing = true
	h.probes++
	return true
}

func (h *health) endProbe(now time.Time) {
	if h.probing {
		h.probing, h.probed = false, now
	}
}

// room is what a parcel for this queue found.
func (h *health) room(now time.Time, found bool) {
	if found {
		h.full = time.Time{}
		h.calm(now)
		return
	}
	h.tight = now
	if h.full.IsZero() {
		h.full = now
	}
	// An account that hangs fails no request before its deadline. But what fills an
	// outbox is many puts, and no service needs so long for all of them.
	if !h.silent.IsZero() && now.Sub(h.silent) >= darkAfter && h.throttled.Before(h.silent) {
		h.darken(now)
	}
	if now.Sub(h.full) >= crowdAfter && h.throttled.Sub(h.full) >= crowdAfter && now.Sub(h.throttled) <= crowdThrottle {
		h.crowded = true
	}
	h.calm(now)
}

func (h *health) calm(now time.Time) {
	if h.crowded && (now.Sub(h.tight) >= crowdCalm || now.Sub(h.throttled) >= crowdForget) {
		h.crowded = false
	}
}
