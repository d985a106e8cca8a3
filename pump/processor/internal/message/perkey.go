package message

import (
	"cmp"
	"slices"
	"time"

	"github.com/queuepump/queuepump/pump"
)

const (
	// stayAhead is for how long tasks of a key that is over its limit are held in hand: without a
	// renewal of their message, and so that a message that comes back a little late finds the key at
	// work. stayMost is the same for the other tasks of a message that has begun: to put them back and
	// get them again would cost more than renewals.
	stayAhead, stayMost = 10 * time.Second, time.Minute
	// putOffMost bounds for how long tasks are put back: a limit that is raised is felt after that.
	putOffMost = time.Hour
	// mostHeld bounds the tasks that are held, and heldPart which part of MaxBytes their messages take.
	mostHeld, heldPart = 1 << 15, 4
	// mostKeys bounds the keys that are counted. Without room first the turns of what was put back are
	// forgotten, and then tasks of further keys are put back.
	mostKeys = 1 << 17
	// firstMean is how long handlers are taken to be at work before one has ended.
	firstMean = 100 * time.Millisecond
	topKeys   = 5
)

// keyLimits count the work on each key and hold back what is over the limits. Backlog.Mu guards all.
type keyLimits struct {
	b       *Backlog
	of      pump.PerKey
	keys    map[string]*Key
	holds   map[uint32]keyHold // by segment
	running map[uint32]int     // tasks in handlers, by segment
	due     []*Key             // whose first held task may be started now
	held    int                // tasks
	bytes   int64              // of messages with such tasks
	sweep   int                // how many keys there are when idle ones are forgotten next
	swept   time.Time
}

// keyHold is since when tasks of a segment are met under an epoch.
type keyHold struct {
	epoch uint64
	since time.Time
}

// Key is what is counted of one key.
type Key struct {
	name    string
	segment uint32
	epoch   uint64    // of the hold under which it was met last
	running int       // tasks in handlers
	full    time.Time // when its bucket is full again (the theoretical arrival time of GCRA)
	booked  time.Time // up to then turns are given to tasks that were put back
	mean    float64   // seconds that its handlers are at work, lately
	held    []heldTask
	armed   bool          // it is due, or a timer says when
	last    visit         // of which a task was started or held last
	put     visit         // and put off last, ...
	off     time.Duration // for so long
}

// heldTask is a task by its place in the order of starting.
type heldTask struct {
	d     *Delivery
	place int
}

// visit is one delivery of a message.
type visit struct {
	id string
	n  int64
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
			b: b, keys: map[string]*Key{}, holds: map[uint32]keyHold{}, running: map[uint32]int{},
		}
	}
	b.keys.of = of
	now := time.Now()
	for _, s := range b.keys.keys {
		b.keys.arm(s, now)
	}
}

// each is the least time between two starts of a key by the rate; 0: any.
func (l *keyLimits) each() time.Duration {
	if l.of.Rate == 0 {
		return 0
	}
	return time.Duration(float64(time.Second) / l.of.Rate)
}

// interval is the time between two starts of a key that has always tasks.
func (l *keyLimits) interval(s *Key) time.Duration {
	if l.of.Concurrent == 0 {
		return l.each()
	}
	mean := cmp.Or(s.mean, l.b.Took, firstMean.Seconds()) / float64(l.of.Concurrent)
	return max(l.each(), time.Duration(mean*float64(time.Second)))
}

// turn is from when on the rate allows the next start. The bucket holds what may be started in a
// second, one task at least.
func (l *keyLimits) turn(s *Key) time.Time {
	return s.full.Add(-max(0, time.Second-l.each()))
}

// may reports whether a task of a key may be started now.
func (l *keyLimits) may(s *Key, now time.Time) bool {
	return (l.of.Concurrent == 0 || s.running < l.of.Concurrent) &&
		(l.of.Rate == 0 || !l.turn(s).After(now))
}

// start counts a task that is started now.
func (l *keyLimits) start(s *Key, now time.Time) {
	s.running++
	l.running[s.segment]++
	if l.of.Rate > 0 {
		s.full = later(s.full, now).Add(l.each())
	}
}

