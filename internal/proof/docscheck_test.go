package proof

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// must ends a test with an error.
var must = Must

const root = "../.."

func documents(t *testing.T) []Document {
	t.Helper()
	docs, err := Read(root)
	must(t, err)
	if len(docs) < 10 {
		t.Fatalf("only %d documents were found", len(docs))
	}
	return docs
}

// The README shows how to begin, the design how all of it hangs together; what is longer belongs
// elsewhere. The other documents are for users, but for four.
func TestTheDocumentsAreFewAndShort(t *testing.T) {
	users := -4 // design, protocols, formats, failures
	for _, d := range documents(t) {
		most := map[string]int{"README.md": 250, "docs/design.md": 300, "loadtest/azsim/README.md": 60}[d.Path]
		if most > 0 && len(d.Lines) > most {
			t.Errorf("%s has %d lines, more than %d", d.Path, len(d.Lines), most)
		}
		if filepath.Dir(d.Path) == "docs" {
			users++
		}
	}
	if users > 12 {
		t.Errorf("there are %d documents for users, more than 12", users)
	}
}

func TestLinesAreAtMostAHundredCharacters(t *testing.T) {
	for _, d := range documents(t) {
		for _, problem := range longLines(d) {
			t.Error(problem)
		}
	}
}

// longLines leaves out tables and the targets of links, which cannot be broken.
func longLines(d Document) (problems []string) {
	for i, line := range d.Prose() {
		free := strings.HasPrefix(line, "|") || target.MatchString(line)
		if n := utf8.RuneCountInString(line); n > 100 && !free {
			problems = append(problems, fmt.Sprintf("%s:%d: %d characters", d.Path, i+1, n))
		}
	}
	return problems
}

func TestRelativeLinksLeadSomewhere(t *testing.T) {
	for _, d := range documents(t) {
		for _, problem := range deadLinks(t, d) {
			t.Error(problem)
		}
	}
}

var (
	link   = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	target = regexp.MustCompile(`^\[[^\]]+\]: +(\S+)$`)
)

func deadLinks(t *testing.T, d Document) (problems []string) {
	t.Helper()
	text := inline.ReplaceAllString(strings.Join(d.Prose(), "\n"), "")
	var to []string
	for _, m := range link.FindAllStringSubmatch(text, -1) {
		to = append(to, m[1])
	}
	for _, line := range d.Prose() {
		if m := target.FindStringSubmatch(line); m != nil {
			to = append(to, m[1])
		}
	}
	for _, to := range to {
		if strings.Contains(to, "://") {
			continue
		}
		path, anchor, _ := strings.Cut(to, "#")
		file := filepath.Join(root, filepath.FromSlash(d.Path))
		if path != "" {
			file = filepath.Join(filepath.Dir(file), filepath.FromSlash(path))
		}
		if _, err := os.Stat(file); err != nil {
			problems = append(problems, fmt.Sprintf("%s: the link %s leads to no file", d.Path, to))
			continue
		}
		if anchor == "" {
			continue
		}
		other, err := ReadFile(root, file)
		must(t, err)
		if !other.Anchors()[anchor] {
			problems = append(problems, fmt.Sprintf("%s: the link %s leads to no heading", d.Path, to))
		}
	}
	return problems
}

// Names with a pattern in them, as in simulation_*_test.go, are left out.
var goFile = regexp.MustCompile(`(?:^|[^\w*])([a-z]\w*\.go)\b`)

func TestFilesOfGoThatAreNamedAreThere(t *testing.T) {
	there := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, e os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && (e.Name() == ".git" || e.Name() == "node_modules" || e.Name() == "out"):
			return filepath.SkipDir
		case strings.HasSuffix(path, ".go"):
			there[e.Name()] = true
		}
		return nil
	})
	must(t, err)
	for _, d := range documents(t) {
		for i, line := range d.Lines {
			for _, m := range goFile.FindAllStringSubmatch(line, -1) {
				if !there[m[1]] {
					t.Errorf("%s:%d: there is no file %s", d.Path, i+1, m[1])
				}
			}
		}
	}
}

func TestCommandsAreKnown(t *testing.T) {
	bin := t.TempDir()
	build := exec.Command("go", "build", "-o", bin+string(filepath.Separator),
		root+"/cmd/distributor", root+"/cmd/processor", root+"/loadtest")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the binaries: %v\n%s", err, out)
	}
	known := programs{bin: bin, helps: map[string]*help{}, goals: goals(t)}
	n := 0
	for _, d := range documents(t) {
		for _, c := range d.Commands() {
			n++
			Same(t, known.problem(t, c.Words), "", d.Path, c.Line, strings.Join(c.Words, " "))
		}
	}
	if n < 60 {
		t.Errorf("only %d commands were found", n)
	}
	known.compareTable(t)
	for words, wrong := range map[string]bool{
		"distributor run --config pump.yaml --once": false,
		"distributor runs show RUN":                 false,
		"distributor --version":                     false,
		"distributor stroll --config pump.yaml":     true,
		"distributor runs stroll":                   true,
		"processor run --no-such-flag":              true,
		"processor run -q --until-idle=5s":          false,
		"make run INPUT=tasks.jsonl":                false,
		"make nothing":                              true,
	} {
		if problem := known.problem(t, strings.Fields(words)); (problem != "") != wrong {
			t.Errorf("%s: %q", words, problem)
		}
	}
}

