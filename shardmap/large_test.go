package shardmap

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/queuepump/queuepump/internal/proof"
)

// striped is so many queues of so many accounts, with names as long as Azure has them.
func striped(accounts, queues int) (shards []Shard) {
	for a := range accounts {
		for q := range queues {
			shards = append(
				shards,
				Shard{
					Account: fmt.Sprintf("storageaccountnumber%04d", a),
					Queue:   fmt.Sprintf("work-%02d", q), Weight: 0.1, State: Active,
				},
			)
		}
	}
	return shards
}

// B6: 250 accounts of 10 queues.
func TestTheMapOf2500QueuesIsStoredAndSharesTheAccountsEvenly(t *testing.T) {
	m := mustNew(t, MaxSegments, striped(250, 10))
	checkShares(t, m)
	b := mustMarshal(t, m)
	var read Map
	must(t, read.UnmarshalBinary(b))
	if diff := cmp.Diff(*m, read, compareMaps); diff != "" {
		t.Fatal(diff)
	}
	if len(b) > MaxBytes || b[0] != secondFormat {
		t.Errorf("%d bytes of format %d", len(b), b[0])
	}
	t.Logf("250 accounts of 10 queues at S = %d: %d bytes", MaxSegments, len(b))
	of := map[string]int{}
	for i, n := range m.Loads() {
		of[m.Shards[i].Account] += n
	}
	for account, n := range of { // 65.5 each: an account's limit is used up by its queues together
		if n < 65 || n > 66 {
			t.Errorf("account %s has %d segments, want 65 or 66", account, n)
		}
	}
}

// The busiest queue has a whole number of segments: of a number of segments that is just below six
// times that of the queues none has a seventh, which 45 % of them would lack.
func TestSegmentsThatAreAMultipleOfTheQueuesShareThemEvenly(t *testing.T) {
	const segments = 14976
	m := mustNew(t, segments, striped(250, 10))
	busiest := slices.Max(m.Loads())
	if used := float64(segments) / float64(busiest*len(m.Shards)); busiest != 6 || used < 0.998 {
		t.Errorf("the busiest queue has %d segments, want 6; all are used to %.3f", busiest, used)
	}
}

// The version before must not take a map for damaged that is too large for it.
func TestAMapThatTheVersionBeforeCannotReadSaysSoByItsFormat(t *testing.T) {
	for _, c := range []struct {
		segments, accounts, queues int
		want                       byte
	}{
		{64, 1, 8, firstFormat},
		{4096, 2, 8, firstFormat},
		{8192, 1, 1, secondFormat},
		{2048, 103, 10, secondFormat},
		{192, 1, 8, fourthFormat},
	} {
		b := mustMarshal(t, mustNew(t, c.segments, striped(c.accounts, c.queues)))
		if b[0] != c.want {
			t.Errorf(
				"%d segments, %d accounts of %d queues: format %d, want %d", c.segments, c.accounts,
				c.queues, b[0], c.want,
			)
		}
		proof.Is(t, new(Map).UnmarshalBinary(b), nil,
			c.segments, "segments", c.accounts, "accounts", c.queues, "queues")
	}
}

// The version before made maps with more queues than segments. They are read and may shrink, and do
// not grow.
func TestAMapOfMoreQueuesThanSegmentsIsReadAndDoesNotGrow(t *testing.T) {
	m, err := blank(4, striped(2, 3))
	must(t, err)
	m.Version = 1
	if m, err = m.placed(nil); err != nil {
		t.Fatal(err)
	}
	var read Map
	must(t, read.UnmarshalBinary(mustMarshal(t, m)))
	proof.Is(t, proof.ErrOf(read.Change(striped(3, 3))), ErrFewSegments, "it grew")
	must(t, proof.ErrOf(read.Change(drained(striped(2, 3), 0))))
}
