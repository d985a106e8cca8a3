package message

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/shardmap"
)

const (
	// stayAhead is for how long tasks of a key that is over its limit stay in hand: without a renewal
	// of their message, and so that a message that comes back a little late finds the key at work. If
	// tasks take longer, two stay, within stayMost. stayBegun is the same for the other tasks of a
	// message that has begun: to put them back and get them again would cost more than renewals.
	stayAhead, stayBegun, stayMost = 10 * time.Second, time.Minute, 10 * time.Minute
	// putOffMost bounds for how long tasks are put back: a limit that is raised is felt after that.
	putOffMost = time.Hour
	// mostKeys bounds the keys that are counted. Without room first the turns of what was put back are
	// forgotten, and then tasks of further keys are put back.
	mostKeys = 1 << 17
	// mostName is the longest name of a key. A longer key is counted by its beginning and a hash: so
	// many whole lines would be gigabytes.
	mostName = 256
	// firstMean is for how many seconds handlers are taken to be at work before one has ended.
	firstMean = 0.1
	topKeys   = 5
)

// keyLimits count the work on each key and hold back what is over the limits. Backlog.Mu guards
// them.
type keyLimits struct {
	b     *Backlog
	of    pump.PerKey
	began time.Time     // all times are since then
	each  time.Duration // from one start of a key to the next; 0: any
	keys  map[string]*Key
	holds map[uint32]keyHold // by segment
	due   []*Key             // whose first held task may be started now
	sweep int                // how many keys there are when idle ones are forgotten next
	swept time.Duration
}

// keyHold is since when tasks of a segment are met under an epoch.
type keyHold struct {
	epoch uint64
	since time.Duration
}

// Key is what is counted of one key.
type Key struct {
	name    string
	phase   time.Duration // no two keys are due in one instant (P9)
	epoch   uint64        // of the hold under which it was met last
	running int           // tasks in handlers
	full    time.Duration // when its bucket is full again (the theoretical arrival time of GCRA)
	out     int           // tasks that were put back and have not come again
	booked  time.Duration // all of them should have by then
	mean    float64       // seconds that its handlers are at work, lately
	held    []Turn        // in hand until they may be started
	armed   bool          // it is due, or a timer says when
}

// SetPerKey replaces the limits of each key. Handlers at work from before the first limit are not
// counted.
func (b *Backlog) SetPerKey(of pump.PerKey) {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	if b.keys == nil {
		if !of.Bounds() {
			return
		}
		b.keys = &keyLimits{
			b: b, began: b.Measured, keys: map[string]*Key{}, holds: map[uint32]keyHold{},
		}
	}
	b.keys.of, b.keys.each = of, 0
	if of.Rate > 0 {
		b.keys.each = time.Duration(float64(time.Second) / of.Rate)
	}
	for _, s := range b.keys.keys {
		b.keys.arm(s, time.Since(b.keys.began))
	}
}

// interval is the time between two starts of a key that has always tasks.
func (l *keyLimits) interval(s *Key) time.Duration {
	if l.of.Concurrent == 0 {
		return l.each
	}
	mean := cmp.Or(s.mean, l.b.Took, firstMean) / float64(l.of.Concurrent)
	return max(l.each, time.Duration(mean*float64(time.Second)))
}

// turn is from when on the rate allows the next start. The bucket holds what may be started in a
// second, one task at least.
func (l *keyLimits) turn(s *Key) time.Duration {
	if l.each == 0 {
		return 0
	}
	return s.full + s.phase - max(0, time.Second-l.each)
}

// isFull reports whether as many tasks of a key are in handlers as may be.
func (l *keyLimits) isFull(s *Key) bool {
	return l.of.Concurrent > 0 && s.running >= l.of.Concurrent
}

// start counts a task that is started now.
func (l *keyLimits) start(s *Key, now time.Duration) {
	s.running++
	s.full = max(s.full, now) + l.each
}