// programs is what the binaries and the Makefile know.
type programs struct {
	bin   string
	helps map[string]*help
	goals map[string]bool
}

// help is what --help-all of a command lists.
type help struct {
	commands, flags map[string]bool
	list, options   string // where the commands and the flags stand
}

var (
	helpCommand = regexp.MustCompile(`(?m)^  ([a-z][\w-]*) +(.*)`)
	helpFlag    = regexp.MustCompile(`(?m)^  (?:(-\w), |    )(--[\w-]+)`)
	goal        = regexp.MustCompile(`(?m)^([a-z][a-z0-9-]*):`)
)

func goals(t *testing.T) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "Makefile"))
	must(t, err)
	goals := map[string]bool{}
	for _, m := range goal.FindAllStringSubmatch(string(text), -1) {
		goals[m[1]] = true
	}
	return goals
}

// The Makefile lists the packages with mutants, and where the page's driver is.
func TestTheMakefileNamesFoldersThatAreThere(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "Makefile"))
	must(t, err)
	listed := regexp.MustCompile(`(?m)^MUTATED = \$\(addprefix \./pump/,(.*)\) (.*)$`).
		FindStringSubmatch(string(text))
	page := regexp.MustCompile(`(?m)^PAGE = (.*)$`).FindStringSubmatch(string(text))
	if listed == nil || page == nil {
		t.Fatal("MUTATED or PAGE is not found")
	}
	files := []string{page[1] + "/e2e.mjs", listed[2] + "/mutants_test.go"}
	for _, name := range strings.Fields(listed[1]) {
		files = append(files, "pump/"+name+"/mutants_test.go")
	}
	for _, file := range files {
		Is(t, ErrOf(os.Stat(filepath.Join(root, file))), nil)
	}
}

// What make would run: the variables of goals for users reach the tests and benchmarks.
func TestTheGoalsOfMakePassOnWhatTheirUserSets(t *testing.T) {
	for words, want := range map[string][]string{
		"azure SKIP=limits,kill DRY_RUN=1 ARGS=-json": {"-azure -without 'limits,kill' -dry-run", "-json"},
		"bench BENCH=quick ONLY=a|b OLD=x.txt ARGS=-y": {
			"cp 'x.txt' out/bench/old.txt\n", " -y -test.run", "'Way/(a|b)$' || { echo FAIL; exit 1; }",
			"bench.test -test.run '^TestFigures$'", "-figures.old ../out/bench/old.txt \n", "-table goos",
		},
		"bench NOTE=n ROUNDS_BENCH=9": {"cp 'bench/results.txt' out/bench/old.txt\n", "seq 9", "old.txt -figures.write\n"},
		"soak ARGS=-soak.write=false": {"-soak.write -soak.write=false"},
	} {
		cmd := exec.Command("make", append([]string{"-n", "-C", root}, strings.Fields(words)...)...)
		out, err := cmd.CombinedOutput()
		for _, part := range want {
			if err != nil || !strings.Contains(string(out), part) {
				t.Errorf("make %s: %v, %q is missing in\n%s", words, err, part, out)
			}
		}
	}
}

func (p *programs) help(t *testing.T, command []string) *help {
	t.Helper()
	key := strings.Join(command, " ")
	if h := p.helps[key]; h != nil {
		return h
	}
	h := &help{commands: map[string]bool{}, flags: map[string]bool{}}
	text := ""
	text, h.options, _ = strings.Cut(p.shown(t, command, "--help-all"), "\nFlags:\n")
	// Commands are in groups, below how they are used and above the flags.
	if _, list, ok := strings.Cut(text, " [command]\n"); ok {
		h.list = list
		for _, m := range helpCommand.FindAllStringSubmatch(list, -1) {
			h.commands[m[1]] = true
		}
	}
	for _, m := range helpFlag.FindAllStringSubmatch("\n"+h.options, -1) {
		h.flags[m[1]], h.flags[m[2]] = true, true
	}
	p.helps[key] = h
	return h
}

// shown is what a command prints with a flag that asks for its help.
func (p *programs) shown(t *testing.T, command []string, flag string) string {
	t.Helper()
	args := append(command[1:len(command):len(command)], flag)
	out, err := exec.Command(filepath.Join(p.bin, command[0]), args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", strings.Join(command, " "), flag, err, out)
	}
	return string(out)
}

