package cluster

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/storage"
)

// onOwners makes a tampering of the owner rows' writes of one member.
func onOwners(who string, f func(ctx context.Context, w storage.Write, acted bool) error) tampering {
	return func(ctx context.Context, name string, w storage.Write, acted bool) error {
		if name != who || !strings.HasPrefix(w.Entity.Row, ownerPrefix) {
			return nil
		}
		return f(ctx, w, acted)
	}
}

func TestAClaimWhoseAnswerIsLostIsReadBack(t *testing.T) {
	inCrowd(t, 8, 64, func(t *testing.T, c *crowd) {
		lost := 0
		c.setTamper(onOwners("a", func(_ context.Context, w storage.Write, acted bool) error {
			if acted && lost < 1 {
				lost++
				return errNoAnswer
			}
			return nil
		}))
		a := c.join("a")
		v := c.settle(5 * time.Second)
		if lost != 1 || v.Owners[0].Epoch != 1 || a.trusted() != 64 {
			t.Errorf("lost %d, epoch %d, trusted %d", lost, v.Owners[0].Epoch, a.trusted())
		}
	})
}

func TestAClaimThatLandsAfterItWasGivenUpIsAdoptedWithAnotherEpoch(t *testing.T) {
	inCrowd(t, 8, 64, func(t *testing.T, c *crowd) {
		// For a while each claim gets no answer before it is given up, and none
		// acts; but then the first of them still lands.
		var mu sync.Mutex
		var first storage.Write
		until := time.Now().Add(time.Minute)
		c.setTamper(onOwners("a", func(ctx context.Context, w storage.Write, _ bool) error {
			mu.Lock()
			if first.Entity.Row == "" {
				first = w
			}
			mu.Unlock()
			if time.Now().After(until) {
				return nil
			}
			<-ctx.Done()
			return errNoAnswer
		}))
		a := c.join("a")
		time.Sleep(30 * time.Second)
		mu.Lock()
		landing := first
		mu.Unlock()
		if landing.Entity.Row == "" || a.trusted() != 0 || len(a.held()) != 0 {
			t.Fatalf("claimed %q, trusted %d, held %d", landing.Entity.Row, a.trusted(), len(a.held()))
		}
		must(t, errOf(c.table("late").Write(t.Context(), landing)))
		time.Sleep(time.Until(until) - time.Second)
		if a.trusted() != 0 || c.load().Owners[0].Instance != "a" {
			t.Errorf("trusts %d that it had given up", a.trusted())
		}
		time.Sleep(10 * time.Second)
		v := c.settle(5 * time.Second)
		if v.Owners[0].Epoch != 2 || a.trusted() != 64 {
			t.Errorf("epoch %d, trusted %d", v.Owners[0].Epoch, a.trusted())
		}
	})
}

func TestAClaimAnsweredAfterTrustEndedIsNotTrusted(t *testing.T) {
	inCrowd(t, 8, 64, func(t *testing.T, c *crowd) {
		p := c.join("a")
		c.settle(5 * time.Second)
		synctest.Wait() // a beat that is answered in this instant would renew the trust
		p.mu.Lock()
		p.trustEnds = time.Now()
		p.endLocked(3, ErrSegmentLost)
		p.mu.Unlock()
		if p.take([]change{{3, Owner{}, Owner{"a", p.incarnation, 9}}}) || p.Trusted(3) {
			t.Error("a claim is trusted without trust")
		}
	})
}

func TestAnEntryThatNamesAMemberWhoDoesNotHoldItIsAdoptedOrReleased(t *testing.T) {
	inCrowd(t, 8, 64, func(t *testing.T, c *crowd) {
		a, _, v := c.joinTwo(5 * time.Second)
		time.Sleep(20 * time.Second)
		me := v.Members[v.Index("a")]
		var own, others uint32
		for s := range uint32(64) {
			if m, _ := v.OwnerOf(s); m.Instance == "a" {
				own = s
			} else {
				others = s
			}
		}
		hold, _ := a.Hold(own)
		c.set(own, Owner{"a", me.Incarnation, 7})    // as if a claim had landed late
		c.set(others, Owner{"a", me.Incarnation, 9}) // over b's entry, which b gives up for lost
		time.Sleep(7 * time.Second)
		v = c.settle(5 * time.Second)
		if hold.Context().Err() == nil {
			t.Error("the hold of another epoch lives")
		}
		now, ok := a.Hold(own)
		if v.Owners[own].Epoch != 8 || !ok || now.Epoch != 8 {
			t.Errorf("entry %+v, hold %+v", v.Owners[own], now)
		}
		if m, _ := v.OwnerOf(others); m.Instance != "b" || v.Owners[others].Epoch != 10 {
			t.Errorf("entry %+v", v.Owners[others])
		}
	})
}

// puppet is a member that beats as it is told.
type puppet struct {
	crowd *crowd
	row   row.Row[memberRow]
	v     row.Version[memberRow]
	stop  chan struct{}
}