// end gives a start back: its handler has returned, however it did.
func (l *keyLimits) end(s *Key, took time.Duration, now time.Time) {
	s.running--
	if is := took.Seconds(); is > 0 {
		s.mean = cmp.Or(s.mean, is)
		s.mean += (is - s.mean) / 16
	}
	l.arm(s, now.Sub(l.began))
}

// arm has the first held task of a key started when it may be.
func (l *keyLimits) arm(s *Key, now time.Duration) {
	if s.armed || len(s.held) == 0 || l.isFull(s) {
		return
	}
	s.armed = true
	if wait := l.turn(s) - now; wait > 0 {
		time.AfterFunc(wait, func() {
			l.b.Mu.Lock()
			defer l.b.Mu.Unlock()
			l.ready(s)
		})
		return
	}
	l.ready(s)
}

func (l *keyLimits) ready(s *Key) {
	l.due = append(l.due, s)
	l.b.startable.Signal()
}

// take takes what comes up out of what waits. It is false if a key's limit holds that back.
func (b *Backlog) take(now time.Time) (t Turn, ok bool) {
	if b.isDue() {
		return b.keys.takeDue(now)
	}
	d := b.Runnable[0]
	t = Turn{D: d, From: d.slot.next, To: d.slot.next + 1, At: now}
	if b.batch && b.keys == nil {
		t.To = d.Starts()
	}
	n := t.To - t.From
	d.slot.next = t.To
	d.slot.unstarted -= n
	b.runnableTasks -= n
	b.Unstarted -= n
	ok = b.keys == nil || b.keys.admit(&t)
	if d.slot.unstarted == 0 {
		if d.slot.held == 0 {
			d.slot.place = nowhere
		}
		b.Runnable[0] = nil
		b.Runnable = b.Runnable[1:]
	}
	if b.mayOpen() {
		b.openable.Signal()
	}
	return t, ok
}

// takeDue starts the first held task of the first key that is due. It is false if there is none.
func (l *keyLimits) takeDue(at time.Time) (t Turn, ok bool) {
	s, now := l.due[0], at.Sub(l.began)
	l.due[0], l.due, s.armed = nil, l.due[1:], false
	if ok = len(s.held) > 0 && !l.isFull(s) && l.turn(s) <= now; ok {
		t, s.held[0], s.held = s.held[0], Turn{}, s.held[1:]
		t.At, t.Key = at, s
		unhold(t.D, 1)
		l.start(s, now)
	}
	l.arm(s, now)
	return t, ok
}

// admit decides about a task that comes up: it is started, or put off by t.Off, or stays in hand
// until its turn. Then it is false.
func (l *keyLimits) admit(t *Turn) (ok bool) {
	d, now := t.D, t.At.Sub(l.began)
	task := &d.Tasks[d.At(t.From)]
	if len(task.Key) == 0 {
		return true
	}
	s := l.key(task.Key, d, now)
	if s == nil {
		t.Off = stayAhead
		return true
	}
	if d.slot.keys == nil {
		d.slot.keys = map[*Key]time.Duration{}
	}
	if now >= s.booked {
		s.out = 0 // or they went another way
	} else if d.Dequeued > 1 {
		s.out = max(0, s.out-1)
	}
	off, begun := d.slot.keys[s]
	each := l.interval(s)
	wait := time.Duration(len(s.held))*each + l.turn(s) - now
	if l.isFull(s) {
		wait = max(wait, time.Duration(len(s.held)+1)*each)
	}
	ahead := time.Duration(s.out) * each // of those that were put back
	stay := max(stayAhead, min(2*each, stayMost))
	switch {
	case len(s.held) == 0 && !l.isFull(s) && l.turn(s) <= now:
		l.start(s, now)
		t.Key, d.slot.keys[s] = s, off
		return true
	case l.b.exclusive != nil || off > 0:
		stay = 0 // the others would wait with it, or it comes back with others
	case begun:
		stay = max(stay, stayBegun)
	case d.Dequeued <= 1 && ahead > stayAhead:
		stay = 0 // those that were put back go first
	}
	if wait <= stay && l.b.Bytes <= l.b.maxBytes/2 { // the other half is for what is not delayed
		s.held = append(s.held, *t)
		d.slot.held++
		d.slot.keys[s] = 0
		d.Delayed = true
		d.Started.Store(true) // it is kept as if it were at work
		l.arm(s, now)
		return false
	}
	if off == 0 { // a little early
		off = min(max(wait+ahead-stayAhead/2, time.Second), putOffMost)
		d.slot.keys[s] = off
		s.booked = max(s.booked, now+off+stayAhead)
	}
	s.out++
	t.Off = off
	return true
}

