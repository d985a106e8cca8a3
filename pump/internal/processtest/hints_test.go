package processtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
)

const (
	root = "../../.."
	// ours is how a command of ours begins, with the folder or the prefix before it.
	ours = `[-\w./]*\b(?:distributor|processor|loadtest|azsim) `
)

var (
	// An example of a command's help is a whole line. Between backquotes all is a command.
	example    = regexp.MustCompile(`(?m)^  +(` + ours + `.*)`)
	backquoted = regexp.MustCompile("`(" + ours + "[^`]+)`")
	// Words that may be a sentence's, as in "a distributor runs", are a command only with a second one.
	inProse = regexp.MustCompile(ours + `(?:runs (?:list|show|wait|repair|end)|run|accounts|check|` +
		`completion|counts|demo|doctor|gate|generate|help|ids|page|peek|plan|quarantine|report|` +
		`results|serve|status|top|version|workload)\b(?:[^\n` + "`" + `;,()"|<.:?!]|[.:?!]\S)*`)
	goesOn = regexp.MustCompile(`(\||&&)\n *|\\\n *`)
	// A command, or a flag of it, is named: what they need is no part of the name.
	named = regexp.MustCompile(`^[a-z -]+$`)
	// Words behind a command may be the sentence's.
	word    = regexp.MustCompile(` +[a-z]+$`)
	unknown = regexp.MustCompile(`there is no command|unknown|unexpected EOF|syntax error`)
	// Nothing is wrong with a command that asks somebody, or reads what no load test wrote.
	right   = regexp.MustCompile(`is not a terminal|needs a terminal|is not a result of a load test`)
	samples = strings.NewReplacer("--config %s", "--config pump.yaml", "resume %s", "resume --key a",
		"--yes orders", "--yes test", "rate N", "rate 3", "%[1]s", "acct01", "%s", "acct01", "$RUN",
		"acct01", "RUN", "acct01", "ACCOUNT", "acct01", "NAME", "acct01", "FILE", "tasks.jsonl",
		"CMD", "cat", " /", " ./")
)

// texts are the strings of a file of Go, in which sums of strings are one.
func texts(t *testing.T, file string) (all []string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	must(t, err)
	var value func(e ast.Expr) string
	value = func(e ast.Expr) string {
		switch e := e.(type) {
		case *ast.BinaryExpr:
			return value(e.X) + value(e.Y)
		case *ast.BasicLit:
			if s, err := strconv.Unquote(e.Value); e.Kind == token.STRING && err == nil {
				return s
			}
		}
		return "X"
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch e := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.BinaryExpr:
			all = append(all, value(e))
			return e.Op != token.ADD
		case *ast.BasicLit:
			all = append(all, value(e))
		}
		return true
	})
	return all
}

// hintsIn adds the commands of a text that a reader may paste, each with whether it is an example.
func hintsIn(text string, into map[string]bool) {
	take := func(examples bool) func(string) string {
		return func(found string) string {
			for line := range strings.SplitSeq(strings.Trim(found, "`"), "&& ") {
				line = strings.TrimSuffix(strings.Join(strings.Fields(line), " "), " &")
				into[line] = into[line] || examples
			}
			return ""
		}
	}
	text = example.ReplaceAllStringFunc(goesOn.ReplaceAllString(text, "$1 "), take(true))
	text = backquoted.ReplaceAllStringFunc(text, take(false))
	for _, line := range inProse.FindAllString(text, -1) {
		take(false)(strings.TrimRight(line, " .:?!'"))
	}
}

// standIns are what examples name and a test has not: programs of others, which need Azure, a
// cluster or what the machine may lack, workers, and files. All read what they get and print a word.
var standIns = strings.Fields("tools/az tools/kubectl tools/jq tools/go tools/python3 work worker " +
	"fetch-city convert.sh migrate-database tasks.jsonl sample.jsonl sample.csv part-1.csv.gz acct01 " +
	"server.crt server.key some/src/a data/images/a shared/tasks.jsonl etc/queuepump/tokens bin/a " +
	"etc/prometheus/rules/a before.json after.json b1.json " +
	"out/loadtest-ramp-20260102-150405.json out/loadtest-saturate-20260102-150405.json")

