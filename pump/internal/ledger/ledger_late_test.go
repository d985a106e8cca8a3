package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/internal/testkit"
	"github.com/queuepump/queuepump/pump/storage"
)

func TestP35AValueComputedBeforeIsNeverWrittenOverTheNewETag(t *testing.T) {
	// A retry loop that wrote it erased the other owner's record: lost.
	testkit.OnSim(t, func(t *testing.T, sim *azsim.Sim) {
		a, b := openBook(t, testkit.OverTheWire(t, sim, "a"), "a"), openBook(t, testkit.OverTheWire(t, sim, "b"), "b")
		a.mustFence(1, 7)
		a.begin(7, 1, testkit.RunID(1), 0, ns(0, 5))
		b.mustFence(2, 7)
		b.mustCommit(Entry{Segment: 7, Epoch: 2, Run: testkit.RunID(1), Done: ns(5, 10)})
		proof.Is(t, a.commit(Entry{Segment: 7, Epoch: 1, Run: testkit.RunID(1), Done: ns(0, 5)}), ErrFenced)
		r := recordOf(t, b.table, 7)
		if r.Epoch != 2 || r.Done(testkit.RunID(1), 0) || !r.Done(testkit.RunID(1), 5) || !r.Done(testkit.RunID(1), 9) {
			t.Errorf("epoch %d; 0 done: %v, 5 done: %v", r.Epoch, r.Done(testkit.RunID(1), 0), r.Done(testkit.RunID(1), 5))
		}
	})
}

// lateTable keeps transactions back that it has not answered: they land when the test says so.
type lateTable struct {
	*memTable
	keep  int // so many of the next ones
	late  [][]storage.Write
	after func() // is called once one was kept back
}

func (l *lateTable) Transact(ctx context.Context, writes []storage.Write) ([]storage.ETag, error) {
	if l.keep == 0 {
		return l.memTable.Transact(ctx, writes)
	}
	l.keep--
	l.late = append(l.late, writes)
	if l.after != nil {
		l.after()
	}
	return nil, problem(storage.MaybeDone, -1, "kept back")
}

// land lets the first that was kept back arrive, and reports whether it had an effect.
func (l *lateTable) land() bool {
	writes := l.late[0]
	l.late = l.late[1:]
	_, err := l.memTable.Transact(context.Background(), writes)
	return err == nil
}

func TestP35ACommitGivenUpThatLandsLateIsAdopted(t *testing.T) {
	// Its caller gave up without knowing; then it lands, and the next commit runs into it.
	table := &lateTable{memTable: newMemTable(), keep: 0}
	a := openBook(t, table, "a", withSums)
	a.mustFence(1, 7, 8)
	a.begin(7, 1, testkit.RunID(1), 0, ns(0, 5))
	ctx, cancel := context.WithCancel(t.Context())
	table.keep, table.after = 1, cancel
	late := &Entry{Segment: 7, Epoch: 1, Run: testkit.RunID(1), Done: ns(0, 5), Contributions: sums(0, 5)}
	a.Commit(ctx, []*Entry{late})
	if late.Err == nil || errors.Is(late.Err, ErrFenced) {
		t.Fatal(late.Err)
	}
	want(t, "meanwhile", a.begin(7, 1, testkit.RunID(1), 0, ns(0, 5)), [3]string{"", "", "0-4"})
	if !table.land() {
		t.Fatal("it did not land")
	}
	late.Err = nil
	a.mustCommit(
		*late,
		Entry{Segment: 7, Epoch: 1, Run: testkit.RunID(1), Done: ns(5, 6), Contributions: sums(5, 6)},
		Entry{Segment: 8, Epoch: 1, Run: testkit.RunID(1), Done: ns(0, 1), Contributions: sums(0, 1)},
	)
	want(t, "recorded", a.begin(7, 1, testkit.RunID(1), 0, ns(0, 7)), [3]string{"6", "0-5", ""})
	want(t, "state", string(recordOf(t, table, 7).State()), "6 tasks, 15")
}

func TestP35ACommitGivenUpHasNoEffectOnceAnotherOneHas(t *testing.T) {
	table := &lateTable{memTable: newMemTable()}
	a := openBook(t, table, "a", withSums)
	a.mustFence(1, 7)
	ctx, cancel := context.WithCancel(t.Context())
	table.keep, table.after = 1, cancel
	a.Commit(ctx, []*Entry{{Segment: 7, Epoch: 1, Run: testkit.RunID(1), Done: ns(0, 5), Contributions: sums(0, 5)}})
	a.mustCommit(Entry{Segment: 7, Epoch: 1, Run: testkit.RunID(1), Done: ns(3, 7), Contributions: sums(3, 7)})
	if table.land() {
		t.Error("the older one landed over the newer")
	}
	want(t, "state", string(recordOf(t, table, 7).State()), "4 tasks, 18")
}

