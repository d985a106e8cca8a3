package worlds

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
)

// resumeSim gives the sum of earlier plays, from the file of -simulate.state, and a function that
// stores the sum. Worlds of another commit or of other kinds are no part of the same play.
func resumeSim(t *testing.T) (sum *simSum, keep func()) {
	sum = newSimSum()
	if *simKept == "" {
		return sum, func() {}
	}
	name := *simKept
	sum.Commit = simCommit() + " " + *simKindOnly
	text, err := os.ReadFile(name)
	if err == nil {
		before := newSimSum()
		if err = json.Unmarshal(text, before); err == nil && before.Commit == sum.Commit {
			sum = before
			t.Logf("going on after %d worlds, as %s says", sum.Worlds, name)
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("%s: %v (remove it to begin anew)", name, err)
	}
	return sum, func() {
		proof.Is(t, sum.store(name), nil, "what was played could not be stored")
	}
}

// store replaces the file as a whole: an interruption leaves the one from before.
func (sum *simSum) store(name string) error {
	sum.mu.Lock()
	defer sum.mu.Unlock()
	before := sum.Took
	sum.Took += time.Since(sum.began)
	text, err := json.Marshal(sum)
	sum.Took = before
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(name+".new", text, 0o644); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

// A play that was interrupted says in the end what one that was not says.
func TestAPlayOfSimulatedWorldsThatWasInterruptedGoesOn(t *testing.T) {
	before := *simKept
	defer func() { *simKept = before }()
	*simKept = filepath.Join(t.TempDir(), "state.json")
	first, keep := resumeSim(t)
	world := func(seed uint64, tasks int) *simWorld {
		w := &simWorld{plan: simPlanOf(seed), counts: map[string]int{"effects": tasks}, lasted: time.Minute, recovery: time.Duration(seed) * time.Second, allowed: time.Hour}
		return w
	}
	first.add(world(3, 10), time.Second)
	first.add(world(4, 20), time.Second)
	keep()
	again, keep := resumeSim(t)
	if !again.Played[3] || !again.Played[4] || again.Played[5] || again.Worlds != 2 {
		t.Fatalf("it goes on with %+v", again)
	}
	again.add(world(5, 30), time.Second)
	keep()
	all, _ := resumeSim(t)
	if all.Worlds != 3 || all.Counts["effects"] != 60 || all.Virtual != 3*time.Minute || all.Slowest != 5 {
		t.Errorf("in the end it says %+v", all)
	}
	worlds := 0
	for _, k := range all.Kinds {
		worlds += k.Worlds
	}
	proof.Same(t, worlds, 3, "worlds are of a kind")
	*simKindOnly = "another"
	defer func() { *simKindOnly = "" }()
	other, _ := resumeSim(t)
	proof.Same(t, other.Worlds, 0, "a play of other kinds of worlds goes on with these")
}