// paste types a command where the package is installed, the configuration is right, and no workload
// is yet. So only what is typed can be wrong, which status 2 says, and paste then gives the message.
// An endless command is right when its time is over.
func paste(t *testing.T, line string, isExample bool, seconds int) string {
	t.Helper()
	w := newNamedWorld(t, azsim.Config{Limits: azsim.NoLimits()}, "acct0", 2, 1)
	for _, name := range standIns {
		must(t, os.MkdirAll(filepath.Dir(w.path(name)), 0o700))
		writeText(t, w.path(name), "#!/bin/sh\ncat >/dev/null; echo some\n")
		must(t, os.Chmod(w.path(name), 0o700)) //nolint:gosec // it is run
	}
	appendText(t, w.config, "delivery: once\n")
	release, err := os.ReadFile(root + "/.goreleaser.yaml")
	must(t, err)
	for _, m := range regexp.MustCompile(`\bbinary: ([\w-]+)`).FindAllStringSubmatch(string(release), -1) {
		must(t, os.Symlink(filepath.Join(bin, m[1]), w.path("bin/"+m[1])))
	}
	for {
		cmd := exec.Command("timeout", "-k", "20", strconv.Itoa(seconds),
			"bash", "-o", "pipefail", "-c", samples.Replace(line))
		cmd.Dir, cmd.Env = w.dir, append(os.Environ(), "TOKEN=t",
			"PATH="+w.path("bin")+":"+w.path("tools")+":/usr/bin:/bin")
		p := startAs(t, "bash", cmd)
		status, said := p.wait(), p.log.String()
		switch {
		case status != 2 && status != 126 && status != 127, right.MatchString(said):
			return ""
		case isExample || status != 2 || unknown.MatchString(said):
			return said
		case named.MatchString(line):
			return ""
		case !word.MatchString(line):
			return said
		}
		line = word.ReplaceAllString(line, "")
	}
}

// TestEachPrintedHintCanBePasted pastes every command in a text of the code that the programs link,
// and in the page, into a shell of a machine where the package is installed.
func TestEachPrintedHintCanBePasted(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("go", "list", "-deps", "-f",
		`{{if .Module}}{{if .Module.Main}}{{$d := .Dir}}{{range .GoFiles}}{{$d}}/{{.}}{{"\n"}}{{end}}`+
			`{{range .EmbedFiles}}{{$d}}/{{.}}{{"\n"}}{{end}}{{end}}{{end}}`,
		root+"/cmd/distributor", root+"/cmd/processor", root+"/loadtest",
		root+"/loadtest/azsim/cmd/azsim").Output()
	must(t, err)
	hints := map[string]bool{}
	for _, file := range strings.Fields(string(out)) {
		if filepath.Ext(file) == ".go" {
			for _, text := range texts(t, file) {
				hintsIn(text, hints)
			}
		} else if text, err := os.ReadFile(file); !strings.HasPrefix(filepath.Base(file), "uPlot") {
			must(t, err)
			hintsIn(string(text), hints)
		}
	}
	if len(hints) < 150 {
		t.Errorf("only %d commands were found in what the programs print", len(hints))
	}
	for line, isExample := range hints {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			proof.Same(t, paste(t, line, isExample, 2), "")
		})
	}
	for _, text := range []string{
		"see: queuepump-distributor runs list", "try `bin/processor run --quiet`", // no such name
		"`distributor runs lst`", "see: distributor runs list --no-such", "  distributor runs wait",
		"  processor run --exec 'python3 worker.py --discard", "`distributor peek --key 'O`",
	} {
		wrong := map[string]bool{}
		hintsIn(text, wrong)
		for line, isExample := range wrong {
			t.Run(text, func(t *testing.T) {
				t.Parallel()
				if paste(t, line, isExample, 60) == "" {
					t.Error("it works")
				}
			})
		}
	}
}
