package processtest

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/storage"
)

var writeGolden = flag.Bool("scripts.write", false, "write testdata/scripts.golden anew")

const goldenFile = "testdata/scripts.golden"

// TestWhatScriptsReadStays compares what people's scripts rely on with what it was: the JSON that
// commands print with its schema, and with a listing the names of metrics, exit statuses, the flags
// of loadtest serve, and the names of queues and rows. A name that is gone or new fails it. A new
// one is added with -scripts.write; one that goes is an incompatible change. A line that is there
// only sometimes has a question mark in the file and may be missing.
func TestWhatScriptsReadStays(t *testing.T) {
	t.Parallel()
	s := &scriptsWorld{world: newWorld(t, 2, 2), seen: map[string]bool{}, printed: map[string]bool{}}
	s.play()
	s.playAlone()
	s.all()
	s.help("exit statuses of distributor", regexp.MustCompile(`(?m)^  (\d+)  +\S`), "distributor", "run", "--help")
	s.help("exit statuses of distributor runs wait", regexp.MustCompile(`(?m)^  (\d+)  +\S`), "distributor", "runs", "wait", "--help")
	s.help("exit statuses of processor", regexp.MustCompile(`(?m)^  (\d+)  +\S`), "processor", "--help")
	s.help("flags of loadtest serve", regexp.MustCompile(`(?m)^ +(?:-\w, )?(--[a-z-]+)`), "loadtest", "serve", "--help")
	s.stored()
	s.compare()
}

// scriptsWorld collects names; each is a line with what it belongs to.
type scriptsWorld struct {
	*world
	seen    map[string]bool
	printed map[string]bool // by command: its JSON was checked
}

func (s *scriptsWorld) note(what, name string) { s.seen[what+": "+name] = true }

