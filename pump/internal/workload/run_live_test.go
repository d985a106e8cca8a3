package workload

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/testkit"
)

// A18: a leader that was replaced, and does not know it yet, must not end the run that its
// successor distributes.
func TestADeposedLeaderNeitherBreaksNorSealsTheRunOfItsSuccessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := NewRuns(testkit.NewServer().Client("me"), "city")
		old, next := runs.By(7), runs.By(8)
		id := testkit.RunID(1)
		must(t, old.Create(t.Context(), Run{ID: id, Mode: "every"}))
		if run, err := next.Take(t.Context(), id); err != nil || run.Epoch != 8 || run.State != RunOpen {
			t.Fatalf("%+v, %v", run, err)
		}
		for what, err := range map[string]error{
			"break": old.Break(t.Context(), id, "the source changed"), "seal": old.Seal(t.Context(), id, []uint64{1}),
			"break by nobody": runs.Break(t.Context(), id, "x"), "beat": old.Beat(t.Context(), id, Pulse{Every: time.Second}),
		} {
			proof.Is(t, err, pump.ErrRunState, what)
		}
		proof.Is(t, proof.ErrOf(old.Take(t.Context(), id)), pump.ErrRunState, "taken back")
		if run, err := runs.Get(t.Context(), id); err != nil || run.State != RunOpen {
			t.Errorf("%+v, %v", run, err)
		}
		must(t, errors.Join(next.Beat(t.Context(), id, Pulse{Every: time.Second}), next.Seal(t.Context(), id, []uint64{3})))
	})
}

func liveRunsOf(t *testing.T, runs *Runs) map[codec.RunID]LiveRun {
	t.Helper()
	all, err := runs.Live(t.Context())
	must(t, err)
	byID := map[codec.RunID]LiveRun{}
	for _, l := range all {
		byID[l.ID] = l
	}
	return byID
}

func TestWhatLivesIsListedWithEachChangeAndNoLonger(t *testing.T) {
	testkit.OnSim(t, func(t *testing.T, sim *azsim.Sim) {
		runs := NewRuns(testkit.OverTheWire(t, sim, "a"), "city")
		if all, err := runs.Live(t.Context()); err != nil || len(all) != 0 {
			t.Fatalf("%v, %v", all, err)
		}
		must(t, runs.table.Create(t.Context()))
		for n := range byte(3) {
			must(t, runs.Create(t.Context(), Run{ID: testkit.RunID(n + 1), Mode: "client", Instance: "me", Beat: time.Second}))
		}
		before := liveRunsOf(t, runs)
		if l := before[testkit.RunID(2)]; len(before) != 3 || l.State != RunOpen || l.Mode != "client" || l.Instance != "me" || l.Beat != time.Second || l.Err != nil {
			t.Errorf("%+v", before)
		}
		must(t, errors.Join(
			runs.Beat(t.Context(), testkit.RunID(1), Pulse{Every: 2 * time.Second}), runs.Seal(t.Context(), testkit.RunID(2), []uint64{4, 5}),
			runs.closeWith(t.Context(), testkit.RunID(2), 2, anyRun), runs.Break(t.Context(), testkit.RunID(3), "why"),
		))
		now := liveRunsOf(t, runs)
		if l := now[testkit.RunID(1)]; l.Version == before[testkit.RunID(1)].Version || l.Beat != 2*time.Second || l.State != RunOpen {
			t.Errorf("after a beat: %+v", l)
		}
		if l := now[testkit.RunID(2)]; l.State != RunClosed || l.Tasks != 9 || l.Rest != 2 {
			t.Errorf("closed: %+v", l)
		}
		proof.Same(t, now[testkit.RunID(3)].State, RunBroken, "broken")
		// As it was listed it is forgotten, and what has changed since stays.
		must(t, runs.End(t.Context(), testkit.RunID(3), true, "by hand"))
		must(t, runs.Forget(t.Context(), []LiveRun{now[testkit.RunID(2)], now[testkit.RunID(3)], {ID: testkit.RunID(9), Version: now[testkit.RunID(2)].Version}}))
		now = liveRunsOf(t, runs)
		if l := now[testkit.RunID(3)]; len(now) != 2 || l.State != RunEnded || !l.Drop || l.Over {
			t.Errorf("%+v", now)
		}
		// A run whose row is gone is found once, and then listed.
		if run, err := runs.Adopt(t.Context(), testkit.RunID(2)); err != nil || run.State != RunClosed || run.Rest != 2 {
			t.Errorf("%+v, %v", run, err)
		}
		if l := liveRunsOf(t, runs)[testkit.RunID(2)]; l.State != RunClosed || l.Tasks != 9 {
			t.Errorf("%+v", l)
		}
		proof.Is(t, proof.ErrOf(runs.Adopt(t.Context(), testkit.RunID(9))), pump.ErrNoRun)
	})
}

