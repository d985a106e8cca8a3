package queues

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/queuepump/queuepump/internal/proof"
)

// drawnAccount draws an account with its queues, and the parties of a cluster.
func drawnAccount(t *rapid.T) (*sharedAccount, []*party, Limits) {
	a := &sharedAccount{name: "a"}
	n := rapid.IntRange(1, 24).Draw(t, "members")
	var parties []*party
	puts := make([]bool, n)
	for m := range n {
		demand := rapid.OneOf(rapid.Just(0.), rapid.Just(20_000.), rapid.Float64Range(0, 20_000)).Draw(t, "demand")
		parties = append(parties, &party{name: fmt.Sprintf("p%02d", m), demand: map[string]float64{"a": demand}})
		puts[m] = rapid.Bool().Draw(t, "puts")
		if rapid.IntRange(0, 9).Draw(t, "without credentials") > 0 || m == 0 {
			a.members = append(a.members, m)
		}
	}
	queues := rapid.IntRange(0, 10).Draw(t, "queues")
	for i := range queues {
		q := sharedQueue{name: fmt.Sprintf("q%02d", i)}
		for _, m := range a.members {
			if s := rapid.IntRange(0, 20).Draw(t, "segments"); puts[m] || s > 10 {
				q.stakes = append(
					q.stakes,
					stake{member: m, puts: puts[m], segments: float64(s), part: 1 / float64(queues)},
				)
			}
		}
		a.queues = append(a.queues, q)
	}
	return a, parties, Limits{
		Account: rapid.Float64Range(1, 1e6).Draw(t, "account"),
		Queue:   rapid.Float64Range(1, 1e5).Draw(t, "queue"),
	}
}

const tiny = 1e-9 // of a limit: what adding up may lose

func TestP81TheSharesOfAllComeToTheLimitAndNeverMore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, parties, l := drawnAccount(t)
		got := a.portions(parties, l)
		for i, c := range append([]portions{got.account}, got.queues...) {
			limit, floor := l.Queue, strangerPart*l.Queue/float64(len(a.members))
			if i == 0 {
				limit, floor = l.Account, FloorPart*l.Account/float64(len(a.members))
			}
			sum := 0.
			for _, m := range a.members {
				share := c.of(m).share
				if !(share >= floor*(1-tiny)) {
					t.Errorf("member %d has %v of %v, under its floor of %v", m, share, limit, floor)
				}
				sum += share
			}
			if math.Abs(sum-limit) > limit*tiny {
				t.Errorf("%d members have %v of %v together", len(a.members), sum, limit)
			}
		}
	})
}

func TestP81NobodyHasLessThanItAsksForWhileAnotherHasMoreThanItsPart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.Float64Range(1, 1e6).Draw(t, "limit")
		n := rapid.IntRange(1, 30).Draw(t, "claims")
		var claims []claim
		for range n {
			claims = append(claims, claim{
				floor:  limit / float64(4*n) * rapid.Float64Range(0, 1).Draw(t, "floor"),
				demand: limit * rapid.OneOf(rapid.Just(0.), rapid.Just(1.), rapid.Float64Range(0, 1)).Draw(t, "demand"),
				weight: rapid.Float64Range(0.01, 2).Draw(t, "weight"),
			})
		}
		shares := divide(limit, claims)
		for i, hungry := range claims {
			if shares[i] >= hungry.demand*(1-tiny) {
				continue
			}
			for j, other := range claims {
				over := (shares[j] - other.floor) / other.weight
				if own := (shares[i] - hungry.floor) / hungry.weight; over > own+limit*1e-6 {
					t.Errorf(
						"claim %d (%+v) has %v and asks for more; claim %d (%+v) has %v", i, hungry,
						shares[i], j, other, shares[j],
					)
				}
			}
		}
	})
}

func TestP81WhoIsAloneHasTheLimitAndNotALittleLess(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, parties, l := drawnAccount(t)
		a.members = a.members[:1]
		for i := range a.queues {
			a.queues[i].stakes = slices.DeleteFunc(
				a.queues[i].stakes, func(s stake) bool { return s.member != a.members[0] },
			)
		}
		now := a.portions(parties, l)
		before := a.portions(make([]*party, len(parties)), l) // the others knew of none
		proof.Same(t, allowed(0, l.Account, &now.account, &before.account), l.Account)
		for i := range now.queues {
			proof.Same(t, allowed(0, l.Queue, &now.queues[i], &before.queues[i]), l.Queue)
		}
	})
}

