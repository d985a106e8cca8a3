package distributor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/logs"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor/internal/pack"
	"github.com/queuepump/queuepump/pump/internal/closing"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/source"
	"github.com/queuepump/queuepump/shardmap"
)

// A post with a key goes this way ("Posts with keys" in docs/protocols.md): the run numbers its
// tasks, its row is written with those of other posts, and only then the tasks are packed. If the
// key is known, the tasks are put under the numbers of its row, and the run's own numbers are given
// up by tombstones: a run with a hole would never be complete.

const (
	// keysPerSecond is how many posts with keys a sender takes: a process writes a row for each.
	keysPerSecond = 5000
	// keysHeld bounds the bytes of posts that wait for their rows.
	keysHeld = 64 << 20
)

// keys are the posts with keys of a sender.
type keys struct {
	keep time.Duration // 0: it takes none
	pace *rate.Limiter

	mu    sync.Mutex // guards what follows
	under map[string]*post
	held  int // bytes of these posts
}

// keepKeys has a sender take keys.
func (s *Sender) keepKeys(keep time.Duration) error {
	if keep == 0 {
		return nil
	}
	if retained := s.d.cfg.Retention; keep < time.Minute || keep > retained {
		return pump.Invalid("keep-keys", fmt.Sprintf("%v is out of range", keep),
			fmt.Sprintf("use 1m to %v, the retention", retained))
	}
	s.d.mode = closing.ModePosts
	s.keys.keep, s.keys.under = keep, map[string]*post{}
	s.keys.pace = rate.NewLimiter(keysPerSecond, keysPerSecond/10)
	return nil
}

// once sends a post with a key, and gives the post that does: another with the key may be under
// way.
func (s *Sender) once(ctx context.Context, key string, p *post) (*post, error) {
	k := &s.keys
	if k.keep == 0 {
		return p, pump.Invalid("keep-keys", "this sender takes no keys", "set how long they are kept")
	}
	p.row = workload.Posted{Key: workload.KeyOf(key), Print: p.print(), Keep: k.keep}
	for i := range p.batch {
		p.batch[i].Receipt = keyedLine{&p.lines[i]}
	}
	size := 0
	for i := range p.batch {
		size += len(p.batch[i].Key) + len(p.batch[i].Body) + 256
	}
	k.mu.Lock()
	first := k.under[p.row.Key]
	if first == nil && (k.held+size > keysHeld || !k.pace.Allow()) {
		k.mu.Unlock()
		return p, ErrManyKeys
	}
	if first == nil {
		k.under[p.row.Key], k.held = p, k.held+size
	}
	k.mu.Unlock()
	if first != nil {
		if !bytes.Equal(first.row.Print, p.row.Print) {
			return p, ErrOtherTasks
		}
		return first, first.wait(ctx, &intake{})
	}
	in, err := s.handIn(ctx, p.batch)
	if err != nil {
		p.end(err)
		in = &intake{}
	}
	go func() { // the caller may not wait for its end
		_ = p.wait(context.Background(), in)
		k.mu.Lock()
		defer k.mu.Unlock()
		delete(k.under, p.row.Key)
		k.held -= size
	}()
	return p, p.wait(ctx, in)
}

// keyedLine is the receipt of a task that comes to the reader twice.
type keyedLine struct{ *postLine }

// Number is [pack.Reserved].
func (l keyedLine) Number() (n uint64, has bool) { return l.n, l.has }

// Take is [pack.Reserved].
func (l keyedLine) Take(segment uint32, n uint64) {
	l.segment, l.n, l.has = segment, n, true
	l.of.numbered()
}

// numbered notes that a line has its number, or was refused. The reader of the run calls it.
func (p *post) numbered() {
	if p.took++; p.took == len(p.lines) {
		p.in.gather(p)
	}
}

// posts are the posts with keys of one run.
type posts struct {
	of      atomic.Pointer[run]
	under   atomic.Int64  // numbered, and not handed back to the reader
	settled chan struct{} // capacity 1: one less is
	used    atomic.Bool   // some number was given
	failing logs.Limited  // writes of rows are
	damaged atomic.Value  // why the run must not be sealed: the error of a row

	mu      sync.Mutex // guards waiting
	waiting []*post    // for their rows, as they were numbered
}

