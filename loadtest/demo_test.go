package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/queuepump/queuepump/internal/configfile"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/loadtest/simserver"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/processor"
)

func TestTheConfigurationThatIsWrittenCanBeRead(t *testing.T) {
	f := simserver.Accounts{Count: 3, Queues: 2, Limits: "none", Workload: "demo", Seed: 1}
	s, err := f.Serve("127.0.0.1")
	must(t, err)
	defer s.Close()
	path := filepath.Join(t.TempDir(), "pump.yaml")
	must(t, s.WriteConfig(path))
	file, err := configfile.Load(path)
	must(t, err)
	if len(file.Config.Accounts) != 3 || file.Config.Accounts[2].Queues != 2 || file.Config.Accounts[2].ConnectionString != s.ConnectionString("simulated3") {
		t.Errorf("got %+v", file.Config)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", st.Mode(), err)
	}
	must(t, proof.ErrOf(processor.New(file.Config, nil, processor.Options{Discard: true})))
}

func TestLimitsAreAWordOrAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits.json")
	must(t, os.WriteFile(path, []byte(`{"queue": 7}`), 0o600))
	l, err := (&simserver.Accounts{Limits: path}).ReadLimits()
	if err != nil || l.Queue != 7 || l.QueueAccount != azsim.PublishedLimits().QueueAccount {
		t.Errorf("got %+v, %v", l, err)
	}
	must(t, os.WriteFile(path, []byte(`{"queues": 7}`), 0o600))
	for _, s := range []string{path, "publishd"} {
		proof.Says(t, proof.ErrOf((&simserver.Accounts{Limits: s}).ReadLimits()), s)
	}
}

func TestTheWorkerHashesTheFileThatATaskNames(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	must(t, os.WriteFile(path, []byte("abc"), 0o600))
	in := fmt.Sprintf("{\"seq\":1,\"body\":%q}\n{\"seq\":2,\"body\":\"/no/such/file\"}\nnonsense\n", path)
	var out bytes.Buffer
	must(t, sumFiles(strings.NewReader(in), &out))
	var answers []map[string]any
	for line := range strings.Lines(out.String()) {
		var a map[string]any
		must(t, json.Unmarshal([]byte(line), &a))
		answers = append(answers, a)
	}
	if len(answers) != 3 {
		t.Fatalf("got %s", out.String())
	}
	// The digest of "abc" as FIPS 180-2 gives it.
	want := map[string]any{"seq": 1.0, "ok": true, "result": map[string]any{
		"path": path, "bytes": 3.0, "sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
	}}
	proof.Same(t, cmp.Diff(want, answers[0]), "")
	if answers[1]["reject"] != true || answers[1]["seq"] != 2.0 || answers[2]["reject"] != true {
		t.Errorf("got %s", out.String())
	}
}

// TestTheWorkerHashesAFileWhoseNameIsNotUTF8: JSON cannot hold such a name, so it comes and goes in
// base64.
func TestTheWorkerHashesAFileWhoseNameIsNotUTF8(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a\xff")
	if err := os.WriteFile(path, []byte("abc"), 0o600); err != nil {
		t.Skip("this file system has no such names: ", err)
	}
	name := base64.StdEncoding.EncodeToString([]byte(path))
	var out bytes.Buffer
	must(t, sumFiles(strings.NewReader(fmt.Sprintf("{\"seq\":7,\"bodyBase64\":%q}\n", name)), &out))
	var got map[string]any
	must(t, json.Unmarshal(out.Bytes(), &got))
	want := map[string]any{"seq": 7.0, "ok": true, "result": map[string]any{
		"pathBase64": name, "bytes": 3.0, "sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
	}}
	proof.Same(t, cmp.Diff(want, got), "")
}

// hashed makes three files and the results of a processor that hashed them right.
func hashed(t *testing.T) (paths []string, lines []string) {
	t.Helper()
	dir := t.TempDir()
	for i := range 3 {
		path := filepath.Join(dir, fmt.Sprint(i))
		must(t, os.WriteFile(path, []byte(path), 0o600))
		sum, err := sumFile(path)
		must(t, err)
		result, err := json.Marshal(sum)
		must(t, err)
		paths = append(paths, path)
		lines = append(lines, fmt.Sprintf(`{"run":"a","segment":5,"n":%d,"key":%q,"id":"","result":%s,"attempt":1}`+"\n", i, path, result))
	}
	return paths, lines
}