func (c *crowd) puppet(name string, holds SegmentSet) *puppet {
	p := &puppet{crowd: c, row: memberRowOf(c.table(name), "city", name, time.Second), stop: make(chan struct{})}
	p.v.Value = memberRow{
		Member: Member{Instance: name, Incarnation: "puppet", Role: RoleProcessor, Holds: holds, Report: Report{Waiting: "strings"}},
		Times:  row.Times{Beat: 5 * time.Second, Lease: 20 * time.Second, Margin: 3 * time.Second},
	}
	p.beat()
	go func() {
		for {
			select {
			case <-p.stop:
				return
			case <-time.After(5 * time.Second):
				p.beat()
			}
		}
	}()
	return p
}

func (p *puppet) beat() {
	next := p.v.Value
	next.beats++
	v, err := p.row.TryWrite(context.Background(), p.v, next)
	if err != nil {
		p.crowd.t.Errorf("%s was evicted or cannot beat: %v", next.Instance, err)
		return
	}
	p.v = v
}

func TestAnEntryOfALiveMemberThatDoesNotListItIsClaimableAfterALease(t *testing.T) {
	inCrowd(t, 8, 64, func(t *testing.T, c *crowd) {
		var lists SegmentSet
		lists = lists.with(5)
		z := c.puppet("z", lists)
		defer close(z.stop)
		c.set(5, Owner{"z", "puppet", 40}) // listed
		c.set(6, Owner{"z", "puppet", 50}) // not listed
		a := c.join("a")
		if after := a.claims(6); after < 20*time.Second || after > 35*time.Second {
			t.Errorf("claimed after %v", after)
		}
		time.Sleep(time.Minute)
		v := c.load()
		if v.Owners[5] != (Owner{"z", "puppet", 40}) || v.Owners[6].Instance != "a" || v.Owners[6].Epoch != 51 || a.Trusted(5) {
			t.Errorf("entries %+v %+v", v.Owners[5], v.Owners[6])
		}
	})
}

// claims waits until the member has the segment, and says how long that took.
func (m *testMember) claims(segment uint32) time.Duration {
	begun := time.Now()
	for !m.Trusted(segment) {
		time.Sleep(100 * time.Millisecond)
		if time.Since(begun) > time.Minute {
			m.crowd.t.Fatal("never claimed")
		}
	}
	return time.Since(begun)
}

func TestASegmentThatItsOwnerToBeDoesNotClaimIsAnyonesAfterALease(t *testing.T) {
	inCrowd(t, 8, 64, func(t *testing.T, c *crowd) {
		a := c.join("a")
		c.settle(5 * time.Second)
		b := c.join("b")
		c.settle(5 * time.Second)
		// b can write its member row only; what a gives up for it stays vacant.
		c.setTamper(onOwners("b", func(context.Context, storage.Write, bool) error {
			return &storage.Error{Code: storage.Auth, Op: "write", Account: "north", Object: "row", Index: -1}
		}))
		var s uint32
		for !b.Trusted(s) {
			s++
		}
		c.set(s, Owner{Epoch: 30})
		if after := a.claims(s); after < 20*time.Second || after > 30*time.Second {
			t.Errorf("claimed by another after %v", after)
		}
	})
}

func TestSegmentsThatNobodyOwnsForTwoLeasesAreAnAlarmAMinute(t *testing.T) {
	inCrowd(t, 8, 64, func(t *testing.T, c *crowd) {
		c.setTamper(onOwners("a", func(context.Context, storage.Write, bool) error {
			return &storage.Error{Code: storage.Auth, Op: "write", Account: "north", Object: "row", Index: -1}
		}))
		a := c.join("a")
		time.Sleep(39 * time.Second)
		alarms := func() int { return strings.Count(c.logged(), "segments have no owner") }
		proof.Same(t, alarms(), 0, "an alarm before two leases")
		time.Sleep(7 * time.Second)
		if n, longest := a.Unowned(); n != 64 || longest < 45*time.Second || longest > 47*time.Second || alarms() != 1 {
			t.Errorf("%d unowned for %v, %d alarms", n, longest, alarms())
		}
		time.Sleep(10 * time.Minute)
		if n := alarms(); n < 9 || n > 11 {
			t.Errorf("%d alarms in ten minutes", n)
		}
		c.setTamper(nil)
		time.Sleep(10 * time.Second)
		if n, longest := a.Unowned(); n != 0 || longest != 0 || a.trusted() != 64 {
			t.Errorf("%d unowned for %v, %d trusted", n, longest, a.trusted())
		}
	})
}