// arrives looks at a batch that the reader has got.
func (i *intake) arrives(batch []source.Record) {
	if l, is := batch[0].Receipt.(*postLine); is && l.of.free {
		i.seat(l.of)
	}
	if l, is := batch[0].Receipt.(keyedLine); is && !l.has {
		l.of.in = i
		if l.of.free {
			i.seat(l.of)
		}
		i.posts.used.Store(true)
		i.posts.under.Add(1)
	}
}

// gather has the row of a post written together with those of the posts of the next moment.
func (i *intake) gather(p *post) {
	i.posts.mu.Lock()
	defer i.posts.mu.Unlock()
	if i.posts.waiting = append(i.posts.waiting, p); len(i.posts.waiting) == 1 {
		go i.write()
	}
}

// write writes the rows of the posts that were gathered, and hands their tasks back to the reader:
// in the order of their numbers, so that they share messages. A slow partition holds up its own
// posts.
func (i *intake) write() {
	linger := i.sender.d.opts.SealAge
	waits.Wait(i.ctx, linger)
	i.posts.mu.Lock()
	all := i.posts.waiting
	i.posts.waiting = nil
	i.posts.mu.Unlock()
	of, rows := map[string]int{}, make([]*workload.Posted, len(all))
	for n, p := range all {
		p.row.Run, p.row.Firsts = i.posts.of.Load().id, p.firsts()
		of[p.row.Key], rows[n] = n, &p.row
	}
	parts := workload.DividePosted(rows)
	written := make(chan []int, len(parts))
	for _, part := range parts {
		go func() { written <- i.writePart(part, all, of) }()
	}
	var ready []int
	var late <-chan time.Time
	for left := len(parts); left > 0; {
		select {
		case more := <-written:
			left--
			if ready = append(ready, more...); late == nil {
				late = time.After(linger)
			}
		case <-late:
			i.release(all, ready)
			ready, late = nil, nil
		}
	}
	i.release(all, ready)
}

// writePart writes the rows of one partition, and says which posts are to be put. It goes on until
// it knows which rows are there, or one is damaged: in a run that is sealed without the tasks of a
// row, a repeat would take them for put.
func (i *intake) writePart(part []*workload.Posted, all []*post, of map[string]int) (ready []int) {
	d := i.sender.d
	known, err := workload.InsertPosted(i.ctx, d.fleet.Control, d.cfg.Workload, part)
	for n := uint64(0); ; n++ {
		i.posts.failing.Tell(i.ctx, d.cfg.Log, err, "the rows of keys cannot be written; trying again",
			"the rows of keys are written again")
		pause := waits.Jitter(d.cfg.Instance).Around(retryPause, "keys", part[0].Key, n)
		if err == nil || errors.Is(err, row.ErrCorrupt) || !waits.Wait(i.ctx, pause) {
			break
		}
		known, err = workload.InsertPosted(i.ctx, d.fleet.Control, d.cfg.Workload, part)
	}
	for _, posted := range part {
		p := all[of[posted.Key]]
		switch found, is := known[posted.Key]; {
		case is:
			go i.repeat(p, &found)
		case err != nil:
			err := fmt.Errorf("the row of the key could not be written: %w", err)
			p.end(err)
			if errors.Is(err, row.ErrCorrupt) { // else reading ends as well
				i.posts.damaged.Store(err)
				i.back(1, nil)
			}
		default:
			ready = append(ready, of[posted.Key])
		}
	}
	return ready
}

// release hands the tasks of posts back to the reader.
func (i *intake) release(all []*post, ready []int) {
	slices.Sort(ready)
	var batch []source.Record
	for _, n := range ready {
		for line, rec := range all[n].batch {
			if all[n].lines[line].has { // else it was refused
				batch = append(batch, rec)
			}
		}
	}
	i.back(len(ready), batch)
}

// back hands records back to the reader, with which so many posts are dealt with.
func (i *intake) back(posts int, batch []source.Record) {
	if len(batch) > 0 {
		select {
		case i.batches <- batch:
		case <-i.over:
		}
	}
	i.posts.under.Add(-int64(posts))
	waits.Signal(i.posts.settled)
}

// firsts are the numbers of the first task of each segment.
func (p *post) firsts() (firsts []uint64) {
	seen := map[uint32]bool{}
	for i := range p.lines {
		if l := &p.lines[i]; l.has && !seen[l.segment] {
			seen[l.segment] = true
			firsts = append(firsts, l.n)
		}
	}
	return firsts
}

