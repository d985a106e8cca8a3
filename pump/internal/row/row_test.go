package row

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/pump/internal/faketable"
	"github.com/queuepump/queuepump/pump/storage"
)

// number is the smallest row there is.
func numberRow(t storage.Table) Row[int64] {
	return Row[int64]{
		Table: t, Partition: "p", Key: "number", Timeout: time.Second,
		Encode: func(n int64) map[string]any { return map[string]any{"N": n, "Same": "as ever"} },
		Decode: func(f *Fields) int64 { return f.Integer("N") },
	}
}

const triedKey = "p/number"

// tryWrite is a write of a row, what goes wrong with it, and what comes of it.
type tryWrite struct {
	absent   bool // the row is not there before
	fault    func(faketable.Call) faketable.Fault
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
	"the answer of an insert is lost":            {absent: true, fault: faketable.FaultOn("write", triedKey, 1, faketable.LostAnswer), won: true, stored: 2, writes: 1},
	"the answer of a change is lost":             {fault: faketable.FaultOn("write", triedKey, 1, faketable.LostAnswer), won: true, stored: 2, writes: 1},
	"the request of an insert is lost":           {absent: true, fault: faketable.FaultOn("write", triedKey, 1, faketable.LostRequest), won: true, stored: 2, writes: 2},
	"the request of a change is lost":            {fault: faketable.FaultOn("write", triedKey, 1, faketable.LostRequest), won: true, stored: 2, writes: 2},
	"throttled, but it acted":                    {fault: faketable.FaultOn("write", triedKey, 1, faketable.Fault{Fail: true, Act: true, Code: storage.Throttled}), won: true, stored: 2, writes: 2},
	"the request is lost and another is quicker": {fault: faketable.FaultOn("write", triedKey, 1, faketable.LostRequest), rival: 12 * time.Millisecond, lost: true, stored: 99, writes: 1},
	"no answer at all, and it acted":             {fault: faketable.FaultOn("write", triedKey, 1, faketable.Fault{Hang: true, Act: true}), won: true, stored: 2, writes: 1},
	"no answer at all, and it did not act":       {fault: faketable.FaultOn("write", triedKey, 1, faketable.Fault{Hang: true}), won: true, stored: 2, writes: 2},
	"it lands while the second attempt is on its way": {
		// Answered ambiguously after 10 ms, read back unchanged at 20 ms,
		// landing at 22 ms, before the second attempt does: that one gets a
		// 412, and the nonce says whose doing it is.
		fault: faketable.FaultOn("write", triedKey, 1, faketable.LandsLate(17*time.Millisecond)), won: true, stored: 2, writes: 2,
	},
	"an insert lands while the second attempt is on its way": {absent: true, fault: faketable.FaultOn("write", triedKey, 1, faketable.LandsLate(17*time.Millisecond)), won: true, stored: 2, writes: 2},
	"it lands after the second attempt":                      {fault: faketable.FaultOn("write", triedKey, 1, faketable.LandsLate(time.Second)), won: true, stored: 2, writes: 2},
	"ten requests lost": {fault: func(c faketable.Call) faketable.Fault {
		return map[bool]faketable.Fault{true: faketable.LostRequest}[c.Op == "write" && c.N <= 10]
	}, won: true, stored: 2, writes: 11},
	"reading back fails a few times": {fault: func(c faketable.Call) faketable.Fault {
		switch {
		case c.Op == "write" && c.N == 1:
			return faketable.LostAnswer
		case c.Op == "read" && c.N > 1 && c.N < 6:
			return faketable.LostRequest
		}
		return faketable.Fault{}
	}, won: true, stored: 2, writes: 1},
	"nothing answers until the deadline": {fault: func(c faketable.Call) faketable.Fault {
		return map[bool]faketable.Fault{true: faketable.LostRequest}[c.Op == "write" || c.N > 1]
	}, deadline: 3 * time.Second, stored: 1, writes: 1},
	"refused for good": {fault: faketable.FaultOn("write", triedKey, 1, faketable.Fault{Fail: true, Code: storage.Auth}), stored: 1, writes: 1},
	"refused for good after a lost request": {
		// The refusal says nothing about the first attempt; the row does.
		fault: func(c faketable.Call) faketable.Fault {
			switch {
			case c.Op == "write" && c.N == 1:
				return faketable.LostRequest
			case c.Op == "write" && c.N == 2:
				return faketable.Fault{Fail: true, Code: storage.Auth}
			}
			return faketable.Fault{}
		}, won: true, stored: 2, writes: 3,
	},
}

func TestTryWriteIsWonOrLostOrUnknown(t *testing.T) {
	for name, c := range tryWrites {
		t.Run(name, func(t *testing.T) { synctest.Test(t, c.play) })
	}
}

