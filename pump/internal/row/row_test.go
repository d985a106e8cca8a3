package row_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/testkit"
	"github.com/queuepump/queuepump/pump/storage"
)

// number is the smallest row there is.
func numberRow(t storage.Table) row.Row[int64] {
	return row.Row[int64]{
		Table: t, Partition: "p", Key: "number", Timeout: time.Second,
		Encode: func(n int64) map[string]any { return map[string]any{"N": n, "Same": "as ever"} },
		Decode: func(f *row.Fields) int64 { return f.Integer("N") },
	}
}

const triedKey = "p/number"

// tryWrite is a write of a row, what goes wrong with it, and what comes of it.
type tryWrite struct {
	absent   bool // the row is not there before
	fault    func(testkit.Call) testkit.Fault
	rival    time.Duration // when another writes the row, if not zero
	deadline time.Duration
	won      bool
	lost     bool
	stored   int64 // in the end, a minute later
	writes   int   // requests that wrote or tried to
}

var tryWrites = map[string]tryWrite{
	"an insert":                                  {absent: true, won: true, stored: 2, writes: 1},
	"a change":                                   {won: true, stored: 2, writes: 1},
	"another was first":                          {rival: time.Millisecond, lost: true, stored: 99, writes: 1},
	"another inserted first":                     {absent: true, rival: time.Millisecond, lost: true, stored: 99, writes: 1},
	"the answer of an insert is lost":            {absent: true, fault: testkit.FaultOn("write", triedKey, 1, testkit.LostAnswer), won: true, stored: 2, writes: 1},
	"the answer of a change is lost":             {fault: testkit.FaultOn("write", triedKey, 1, testkit.LostAnswer), won: true, stored: 2, writes: 1},
	"the request of an insert is lost":           {absent: true, fault: testkit.FaultOn("write", triedKey, 1, testkit.LostRequest), won: true, stored: 2, writes: 2},
	"the request of a change is lost":            {fault: testkit.FaultOn("write", triedKey, 1, testkit.LostRequest), won: true, stored: 2, writes: 2},
	"throttled, but it acted":                    {fault: testkit.FaultOn("write", triedKey, 1, testkit.Fault{Fail: true, Act: true, Code: storage.Throttled}), won: true, stored: 2, writes: 2},
	"the request is lost and another is quicker": {fault: testkit.FaultOn("write", triedKey, 1, testkit.LostRequest), rival: 12 * time.Millisecond, lost: true, stored: 99, writes: 1},
	"no answer at all, and it acted":             {fault: testkit.FaultOn("write", triedKey, 1, testkit.Fault{Hang: true, Act: true}), won: true, stored: 2, writes: 1},
	"no answer at all, and it did not act":       {fault: testkit.FaultOn("write", triedKey, 1, testkit.Fault{Hang: true}), won: true, stored: 2, writes: 2},
	"it lands while the second attempt is on its way": {
		// Answered ambiguously after 10 ms, read back unchanged at 20 ms,
		// landing at 22 ms, before the second attempt does: that one gets a
		// 412, and the nonce says whose doing it is.
		fault: testkit.FaultOn("write", triedKey, 1, testkit.LandsLate(17*time.Millisecond)), won: true, stored: 2, writes: 2,
	},
	"an insert lands while the second attempt is on its way": {absent: true, fault: testkit.FaultOn("write", triedKey, 1, testkit.LandsLate(17*time.Millisecond)), won: true, stored: 2, writes: 2},
	"it lands after the second attempt":                      {fault: testkit.FaultOn("write", triedKey, 1, testkit.LandsLate(time.Second)), won: true, stored: 2, writes: 2},
	"ten requests lost": {fault: func(c testkit.Call) testkit.Fault {
		return map[bool]testkit.Fault{true: testkit.LostRequest}[c.Op == "write" && c.N <= 10]
	}, won: true, stored: 2, writes: 11},
	"reading back fails a few times": {fault: func(c testkit.Call) testkit.Fault {
		switch {
		case c.Op == "write" && c.N == 1:
			return testkit.LostAnswer
		case c.Op == "read" && c.N > 1 && c.N < 6:
			return testkit.LostRequest
		}
		return testkit.Fault{}
	}, won: true, stored: 2, writes: 1},
	"nothing answers until the deadline": {fault: func(c testkit.Call) testkit.Fault {
		return map[bool]testkit.Fault{true: testkit.LostRequest}[c.Op == "write" || c.N > 1]
	}, deadline: 3 * time.Second, stored: 1, writes: 1},
	"refused for good": {fault: testkit.FaultOn("write", triedKey, 1, testkit.Fault{Fail: true, Code: storage.Auth}), stored: 1, writes: 1},
	"refused for good after a lost request": {
		// The refusal says nothing about the first attempt; the row does.
		fault: func(c testkit.Call) testkit.Fault {
			switch {
			case c.Op == "write" && c.N == 1:
				return testkit.LostRequest
			case c.Op == "write" && c.N == 2:
				return testkit.Fault{Fail: true, Code: storage.Auth}
			}
			return testkit.Fault{}
		}, won: true, stored: 2, writes: 3,
	},
}

func TestTryWriteIsWonOrLostOrUnknown(t *testing.T) {
	for name, c := range tryWrites {
		t.Run(name, func(t *testing.T) { synctest.Test(t, c.play) })
	}
}