// problem says what is wrong with a command; nothing if it is known.
func (p *programs) problem(t *testing.T, words []string) string {
	t.Helper()
	if words[0] == "make" {
		for _, word := range words[1:] {
			if name, ok := strings.CutPrefix(word, "WHAT="); ok {
				word = "play-" + name
			}
			if !strings.Contains(word, "=") && !p.goals[word] {
				return fmt.Sprintf("the Makefile has no goal %q", word)
			}
		}
		return ""
	}
	command, rest := words[:1:1], words[1:]
	for len(rest) > 0 && len(p.help(t, command).commands) > 0 && !strings.HasPrefix(rest[0], "-") {
		if !p.help(t, command).commands[rest[0]] {
			return fmt.Sprintf("%q is no command of it", rest[0])
		}
		command, rest = append(command, rest[0]), rest[1:]
	}
	for _, word := range rest {
		flag, _, _ := strings.Cut(word, "=")
		if strings.HasPrefix(flag, "-") && len(flag) > 1 && !p.help(t, command).flags[flag] {
			return fmt.Sprintf("%s is no flag of %s", flag, strings.Join(command, " "))
		}
	}
	return ""
}

// What the checks themselves see.
func TestADocumentIsTakenApart(t *testing.T) {
	long := strings.Repeat("w ", 60)
	text := "# A `word` & more\n[x](#a-word--more) [y](#none) [z](none.md)\n" + long + "\n| " + long +
		"\n```sh\nbin/processor run \\\n  --json # processor stroll\nx=$(distributor ids 'a b')\n```\n" +
		"```\n$ make run\nmake nothing\n```\nsee `loadtest run` and `pump.yaml`\n"
	d := Document{Path: "README.md", Lines: strings.Split(text, "\n")}
	if got := longLines(d); len(got) != 1 || !strings.Contains(got[0], ":3:") {
		t.Errorf("long lines: %v", got)
	}
	if !d.Anchors()["a-word--more"] {
		t.Errorf("anchors: %v", d.Anchors())
	}
	// Its own headings are looked up in the file of that name.
	if got := deadLinks(t, d); len(got) != 3 {
		t.Errorf("dead links: %v", got)
	}
	var commands []string
	for _, c := range d.Commands() {
		commands = append(commands, fmt.Sprint(c.Line, " ", strings.Join(c.Words, " ")))
	}
	want := "6 processor run --json; 8 distributor ids Q; 11 make run; 14 loadtest run"
	Same(t, strings.Join(commands, "; "), want, "commands")
}

func TestAnEntryOfTheRunbookThatLacksAPartIsSeen(t *testing.T) {
	whole := "**Means.** It is dark.\n\n**See.** `distributor status`\n\n" +
		"**Mend.** Wait, or\n`make run`.\n\n**Otherwise.** Nothing.\n"
	text := "# Book\n\n## Alerts\n\n### One\n\n" + whole + "\n### Two\n\ntext\n\n## Others\n\n### Three\n"
	entries := Document{Lines: strings.Split(text, "\n")}.Runbook("Alerts")
	if _, ok := entries["Two"]; len(entries) != 2 || !ok || len(Lacks(entries["One"])) > 0 {
		t.Errorf("%q, the first lacks %q", entries, Lacks(entries["One"]))
	}
	for spoiled, want := range map[string]string{
		strings.Replace(whole, "**Means.** It is dark.\n\n", "", 1):   "[Means]",
		strings.Replace(whole, "`distributor status`", "", 1):         "[See]",
		strings.Replace(whole, "`distributor status`", "look", 1):     "[See with a command]",
		strings.Replace(whole, "\n`make run`.", "\nnot.", 1):          "[Mend with a command]",
		strings.Replace(whole, "**Otherwise.** Nothing.\n", "", 1):    "[Otherwise]",
		strings.Replace(whole, "**Mend.**", "**See.**", 1):            "[Mend]",
		"**Otherwise.** a\n**Mend.** `b`\n**See.** `c`\n**Means.** d": "[See Mend Otherwise]",
	} {
		Same(t, fmt.Sprint(Lacks(spoiled)), want, "what is lacking in", spoiled)
	}
}

func TestASectionHasTheBlocksBelowItsHeading(t *testing.T) {
	text := "# A\n```sh\n1\n```\n## B\n```sh\n2\n```\n### C\n```sh\n3\n```\n## D\n```sh\n## B\n```"
	d := Document{Path: "a.md", Lines: strings.Split(text, "\n")}
	for title, want := range map[string]string{"B": "2\n3\n", "D": "## B\n", "E": ""} {
		var got string
		for _, b := range d.Section(title) {
			got += b.Text()
		}
		Same(t, got, want, title)
	}
}

func TestCommandsKeepWhatIsQuoted(t *testing.T) {
	d := Document{Lines: []string{"```sh", `x 'y' | processor run --exec 'sh -c "a | b"' \`, `  --http-header "A: \"b\"" & distributor status # 'c'`, "```"}}
	var typed [][]string
	for _, c := range d.Commands() {
		typed = append(typed, c.Typed)
	}
	want := `[["processor" "run" "--exec" "sh -c \"a | b\"" "--http-header" "A: \"b\""] ["distributor" "status"]]`
	Same(t, fmt.Sprintf("%q", typed), want)
}
