package service

import (
	"os"
	"strings"
	"testing"

	"github.com/queuepump/queuepump/internal/proof"
)

const (
	// poller is the file with the loop that is stuck in a build for the trial, and before is the
	// line that it is stuck at: once it finds a file, which it removes, so that the next process is
	// not stuck. It holds no lock there: the process would be found dead by that, and not by its loop.
	poller = "pump/processor/internal/poll/poll.go"
	before = "\t\twait := p.round(ctx)\n"
	plant  = "\t\tif os.Remove(\"stuck\") == nil {\n\t\t\tselect {}\n\t\t}\n"
)

// spoil plants a poller that can be had to be stuck into the text of its file.
func spoil(text string) string {
	if strings.Count(text, before) != 1 {
		return ""
	}
	text = strings.Replace(text, before, plant+before, 1)
	return strings.Replace(text, "import (\n", "import (\n\t\"os\"\n", 1)
}

// The trial takes root and minutes; that its plant still fits is seen at once.
func TestThePlantFitsThePoller(t *testing.T) {
	text, err := os.ReadFile("../../../" + poller)
	proof.Must(t, err)
	spoilt := spoil(string(text))
	if !strings.Contains(spoilt, plant+before) || !strings.Contains(spoilt, "\t\"os\"\n") {
		t.Errorf("the poller is not spoilt: find a line in %s as it is now\n%s", poller, spoilt)
	}
}
