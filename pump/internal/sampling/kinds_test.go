package sampling

import (
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/internal/cluster"
)

func queueKind(operation string) cluster.DayKind {
	return cluster.DayKind{Service: cluster.QueueService, Operation: operation}
}

func tableKind(operation string) cluster.DayKind {
	return cluster.DayKind{Service: cluster.TableService, Operation: operation}
}

// wantKinds compares the day's counts by kind, and what is asked a minute of them; below zero: that
// is not known.
func wantKinds(t *testing.T, what string, b *books, want map[cluster.DayKind][2]float64) {
	t.Helper()
	got := map[cluster.DayKind][2]float64{}
	for k, n := range b.published().Kinds {
		perMinute := -1.0
		if n.Rate != nil {
			perMinute = math.Round(1000*60*(*n.Rate)) / 1000
		}
		got[k] = [2]float64{float64(n.Requests), perMinute}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func TestTheDaysSumByKindIsThatOfAllMembers(t *testing.T) {
	b, a, c := emptyBooks(), newParty("a", evening), newParty("c", evening)
	a.asks("alpha", 90, 10)
	c.asks("beta", 3, 0)
	b.observe(viewOf(evening, a, c), evening)
	wantKinds(t, "after one look", b, map[cluster.DayKind][2]float64{
		queueKind("get"): {62, -1}, queueKind("delete"): {31, -1}, tableKind("read"): {10, -1},
	})
	a.asks("alpha", 30, 5)
	at := evening.Add(2 * time.Minute)
	b.observe(viewOf(at, a, c), at)
	wantKinds(t, "two minutes later", b, map[cluster.DayKind][2]float64{
		queueKind("get"): {82, 10}, queueKind("delete"): {41, 5}, tableKind("read"): {15, 2.5},
	})
	p, _ := b.row(Minute(at), viewOf(at, a, c), nil)
	want := cluster.OpCounts{cluster.OpGet: 80, cluster.OpDelete: 40, cluster.OpRead: 15}
	if got := p.Accounts[0]; got.Name != "alpha" || got.DayKinds != want ||
		p.DayKinds[cluster.OpGet] != 82 {
		t.Errorf("the row has %+v, of all accounts %v", got, p.DayKinds)
	}
	next := evening.Add(4*time.Hour + time.Minute)
	a.asks("alpha", 3, 0)
	b.observe(viewOf(next, a, c), next)
	if got := b.published().Kinds; len(got) != 2 || got[queueKind("get")].Requests != 2 {
		t.Errorf("a new day: %v", got)
	}
}

// A member may not say what kind its requests are. They are in the sums as such, so that the kinds add up to what the day has cost.
func TestRequestsWhoseKindIsNotKnownAreInTheSums(t *testing.T) {
	b, a, old := emptyBooks(), newParty("a", evening), newParty("old", evening)
	old.mute = true
	a.asks("alpha", 3, 1)
	old.asks("alpha", 100, 10)
	b.observe(viewOf(evening, a, old), evening)
	old.asks("alpha", 4, 2)
	at := evening.Add(2 * time.Minute)
	b.observe(viewOf(at, a, old), at)
	want := map[cluster.DayKind][2]float64{
		queueKind("get"): {2, 0}, queueKind("delete"): {1, 0}, tableKind("read"): {1, 0},
		queueKind(""): {104, 2}, tableKind(""): {12, 1},
	}
	wantKinds(t, "beside one that does not say it", b, want)
	sum := Requests{}
	for k, n := range b.published().Kinds {
		if k.Service == cluster.TableService {
			sum.Table += n.Requests
		} else {
			sum.Queue += n.Requests
		}
	}
	if sum != b.whole() || b.cost(sum) != b.published().Cost {
		t.Errorf("%+v by kind, %+v in all", sum, b.whole())
	}
	// A row that is damaged there has no kinds.
	p, marks := b.row(Minute(at), viewOf(at, a, old), nil)
	p.DayKinds, p.Accounts[0].DayKinds = cluster.OpCounts{}, cluster.OpCounts{}
	next := newBooks(b.prices, b.limit, p, marks)
	a.asks("alpha", 6, 0)
	at = at.Add(time.Minute)
	next.observe(viewOf(at, a, old), at)
	wantKinds(t, "after a row without kinds", next, map[cluster.DayKind][2]float64{
		queueKind("get"): {
			4,
			-1,
		}, queueKind("delete"): {2, -1}, queueKind(""): {107, -1}, tableKind(""): {13, -1},
	})
}

// A full muster leaves out what a member says by account, and a row may come back as it was.
func TestWhatAMemberDoesNotSayByKindForAWhileIsNotMissing(t *testing.T) {
	b, a := emptyBooks(), newParty("a", evening)
	at := evening
	look := func(as *party) {
		at = at.Add(10 * time.Second)
		b.observe(viewOf(at, as), at)
	}
	a.asks("alpha", 300, 10)
	look(a)
	before := *a
	a.asks("alpha", 30, 1)
	less := *a
	less.m.Operations = cluster.PackOps(cluster.UnpackOps(a.m.Operations)[:1])
	look(&less) // over all accounts only
	if all, of := b.kinds.all, b.kinds.of["alpha"]; all[cluster.OpGet] != 220 ||
		of[cluster.OpGet] != 200 {
		t.Errorf("without accounts: %v, of the account %v", all, of)
	}
	look(a)
	wantSum(t, "by account again", b, Requests{Queue: 330, Table: 11})
	look(&before)
	look(a)
	wantSum(t, "a row that came back as it was", b, Requests{Queue: 330, Table: 11})
	unsaid := *a
	unsaid.m.Operations = nil
	look(&unsaid)
	a.asks("alpha", 3, 0)
	look(a)
	wantSum(t, "not said for a while", b, Requests{Queue: 333, Table: 11})
	look(newParty("idle", at)) // has asked nothing yet
	late := newParty("late", at)
	late.mute = true
	late.asks("beta", 3, 0)
	look(late)
	late.mute = false
	late.asks("beta", 3, 0)
	look(late) // what it asked before stays unknown
	proof.Same(t, b.whole().Unknown(b.kinds.all), (Requests{Queue: 6}), "of a kind that is not known")
}
