package coordination

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/testkit"
	"github.com/queuepump/queuepump/pump/storage"
)

const eightHours = 8 * time.Hour

func taskN(n uint64) TaskRef { return TaskRef{Run: testkit.RunID(1), Segment: 7, N: n} }

// claims is what one process has of the workload's claims.
func claimsOf(table storage.Table, name string, interval time.Duration) *Claims {
	return NewClaims(row.Seeded(table, testkit.SeededDraw(1, name)), "city", interval, name)
}

// mustClaim claims and wants that verdict; the time until the key may be claimed is
// `left` or little more: the clock is read back a round trip late, and local
// durations count a thousandth less.
func mustClaim(t *testing.T, c *Claims, key string, task TaskRef, want Verdict, left time.Duration) *Claim {
	t.Helper()
	claim, verdict, wait, err := c.Claim(t.Context(), []byte(key), task)
	must(t, err)
	if verdict != want || (claim != nil) != (want == Granted) {
		t.Fatalf("%s for %s: %v (%v), want %v", key, task, verdict, wait, want)
	}
	if wait < left-100*time.Millisecond || wait > left+2*time.Second+c.interval/row.ClockDrift {
		t.Errorf("%s for %s: %v, claimable in %v, want %v", key, task, verdict, wait, left)
	}
	return claim
}

func mustEnd(t *testing.T, claim *Claim, failed bool) {
	t.Helper()
	must(t, claim.Done(t.Context(), failed))
}

// reading is the key's row.
func claimRowNow(t *testing.T, table storage.Table, key string) row.Version[claimRow] {
	t.Helper()
	r, _ := claimRowOf(table, "city", []byte(key))
	v, err := r.MustRead(t.Context())
	must(t, err)
	return v
}

func TestAKeyIsDoneOnceAnInterval(t *testing.T) { // origins B2, B3
	for _, offset := range []time.Duration{0, 10 * time.Minute, -10 * time.Minute} {
		t.Run(offset.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := testkit.NewServer()
				server.Offset = offset
				server.Exists = false // the table too is made
				a, b := claimsOf(server.Client("a"), "a", eightHours), claimsOf(server.Client("b"), "b", eightHours)
				claim := mustClaim(t, a, "Bern", taskN(1), Granted, 0)
				start := time.Now()
				mustClaim(t, b, "Basel", taskN(2), Granted, 0) // another key
				time.Sleep(time.Hour)
				mustClaim(t, b, "Bern", taskN(3), Fresh, 7*time.Hour)
				time.Sleep(time.Hour)
				mustEnd(t, claim, false)
				for _, c := range []*Claims{a, b} {
					mustClaim(t, c, "Bern", taskN(4), Fresh, 6*time.Hour)
					mustClaim(t, c, "Bern", taskN(1), Fresh, 6*time.Hour) // a copy of what is done
				}
				v := claimRowNow(t, server.Client("reader"), "Bern")
				if got := v.Value.started(v.Modified); got.Before(start.Add(offset-50*time.Millisecond)) || got.After(start.Add(offset+10*time.Second)) {
					t.Errorf("start %v, want %v by the server's clock", got, start.Add(offset))
				}
				// By whatever a task is told, it is not early and hardly late.
				_, verdict, wait, err := b.Claim(t.Context(), []byte("Bern"), taskN(5))
				if err != nil || verdict != Fresh {
					t.Fatalf("%v, %v", verdict, err)
				}
				time.Sleep(wait - 15*time.Second)
				mustClaim(t, b, "Bern", taskN(5), Fresh, time.Until(start.Add(eightHours))+7*time.Second)
				time.Sleep(15 * time.Second)
				mustClaim(t, b, "Bern", taskN(5), Granted, 0)
				if late := time.Since(start) - eightHours; late < 0 || late > 20*time.Second {
					t.Errorf("granted again %v after the interval", late)
				}
			})
		})
	}
}

func TestARetryOfTheSameTaskIsNoNewTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := testkit.NewServer()
		a, b := claimsOf(server.Client("a"), "a", eightHours), claimsOf(server.Client("b"), "b", eightHours)
		mustEnd(t, mustClaim(t, a, "Bern", taskN(1), Granted, 0), true)
		time.Sleep(time.Hour)
		mustClaim(t, b, "Bern", taskN(2), Fresh, 7*time.Hour) // another task has to wait, too
		again := mustClaim(t, b, "Bern", taskN(1), Granted, 0)
		mustClaim(t, a, "Bern", taskN(1), Busy, eightHours)
		mustEnd(t, again, false)
		mustClaim(t, a, "Bern", taskN(1), Fresh, eightHours)
	})
}

