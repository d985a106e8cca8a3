package main

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/queuepump/queuepump/internal/configfile"
	"github.com/queuepump/queuepump/pump/source"
)

func TestTheNameOfAFileSaysItsFormat(t *testing.T) {
	for path, want := range map[string]source.Format{
		"a.jsonl": source.FormatJSONLines, "a.ndjson.gz": source.FormatJSONLines, "dir.csv/a.json": source.FormatJSONLines, "-": source.FormatJSONLines,
		"A.CSV": source.FormatCSV, "a.csv.zst": source.FormatCSV, "*.csv": source.FormatCSV,
		"a.txt": source.FormatLines, "a.log.zstd": source.FormatLines,
		"a": "", "a.gz": "", "a.xml": "",
	} {
		if got := formatByName(path); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}

func TestWhatToReadIsSaidExactlyOnce(t *testing.T) {
	for _, tt := range []struct {
		name  string
		flags sourceFlags
		err   string
	}{
		{"nothing", sourceFlags{}, "nothing says what to read"},
		{"two things", sourceFlags{input: []string{"a.csv"}, exec: "ls"}, "only one of"},
		{"a key for paths", sourceFlags{files: []string{"."}, key: "k"}, "belong to --input and --exec"},
		{"a format for a list", sourceFlags{list: "l", format: "csv"}, "belong to --input and --exec"},
		{"no format", sourceFlags{input: []string{"a.xml"}}, "does not say what its lines are"},
		{"two formats", sourceFlags{input: []string{"a.csv", "b.jsonl"}}, "say different formats"},
		{"a format that is none", sourceFlags{input: []string{"a"}, format: "xml"}, `"xml" is not a format`},
		{"quotes", sourceFlags{exec: "ls 'a"}, "quotes do not match"},
		{"files", sourceFlags{input: []string{"a.csv", "b.csv.gz"}}, ""},
		{"any file with a format", sourceFlags{input: []string{"a.xml"}, format: "lines"}, ""},
		{"a command", sourceFlags{exec: "cat a", key: "k", id: "i"}, ""},
		{"a tree", sourceFlags{files: []string{"."}}, ""},
		{"a list", sourceFlags{list: "l"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := tt.flags.source()
			if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// B5: what can be read only once is refused for repeated distributions, under whatever name and
// flag.
func TestStandardInputIsKnownUnderAllItsNames(t *testing.T) {
	for _, path := range []string{"-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0", "/dev/../dev/stdin"} {
		for flag, f := range map[string]runFlags{
			"--input": {source: sourceFlags{input: []string{path}}},
			"--list":  {source: sourceFlags{list: path}},
		} {
			f.options.Every = 1
			err := f.run(run())
			if err == nil || !strings.Contains(err.Error(), flag+" "+path+" is standard input") {
				t.Errorf("%s %s: %v", flag, path, err)
			}
		}
	}
	f := sourceFlags{input: []string{"stdin", "/dev/fd/3", "a.jsonl"}, list: "list"}
	if got := f.readsStdin(); got != "" {
		t.Errorf("%q was taken for standard input", got)
	}
}

// B2: only what a command gets is cut; this process needs its own environment for the next token.
func TestACommandThatIsReadGetsNoCredentialsAndTheProcessKeepsThem(t *testing.T) {
	t.Setenv("IDENTITY_HEADER", "header-of-a-managed-identity")
	t.Setenv("HARMLESS", "yes")
	f := sourceFlags{exec: "env"}
	src, err := f.source()
	if err != nil {
		t.Fatal(err)
	}
	f.hide(src, &configfile.File{})
	env := src.(*source.TextSource).Env
	if slices.ContainsFunc(env, func(v string) bool { return strings.HasPrefix(v, "IDENTITY_HEADER=") }) || !slices.Contains(env, "HARMLESS=yes") {
		t.Errorf("the command gets %q", env)
	}
	if os.Getenv("IDENTITY_HEADER") == "" {
		t.Error("the process has lost its own")
	}
}