// end gives a start back: its handler has returned, however it did.
func (l *keyLimits) end(s *Key, took time.Duration, now time.Time) {
	s.running--
	if l.running[s.segment]--; l.running[s.segment] == 0 {
		delete(l.running, s.segment)
	}
	if is := took.Seconds(); is > 0 {
		s.mean += (is - cmp.Or(s.mean, is)) / 16
		s.mean = cmp.Or(s.mean, is)
	}
	l.arm(s, now)
}

// arm has the first held task of a key started when it may be.
func (l *keyLimits) arm(s *Key, now time.Time) {
	full := l.of.Concurrent > 0 && s.running >= l.of.Concurrent
	if s.armed || len(s.held) == 0 || full {
		return
	}
	s.armed = true
	if wait := l.turn(s).Sub(now); l.of.Rate > 0 && wait > 0 {
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

// takeDue starts the first held task of the first key that is due. It is false if there is none.
func (l *keyLimits) takeDue(now time.Time) (t Turn, ok bool) {
	s := l.due[0]
	l.due[0], l.due, s.armed = nil, l.due[1:], false
	if len(s.held) == 0 || !l.may(s, now) {
		l.arm(s, now)
		return Turn{}, false
	}
	h := s.held[0]
	s.held[0], s.held = heldTask{}, s.held[1:]
	l.unhold(h.d, 1)
	l.start(s, now)
	l.arm(s, now)
	return Turn{D: h.d, From: h.place, To: h.place + 1, At: now, Key: s}, true
}

// admit decides about a task that comes up: it is started, or put off by t.Off, or held. It is false
// for a task that is held.
func (l *keyLimits) admit(t *Turn) (ok bool) {
	d, now := t.D, t.At
	task := &d.Tasks[d.At(t.From)]
	if len(task.Key) == 0 {
		return true
	}
	s, v := l.key(task.Key, d, now), visit{d.ID, d.Dequeued}
	if s == nil {
		t.Off = stayAhead
		return true
	}
	if len(s.held) == 0 && l.may(s, now) {
		l.start(s, now)
		s.last, t.Key = v, s
		return true
	}
	each := l.interval(s)
	wait := time.Duration(len(s.held)) * each
	wait += max(each, l.turn(s).Sub(now))
	most := stayAhead
	switch {
	case l.b.exclusive != nil:
		most = 0 // the others would wait with it
	case s.last == v:
		most = stayMost
	case d.Dequeued <= 1 && s.booked.After(now.Add(stayAhead)):
		most = 0 // those that were put back go first
	}
	if wait <= most && l.held < mostHeld && l.bytes <= l.b.maxBytes/heldPart {
		l.hold(s, d, t.From)
		s.last = v
		l.arm(s, now)
		return false
	}
	if s.put != v { // all tasks of the message come back together, a little early
		s.booked = later(s.booked, now.Add(wait))
		s.put, s.off = v, min(max(s.booked.Sub(now)-stayAhead/2, time.Second), putOffMost)
	}
	if s.booked = s.booked.Add(each); s.booked.After(now.Add(putOffMost)) {
		s.booked = now.Add(putOffMost)
	}
	t.Off = s.off
	return true
}

// key gives what is counted of a key, nil without room. After each change of the owner the bucket
// begins empty, because the last owner may have started what a full one holds.
func (l *keyLimits) key(name []byte, d *Delivery, now time.Time) *Key {
	segment := d.Header.Segment
	hold := l.holds[segment]
	if hold.since.IsZero() || hold.epoch < d.Epoch {
		hold = keyHold{d.Epoch, now}
		l.holds[segment] = hold
	}
	s := l.keys[string(name)]
	switch {
	case s == nil && len(l.keys) >= max(l.sweep, 1024) && !l.forget(now):
		return nil
	case s == nil:
		s = &Key{name: string(name), segment: segment}
		l.keys[s.name] = s
	case s.epoch >= hold.epoch:
		return s
	}
	s.epoch = hold.epoch
	s.full = later(s.full, hold.since.Add(max(time.Second, l.each())))
	return s
}

// forget makes room: it forgets the keys that are as if they had never been met. It reports whether
// there is room.
func (l *keyLimits) forget(now time.Time) bool {
	for _, booked := range []bool{true, false} {
		if full := len(l.keys) >= mostKeys; booked && full && now.Sub(l.swept) < time.Second {
			return false
		} else if !booked && !full {
			break
		}
		for name, s := range l.keys {
			if s.running == 0 && len(s.held) == 0 && !s.full.After(now) &&
				!(booked && s.booked.After(now)) {
				delete(l.keys, name)
			}
		}
		l.swept = now
	}
	l.sweep = min(2*len(l.keys), mostKeys)
	return len(l.keys) < mostKeys
}

// hold takes a task into hand until its turn. Its message is kept meanwhile as if it were at work.
func (l *keyLimits) hold(s *Key, d *Delivery, place int) {
	s.held = append(s.held, heldTask{d, place})
	if n := len(d.slot.keys); n == 0 || d.slot.keys[n-1] != s {
		d.slot.keys = append(d.slot.keys, s)
	}
	if d.slot.held == 0 {
		d.slot.heldBytes = d.slot.weight
		l.bytes += d.slot.heldBytes
	}
	d.slot.held++
	l.held++
	d.Delayed = true
	d.Started.Store(true)
}

func (l *keyLimits) unhold(d *Delivery, n int) {
	l.held -= n
	if d.slot.held -= n; d.slot.held > 0 {
		return
	}
	l.bytes -= d.slot.heldBytes
	d.slot.keys = nil
	if d.slot.unstarted == 0 {
		d.slot.place = nowhere
	}
}

// drop takes all held tasks of a message out, and says how many these were.
func (l *keyLimits) drop(d *Delivery) (n int) {
	if l == nil || d.slot.held == 0 {
		return 0
	}
	for _, s := range d.slot.keys {
		s.held = slices.DeleteFunc(s.held, func(h heldTask) bool { return h.d == d })
	}
	n = d.slot.held
	l.unhold(d, n)
	return n
}

// holding lists the messages with held tasks, some more than once.
func (l *keyLimits) holding() (ds []*Delivery) {
	if l == nil {
		return nil
	}
	for _, s := range l.keys {
		for i, h := range s.held {
			if i == 0 || s.held[i-1].d != h.d {
				ds = append(ds, h.d)
			}
		}
	}
	return ds
}

// Running is how many handlers of a segment's keys are at work that must not be so beside the next
// owner's.
func (b *Backlog) Running(segment uint32) int {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	if b.keys == nil || b.keys.of.Concurrent == 0 {
		return 0
	}
	return b.keys.running[segment]
}

// KeysOver says which keys are over their limits; nil without limits.
func (b *Backlog) KeysOver() *pump.KeysOver {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	if b.keys == nil {
		return nil
	}
	now, all := time.Now(), &pump.KeysOver{Top: []pump.KeyOver{}}
	for _, s := range b.keys.keys {
		each := b.keys.interval(s)
		wait := max(s.booked.Sub(now), time.Duration(len(s.held))*each)
		if wait <= 0 {
			continue
		}
		k := pump.KeyOver{Key: s.name, Tasks: len(s.held), WaitSeconds: wait.Seconds()}
		if each > 0 {
			k.Tasks = max(k.Tasks, int(wait/each))
		}
		all.Keys++
		all.Tasks += k.Tasks
		all.WaitSeconds = max(all.WaitSeconds, k.WaitSeconds)
		at, _ := slices.BinarySearchFunc(all.Top, k, func(a, b pump.KeyOver) int {
			return cmp.Or(cmp.Compare(b.WaitSeconds, a.WaitSeconds), cmp.Compare(a.Key, b.Key))
		})
		if at < topKeys {
			all.Top = slices.Insert(all.Top, at, k)
			all.Top = all.Top[:min(len(all.Top), topKeys)]
		}
	}
	return all
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
