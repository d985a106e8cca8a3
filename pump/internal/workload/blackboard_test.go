package workload

import (
	"errors"
	"maps"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/testkit"
	"github.com/queuepump/queuepump/pump/storage"
)

func TestTheTalliesOfARunAreThoseOfItsInstancesOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := testkit.Simulated()
		table := testkit.OverTheWire(t, sim, "a")
		if got, err := Tallies(t.Context(), table, "city", testkit.RunID(1)); err != nil || len(got) != 0 {
			t.Errorf("without a table: %v, %v", got, err)
		}
		must(t, table.Create(t.Context()))
		want := map[string]Tally{
			"host-1-aa":              {Handled: 3, Failed: 1, Retried: 2, Quarantined: 4, Duplicates: 5},
			"host-2-bb":              {Handled: 1},
			"Zürich #1/ü":            {Handled: 1 << 60},
			"~0123456789abcdef":      {Handled: 9},
			strings.Repeat("x", 300): {Failed: 1},
		}
		for instance, tally := range want {
			for _, tally := range []Tally{{Handled: 77, Failed: 77}, tally} { // the last one counts
				must(t, NoteTallies(t.Context(), table, "city", instance, RunTally{Run: testkit.RunID(1), Tally: tally}))
			}
		}
		must(t, NoteTallies(t.Context(), table, "city", "host-1-aa", RunTally{Run: testkit.RunID(2), Tally: Tally{Handled: 100}}))
		injected := sim.Inject(azsim.Rule{Service: "table", Operations: []string{"QueryEntities"}, Fault: azsim.AnswerLost, First: 1})
		got, err := Tallies(t.Context(), table, "city", testkit.RunID(1))
		if err != nil || !maps.Equal(got, want) || injected.Hits() == 0 {
			t.Errorf("got %v, %v; %d faults", got, err, injected.Hits())
		}
		if got, err := Tallies(t.Context(), table, "city", testkit.RunID(3)); err != nil || len(got) != 0 {
			t.Errorf("of another run: %v, %v", got, err)
		}
	})
}

func TestADamagedTallyNamesItsRowAndTheOthersAreGiven(t *testing.T) {
	for name, props := range map[string]map[string]any{
		"a negative count":    {"Instance": "a", "Handled": int64(-1)},
		"a text":              {"Instance": "a", "Handled": "many"},
		"two of them":         {"Instance": "a", "Handled": int64(-1), "Retried": int64(-1), "Failed": "x"},
		"of another instance": {"Instance": "b", "Handled": int64(1)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := testkit.NewServer().Client("me")
				must(t, errOf(client.Write(t.Context(), storage.Write{Mode: storage.Upsert, Entity: storage.Entity{
					Partition: "city.progress", Row: testkit.RunID(1).String() + ".a", Properties: props,
				}})))
				good := map[string]Tally{"b": {Handled: 7}, "c": {Retried: 1}}
				for instance, tally := range good {
					must(t, NoteTallies(t.Context(), client, "city", instance, RunTally{Run: testkit.RunID(1), Tally: tally}))
				}
				got, err := Tallies(t.Context(), client, "city", testkit.RunID(1))
				if !errors.Is(err, row.ErrCorrupt) || !strings.Contains(err.Error(), testkit.RunID(1).String()+".a") || !maps.Equal(got, good) {
					t.Errorf("%v, %v", got, err)
				}
				if _, again := Tallies(t.Context(), client, "city", testkit.RunID(1)); again == nil || again.Error() != err.Error() {
					t.Errorf("%v, then %v", err, again)
				}
			})
		})
	}
}
