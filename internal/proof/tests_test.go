package proof

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	// A call of go test that names its tests, and folders without a variable.
	named    = regexp.MustCompile(`(?:cd (\S+) && .*)?(?:go|\(GO\)) test .*-run '?([^' ]+)`)
	folders  = regexp.MustCompile(`\./[\w/]+\b`)
	testFunc = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
)

// TestTestsThatCommandsNameAreThere: go test is content when -run names none.
func TestTestsThatCommandsNameAreThere(t *testing.T) {
	n := 0
	check := func(where, line string) {
		looked, problem := lacking(t, line)
		if looked {
			n++
		}
		Same(t, problem, "", where)
	}
	for _, d := range documents(t) {
		for _, line := range d.Lines {
			for _, code := range inline.FindAllString(line, -1) {
				check(d.Path, strings.Trim(code, "`"))
			}
		}
	}
	text, err := os.ReadFile(filepath.Join(root, "Makefile"))
	must(t, err)
	for line := range strings.Lines(string(text)) {
		check("Makefile", strings.ReplaceAll(line, "$$", "$"))
	}
	if n < 20 {
		t.Errorf("only %d commands were looked up", n)
	}
	for line, there := range map[string]bool{
		"go test -v -run TestP82 ./pump":                                 false,
		"go test -v -run TestP82 ./pump/processor":                       true,
		"cd pump/worlds && $(GO) test -cpu 1 -run '^TestSimulationNoth'": true,
		"cd pump/worlds && $(GO) test -cpu 1 -run '^TestSimulationNone'": false,
	} {
		if _, problem := lacking(t, line); (problem == "") != there {
			t.Errorf("%s: %q", line, problem)
		}
	}
}

// lacking looks the tests of a command up, if it names some, and says what is wrong.
func lacking(t *testing.T, command string) (looked bool, problem string) {
	t.Helper()
	m := named.FindStringSubmatch(command)
	if m == nil || strings.Contains(m[2], "$(") || m[2] == "^$" {
		return false, ""
	}
	in := folders.FindAllString(command, -1)
	if m[1] != "" {
		in = []string{m[1]}
	}
	pattern, err := regexp.Compile(m[2])
	if err != nil {
		return true, err.Error()
	}
	for _, folder := range in {
		files, err := filepath.Glob(filepath.Join(root, folder, "*_test.go"))
		must(t, err)
		for _, file := range files {
			text, err := os.ReadFile(file)
			must(t, err)
			for _, f := range testFunc.FindAllSubmatch(text, -1) {
				if pattern.Match(f[1]) {
					return true, ""
				}
			}
		}
	}
	if len(in) == 0 {
		return false, "" // packages that a variable names
	}
	return true, "no test of " + strings.Join(in, " ") + " is " + m[2]
}
