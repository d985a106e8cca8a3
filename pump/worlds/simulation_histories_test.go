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

	"github.com/queuepump/queuepump/internal/proof"
)

var simHistory = flag.String("simulate.histories", "", `"write" testdata/histories.txt, or "compare" worlds with it`)

// historiesFile has a line for each of the first seeds: how many requests its world makes, and a hash
// of the time, operation, object and answer of each. Two plays of one commit give the same, on any
// number of processors, so a change that is to change nothing leaves it.
const historiesFile = "testdata/histories.txt"

// simHistories compares the worlds of the first seeds with those on record, which is of -short:
//
//	go test ./pump/worlds -short -run '^TestSimulationNothing' -simulate.seeds 200 -simulate.histories compare
type simHistories struct {
	mu   sync.Mutex
	made map[uint64]string
}

// keeps reports whether histories are wanted.
func (h *simHistories) keeps() bool { return *simHistory != "" }

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
	if *simHistory == "write" {
		var b bytes.Buffer
		for seed := range uint64(len(h.made)) {
			fmt.Fprintln(&b, h.made[seed])
		}
		proof.Is(t, os.WriteFile(historiesFile, b.Bytes(), 0o644), nil)
		return
	}
	text, err := os.ReadFile(historiesFile)
	must(t, err)
	lines := strings.Split(string(text), "\n")
	var other []uint64
	for seed, line := range h.made {
		if lines[seed] != line {
			other = append(other, seed)
		}
	}
	if slices.Sort(other); len(other) > 0 {
		t.Errorf("the histories of %d seeds are not those of %s: %v", len(other), historiesFile, other)
	}
}