func TestALockOfADeadProcessIsTakenOverAfterTheIntervalAndNotBefore(t *testing.T) { // origins B4
	for _, offset := range []time.Duration{0, 10 * time.Minute, -10 * time.Minute} {
		t.Run(offset.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sim := testkit.Simulated()
				sim.SetClockOffset(offset)
				dead := claimsOf(testkit.OverTheWire(t, sim, "dead"), "dead", eightHours)
				abandoned := mustClaim(t, dead, "Bern", taskN(1), Granted, 0)
				start := time.Now()
				// Another machine, whose clock is off by as much the other way.
				b := claimsOf(testkit.Skewed{Table: testkit.OverTheWire(t, sim, "b"), By: -offset}, "b", eightHours)
				mustClaim(t, b, "Bern", taskN(1), Busy, eightHours)
				mustClaim(t, b, "Bern", taskN(2), Fresh, eightHours)
				for {
					claim, verdict, wait, err := b.Claim(t.Context(), []byte("Bern"), taskN(1))
					must(t, err)
					if verdict == Granted {
						mustClaim(t, claimsOf(testkit.OverTheWire(t, sim, "c"), "c", eightHours), "Bern", taskN(1), Busy, eightHours)
						proof.Is(t, abandoned.Done(t.Context(), false), ErrClaimTaken, "the dead one ends it")
						mustEnd(t, claim, false)
						break
					}
					if verdict != Busy || wait <= 0 {
						t.Fatalf("%v, %v", verdict, wait)
					}
					time.Sleep(min(wait, 7*time.Minute))
				}
				// The claim's answer was half a round trip later than its stamp.
				if late := time.Since(start) - eightHours; late < -10*time.Millisecond || late > 2*time.Second {
					t.Errorf("taken over %v after the interval", late)
				}
			})
		})
	}
}

func TestARunningClaimIsGoodForTheLongerInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := testkit.NewServer()
		long, short := claimsOf(server.Client("long"), "long", eightHours), claimsOf(server.Client("short"), "short", time.Hour)
		claim := mustClaim(t, long, "Bern", taskN(1), Granted, 0)
		time.Sleep(2 * time.Hour)
		mustClaim(t, short, "Bern", taskN(2), Fresh, 6*time.Hour)
		mustEnd(t, claim, false)
		mustClaim(t, long, "Bern", taskN(2), Fresh, 6*time.Hour)
		mustClaim(t, short, "Bern", taskN(2), Granted, 0)
	})
}

func TestAnAnswerThatComesAfterTheIntervalGrantsNothing(t *testing.T) {
	testkit.OnServer(t, "me", func(t *testing.T, server *testkit.Server, client *testkit.Client) {
		c := claimsOf(client, "me", time.Second)
		r, _ := claimRowOf(client, "city", []byte("Bern"))
		client.SetFault(testkit.FaultOn("write", r.Key, 1, testkit.Fault{Delayed: 2 * time.Second}))
		claim := mustClaim(t, c, "Bern", taskN(1), Granted, 0)
		if n := client.Writes(r.Object()); n != 2 || !time.Now().Before(claim.Until) {
			t.Errorf("%d writes, good for %v", n, time.Until(claim.Until))
		}
	})
}

func TestAClaimOfUnknownOutcomeIsTheSameTasksOwn(t *testing.T) {
	testkit.OnServer(t, "a", func(t *testing.T, server *testkit.Server, client *testkit.Client) {
		a, b := claimsOf(client, "a", eightHours), claimsOf(server.Client("b"), "b", eightHours)
		r, _ := claimRowOf(client, "city", []byte("Bern"))
		client.SetFault(func(c testkit.Call) testkit.Fault {
			switch {
			case c.Op == "write" && strings.HasSuffix(c.Row, r.Key):
				return testkit.LostAnswer
			case c.Op == "read" && c.N > 1:
				return testkit.LostRequest
			}
			return testkit.Fault{}
		})
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if claim, verdict, _, err := a.Claim(ctx, []byte("Bern"), taskN(1)); !storage.Ambiguous(err) || claim != nil || verdict != 0 {
			t.Fatalf("%v, %v", verdict, err)
		}
		client.SetFault(nil)
		mustClaim(t, b, "Bern", taskN(1), Busy, eightHours-5*time.Second)
		mustClaim(t, a, "Bern", taskN(2), Fresh, eightHours-5*time.Second)
		claim := mustClaim(t, a, "Bern", taskN(1), Granted, 0) // no other goroutine of this process works on it
		mustClaim(t, a, "Bern", taskN(1), Busy, eightHours)    // now somebody does
		mustEnd(t, claim, true)
	})
}

