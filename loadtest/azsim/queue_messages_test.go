package azsim

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// flat is the obvious message set: a slice, sorted when asked.
type flat []*message

func (f flat) visible(now int64, n int) []uint64 {
	var seqs []uint64
	ms := slices.Clone(f)
	slices.SortFunc(ms, func(a, b *message) int {
		return cmp.Or(cmp.Compare(a.visible, b.visible), cmp.Compare(a.seq, b.seq))
	})
	for _, m := range ms {
		if m.visible <= now && len(seqs) < n {
			seqs = append(seqs, m.seq)
		}
	}
	return seqs
}

// Whatever is done to it, in any order, and even if the clock jumps back, the
// message set hands out what a sorted slice would.
func TestTheMessageSetBehavesLikeASortedSlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newMessageSet()
		var f flat
		now := int64(1000)
		pick := func() *message { return rapid.SampledFrom(f).Draw(t, "message") }
		t.Repeat(map[string]func(*rapid.T){
			"time passes": func(t *rapid.T) { now += rapid.Int64Range(-3, 40).Draw(t, "by") },
			"put": func(t *rapid.T) {
				m := &message{id: drawGUID(uint64(s.seq) + 1), expires: never}
				m.visible = now + max(0, rapid.Int64Range(-20, 20).Draw(t, "delay"))
				if rapid.Bool().Draw(t, "expires") {
					m.expires = now + rapid.Int64Range(1, 200).Draw(t, "ttl")
				}
				s.add(m, now)
				f = append(f, m)
			},
			"get": func(t *rapid.T) {
				want := f.visible(now, 1)
				m := s.first(now)
				if m == nil != (len(want) == 0) || m != nil && m.seq != want[0] {
					t.Fatalf("first is %v, want %v", m, want)
				}
				if m != nil {
					m.dequeued++
					s.show(m, now+rapid.Int64Range(0, 30).Draw(t, "lease"), now)
				}
			},
			"update": func(t *rapid.T) {
				if len(f) > 0 {
					s.show(pick(), now+rapid.Int64Range(0, 30).Draw(t, "lease"), now)
				}
			},
			"delete": func(t *rapid.T) {
				if len(f) > 0 {
					m := pick()
					s.remove(m)
					f = slices.DeleteFunc(f, func(o *message) bool { return o == m })
				}
			},
			"": func(t *rapid.T) {
				s.expire(now)
				f = slices.DeleteFunc(f, func(m *message) bool { return m.expires <= now })
				if s.len() != len(f) {
					t.Fatalf("holds %d, want %d", s.len(), len(f))
				}
				var got []uint64
				n := rapid.IntRange(1, 40).Draw(t, "n")
				for _, m := range s.visible(now, n) {
					got = append(got, m.seq)
				}
				if want := f.visible(now, n); !slices.Equal(got, want) {
					t.Fatalf("visible %v, want %v", got, want)
				}
			},
		})
	})
}

// A queue that is emptied gives its array back to new messages instead of
// growing for ever.
func TestAQueueThatIsKeptShortStaysSmall(t *testing.T) {
	s := newMessageSet()
	for i := range int64(1_000_000) {
		m := &message{id: drawGUID(uint64(i)), expires: never, visible: i}
		s.add(m, i)
		if m := s.first(i); s.len() > 10 {
			s.remove(m)
		}
	}
	if n := cap(s.fifo.items); n > 4096 {
		t.Errorf("ten messages in an array of %d", n)
	}
}