func TestAFenceThatLandsAfterItWasGivenUpIsAdopted(t *testing.T) {
	table := &lateTable{memTable: newMemTable()}
	a := openBook(t, table, "a")
	a.mustFence(1, 3, 4)
	a.begin(3, 1, testkit.RunID(1), 0, ns(0, 10))
	ctx, cancel := context.WithCancel(t.Context())
	table.keep, table.after = 1, cancel
	fenced, err := fenceAll(ctx, a, holdsOf(5, 3, 4, 9))
	if len(fenced) > 0 || err == nil || errors.Is(err, ErrFenced) || strings.Count(err.Error(), "fencing") != 1 {
		t.Fatalf("%v, %v", fenced, err)
	}
	proof.Is(t, proof.ErrOf(a.Begin(3, 5, testkit.RunID(1), 0, ns(0, 1))), ErrFenced,
		"begun before it is known to be fenced")
	if !table.land() {
		t.Fatal("it did not land")
	}
	// Results of the former hold run into it, and no other owner was there.
	a.mustCommit(Entry{Segment: 3, Epoch: 1, Run: testkit.RunID(1), Done: ns(0, 5)})
	before := table.transactions
	a.mustFence(5, 3, 4, 9)
	want(t, "writes", table.transactions-before, 0)
	want(t, "begin", a.begin(3, 5, testkit.RunID(1), 0, ns(0, 11)), [3]string{"10", "0-4", "5-9"})
	a.mustCommit(Entry{Segment: 3, Epoch: 1, Run: testkit.RunID(1), Done: ns(5, 10)}, Entry{Segment: 9, Epoch: 5, Run: testkit.RunID(1), Done: ns(0, 1)})
	proof.Same(t, recordOf(t, table, 3).Epoch, 5, "epoch")
}

func TestP35AfterAnAmbiguousAnswerTheSameBytesGoAgain(t *testing.T) {
	testkit.OnSim(t, func(t *testing.T, sim *azsim.Sim) {
		seen := &recorder{Table: testkit.OverTheWire(t, sim, "a")}
		a := openBook(t, seen, "a")
		a.mustFence(1, 7, 8)
		seen.sent = nil
		sim.Inject(azsim.Rule{Operations: []string{"Batch"}, Fault: azsim.FailBefore, First: 1})
		sim.Inject(azsim.Rule{Operations: []string{"Batch"}, Fault: azsim.Answer, Skip: 1, First: 1, RetryAfter: time.Second})
		sim.Inject(azsim.Rule{Operations: []string{"Batch"}, Fault: azsim.AnswerLost, Skip: 2, First: 1})
		a.mustCommit(Entry{Segment: 7, Epoch: 1, Run: testkit.RunID(1), Done: ns(0, 5)}, Entry{Segment: 8, Epoch: 1, Run: testkit.RunID(1), Done: ns(0, 5)})
		if len(seen.sent) != 4 || slices.ContainsFunc(seen.sent, func(s string) bool { return s != seen.sent[0] }) {
			t.Errorf("%d transactions:\n%s", len(seen.sent), strings.Join(seen.sent, "\n"))
		}
	})
}

// recorder notes the transactions that are sent.
type recorder struct {
	storage.Table
	sent []string
}

func (r *recorder) Transact(ctx context.Context, writes []storage.Write) ([]storage.ETag, error) {
	r.sent = append(r.sent, fmt.Sprint(writes)) // maps are printed in order
	return r.Table.Transact(ctx, writes)
}

func TestP35ACommitThatLandedBeforeTheNextFenceIsKnownAsRecorded(t *testing.T) {
	// Its answer was lost, and before it could be asked, another owner had fenced.
	testkit.OnSim(t, func(t *testing.T, sim *azsim.Sim) {
		a, b := openBook(t, testkit.OverTheWire(t, sim, "a"), "a"), openBook(t, testkit.OverTheWire(t, sim, "b"), "b")
		a.mustFence(1, 7)
		i := sim.Inject(azsim.Rule{Instance: "a", Operations: []string{"Batch"}, Fault: azsim.HangAfter, First: 1})
		e := &Entry{Segment: 7, Epoch: 1, Run: testkit.RunID(1), Done: ns(0, 5)}
		ended := make(chan struct{})
		go func() {
			a.Commit(t.Context(), []*Entry{e})
			close(ended)
		}()
		time.Sleep(time.Second)
		b.mustFence(2, 7)
		<-ended
		if e.Err != nil || i.Hits() != 1 {
			t.Errorf("%v, %v", e.Err, i)
		}
		if a.Fenced(7, 1) {
			t.Error("a is still fenced")
		}
		want(t, "b begins", b.begin(7, 2, testkit.RunID(1), 0, ns(0, 6)), [3]string{"5", "0-4", ""})
	})
}