func TestAMemberWhoseRowCannotBeReadIsEvictedWhenItIsSilentAndItsSegmentsAreClaimed(t *testing.T) {
	for name, spoilt := range map[string]struct {
		property string
		value    any
	}{
		"another type":    {"Role", int64(3)},
		"a newer format":  {"Format", int64(2)},
		"a lease of days": {"Lease", int64(240 * time.Hour)},
	} {
		t.Run(name, func(t *testing.T) {
			inCrowd(t, 8, 64, func(t *testing.T, c *crowd) {
				_, b, _ := c.joinTwo(5 * time.Second)
				// Of a member that is gone, or its own next beat would find out.
				c.isolate("a")
				c.spoil("present.a", spoilt.property, spoilt.value)
				d := c.join("d")
				time.Sleep(20 * time.Second)
				early := c.load()
				if i := early.Index("a"); i < 0 || early.Members[i].Err == nil || !strings.Contains(fmt.Sprint(early.Damaged), "present.a") {
					t.Fatalf("a is %v, damaged %v", i, early.Damaged)
				}
				proof.Same(t, b.trusted()+d.trusted(), 32, "while a may live, of b", b.trusted(), "are trusted")
				time.Sleep(40 * time.Second)
				after := c.load()
				if after.Index("a") >= 0 || b.trusted()+d.trusted() != 64 {
					t.Errorf("a is at %d, b trusts %d, d trusts %d", after.Index("a"), b.trusted(), d.trusted())
				}
				if !strings.Contains(c.logged(), "city/present.a") {
					t.Error("the log does not name the row")
				}
			})
		})
	}
}

// A member of a newer program: nothing is known of its row but that it is written.
func TestAMemberOfANewerFormatLivesWhileItBeatsAndForItsOwnLease(t *testing.T) {
	inCrowd(t, 8, 64, func(t *testing.T, c *crowd) {
		_, b, _ := c.joinTwo(5 * time.Second)
		c.isolate("a")
		c.spoil("present.a", "Format", int64(2))
		c.spoil("present.a", "Lease", int64(2*time.Minute))
		for beat := range 60 {
			time.Sleep(5 * time.Second)
			c.spoil("present.a", "News", int64(beat))
		}
		if v := c.load(); v.Index("a") < 0 || b.trusted() != 32 {
			t.Fatalf("after five minutes of beats a is at %d, b trusts %d", v.Index("a"), b.trusted())
		}
		time.Sleep(100 * time.Second)
		if v := c.load(); v.Index("a") < 0 || b.trusted() != 32 {
			t.Fatalf("within its own lease a is at %d, b trusts %d", v.Index("a"), b.trusted())
		}
		time.Sleep(time.Minute)
		if v := c.load(); v.Index("a") >= 0 || b.trusted() != 64 {
			t.Fatalf("after its own lease a is at %d, b trusts %d", v.Index("a"), b.trusted())
		}
	})
}

func TestAMemberWhoseOwnRowWasDamagedJoinsAnewWhenThatRowHasBeenSilent(t *testing.T) {
	inCrowd(t, 8, 64, func(t *testing.T, c *crowd) {
		a := c.join("a")
		c.settle(5 * time.Second)
		c.spoil("present.a", "Format", int64(2))
		time.Sleep(time.Minute)
		if v := c.load(); len(v.Damaged) != 0 || a.trusted() != 64 {
			t.Errorf("damaged %v, trusted %d", v.Damaged, a.trusted())
		}
	})
}

func TestADamagedOwnerRowIsLeftAsItIsAndTheOthersGoOn(t *testing.T) {
	inCrowd(t, 32, 1024, func(t *testing.T, c *crowd) {
		a := c.join("a")
		c.settle(5 * time.Second)
		good := c.load().owners[0]
		c.spoil("owner.0000", "Owners0", []byte("\x01garbage"))
		b := c.join("b")
		time.Sleep(time.Minute)
		v := c.load()
		if len(v.Damaged) != 1 || !strings.Contains(v.Damaged[0].Error(), "city/owner.0000") || v.Settled() {
			t.Errorf("damaged %v", v.Damaged)
		}
		for s := range uint32(512) {
			if !a.Trusted(s) {
				t.Fatalf("segment %d of the damaged row is not held any more", s)
			}
		}
		if b.trusted() == 0 || a.trusted()+b.trusted() != 1024 {
			t.Errorf("a trusts %d, b %d", a.trusted(), b.trusted())
		}
		e, err := c.table("x").Read(t.Context(), "city", "owner.0000")
		if err != nil || string(e.Properties["Owners0"].([]byte)) != "\x01garbage" {
			t.Errorf("the damaged row was written: %v", err)
		}
		c.spoil("owner.0000", "Owners0", encodeOwners(good.Value)["Owners0"])
		time.Sleep(10 * time.Second)
		proof.Same(t, shares(c.settle(30*time.Second)), "a:512 b:512", "shares after the repair")
	})
}

func TestAnOwnRowThatSomebodyWroteMeansToJoinAnew(t *testing.T) {
	inCrowd(t, 8, 64, func(t *testing.T, c *crowd) {
		a := c.join("a")
		v := c.settle(5 * time.Second)
		was := v.Members[0].Incarnation
		w := storage.Write{Mode: storage.Remove, Entity: storage.Entity{Partition: "city", Row: "present.a"}}
		must(t, errOf(c.table("x").Write(t.Context(), w)))
		time.Sleep(10 * time.Second)
		v = c.settle(5 * time.Second)
		if v.Members[0].Incarnation == was || v.Owners[0].Epoch != 2 || a.trusted() != 64 {
			t.Errorf("incarnation %s after %s, epoch %d, trusted %d", v.Members[0].Incarnation, was, v.Owners[0].Epoch, a.trusted())
		}
	})
}
