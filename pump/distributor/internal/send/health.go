package send

import (
	"time"

	"github.com/queuepump/queuepump/pump/internal/waits"
)

// health is what puts have shown of one queue. It decides when the queue's
// segments may be put elsewhere (P6.3) and when they come home:
//
//	         nothing acknowledged for darkAfter, and puts failed without an answer, or were turned
//	         down, or the sink is busy, or for darkRefused, and all were throttled
//	  +------+ ---------------------------------------------------> +------+
//	  | open |                                                      | dark |
//	  +------+ <--------------------------------------------------- +------+
//	   |    ^    a probe is acknowledged, and it was held down long enough
//	   |    |
//	   v    |  no throttle for limitRecent
//	+----------+  busy for limitAfter, and throttled after that, lately
//	| at limit |  (such a queue may turn dark like an open one)
//	+----------+
//
// An open queue takes all messages of its segments. A dark queue takes only a probe every
// probeEvery: a message of one of its segments that goes there first and, if that fails, to another
// queue. Only an acknowledged message proves that the queue takes messages. A queue at its limit
// goes on taking what it can, and only what would wait there goes elsewhere. So it does not flap:
// its load does not fall when others help.
//
// A queue that turns dark again within a minute of its return is held down for a while, longer each
// time: each return costs its tasks darkAfter of waiting.
type health struct {
	dark, atLimit bool
	turned        bool // the last answer was that it takes nothing from this process
	crowded       bool // its account holds its share of the memory, and others lack it (share.hinders)

	silent     time.Time // when the first put since the last acknowledgement was sent; zero: none
	tried      time.Time // when a put was sent or failed last
	unanswered int       // puts since then that ended without an answer
	throttled  time.Time // the last one

	busy time.Time // since when as many are in flight as may be; zero: fewer, at the last look

	darkAt, openAt time.Time
	heldDown       time.Duration // for how long it stays dark despite acknowledgements
	probed         time.Time     // when the last probe ended, or the queue turned dark
	probing        bool
	probes         uint64
}

// state is a queue's state by its health: queues in a better state help it.
type state uint8

const (
	well state = iota
	limited
	dark
)

func (h *health) state() state {
	switch {
	case h.dark:
		return dark
	case h.atLimit || h.crowded:
		return limited
	}
	return well
}

// A put takes 5 to 50 ms, so five seconds of only failures are more than a hiccup, and yet short
// beside the ten seconds that a checkpoint waits for envelopes. One lost answer of a slow source
// does not make a queue dark: it takes two. A queue that only throttles does answer, and may itself
// ask for a pause of seconds.
const (
	darkAfter    = 5 * time.Second
	darkFailures = 2
	darkRefused  = 30 * time.Second
	// restAfter is longer than a message waits at a queue between two puts (putStoppedLimit).
	restAfter = 2 * time.Minute

	// A probe is one put that may be sent twice, so three seconds are cheap; these and a probe's time
	// (queues.TroubledTimeout) are how long a queue that is back stands idle.
	probeEvery  = 3 * time.Second
	againWithin = time.Minute // turning dark again within this after coming back
	holdFirst   = 15 * time.Second
	holdLongest = 5 * time.Minute

	// A lone throttle lowers the budget for 15 s (budgetCut), in which a sink is busy because of
	// that throttle. A distributor that sends as fast as accounts take has busy sinks all
	// the time, and a few throttles when an account is added: only throttles of a sink that
	// has been busy for seconds say that others should help. Every message that
	// goes elsewhere costs several deliveries, and is handled many seconds late.
	limitAfter  = 5 * time.Second
	limitRecent = 30 * time.Second
)

// sent is a put that goes out now. What failed before a rest says nothing of the queue now: the
// messages were put into other queues.
func (h *health) sent(now time.Time) {
	if h.silent.IsZero() || !h.dark && now.Sub(h.tried) >= restAfter {
		h.silent, h.unanswered, h.turned = now, 0, false
	}
	h.tried = now
}

// acknowledged is a put that was.
func (h *health) acknowledged(now time.Time) {
	h.silent, h.unanswered, h.turned = time.Time{}, 0, false
	if h.dark && now.Sub(h.darkAt) >= h.heldDown {
		h.dark, h.openAt = false, now
	}
	h.endProbe(now)
}

// lost is a put that ended without an answer, or that had no slot of its host all that time.
func (h *health) lost(now time.Time) {
	h.sent(now) // a straggler from before the last acknowledgement
	h.unanswered++
	h.turned = false
	h.endProbe(now)
	if h.unanswered >= darkFailures && now.Sub(h.silent) >= darkAfter {
		h.darken(now)
	}
}

// turnedDown is a put that was answered and not taken: the account refuses the credential or is
// disabled, or the queue is missing. An operator must mend that, and other queues help meanwhile.
func (h *health) turnedDown(now time.Time) {
	h.sent(now)
	h.turned = true
	h.endProbe(now)
	h.darkenTurned(now)
}

// darkenTurned depends on the time and not on the next put, which may be far off.
func (h *health) darkenTurned(now time.Time) {
	if h.turned && now.Sub(h.silent) >= darkAfter {
		h.darken(now)
	}
}

// refused is a put that was throttled.
func (h *health) refused(now time.Time) {
	h.sent(now)
	h.throttled = now
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
	case h.openAt.IsZero() || now.Sub(h.openAt) >= max(againWithin, h.heldDown):
		h.heldDown = 0
	default:
		h.heldDown = min(max(2*h.heldDown, holdFirst), holdLongest)
	}
	h.dark, h.darkAt, h.probed = true, now, now
}

// probe reports whether a probe of a dark queue is due, and begins it.
func (h *health) probe(now time.Time, j waits.Jitter, name string) bool {
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

// look judges the queue by whether its sink is busy: as many messages are in flight as may be.
func (h *health) look(now time.Time, busy bool) {
	h.darkenTurned(now)
	recent := now.Sub(h.throttled) < limitRecent
	if !busy {
		h.busy, h.atLimit = time.Time{}, h.atLimit && recent
		return
	}
	if h.busy.IsZero() {
		h.busy = now
	}
	// Requests to an account that hangs fail only at their deadlines. But a busy sink has many puts in
	// flight, and a service does not need so long for all of them.
	if !h.silent.IsZero() && now.Sub(h.silent) >= darkAfter && h.throttled.Before(h.silent) &&
		now.Sub(h.tried) < restAfter {
		h.darken(now)
	}
	h.atLimit = recent && (h.atLimit || h.throttled.Sub(h.busy) >= limitAfter)
}
