package operate

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/queuepump/queuepump/internal/admin"
	"github.com/queuepump/queuepump/internal/proof"
)

func generateRuns(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := root()
	var out strings.Builder
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(append([]string{"generate"}, args...))
	err := cmd.Execute()
	return out.String(), err
}

func TestEachKindOfFileIsPrintedOrWritten(t *testing.T) {
	for _, kind := range admin.GeneratedKinds() {
		args := []string{kind}
		if kind == "bicep" || kind == "terraform" {
			args = append(args, "--account", "pumpone", "--account", "pumptwo")
		}
		text, err := generateRuns(t, args...)
		if err != nil || len(text) < 500 || !strings.Contains(text, "queuepump") {
			t.Errorf("%s: %v\n%s", kind, err, text)
		}
		dir := t.TempDir()
		named, err := generateRuns(t, append(args, "--out", dir)...)
		proof.Is(t, err, nil, kind)
		for path := range strings.FieldsSeq(named) {
			written, err := os.ReadFile(path)
			if err != nil || filepath.Dir(path) != dir || !strings.Contains(text, string(written)) {
				t.Errorf("%s: %s is not what is printed (%v)", kind, path, err)
			}
		}
	}
}

func TestWhatCannotBeGeneratedNamesItsFlag(t *testing.T) {
	for flag, args := range map[string][]string{
		"--account": {"bicep"}, "--name": {"kubernetes", "--name", "A B"}, "--workload": {"keda", "--workload", `x"`},
	} {
		proof.Says(t, proof.ErrOf(generateRuns(t, args...)), flag, args)
	}
}