func (c tryWrite) play(t *testing.T) {
	server := testkit.NewServer()
	client, rival := server.Client("me"), server.Client("rival")
	r, theirs := numberRow(client), numberRow(rival)
	if !c.absent {
		proof.Must(t, proof.ErrOf(theirs.TryWrite(t.Context(), row.Version[int64]{}, 1)))
	}
	base, err := r.Read(t.Context())
	proof.Must(t, err)
	client.SetFault(c.fault)
	if c.rival != 0 {
		rival.SetLatency(func(testkit.Call) time.Duration { return 0 })
		time.AfterFunc(c.rival, func() {
			proof.Is(t, proof.ErrOf(theirs.TryWrite(context.Background(), base, 99)), nil, "the rival")
		})
	}
	ctx := t.Context()
	if c.deadline != 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.deadline)
		defer cancel()
	}
	began := time.Now()
	got, err := r.TryWrite(ctx, base, 2)
	if (err == nil) != c.won || errors.Is(err, row.ErrLost) != c.lost {
		t.Fatalf("tryWrite: %v, want won %v, lost %v", err, c.won, c.lost)
	}
	if c.deadline != 0 && !storage.Ambiguous(err) {
		t.Errorf("%v does not say that it may have been written", err)
	}
	if n := client.Writes(triedKey); n != c.writes {
		if c.deadline == 0 || n < c.writes {
			t.Errorf("%d writes, want %d", n, c.writes)
		}
	}
	client.SetFault(nil)
	time.Sleep(time.Minute)
	now, err := r.Read(t.Context())
	proof.Must(t, err)
	proof.Same(t, now.Value, c.stored, "stored")
	if c.won && (got.ETag != now.ETag || got.Value != 2 || !got.Sent.Equal(began)) {
		t.Errorf("the version won is %+v, the row has %+v", got, now)
	}
}

func TestEveryAttemptOfAWriteIsTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := testkit.NewServer().Client("me")
		r := numberRow(client)
		base, err := r.TryWrite(t.Context(), row.Version[int64]{}, 1)
		proof.Must(t, err)
		client.SetFault(func(c testkit.Call) testkit.Fault {
			return map[bool]testkit.Fault{true: testkit.LostRequest}[c.Op == "write" && c.N <= 4]
		})
		proof.Must(t, proof.ErrOf(r.TryWrite(t.Context(), base, 2)))
		var nonces []any
		for _, c := range client.Sent() {
			if c.Op != "write" || c.N == 1 {
				continue
			}
			nonces = append(nonces, c.Write.Entity.Properties[row.NonceProperty])
			if c.Write.Entity.ETag != base.ETag || c.Write.Entity.Properties["N"] != int64(2) {
				t.Errorf("attempt %d: %+v", c.N, c.Write)
			}
			if _, sent := c.Write.Entity.Properties["Same"]; sent {
				t.Error("a property that did not change was sent")
			}
		}
		proof.Same(t, len(nonces), 4, "attempts")
		for _, n := range nonces {
			if n != nonces[0] || len(n.(string)) != 32 {
				t.Errorf("nonces %v differ or are short", nonces)
			}
		}
	})
}

func TestReadingGivesUpAfterAMinuteOrWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := testkit.NewServer().Client("me")
		client.SetFault(func(testkit.Call) testkit.Fault { return testkit.LostRequest })
		began := time.Now()
		if _, err := numberRow(client).MustRead(t.Context()); !storage.Ambiguous(err) {
			t.Errorf("%v", err)
		}
		if took := time.Since(began); took < row.Patience || took > row.Patience+time.Second {
			t.Errorf("gave up after %v, want %v", took, row.Patience)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := numberRow(client).TryWrite(ctx, row.Version[int64]{}, 1); !storage.Is(err, storage.Canceled) {
			t.Errorf("%v, want canceled", err)
		}
	})
}

func TestASeededTableGivesTheSameNoncesAgain(t *testing.T) {
	nonces := func(seed uint64) (all []string) {
		synctest.Test(t, func(t *testing.T) {
			client := testkit.NewServer().Client("me")
			r := numberRow(row.Seeded(client, testkit.SeededDraw(seed, "me")))
			v := row.Version[int64]{}
			for i := range 3 {
				var err error
				v, err = r.TryWrite(t.Context(), v, int64(i))
				proof.Must(t, err)
			}
			for _, e := range client.Written() {
				all = append(all, e.Properties[row.NonceProperty].(string))
			}
		})
		return all
	}
	a, b, other := nonces(1), nonces(1), nonces(2)
	for i := range a {
		if a[i] != b[i] || a[i] == other[i] {
			t.Errorf("write %d: %s, again %s, with another seed %s", i, a[i], b[i], other[i])
		}
	}
}

// An older program beside newer ones writes the row, too: what it does not know must stay.
func TestAColumnOfANewerProgramStaysWhenTheRowIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := testkit.NewServer().Client("me")
		r := row.Row[string]{
			Table: client, Partition: "p", Key: "row", Timeout: time.Second,
			Encode: func(paused string) map[string]any {
				if paused == "" {
					return map[string]any{} // the column goes, which replaces the row
				}
				return map[string]any{"Paused": paused}
			},
			Decode: func(f *row.Fields) string { return f.Text("Paused") },
		}
		_, err := client.Write(t.Context(), storage.Write{Mode: storage.Insert, Entity: storage.Entity{
			Partition: "p", Row: "row", Properties: map[string]any{row.FormatProperty: int64(1), "Novel": "yes"},
		}})
		proof.Must(t, err)
		v, err := r.MustRead(t.Context())
		proof.Must(t, err)
		for _, paused := range []string{"by me", "", "by you", ""} { // each write goes out from the one before
			v, err = r.TryWrite(t.Context(), v, paused)
			proof.Must(t, err)
			e, err := client.Read(t.Context(), "p", "row")
			proof.Must(t, err)
			if there, _ := e.Properties["Paused"].(string); there != paused || e.Properties["Novel"] != "yes" {
				t.Fatalf("%q: %v", paused, e.Properties)
			}
		}
	})
}