func TestASuccessThatCannotBeRecordedIsNotDoneAgain(t *testing.T) {
	for name, failed := range map[string]bool{"success": false, "failure": true} {
		t.Run(name, func(t *testing.T) {
			testkit.OnServer(t, "a", func(t *testing.T, server *testkit.Server, client *testkit.Client) {
				a := claimsOf(client, "a", eightHours)
				claim := mustClaim(t, a, "Bern", taskN(1), Granted, 0)
				client.SetFault(func(testkit.Call) testkit.Fault { return testkit.LostRequest })
				began := time.Now()
				if err := claim.Done(t.Context(), failed); !storage.Ambiguous(err) || time.Since(began) > row.Patience+time.Second {
					t.Fatalf("%v after %v", err, time.Since(began))
				}
				client.SetFault(nil)
				mustClaim(t, a, "Bern", taskN(2), Fresh, eightHours-row.Patience)
				if failed {
					mustClaim(t, a, "Bern", taskN(1), Granted, 0)
					proof.Is(t, claim.Done(t.Context(), failed), ErrClaimTaken)
				} else {
					mustClaim(t, a, "Bern", taskN(1), Busy, eightHours-row.Patience)
					mustEnd(t, claim, false) // again, and it gets through
					mustEnd(t, claim, false) // and again
					mustClaim(t, a, "Bern", taskN(1), Fresh, eightHours-row.Patience)
				}
			})
		})
	}
}

// TestASuccessThatIsNeverRecordedIsForgottenInTime: a process that lives for a year
// does not remember every claim that went wrong.
func TestASuccessThatIsNeverRecordedIsForgottenInTime(t *testing.T) {
	testkit.OnServer(t, "a", func(t *testing.T, server *testkit.Server, client *testkit.Client) {
		a := claimsOf(client, "a", eightHours)
		inHand := func() int { a.hands.mu.Lock(); defer a.hands.mu.Unlock(); return len(a.hands.rows) }
		claim := mustClaim(t, a, "Bern", taskN(1), Granted, 0)
		client.SetFault(func(testkit.Call) testkit.Fault { return testkit.LostRequest })
		for range 2 {
			if err := claim.Done(t.Context(), false); !storage.Ambiguous(err) {
				t.Fatal(err)
			}
		}
		client.SetFault(nil)
		time.Sleep(eightHours)
		proof.Same(t, inHand(), 1, "in hand for as long as it matters")
		time.Sleep(eightHours)
		proof.Same(t, inHand(), 0, "in hand after two intervals")
		again := mustClaim(t, a, "Bern", taskN(1), Granted, 0)
		if err := claim.Done(t.Context(), false); !errors.Is(err, ErrClaimTaken) || inHand() != 1 {
			t.Errorf("%v, %d in hand", err, inHand())
		}
		mustEnd(t, again, false)
	})
}

func TestDoneMayBeMadeAgainAndFindItsOwn(t *testing.T) {
	testkit.OnServer(t, "a", func(t *testing.T, server *testkit.Server, client *testkit.Client) {
		a := claimsOf(client, "a", eightHours)
		claim := mustClaim(t, a, "Bern", taskN(1), Granted, 0)
		r, _ := claimRowOf(client, "city", []byte("Bern"))
		client.SetFault(testkit.FaultOn("write", r.Key, 2, testkit.LandsLate(10*time.Second)))
		client.SetLatency(func(c testkit.Call) time.Duration { return map[bool]time.Duration{true: time.Minute}[c.Op == "read"] }) // nothing is read back
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := claim.Done(ctx, false); !storage.Ambiguous(err) {
			t.Fatalf("%v", err)
		}
		client.SetLatency(nil)
		time.Sleep(10 * time.Second)
		mustEnd(t, claim, false)
		mustClaim(t, a, "Bern", taskN(1), Fresh, eightHours-15*time.Second)
	})
}

