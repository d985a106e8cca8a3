package worlds

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/queuepump/queuepump/pump/internal/testworld"
)

var simHashes = flag.Bool("simulate.histories", false, "write testdata/histories.txt anew")

// historiesFile has a line for each of the first seeds: how many requests its world makes, and a hash
// of the time, operation, object and answer of each. A change that is to change nothing leaves it.
const historiesFile = "testdata/histories.txt"

// simHistories compares the worlds of the first seeds with those on record. The record is of the
// shorter worlds of -short.
type simHistories struct {
	mu   sync.Mutex
	made map[uint64]string
}

// keeps reports whether worlds are compared: not where they are others, or few of them are played.
func (h *simHistories) keeps() bool {
	return testing.Short() && !testworld.RaceDetector && *simFrom == 0 && *simKindOnly == "" && *simSeeds <= 200
}

// add notes what a world's requests were.
func (h *simHistories) add(seed uint64, w *simWorld) {
	d, n := xxhash.New(), 0
	for _, e := range w.history {
		if e.result != "" { // else it is no request
			_, _ = fmt.Fprintln(d, e)
			n++
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.made[seed] = fmt.Sprintf("%d %d requests %016x", seed, n, d.Sum64())
}

// compare fails where a history is not as on record, or writes the record.
func (h *simHistories) compare(t *testing.T) {
	if *simHashes {
		var b bytes.Buffer
		for seed := range uint64(len(h.made)) {
			fmt.Fprintln(&b, h.made[seed])
		}
		if err := os.WriteFile(historiesFile, b.Bytes(), 0o644); err != nil {
			t.Error(err)
		}
		return
	}
	text, err := os.ReadFile(historiesFile)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	var other []uint64
	for seed, line := range h.made {
		if lines[seed] != line {
			other = append(other, seed)
		}
	}
	if slices.Sort(other); len(other) > 0 {
		t.Errorf("the histories of %d seeds are not those of %s, first of %v: if that is meant, run go test "+
			"./pump/worlds -short -run '^TestSimulationNothing' -simulate.histories", len(other), historiesFile, other[:min(5, len(other))])
	}
}
