package status

import "testing"

// A key comes from a task: what a command is shown with it means nothing else to a shell.
func TestACommandNamesAKeyForAShell(t *testing.T) {
	for key, want := range map[string]string{
		"customer-17": "--key customer-17",
		"Oslo East":   "--key 'Oslo East'",
		"$(reboot)":   "--key '$(reboot)'",
		"it's":        `--key 'it'\''s'`,
	} {
		if got := (&PausedPart{Key: key}).Flag(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if got := (&PausedPart{Run: "abcd"}).Flag(); got != "--run abcd" {
		t.Error(got)
	}
}
