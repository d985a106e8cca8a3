package operate

import (
	"strings"
	"testing"

	"github.com/queuepump/queuepump/pump/workloads"
)

// Where processors could not be read it does not say that there are none.
func TestAPauseSaysThatProcessorsCouldNotBeRead(t *testing.T) {
	for _, text := range []string{
		pauseText(workloads.PauseChange{Paused: true, Changed: true, Processors: -1}),
		pauseText(workloads.PauseChange{Changed: true, Processors: -1}),
		partText(workloads.PartChange{Paused: true, Changed: true, Processors: -1}),
	} {
		if !strings.Contains(text, "who processes it could not be read") {
			t.Error(text)
		}
	}
}
