package status

import (
	"testing"

	"github.com/queuepump/queuepump/internal/proof"
)

// A key comes from a task: what a command is shown with it means nothing else to a shell.
func TestACommandNamesAKeyForAShell(t *testing.T) {
	for key, want := range map[string]string{
		"customer-17": "--key customer-17",
		"Oslo East":   "--key 'Oslo East'",
		"$(reboot)":   "--key '$(reboot)'",
		"it's":        `--key 'it'\''s'`,
	} {
		proof.Same(t, (&PausedPart{Key: key}).Flag(), want)
	}
	proof.Same(t, (&PausedPart{Run: "abcd"}).Flag(), "--run abcd")
}