func TestOverTheWireClaimsHoldWhateverAnswerIsLost(t *testing.T) {
	operations := []string{"InsertEntity", "MergeEntity", "UpdateEntity", "GetEntity", "InsertOrReplaceEntity", "CreateTable"}
	faults := []azsim.Rule{
		{Fault: azsim.AnswerLost},
		{Fault: azsim.FailBefore},
		{Fault: azsim.HangAfter},
		{Fault: azsim.HangBefore},
		{Fault: azsim.AnswerAfter},
		{Fault: azsim.AnswerAfter, Status: 412, Code: "UpdateConditionNotSatisfied"},
		{Fault: azsim.Answer},
		{Fault: azsim.Answer, Status: 500, Code: "OperationTimedOut"},
	}
	for _, f := range faults {
		for _, op := range operations {
			for skip := range 3 {
				rule := f
				rule.Service, rule.Operations, rule.First, rule.Skip = "table", []string{op}, 2, skip
				t.Run(rule.String(), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						sim := testkit.Simulated()
						sim.Inject(rule)
						a, b := claimsOf(testkit.OverTheWire(t, sim, "a"), "a", eightHours), claimsOf(testkit.OverTheWire(t, sim, "b"), "b", eightHours)
						began := time.Now()
						first := stubborn(t, a, "Bern", taskN(1), Granted)
						stubborn(t, b, "Bern", taskN(1), Busy)
						stubborn(t, b, "Bern", taskN(2), Fresh)
						for first.Done(t.Context(), true) != nil {
						}
						second := stubborn(t, b, "Bern", taskN(1), Granted)
						stubborn(t, a, "Bern", taskN(1), Busy)
						for second.Done(t.Context(), false) != nil {
						}
						stubborn(t, a, "Bern", taskN(1), Fresh)
						if time.Since(began) > 5*time.Minute {
							t.Errorf("it took %v", time.Since(began))
						}
						time.Sleep(eightHours + time.Minute)
						stubborn(t, a, "Bern", taskN(3), Granted)
					})
				})
			}
		}
	}
}

// stubborn claims until there is a verdict, which must be that one.
func stubborn(t *testing.T, c *Claims, key string, task TaskRef, want Verdict) *Claim {
	t.Helper()
	for range 5 {
		claim, verdict, _, err := c.Claim(t.Context(), []byte(key), task)
		if err != nil {
			continue
		}
		if verdict != want {
			t.Fatalf("%s for %s: %v, want %v", key, task, verdict, want)
		}
		return claim
	}
	t.Fatalf("%s for %s: no verdict", key, task)
	return nil
}

func TestADamagedClaimIsNamedAndLeftAsItIs(t *testing.T) {
	good := func() map[string]any { return encodeClaim(claimRow{key: "Bern", task: "x", owner: "a#1", interval: 1}) }
	for name, damage := range map[string]func(map[string]any){
		"no task":         func(p map[string]any) { delete(p, "Task") },
		"no owner":        func(p map[string]any) { p["Owner"] = "" },
		"no interval":     func(p map[string]any) { delete(p, "Interval") },
		"negative":        func(p map[string]any) { p["Took"] = int64(-1) },
		"wrong type":      func(p map[string]any) { p["Running"] = "yes" },
		"running and not": func(p map[string]any) { p["Running"], p["Took"] = true, int64(5) },
	} {
		t.Run(name, func(t *testing.T) {
			testkit.OnServer(t, "a", func(t *testing.T, server *testkit.Server, client *testkit.Client) {
				r, _ := claimRowOf(client, "city", []byte("Bern"))
				props := good()
				damage(props)
				putRow(t, server, r.Partition, r.Key, props)
				c := claimsOf(client, "a", eightHours)
				if _, _, _, err := c.Claim(t.Context(), []byte("Bern"), taskN(1)); !errors.Is(err, row.ErrCorrupt) || !strings.Contains(err.Error(), r.Object()) {
					t.Errorf("%v", err)
				}
				proof.Same(t, client.Writes(r.Object()), 0, "it was overwritten")
				mustClaim(t, c, "Basel", taskN(2), Granted, 0)
				list, all, err := c.List(t.Context(), 10)
				if len(list) != 1 || list[0].Key != "Basel" || !all || !errors.Is(err, row.ErrCorrupt) || !strings.Contains(err.Error(), r.Object()) {
					t.Errorf("%+v, %v, %v", list, all, err)
				}
			})
		})
	}
}