// TestWhatIsWrongIsFound: the check of the check.
func TestWhatIsWrongIsFound(t *testing.T) {
	paths, lines := hashed(t)
	wrong := strings.Replace(lines[1], `"sha256":"`, `"sha256":"00`, 1)
	for _, tt := range []struct {
		name                              string
		lines                             []string
		handled, duplicates, lost, misses int
	}{
		{"all well", lines, 3, 0, 0, 0},
		{"one lost", lines[:2], 2, 0, 1, 0},
		{"one wrong", []string{lines[0], wrong, lines[2]}, 3, 0, 0, 1},
		{"one twice", append(lines[:3:3], lines[0]), 3, 1, 0, 0},
		{"one twice and once wrong", append(lines[:3:3], wrong), 3, 1, 0, 1},
		{"one without a task", append(lines[:3:3], strings.ReplaceAll(strings.Replace(lines[0], `"n":0`, `"n":9`, 1), paths[0], "/x")), 4, 0, 0, 1},
		{"a torn line", append(lines[:2:2], lines[2][:40]), 2, 0, 1, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "results.jsonl")
			r := newResults(out, filepath.Join(t.TempDir(), "none"))
			// Read while it grows, in pieces that do not end where lines do.
			text := strings.Join(tt.lines, "")
			for i := 0; i < len(text); i += 100 {
				must(t, os.WriteFile(out, []byte(text[:min(i+100, len(text))]), 0o600))
				must(t, r.read())
			}
			lost, misses, err := r.compare(paths, nil)
			must(t, err)
			got := []int{r.handled(), r.duplicates, lost, misses}
			proof.Same(t, cmp.Diff([]int{tt.handled, tt.duplicates, tt.lost, tt.misses}, got), "",
				"handled, duplicates, lost, mismatched")
		})
	}
}

func TestTheReportAddsUpWhatAllProcessesDid(t *testing.T) {
	tr := &trial{
		flags: &demoFlags{input: "x.jsonl"}, results: newResults(), quarantine: inQuarantine(identity{"r", 1, 8}), took: 2e9,
		summary: distributorSummary{Run: "r", Tasks: 10, Envelopes: 2, Requests: pump.Requests{"a": {"put": 2}}, Throttled: 1},
		summaries: []processorSummary{
			{Requests: pump.Requests{"a": {"get": 3, "delete": 1}, "b": {"get": 1}}},
			{Requests: pump.Requests{"a": {"get": 1}}, Throttled: 1},
		},
	}
	for n := range 7 {
		tr.results.seen[identity{"r", 1, uint64(n)}] = 1
	}
	r, err := tr.report()
	must(t, err)
	proof.Same(t, cmp.Diff(pump.Requests{"a": {"put": 2, "get": 4, "delete": 1}, "b": {"get": 1}}, r.Requests), "")
	if r.Tasks != 10 || r.Handled != 7 || r.Quarantined != 1 || r.Lost != 2 || r.Throttled != 2 || r.RequestsPerThousandTasks != 800 {
		t.Errorf("got %+v", r)
	}
	path := filepath.Join(t.TempDir(), "run.json")
	must(t, writeReport(path, r))
	text, _ := os.ReadFile(path)
	var fields map[string]any
	must(t, json.Unmarshal(text, &fields))
	for _, name := range []string{"tasks", "handled", "lost", "mismatched", "duplicates", "envelopes", "seconds", "requests"} {
		if _, ok := fields[name]; !ok {
			t.Errorf("run.json has no %s", name)
		}
	}
}

// TestATrialThatQuarantinesFails, and says why: a worker that fails every task is no success.
func TestATrialThatQuarantinesFails(t *testing.T) {
	var log bytes.Buffer
	p := &process{name: "processor 1", log: slog.New(slog.NewTextHandler(&log, nil)), values: map[string]float64{}, shown: map[string]bool{}}
	quarantined := `{"level":"WARN","msg":"quarantined","reason":"attempts","detail":"name 'work' is not defined","tasks":4}` + "\n"
	p.read(strings.NewReader(quarantined + quarantined + `{"level":"WARN","msg":"a child is replaced","why":"the child ended"}` + "\n"))
	if n := strings.Count(log.String(), "name 'work' is not defined"); n != 1 || !strings.Contains(log.String(), `why="the child ended"`) || strings.Contains(log.String(), "nil") {
		t.Errorf("relayed:\n%s", log.String())
	}
	tr := &trial{
		flags: &demoFlags{input: "x.jsonl"}, results: newResults(), quarantine: inQuarantine(), processors: []*process{p, p},
		summary: distributorSummary{Run: "r", Tasks: 8}, summaries: []processorSummary{{Quarantined: 4}, {Quarantined: 4}},
	}
	for n := range 8 {
		tr.quarantine.keys[identity{"r", 1, uint64(n)}] = ""
	}
	r, err := tr.report()
	must(t, err)
	want := "0 of 8 tasks lost, 8 quarantined, 0 results wrong\nquarantined because of: attempts: name 'work' is not defined"
	if err := r.verdict(); err == nil || err.Error() != want || r.Error != want || r.Unfinished {
		t.Errorf("got %v, %+v", err, r)
	}
	for _, r := range []*accounting{{Lost: 1}, {Mismatched: 1}, {Quarantined: 1}} {
		if r.verdict() == nil {
			t.Errorf("%+v is no failure", r)
		}
	}
	must(t, (&accounting{Tasks: 3, Handled: 3, Duplicates: 1}).verdict())
}
