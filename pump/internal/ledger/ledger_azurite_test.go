package ledger

import (
	"errors"
	"sync"
	"testing"

	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/testkit"
	"github.com/queuepump/queuepump/pump/storage/azure"
	"github.com/queuepump/queuepump/pump/storage/storagetest"
)

func TestOnAzuriteTheLedgerRecordsAndFences(t *testing.T) {
	server := storagetest.StartAzurite(t, "control")
	client := azure.NewTransport(16)
	t.Cleanup(client.CloseIdleConnections)
	account, err := azure.Open(azure.Options{ConnectionString: server.ConnectionString("control"), Transport: client})
	must(t, err)
	table := account.Table(row.TableName)
	must(t, table.Create(t.Context()))
	a, b := openBook(t, table, "a", withSums), openBook(t, table, "b", withSums)
	var all []uint32
	var entries []Entry
	for s := range uint32(64) {
		all = append(all, s)
		entries = append(entries, Entry{Segment: s, Epoch: 1, Run: testkit.RunID(1), Done: ns(0, 1000), Quarantined: ns(1000, 1003), Contributions: sums(0, 10)})
	}
	a.mustFence(1, all...)
	a.mustCommit(entries...)
	a.mustCommit(Entry{Segment: 3, Epoch: 1, Run: testkit.RunID(2), Done: scattered(1, 0, 9)}) // more than the head holds
	a.mustCommit(Entry{Segment: 3, Epoch: 1, Run: testkit.RunID(2), Done: scattered(2, 0, 9)})

	b.mustFence(2, 3, 4)
	want(t, "the next owner", b.begin(3, 2, testkit.RunID(1), 0, ns(0, 1004)), [3]string{"1003", "0-1002", ""})
	want(t, "the next owner", b.begin(3, 2, testkit.RunID(2), 0, ns(15, 19)), [3]string{"15,18", "16-17", ""})
	es := []*Entry{{Segment: 3, Epoch: 1, Run: testkit.RunID(1), Done: ns(1003, 1004)}, {Segment: 5, Epoch: 1, Run: testkit.RunID(1), Done: ns(1003, 1004)}}
	a.Commit(t.Context(), es)
	if !errors.Is(es[0].Err, ErrFenced) || es[1].Err != nil {
		t.Error(es[0].Err, es[1].Err)
	}
	must(t, b.Prune(t.Context(), nil, b.LiveRuns()...))
	r := recordOf(t, table, 3)
	want(t, "what is left", []any{len(r.Runs()), string(r.State()), r.Epoch, len(r.image.layout.all())}, []any{0, "10 tasks, 45", uint64(2), 1})
	progress, err := ReadProgress(t.Context(), table, "city", 128, testkit.RunID(1))
	if err != nil || progress[testkit.RunID(1)].Done[5] != 1001 || progress[testkit.RunID(1)].Quarantined[63] != 3 {
		t.Error(progress, err)
	}

	// Both commit and fence at once, for as long as it takes one of them to be told.
	var wg sync.WaitGroup
	for _, l := range []book{a, b} {
		wg.Go(func() {
			for epoch := uint64(10); epoch < 30; epoch++ {
				if l.t = t; l.token == b.token {
					epoch++
				}
				if _, err := fenceAll(t.Context(), l, holdsOf(epoch, 70)); err != nil && !errors.Is(err, ErrFenced) {
					t.Error(err)
				}
				e := &Entry{Segment: 70, Epoch: epoch, Run: testkit.RunID(1), Done: ns(epoch, epoch+1), Contributions: sums(epoch, epoch+1)}
				if l.Commit(t.Context(), []*Entry{e}); e.Err != nil && !errors.Is(e.Err, ErrFenced) {
					t.Error(e.Err)
				}
			}
		})
	}
	wg.Wait()
	r = recordOf(t, table, 70)
	finished, _ := r.Counts(testkit.RunID(1))
	state, err := sumState{}.Load(r.State())
	if err != nil || state.(*sumOf).tasks != int(finished) || finished == 0 {
		t.Errorf("%d tasks are done, the state says %+v, %v", finished, state, err)
	}
}