func (c tryWrite) play(t *testing.T) {
	server := faketable.NewServer()
	client, rival := server.Client("me"), server.Client("rival")
	r, theirs := numberRow(client), numberRow(rival)
	if !c.absent {
		if _, err := theirs.TryWrite(t.Context(), Version[int64]{}, 1); err != nil {
			t.Fatal(err)
		}
	}
	base, err := r.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	client.SetFault(c.fault)
	if c.rival != 0 {
		rival.SetLatency(func(faketable.Call) time.Duration { return 0 })
		time.AfterFunc(c.rival, func() {
			if _, err := theirs.TryWrite(context.Background(), base, 99); err != nil {
				t.Errorf("the rival: %v", err)
			}
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
	if (err == nil) != c.won || errors.Is(err, ErrLost) != c.lost {
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
	if err != nil {
		t.Fatal(err)
	}
	if now.Value != c.stored {
		t.Errorf("stored %d, want %d", now.Value, c.stored)
	}
	if c.won && (got.ETag != now.ETag || got.Value != 2 || !got.Sent.Equal(began)) {
		t.Errorf("the version won is %+v, the row has %+v", got, now)
	}
}

func TestEveryAttemptOfAWriteIsTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := faketable.NewServer().Client("me")
		r := numberRow(client)
		base, err := r.TryWrite(t.Context(), Version[int64]{}, 1)
		if err != nil {
			t.Fatal(err)
		}
		client.SetFault(func(c faketable.Call) faketable.Fault {
			return map[bool]faketable.Fault{true: faketable.LostRequest}[c.Op == "write" && c.N <= 4]
		})
		if _, err := r.TryWrite(t.Context(), base, 2); err != nil {
			t.Fatal(err)
		}
		var nonces []any
		for _, c := range client.Sent() {
			if c.Op != "write" || c.N == 1 {
				continue
			}
			nonces = append(nonces, c.Write.Entity.Properties[NonceProperty])
			if c.Write.Entity.ETag != base.ETag || c.Write.Entity.Properties["N"] != int64(2) {
				t.Errorf("attempt %d: %+v", c.N, c.Write)
			}
			if _, sent := c.Write.Entity.Properties["Same"]; sent {
				t.Error("a property that did not change was sent")
			}
		}
		if len(nonces) != 4 {
			t.Fatalf("%d attempts, want 4", len(nonces))
		}
		for _, n := range nonces {
			if n != nonces[0] || len(n.(string)) != 32 {
				t.Errorf("nonces %v differ or are short", nonces)
			}
		}
	})
}

func TestARowOfANewerFormatIsRefusedAndADamagedOneIsNotOverwritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := faketable.NewServer()
		client := server.Client("me")
		r := numberRow(client)
		for name, props := range map[string]map[string]any{
			"newer":      {FormatProperty: int64(2), "N": int64(1)},
			"no format":  {"N": int64(1)},
			"wrong type": {FormatProperty: int64(1), "N": "one"},
		} {
			w := storage.Write{
				Mode:   storage.Upsert,
				Entity: storage.Entity{Partition: "p", Row: "number", Properties: props},
			}
			if _, err := client.Write(t.Context(), w); err != nil {
				t.Fatal(err)
			}
			if _, err := r.MustRead(t.Context()); !errors.Is(err, ErrCorrupt) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

func TestReadingGivesUpAfterAMinuteOrWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := faketable.NewServer().Client("me")
		client.SetFault(func(faketable.Call) faketable.Fault { return faketable.LostRequest })
		began := time.Now()
		if _, err := numberRow(client).MustRead(t.Context()); !storage.Ambiguous(err) {
			t.Errorf("%v", err)
		}
		if took := time.Since(began); took < Patience || took > Patience+time.Second {
			t.Errorf("gave up after %v, want %v", took, Patience)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := numberRow(client).TryWrite(ctx, Version[int64]{}, 1); !storage.Is(err, storage.Canceled) {
			t.Errorf("%v, want canceled", err)
		}
	})
}

func TestASeededTableGivesTheSameNoncesAgain(t *testing.T) {
	nonces := func(seed uint64) (all []string) {
		synctest.Test(t, func(t *testing.T) {
			client := faketable.NewServer().Client("me")
			r := numberRow(Seeded(client, faketable.SeededDraw(seed, "me")))
			v := Version[int64]{}
			for i := range 3 {
				var err error
				if v, err = r.TryWrite(t.Context(), v, int64(i)); err != nil {
					t.Fatal(err)
				}
			}
			for _, e := range client.Written() {
				all = append(all, e.Properties[NonceProperty].(string))
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
