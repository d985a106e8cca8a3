package cli

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/queuepump/queuepump/internal/configfile"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/source"
)

func TestTheNameOfAFileSaysItsFormat(t *testing.T) {
	for path, want := range map[string]source.Format{
		"a.jsonl": source.FormatJSONLines, "a.ndjson.gz": source.FormatJSONLines, "dir.csv/a.json": source.FormatJSONLines, "-": source.FormatJSONLines,
		"A.CSV": source.FormatCSV, "a.csv.zst": source.FormatCSV, "*.csv": source.FormatCSV,
		"a.txt": source.FormatLines, "a.log.zstd": source.FormatLines,
		"a": "", "a.gz": "", "a.xml": "",
	} {
		proof.Same(t, formatByName(path), want, path)
	}
}

func TestWhatToReadIsSaidExactlyOnce(t *testing.T) {
	for _, tt := range []struct {
		name  string
		flags SourceFlags
		err   string
	}{
		{"nothing", SourceFlags{}, "nothing says what to read"},
		{"two things", SourceFlags{input: []string{"a.csv"}, exec: "ls"}, "only one of"},
		{"a key for paths", SourceFlags{files: []string{"."}, key: "k"}, "belong to --input and --exec"},
		{"a format for a list", SourceFlags{list: "l", format: "csv"}, "belong to --input and --exec"},
		{"no format", SourceFlags{input: []string{"a.xml"}}, "does not say what its lines are"},
		{"two formats", SourceFlags{input: []string{"a.csv", "b.jsonl"}}, "say different formats"},
		{"a format that is none", SourceFlags{input: []string{"a"}, format: "xml"}, `"xml" is not a format`},
		{"quotes", SourceFlags{exec: "ls 'a"}, "quotes do not match"},
		{"files", SourceFlags{input: []string{"a.csv", "b.csv.gz"}}, ""},
		{"any file with a format", SourceFlags{input: []string{"a.xml"}, format: "lines"}, ""},
		{"a command", SourceFlags{exec: "cat a", key: "k", id: "i"}, ""},
		{"a tree", SourceFlags{files: []string{"."}}, ""},
		{"a list", SourceFlags{list: "l"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := tt.flags.Source()
			if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// B2: only what a command gets is cut; this process needs its own environment for the next token.
func TestACommandThatIsReadGetsNoCredentialsAndTheProcessKeepsThem(t *testing.T) {
	t.Setenv("IDENTITY_HEADER", "header-of-a-managed-identity")
	t.Setenv("HARMLESS", "yes")
	f := SourceFlags{exec: "env"}
	src, err := f.Source()
	must(t, err)
	f.Hide(src, &configfile.File{})
	env := src.(*source.TextSource).Env
	if slices.ContainsFunc(env, func(v string) bool { return strings.HasPrefix(v, "IDENTITY_HEADER=") }) || !slices.Contains(env, "HARMLESS=yes") {
		t.Errorf("the command gets %q", env)
	}
	if os.Getenv("IDENTITY_HEADER") == "" {
		t.Error("the process has lost its own")
	}
}