// play runs commands whose outputs together have every kind of object.
func (s *scriptsWorld) play() {
	t := s.t
	text := readText(t, s.config)
	writeText(t, s.config, text+"delivery: once\nadmin: {sample: 1s}\n")
	writeTasks(t, s.path("tasks.jsonl"), 40)
	appendText(t, s.path("tasks.jsonl"), "{\"no city\":1}\n")
	send := []string{"run", "--input", s.path("tasks.jsonl"), "--key", "city", "--pack", "5", "--on-bad-line", "quarantine"}
	run := s.run("distributor", send...)
	s.stored() // the row of a run that lives goes when it is closed, be that soon or late
	must(t, errOf(s.account("account1").Queue("test-00").Put(t.Context(), []byte("of another program"), 0)))
	s.run("distributor", "peek")
	s.run("distributor", "gate", "open", "morning")
	s.run("distributor", "gate", "close", "evening")
	s.run("distributor", "gate", "list")
	s.run("distributor", "gate", "open", "noon")
	s.run("distributor", "gate", "remove", "noon")
	s.run("distributor", "workload", "pause")
	s.run("distributor", "workload", "resume")
	s.run("distributor", "workload", "pause", "--key", "nowhere") // which stands in the status
	s.run("distributor", "workload", "resume", "--key", "elsewhere")
	s.run("distributor", "ids", "next", "orders")
	// A handler that refuses some, so that there is something in quarantine; and a processor that
	// stays to be seen.
	s.run("processor", "run", "--exec-each", `grep -v '"n":7}'`, "--max-attempts", "1", "--until-idle", "2s", "--results")
	stays := start(t, "processor", "run", "--config", s.config, "--count-by", "city", "--admin", "127.0.0.1:0")
	address := stays.admin()
	stays.until("it is ready", func() bool { status, _ := ask(t, address, "/readyz"); return status == 200 })
	start(t, "distributor", append(send, "--config", s.config)...).succeeds()
	stays.until("it has counted", func() bool {
		var st struct{ Done struct{ Handled int } }
		_, text := ask(t, address, "/state")
		return json.Unmarshal([]byte(text), &st) == nil && st.Done.Handled >= 40
	})
	// What a sample tells is there from the first one on, which a slow machine may have had by now.
	stays.until("it has sampled", func() bool {
		var st struct{ Backlog struct{ Accounts []struct{} } }
		_, text := ask(t, address, "/state")
		return json.Unmarshal([]byte(text), &st) == nil && len(st.Backlog.Accounts) == 2
	})
	_, metrics := ask(t, address, "/metrics")
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (\S+ \S+)$`).FindAllStringSubmatch(metrics, -1) {
		if strings.HasPrefix(m[1], "queuepump_") {
			s.note("metrics", m[1])
		}
	}
	_, state := ask(t, address, "/state")
	s.keys("processor /state", []byte(state))
	s.run("distributor", "status")
	stop(stays)
	page := start(t, "distributor", "page", "--config", s.config, "--json")
	page.page()
	s.keys("distributor page", []byte(page.out.String()))
	stop(page)
	s.run("distributor", "accounts", "list")
	s.run("distributor", "workload", "show")
	s.run("distributor", "runs", "list")
	s.run("distributor", "quarantine", "list")
	s.run("distributor", "quarantine", "show")
	var sent struct{ Run string }
	must(t, json.Unmarshal(run, &sent))
	s.run("distributor", "results", sent.Run, "--quiet")
	s.run("distributor", "runs", "show", sent.Run)
	s.run("distributor", "runs", "wait", sent.Run)
	s.run("distributor", "runs", "repair", sent.Run, "--input", s.path("tasks.jsonl"), "--key", "city", "--on-bad-line", "quarantine")
	s.run("distributor", "quarantine", "redrive", "--run", sent.Run)
	s.run("distributor", "quarantine", "drop", "--yes")
	s.run("distributor", "accounts", "drain", "account2", "--yes")
	s.run("distributor", "accounts", "add", "account2")
	s.run("distributor", "counts")
	s.run("distributor", "workload", "set")
	s.run("distributor", "workload", "log")
	s.run("distributor", "doctor")
	must(t, json.Unmarshal(s.run("distributor", send...), &sent))
	s.run("distributor", "runs", "end", sent.Run)
	s.run("distributor", "workload", "delete", "--dry-run")
}

// playAlone runs the commands that need no workload.
func (s *scriptsWorld) playAlone() {
	s.run("distributor", "plan", "--rate", "1000", "--handler-seconds", "0.1", "--task-bytes", "200")
	s.run("processor", "check", "--exec-each", "cat", "--input", s.path("tasks.jsonl"), "--key", "city")
	s.run("loadtest", "run", "account-dark", "--virtual", "--accounts", "2", "--queues", "1", "--duration", "6s",
		"--warm-up", "0s", "--rate", "50", "--out", s.path("load"))
	saved, err := filepath.Glob(s.path("load/*.json"))
	must(s.t, err)
	s.run("loadtest", "report", saved[0])
	s.run("loadtest", "report", saved[0], saved[0])
}

// all fails for each command of the schema whose output was not checked. What only looks is the same
// in both binaries.
func (s *scriptsWorld) all() {
	s.printed["distributor accounts remove"] = true // it takes 40 s; another test takes one away
	for name := range definitions(s.t) {
		if strings.Contains(name, " ") && !s.printed[name] && !s.printed[twin(name)] {
			s.t.Errorf("no output of %s --json was checked", name)
		}
	}
}

// run runs a command to its end, whatever its status is, and checks the JSON that it prints.
func (s *scriptsWorld) run(binary string, args ...string) []byte {
	what := binary
	for _, a := range args {
		if strings.HasPrefix(a, "-") || len(a) == 32 || strings.ContainsAny(a, "/.") {
			break
		}
		what += " " + a
	}
	if args = append(args, "--json"); binary != "loadtest" && args[0] != "plan" && args[0] != "check" {
		args = append(args, "--config", s.config)
	}
	p := start(s.t, binary, args...)
	p.wait()
	out := []byte(p.out.String())
	if what == "distributor results" { // which prints results there
		out = []byte(p.log.String())
	}
	if len(out) == 0 {
		s.t.Errorf("%s printed nothing: %s", what, tail(p.log.String()))
	}
	s.keys(what, out)
	return out
}

// keys checks JSON objects, one after the other, against docs/output.schema.json.
func (s *scriptsWorld) keys(what string, text []byte) {
	d := json.NewDecoder(bytes.NewReader(text))
	for {
		var v any
		if err := d.Decode(&v); err == io.EOF {
			return
		} else if err != nil {
			s.t.Errorf("%s printed %q: %v", what, text, err)
			return
		}
		s.printed[requirePrinted(s.t, what, v)] = true
	}
}

// help notes what a command's help lists.
func (s *scriptsWorld) help(what string, list *regexp.Regexp, binary string, args ...string) {
	p := start(s.t, binary, args...)
	p.succeeds()
	for _, m := range list.FindAllStringSubmatch(p.out.String(), -1) {
		s.note(what, m[1])
	}
}

// stored notes the names of queues, and of partitions and rows with what varies left out.
func (s *scriptsWorld) stored() {
	account := s.account("account1")
	for _, name := range []string{"test-00", "test-01", "test-poison"} {
		if _, err := account.Queue(name).Count(s.t.Context()); err == nil {
			s.note("queues", name)
		}
	}
	vary := regexp.MustCompile(`[0-9a-f]{32,}|\d+|[^.]*-\d+-[0-9a-f]+`)
	for e, err := range account.Table(row.TableName).Query(s.t.Context(), storage.Query{}) {
		must(s.t, err)
		kind, _, _ := strings.Cut(e.Row, ".")
		s.note("rows", vary.ReplaceAllString(e.Partition, "#")+" "+vary.ReplaceAllString(kind, "#"))
	}
}

// compare fails for each name that the file lacks and for each of the file that was not seen.
func (s *scriptsWorld) compare() {
	t := s.t
	old, err := os.ReadFile(goldenFile)
	if err != nil && !*writeGolden {
		t.Fatal(err)
	}
	sometimes := map[string]bool{}
	var lines []string
	for line := range strings.Lines(string(old)) {
		name := strings.TrimSuffix(line, "\n")
		if name, maybe := strings.CutSuffix(name, " ?"); maybe {
			sometimes[name] = true
			lines = append(lines, name)
			continue
		}
		lines = append(lines, name)
		if !s.seen[name] && !*writeGolden {
			t.Errorf("gone: %s", name)
		}
	}
	for name := range s.seen {
		if !slices.Contains(lines, name) && !*writeGolden {
			t.Errorf("new: %s; add it to %s with -scripts.write", name, goldenFile)
		}
	}
	if !*writeGolden {
		return
	}
	for name := range sometimes {
		s.seen[name] = true
	}
	var b strings.Builder
	names := make([]string, 0, len(s.seen))
	for name := range s.seen {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		mark := ""
		if sometimes[name] {
			mark = " ?"
		}
		fmt.Fprintln(&b, name+mark)
	}
	must(t, os.WriteFile(goldenFile, []byte(b.String()), 0o644))
}
