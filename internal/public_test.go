package internal_test

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/queuepump/queuepump/internal/proof"
)

var updatePublic = flag.Bool("public.update", false, "write testdata/public.txt")

// TestThePublicNamesAreAsWritten holds what a caller can use: every declaration that `go doc -all`
// shows of the public packages stands in testdata/public.txt, so that a change of it is seen in a
// diff. Comments are left out of it. After an intended change:
//
//	go test ./internal -run '^TestThePublicNamesAreAsWritten$' -public.update
func TestThePublicNamesAreAsWritten(t *testing.T) {
	const golden = "testdata/public.txt"
	got := strings.Join(publicNames(t), "\n") + "\n"
	if *updatePublic {
		must(t, os.WriteFile(golden, []byte(got), 0o644)) //nolint:gosec // all read it
	}
	want, err := os.ReadFile(golden)
	must(t, err)
	if got == string(want) {
		return
	}
	now, before := strings.Split(got, "\n"), strings.Split(string(want), "\n")
	for _, line := range now {
		if !slices.Contains(before, line) {
			t.Errorf("it is new: %s", line)
		}
	}
	for _, line := range before {
		if !slices.Contains(now, line) {
			t.Errorf("it is gone: %s", line)
		}
	}
	t.Errorf("%s says something else of the public packages; -public.update writes it", golden)
}

// output is an Example that is run and compared.
var output = regexp.MustCompile(`(?s)\nfunc Example.*\n\t// (Unordered output|Output):`)

func TestEachPublicPackageHasAnExampleWithAnOutput(t *testing.T) {
	for _, line := range publicNames(t) {
		name, heads := strings.CutPrefix(line, "# ")
		if !heads {
			continue
		}
		files, err := filepath.Glob("../" + name + "/*_test.go")
		must(t, err)
		if !slices.ContainsFunc(files, func(file string) bool {
			text, err := os.ReadFile(file)
			must(t, err)
			return output.Match(text)
		}) {
			t.Errorf("package %s has no Example with an Output", name)
		}
	}
}

// publicNames are the declarations of the public packages, a line each or several.
func publicNames(t *testing.T) (lines []string) {
	t.Helper()
	out, err := exec.Command("go", "list", "../pump/...", "../codec/...", "../shardmap/...").Output()
	must(t, err)
	packages := 0
	for p := range strings.FieldsSeq(string(out)) {
		if strings.Contains(p, "/internal") {
			continue
		}
		text, err := exec.Command("go", "doc", "-all", p).Output()
		if err != nil {
			t.Fatalf("%s: %v", p, err)
		}
		if declared := declarations(string(text)); len(declared) > 0 {
			lines = append(append(lines, "# "+strings.TrimPrefix(p, module)), declared...)
			packages++
		}
	}
	if packages < 15 {
		t.Fatalf("only %d public packages are found", packages)
	}
	return lines
}

var (
	// remark is a comment that is a line or the end of one.
	remark = regexp.MustCompile(`(^|[ \t]+)//.*$`)
	spaces = regexp.MustCompile(` {2,}`)
)

// declarations are the lines of `go doc -all` that declare something. Before its first heading
// stands the package's comment; those of declarations are indented by spaces, and what is declared
// by tabs.
func declarations(text string) (lines []string) {
	declaring := false
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		switch line {
		case "CONSTANTS", "VARIABLES", "FUNCTIONS", "TYPES":
			declaring = true
			continue
		}
		if !declaring || strings.HasPrefix(line, "    ") {
			continue
		}
		// Where names and types are aligned, one new name would change the lines of all.
		line = spaces.ReplaceAllString(remark.ReplaceAllString(line, ""), " ")
		if strings.TrimSpace(line) != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

func TestADeclarationIsWhatIsNoComment(t *testing.T) {
	text := "package p // import \"p\"\n\nPackage p does.\n\nTYPES\n\ntype T struct {\n\t// A is.\n" +
		"\tA    int // of it\n\tLong string `json:\"a\"`\n\t// Has unexported fields.\n}\n" +
		"    T is a type.\n\n        x := T{}\n\nfunc (t T) URL() string\n"
	want := "type T struct {\n\tA int\n\tLong string `json:\"a\"`\n}\nfunc (t T) URL() string"
	proof.Same(t, strings.Join(declarations(text), "\n"), want)
}