func TestABeatTellsWhetherTheRunMayGoOn(t *testing.T) {
	testkit.OnServer(t, "me", func(t *testing.T, server *testkit.Server, client *testkit.Client) {
		runs, others := NewRuns(client, "city"), NewRuns(server.Client("other"), "city")
		id := testkit.RunID(1)
		must(t, runs.Create(t.Context(), Run{ID: id, Beat: time.Second}))
		beat := func() error { return runs.Beat(t.Context(), id, Pulse{Every: time.Second}) }
		must(t, beat())
		requests := len(client.Sent())
		if err := beat(); err != nil || len(client.Sent()) != requests+1 {
			t.Errorf("a beat is %d requests: %v", len(client.Sent())-requests, err)
		}
		// Who comes back after its run was given up goes on.
		must(t, others.Abandon(t.Context(), id, "silent"))
		must(t, beat())
		if run, err := runs.Get(t.Context(), id); err != nil || run.State != RunOpen {
			t.Errorf("%+v, %v", run, err)
		}
		must(t, others.End(t.Context(), id, false, "by hand"))
		proof.Is(t, beat(), pump.ErrRunState, "an ended run beats")
		proof.Is(t, runs.Seal(t.Context(), id, []uint64{1}), pump.ErrRunState, "an ended run is sealed")
		for n := range 10_000 { // runs that this process has had
			runs.beats.rows[codec.RunID{1, byte(n >> 8), byte(n)}] = row.Version[liveBeat]{}
		}
		must(t, errors.Join(runs.Create(t.Context(), Run{ID: testkit.RunID(2)}),
			runs.Beat(t.Context(), testkit.RunID(2), Pulse{}), runs.Beat(t.Context(), testkit.RunID(2), Pulse{})))
		proof.Same(t, len(runs.beats.rows), 1, "rows are kept")
	})
}

// A closed run with tasks in quarantine is stored as a sealed one that has a rest.
func TestAClosedRunWithARestIsStoredAsSealed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := testkit.NewServer()
		runs := NewRuns(server.Client("me"), "city")
		rest, ended := testkit.RunID(1), testkit.RunID(2)
		for _, id := range []codec.RunID{rest, ended} {
			must(t, runs.Create(t.Context(), Run{ID: id}))
		}
		must(t, errors.Join(runs.Seal(t.Context(), rest, []uint64{3}), runs.closeWith(t.Context(), rest, 1, anyRun), runs.End(t.Context(), ended, false, "x")))
		proof.Same(t, server.Rows["city.runs/"+rest.String()].Properties["State"], "sealed",
			"state is stored as")
		proof.Same(t, server.Rows["city.runs/"+ended.String()].Properties["State"], "ended",
			"state is stored as")
		if run, err := runs.Get(t.Context(), rest); err != nil || run.State != RunClosed || run.Rest != 1 {
			t.Errorf("%+v, %v", run, err)
		}
	})
}