// key gives what is counted of a key, nil without room. After each change of the owner the bucket
// begins empty, because the last owner may have started what a full one holds.
func (l *keyLimits) key(name []byte, d *Delivery, now time.Duration) *Key {
	hold, met := l.holds[d.Header.Segment]
	if !met || hold.epoch < d.Epoch {
		hold = keyHold{d.Epoch, now}
		l.holds[d.Header.Segment] = hold
	}
	if len(name) > mostName {
		name = fmt.Appendf(nil, "%s %x", name[:mostName/2], sha256.Sum256(name))
	}
	s := l.keys[string(name)]
	switch {
	case s == nil && len(l.keys) >= max(l.sweep, 1024) && !l.forget(now):
		return nil
	case s == nil:
		s = &Key{name: string(name), phase: time.Duration(shardmap.Segment(name, 1<<20))}
		l.keys[s.name] = s
	case s.epoch >= hold.epoch:
		return s
	}
	s.epoch, s.out = hold.epoch, 0
	s.full = max(s.full, hold.since+max(time.Second, l.each))
	return s
}

// forget forgets the keys that are as if they had never been met. It reports whether there is room.
func (l *keyLimits) forget(now time.Duration) bool {
	if len(l.keys) >= mostKeys && now-l.swept < time.Second {
		return false
	}
	for name, s := range l.keys {
		if s.running == 0 && len(s.held) == 0 && s.full <= now &&
			(s.booked <= now || len(l.keys) >= mostKeys) {
			delete(l.keys, name)
		}
	}
	l.sweep, l.swept = min(2*len(l.keys), mostKeys), now
	return len(l.keys) < mostKeys
}

func unhold(d *Delivery, n int) {
	if d.slot.held -= n; d.slot.held == 0 && d.slot.unstarted == 0 {
		d.slot.place = nowhere
	}
}

// drop takes all held tasks of a message out, and says how many these were.
func drop(d *Delivery) (n int) {
	if n = d.slot.held; n > 0 {
		for s := range d.slot.keys {
			s.held = slices.DeleteFunc(s.held, func(t Turn) bool { return t.D == d })
		}
		unhold(d, n)
	}
	return n
}

// IsConcurrencyLimited reports whether the next owner of a segment must not begin beside handlers
// of this one.
func (b *Backlog) IsConcurrencyLimited() bool {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	return b.keys != nil && b.keys.of.Concurrent > 0
}

// KeysOver says which keys are over their limits.
func (b *Backlog) KeysOver() (all pump.KeysOver) {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	if b.keys == nil {
		return all
	}
	now := time.Since(b.keys.began)
	for _, s := range b.keys.keys {
		each := b.keys.interval(s)
		tasks := len(s.held)
		if s.booked > now {
			tasks += s.out
		}
		if tasks > 0 {
			wait := (time.Duration(tasks) * each).Seconds()
			all.Top = append(all.Top, pump.KeysOver{Key: s.name, Keys: 1, Tasks: tasks, WaitSeconds: wait})
			all.Tasks += tasks
			all.WaitSeconds = max(all.WaitSeconds, wait)
		}
	}
	all.Keys = len(all.Top)
	slices.SortFunc(all.Top, func(a, b pump.KeysOver) int {
		return cmp.Or(cmp.Compare(b.WaitSeconds, a.WaitSeconds), cmp.Compare(a.Key, b.Key))
	})
	all.Top = slices.Clone(all.Top[:min(all.Keys, topKeys)])
	return all
}
