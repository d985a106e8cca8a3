package pump

import (
	"slices"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump/storage"
)

// others says what becomes of a message whose segment this process does not hold:
// it is brought home if that is this process's task (P6.4), else put back for its
// owner (P7). Nothing is unpacked for either, and neither is an attempt.
func (r *processing) others(d *delivery) *wholly {
	d.started.Store(true)
	if r.stopping.Load() { // it will not be here again, so others may have it now
		return &wholly{pass: true}
	}
	s := r.share.Load()
	if home := s.stray(d.shard, d.header.Segment); home != nil {
		return &wholly{forward: home}
	}
	return &wholly{pass: true, delay: s.pass(r.jitter, d.shard, d.header.Segment, d.id, d.dequeued, r.lease())}
}

// forward makes the copy of a message that goes to its segment's home. A text that
// no distributor made is wrapped, so that it keeps its identity (P1.4), if that fits.
func (r *processing) forward(d *delivery, home *shard) []poisonOrRest {
	text := slices.Clone(d.text)
	if d.foreign != "" {
		b := codec.NewBuilder(storage.MaxText - codec.DefaultHeadroom)
		b.Reset(d.header)
		if fits, err := b.Add(codec.Task{ID: []byte(d.foreign), Body: d.text}); err == nil && fits {
			if wrapped, _, err := b.Seal(nil); err == nil {
				text = wrapped
			}
		}
	}
	return []poisonOrRest{{shard: home, text: text, tasks: d.count, forward: true, segment: d.header.Segment}}
}
