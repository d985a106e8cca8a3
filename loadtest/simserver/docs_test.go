package simserver

import (
	"os"
	"strings"
	"testing"

	"github.com/queuepump/queuepump/internal/proof"
)

// The example that docs/testing.md shows is the one that is compiled and run; its tables name
// every kind, word and endpoint.
func TestTheDocumentShowsWhatIsThere(t *testing.T) {
	d, err := proof.ReadFile("../..", "../../docs/testing.md")
	must(t, err)
	example, err := os.ReadFile("example_test.go")
	must(t, err)
	shown := 0
	for _, b := range d.Blocks() {
		if b.Language == "go" {
			shown++
			if !strings.Contains(string(example), b.Text()) {
				t.Errorf("%s:%d: the example of Go is not example_test.go's", d.Path, b.Line)
			}
		}
	}
	proof.Same(t, shown, 1, "examples of Go are shown")
	prose := strings.Join(d.Prose(), "\n")
	for _, k := range kinds {
		if !strings.Contains(prose, "`"+k.name+"`") {
			t.Errorf("%s: the kind %s is missing", d.Path, k.name)
		}
	}
	for _, w := range words {
		if !strings.Contains(prose, "`"+w.name) {
			t.Errorf("%s: the word %s is missing", d.Path, w.name)
		}
	}
}