// Whatever is lost on the way, the row among those that live says what the run's row says.
func TestARunAndItsRowAmongThoseThatLiveChangeTogether(t *testing.T) {
	for name, f := range map[string]testkit.Fault{"answers lost": testkit.LostAnswer, "requests lost": testkit.LostRequest, "late": testkit.LandsLate(30 * time.Millisecond)} {
		t.Run(name, func(t *testing.T) {
			testkit.OnServer(t, "me", func(t *testing.T, server *testkit.Server, client *testkit.Client) {
				client.SetFault(func(this testkit.Call) testkit.Fault {
					if this.Op == "write" && this.N%2 == 1 {
						return f
					}
					return testkit.Fault{}
				})
				runs := NewRuns(client, "city")
				for i, change := range []func(codec.RunID) error{
					func(id codec.RunID) error { return runs.Seal(t.Context(), id, []uint64{1}) },
					func(id codec.RunID) error { return runs.Break(t.Context(), id, "x") },
					func(id codec.RunID) error { return runs.End(t.Context(), id, true, "x") },
					func(id codec.RunID) error { return runs.Abandon(t.Context(), id, "x") },
				} {
					id := testkit.RunID(byte(i + 1))
					must(t, runs.Create(t.Context(), Run{ID: id}))
					must(t, change(id))
					run, err := runs.Get(t.Context(), id)
					if live := server.Rows["city.runs/"+liveKey(id)].Properties["State"]; err != nil || fmt.Sprint(live) != string(run.State) || run.State == RunOpen {
						t.Errorf("the run is %s, and listed as %v: %v", run.State, live, err)
					}
				}
			})
		})
	}
}

// anyRun lets a run be closed whatever the ledger has of it.
func anyRun(*Run) error { return nil }

// A run that was closed with a rest in quarantine is stored as sealed, but it is finished.
func TestARunThatIsClosedWithARestIsFinished(t *testing.T) {
	testkit.OnSim(t, func(t *testing.T, sim *azsim.Sim) {
		runs := NewRuns(testkit.OverTheWire(t, sim, "a"), "city")
		err := runs.table.Create(t.Context())
		for n := range byte(4) {
			err = errors.Join(err, runs.Create(t.Context(), Run{ID: testkit.RunID(n + 1), Mode: "client", Instance: "me"}))
		}
		for n := range byte(3) {
			err = errors.Join(err, runs.Seal(t.Context(), testkit.RunID(n+1), []uint64{4, 5}))
		}
		for n := range byte(2) {
			err = errors.Join(err, runs.closeWith(t.Context(), testkit.RunID(n+1), uint64(n), anyRun))
		}
		must(t, err)
		for sealed, want := range map[bool][]codec.RunID{true: {testkit.RunID(4), testkit.RunID(3)}, false: {testkit.RunID(4)}} {
			if ids, err := runs.Unfinished(t.Context(), sealed, 9); err != nil || !slices.Equal(ids, want) {
				t.Errorf("with sealed ones %v: %v are not finished, want %v; %v", sealed, ids, want, err)
			}
		}
		counts, all, err := runs.CountStates(t.Context())
		if want := map[RunState]int{RunOpen: 1, RunSealed: 1, RunClosed: 2}; err != nil || !all || !maps.Equal(counts, want) {
			t.Errorf("%v, want %v; %v, %v", counts, want, all, err)
		}
	})
}

// P6.5: from its first write on, and through each change, the row says which accounts its client has.
func TestTheAccountsOfAClientStandInItsRowThroughEachChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := NewRuns(testkit.NewServer().Client("me"), "city")
		id := testkit.RunID(1)
		has := func(when string) {
			proof.Alike(t, liveRunsOf(t, runs)[id].Accounts, []string{"a1", "a2"}, when)
		}
		for _, step := range []struct {
			what string
			err  error
		}{
			{"created", runs.Create(t.Context(), Run{ID: id, Mode: "client", Accounts: []string{"a1", "a2"}})},
			{"abandoned", runs.Abandon(t.Context(), id, "silent")},
			{"taken", second(runs.Take(t.Context(), id))},
		} {
			if step.err != nil {
				t.Fatalf("%s: %v", step.what, step.err)
			}
		}
		has("opened again")
		l := liveRunsOf(t, runs)[id]
		l.State = RunBroken // as a program of before would have listed it
		must(t, runs.Correct(t.Context(), l))
		has("corrected")
	})
}

func second[T any](_ T, err error) error { return err }