func TestTheListHasRunningClaimsFirstThenTheNewest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := testkit.NewServer()
		server.Offset = -3 * time.Minute
		a, b := claimsOf(server.Client("a"), "a", eightHours), claimsOf(server.Client("b"), "b", eightHours)
		if list, all, err := a.List(t.Context(), 10); err != nil || len(list) != 0 || !all {
			t.Errorf("%+v, %v, %v", list, all, err)
		}
		began := time.Now().Add(server.Offset)
		for i := range 40 {
			claim := mustClaim(t, a, fmt.Sprintf("key %02d", i), taskN(uint64(i)), Granted, 0)
			time.Sleep(time.Minute)
			if i != 5 && i != 20 {
				mustEnd(t, claim, i == 38)
			}
		}
		mustClaim(t, b, "\x00bytes\xff", TaskRef{Foreign: "city-00/0a1b"}, Granted, 0)
		list, all, err := b.List(t.Context(), 6)
		if err != nil || !all {
			t.Fatal(all, err)
		}
		var keys []string
		for _, s := range list {
			keys = append(keys, s.Key)
		}
		if want := []string{base64.StdEncoding.EncodeToString([]byte("\x00bytes\xff")), "key 20", "key 05", "key 39", "key 38", "key 37"}; !slices.Equal(keys, want) {
			t.Fatalf("%q, want %q", keys, want)
		}
		if s := list[0]; !s.Base64 || s.KeyBytes != 7 || s.Instance != "b" || s.Task != "foreign city-00/0a1b" || !s.Running || !s.Stop.IsZero() {
			t.Errorf("%+v", s)
		}
		start := began.Add(38 * time.Minute)
		if s := list[4]; s.Base64 || !s.Failed || s.Running || s.Task != taskN(38).String() || s.Start.Sub(start).Abs() > 5*time.Second || s.Stop.Sub(s.Start) > time.Minute || s.Stop.Sub(s.Start) < 59*time.Second {
			t.Errorf("%+v, want the start at %v", s, start)
		}
		if list, _, err = b.List(t.Context(), 0); err != nil || len(list) != 0 {
			t.Errorf("%+v, %v", list, err)
		}
	})
}

func TestTheListOfManyKeysIsBoundedAndSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := testkit.NewServer()
		for i := range scannedClaims + 1 {
			putRow(t, server, "city.claims.0", fmt.Sprintf("%064x", i), encodeClaim(claimRow{key: fmt.Sprint(i), task: "x", owner: "a#1", interval: 1}))
		}
		list, all, err := claimsOf(server.Client("a"), "a", eightHours).List(t.Context(), scannedClaims*2)
		if err != nil || all || len(list) != scannedClaims {
			t.Errorf("%d, %v, %v", len(list), all, err)
		}
	})
}

func TestAnyKeyAndTaskCanBeShown(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.OneOf(
			rapid.SliceOf(rapid.Byte()),
			rapid.Map(rapid.StringN(0, 400, -1), func(s string) []byte { return []byte(s) }),
		).Draw(t, "key")
		task := TaskRef{Foreign: rapid.String().Draw(t, "foreign")}
		c := newClaimRow(key, task)
		if !utf8.ValidString(c.key) || strings.ContainsFunc(c.key, unshown) || len(c.key) > 4*(maxKeyShown+2)/3 || int(c.bytes) != len(key) {
			t.Fatalf("%q is shown as %q", key, c.key)
		}
		if !c.base64 && !strings.HasPrefix(string(key), c.key) {
			t.Fatalf("%q is shown as %q", key, c.key)
		}
		if text := string(key); utf8.ValidString(text) && !strings.ContainsFunc(text, unshown) && (c.base64 || len(c.key) < min(len(key), maxKeyShown-utf8.UTFMax)) {
			t.Fatalf("the text %q is shown as %q", key, c.key)
		}
		if !utf8.ValidString(c.task) || len(c.task) > maxTaskShown+10 || c.task == "" {
			t.Fatalf("task %q", c.task)
		}
	})
	long, other := TaskRef{Foreign: strings.Repeat("x", 300)}, TaskRef{Foreign: strings.Repeat("x", 301)}
	if long.String() == other.String() {
		t.Error("two tasks have one identity")
	}
}

func TestClaimsThatCannotWorkAreReported(t *testing.T) {
	client := testkit.NewServer().Client("a")
	for _, c := range []*Claims{NewClaims(client, "city", 0, "a"), NewClaims(client, "city", -time.Hour, "a"), NewClaims(client, "a city", time.Hour, "a")} {
		if _, verdict, _, err := c.Claim(t.Context(), []byte("Bern"), taskN(1)); err == nil || verdict != 0 {
			t.Errorf("%v, %v", verdict, err)
		}
		if _, _, err := c.List(t.Context(), 1); err == nil {
			t.Error("listed")
		}
	}
	proof.Same(t, len(client.Sent()), 0, "requests were made")
}