func TestP9TheSharesDoNotDependOnTheOrderOfTheMembers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, parties, l := drawnAccount(t)
		turned := *a
		n := len(parties)
		mirror := func(m int) int { return n - 1 - m }
		turned.members, turned.queues = nil, slices.Clone(a.queues)
		for _, m := range a.members {
			turned.members = append(turned.members, mirror(m))
		}
		slices.Reverse(turned.members)
		for i := range turned.queues {
			turned.queues[i].stakes = slices.Clone(a.queues[i].stakes)
			for j := range turned.queues[i].stakes {
				turned.queues[i].stakes[j].member = mirror(turned.queues[i].stakes[j].member)
			}
			slices.Reverse(turned.queues[i].stakes)
		}
		other := slices.Clone(parties)
		slices.Reverse(other)
		x, y := a.portions(parties, l), turned.portions(other, l)
		for _, m := range a.members {
			if s, u := x.account.of(m).share, y.account.of(mirror(m)).share; math.Abs(s-u) > l.Account*tiny {
				t.Errorf("%v or %v of the account", s, u)
			}
			for i := range x.queues {
				if s, u := x.queues[i].of(m).share, y.queues[i].of(mirror(m)).share; math.Abs(s-u) > l.Queue*tiny {
					t.Errorf("%v or %v of a queue", s, u)
				}
			}
		}
	})
}

// While the members read the cluster one after the other, some act by the view
// before and some by the newest.
func TestP81NobodyTakesWhatAnotherMayStillBeUsing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, now, l := drawnAccount(t)
		a.queues = nil // of the account alone
		before := make([]*party, len(now))
		old := a.members[:0:0]
		for m := range now {
			if rapid.IntRange(0, 3).Draw(t, "known before") == 0 {
				continue
			}
			before[m] = &party{
				name:   now[m].name,
				demand: map[string]float64{"a": rapid.Float64Range(0, 20_000).Draw(t, "demand before")},
			}
		}
		for _, m := range a.members {
			if before[m] != nil {
				old = append(old, m)
			}
		}
		x, y := a.portions(now, l), a.portions(before, l)
		sum, floors := 0., 0.
		for _, m := range a.members {
			if before[m] != nil && rapid.Bool().Draw(t, "has not looked") {
				sum += min(y.account.of(m).share, x.account.of(m).want)
			} else {
				sum += min(allowed(m, l.Account, &x.account, &y.account), x.account.of(m).want)
			}
			floors += x.account.of(m).floor
		}
		if sum > l.Account+floors+l.Account*tiny {
			t.Errorf(
				"in use at once: %v of %v, %d of %d members known before", sum, l.Account, len(old),
				len(a.members),
			)
		}
	})
}

func TestP81WhoIsIdleLeavesItsShareToTheOthers(t *testing.T) {
	a := &sharedAccount{name: "a", members: []int{0, 1, 2}}
	demands := func(ds ...float64) (ps []*party) {
		for i, d := range ds {
			ps = append(ps, &party{name: fmt.Sprint(i), demand: map[string]float64{"a": d}})
		}
		return ps
	}
	for _, c := range []struct{ demands, want []float64 }{
		{[]float64{0, 0, 0}, []float64{100, 100, 100}},
		{[]float64{300, 300, 300}, []float64{100, 100, 100}},
		{[]float64{300, 0, 300}, []float64{137.5, 25, 137.5}},
		{[]float64{300, 40, 300}, []float64{125, 50, 125}}, // 40 and a little more
		{[]float64{40, 0, 0}, []float64{150, 75, 75}},
	} {
		got := a.portions(demands(c.demands...), Limits{Account: 300, Queue: 300})
		for m, want := range c.want {
			if s := got.account.of(m).share; math.Abs(s-want) > 1e-6 {
				t.Errorf("of 300 with demands %v member %d has %v, want %v", c.demands, m, s, want)
			}
		}
	}
}

func TestP81AQueueBelongsToItsOwnersBySegmentsAndToWhoPuts(t *testing.T) {
	a := &sharedAccount{name: "a", members: []int{0, 1, 2, 3}, queues: []sharedQueue{{name: "q", stakes: []stake{
		{member: 0, segments: 6, part: 1}, {member: 1, segments: 2, part: 1}, {member: 2, puts: true, part: 1},
	}}}}
	shares := func(ds ...float64) (out []float64) {
		var ps []*party
		for i, d := range ds {
			ps = append(ps, &party{name: fmt.Sprint(i), demand: map[string]float64{"a": d}})
		}
		got := a.portions(ps, Limits{Account: 20_000, Queue: 1600})
		for m := range 4 {
			out = append(out, math.Round(got.queues[0].of(m).share))
		}
		return out
	}
	for _, c := range []struct{ demands, want []float64 }{
		{[]float64{2000, 2000, 2000, 2000}, []float64{788, 263, 525, 25}},
		{[]float64{2000, 2000, 0, 0}, []float64{1163, 388, 25, 25}}, // an idle leader is a stranger
		{[]float64{0, 0, 2000, 0}, []float64{197, 66, 1313, 25}},
	} {
		proof.Alike(t, shares(c.demands...), c.want, "demands", c.demands)
	}
}
