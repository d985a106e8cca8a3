package sampling

import (
	"math"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/internal/cluster"
)

// must ends a test with an error.
var must = proof.Must

func TestWhatIsNotShownIsDividedByWhatMembersSay(t *testing.T) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		name        string
		seen        sighting
		held, later int64
		visible     int64
	}{
		{"all is shown, whatever members say", sighting{messages: 30, visible: 20, hidden: 10}, 500, 0, 20},
		{"the count less what they hold and have put back", sighting{messages: 1000, rest: 1000, seen: 1}, 100, 50, 850},
		{"what is hidden in other queues is theirs", sighting{messages: 1030, rest: 1000, seen: 1, visible: 20, hidden: 10}, 100, 0, 20 + 910},
		{"a beat is old: what was shown is there", sighting{messages: 100, rest: 100, seen: 1}, 300, 0, 1},
		{"more is hidden than they know", sighting{messages: 1030, rest: 1000, seen: 1, hidden: 30}, 10, 0, 1000},
		{"nothing", sighting{}, 0, 0, 0},
	} {
		if a := c.seen.backlog("a", now, c.held, c.later); a.Visible != c.visible || a.Messages != c.seen.messages || a.Oldest != 0 {
			t.Errorf("%s: %+v, want %d visible", c.name, a, c.visible)
		}
	}
	proof.Same(t, (sighting{oldest: now.Add(-time.Minute)}).backlog("a", now, 0, 0).Oldest, 60)
	ahead := sighting{oldest: now.Add(time.Minute)}
	proof.Same(t, ahead.backlog("a", now, 0, 0).Oldest, 0, "the service's clock is ahead")
}

func member(instance string, role cluster.Role, samples, waits bool) cluster.Member {
	m := cluster.Member{Instance: instance, Incarnation: instance, Role: role}
	m.Samples = samples
	if waits {
		m.Waiting = "gate"
	}
	return m
}

func TestTheFirstOfThoseThatSampleIsChosen(t *testing.T) {
	p, d := cluster.RoleProcessor, cluster.RoleDistributor
	for _, c := range []struct {
		name    string
		members []cluster.Member
		want    string
	}{
		{"the processor of rank 0", []cluster.Member{member("a", d, true, false), member("b", p, true, false), member("c", p, true, false)}, "b"},
		{"not one that does not", []cluster.Member{member("b", p, false, false), member("c", p, true, false)}, "c"},
		{"a distributor without processors", []cluster.Member{member("a", d, false, false), member("b", d, true, false), member("c", d, true, false)}, "b"},
		{"not one that waits at a gate", []cluster.Member{member("a", p, true, true), member("b", p, true, false)}, "b"},
		{"none", []cluster.Member{member("a", d, false, false)}, ""},
	} {
		for _, m := range c.members {
			v := &cluster.View{Members: c.members}
			proof.Same(t, Chosen(v, m.Instance), (m.Instance == c.want), c.name, "of", m.Instance)
		}
	}
}

func TestTheRateRisesAtOnceAndFallsWhileSomethingWaits(t *testing.T) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	deletes := map[string]uint64{"a": 100, "b": 7}
	var r rates
	look := func(done map[string]uint64, waits int64) float64 {
		now = now.Add(15 * time.Second)
		v := &cluster.View{}
		for _, name := range []string{"a", "b"} {
			m := member(name, cluster.RoleProcessor, true, false)
			deletes[name] += done[name]
			m.Beat, m.Deletes = now, deletes[name]
			v.Members = append(v.Members, m)
		}
		return r.observe(v, waits, now)
	}
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 0.01 {
			t.Errorf("%s: %v a second, want %v", what, got, want)
		}
	}
	near("the first look", look(nil, 5), 0)
	near("two members", look(map[string]uint64{"a": 15, "b": 30}, 5), 3)
	near("more", look(map[string]uint64{"a": 150}, 5), 10)
	if x := look(nil, 5); x < 2 || x > 5 {
		t.Errorf("it falls to %v", x)
	}
	var fallen float64
	for range 20 {
		fallen = look(nil, 5)
	}
	if fallen > 0.1 {
		t.Errorf("after five minutes it is %v", fallen)
	}
	near("again", look(map[string]uint64{"a": 150}, 5), 10)
	idle := look(nil, 0)
	for range 20 {
		near("nothing waits", look(nil, 0), idle)
	}
}