// repeat puts the tasks of a post whose key was known.
func (i *intake) repeat(p *post, found *workload.Posted) {
	p.again = true
	made, err := i.again(p, found)
	if err != nil || len(made) == 0 {
		p.end(err)
	}
	unused, err := i.giveUp(p)
	if err != nil {
		i.posts.of.Load().log.Error("numbers of a repeated post cannot be given up", "error", err)
	}
	var batch []source.Record
	for _, m := range append(made, unused...) {
		batch = append(batch, source.Record{Receipt: pack.Ready{Message: m}})
	}
	i.back(1, batch)
}

// again makes the messages of a post under the numbers that the row of its key says; none if all of
// its tasks were acknowledged.
func (i *intake) again(p *post, found *workload.Posted) ([]*pack.Message, error) {
	d := i.sender.d
	if !bytes.Equal(found.Print, p.row.Print) {
		return nil, ErrOtherTasks
	}
	run, err := d.runs.Get(i.ctx, found.Run)
	switch {
	case errors.Is(err, pump.ErrNoRun):
		return nil, fmt.Errorf("%w: %w", ErrKeyOver, err)
	case err != nil:
		return nil, err
	case run.Sealed != nil: // a run is sealed after the last acknowledgement (P2.2)
		return nil, nil
	case !run.State.Live():
		return nil, fmt.Errorf("%w: run %s: %s", ErrKeyOver, run.ID, run.Note)
	case run.State != workload.RunOpen:
		// A sign of life of a run that no process beats for: it is not over while tasks of it are put.
		if err := d.runs.Keep(i.ctx, run.ID); errors.Is(err, pump.ErrRunState) {
			return nil, fmt.Errorf("%w: %w", ErrKeyOver, err)
		} else if err != nil {
			return nil, err
		}
	}
	r := i.posts.of.Load()
	w := d.router.Current().Workload
	tasks := make([]pack.Numbered, len(p.batch))
	next, firsts := map[uint32]uint64{}, found.Firsts
	for n := range p.batch {
		segment := shardmap.Segment(p.batch[n].Key, w.Map.Segments)
		if seat := n / seatTasks; p.free && seat < len(found.Seats) {
			segment = uint32(found.Seats[seat])
		}
		if _, is := next[segment]; !is && len(firsts) > 0 {
			next[segment], firsts = firsts[0], firsts[1:]
		} else if !is {
			return nil, fmt.Errorf("the row of the key: %w: it has too few numbers", row.ErrCorrupt)
		}
		task := p.batch[n]
		task.Key = shardmap.StoredKey(task.Key, task.Body, w.Map.Segments)
		tasks[n] = pack.Numbered{Segment: segment, N: next[segment], Task: &task}
		next[segment]++
	}
	slices.SortStableFunc(tasks, func(a, b pack.Numbered) int {
		return int(a.Segment) - int(b.Segment)
	})
	return r.read.Again(i.ctx, codec.Header{Workload: w.Name, Run: found.Run}, tasks)
}

// giveUp makes the tombstones of the numbers that a post got and does not use, if a ledger records
// what is done. No row names these numbers, so no process puts tasks under them.
func (i *intake) giveUp(p *post) (made []*pack.Message, err error) {
	d, r := i.sender.d, i.posts.of.Load()
	if !d.recordsOnce() {
		return nil, nil
	}
	numbers := map[uint32][]uint64{}
	for n := range p.lines {
		if l := &p.lines[n]; l.has {
			numbers[l.segment] = append(numbers[l.segment], l.n)
		}
	}
	for _, segment := range slices.Sorted(maps.Keys(numbers)) {
		ns := numbers[segment]
		text, err := row.NewTombstone(codec.Header{
			Version: d.router.Writes(), Workload: d.cfg.Workload, Run: r.id, Segment: segment,
			MapVersion: d.router.Current().Workload.Map.Version, Tasks: codec.MakeNSet(ns...),
		}, d.cfg.Instance, time.Now())
		if err != nil {
			return made, err
		}
		made = append(made, &pack.Message{Text: text, Segment: segment, First: ns[0], Tasks: len(ns)})
	}
	return made, nil
}
