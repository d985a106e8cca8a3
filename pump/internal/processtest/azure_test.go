package processtest

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/pump/storage/storagetest"
)

var azureFull = flag.Bool("azure.full", false, "try `make azure` in all its parts and with all its tasks")

// trialReport is what is read of report.json.
type trialReport struct {
	Run        string
	Same       bool
	Used, Most int64
	Earlier    int
	Left       []string
	NotDecided []string
	Sections   []struct {
		Title, Text string
		Rows        [][]string
	}
}

// text is that of a section, or of all that begin so, and rows are its rows.
func (r *trialReport) text(title string) (text string) {
	for _, s := range r.Sections {
		if strings.HasPrefix(s.Title, title) {
			text += s.Text
		}
	}
	return text
}

func (r *trialReport) rows(title string) (rows [][]string) {
	for _, s := range r.Sections {
		if strings.HasPrefix(s.Title, title) {
			rows = append(rows, s.Rows...)
		}
	}
	return rows
}

// different are the rules that differ.
func (r *trialReport) different() (checks []string) {
	for _, row := range r.rows("Rules") {
		if row[5] == "different" {
			checks = append(checks, row[0])
		}
	}
	slices.Sort(checks)
	return checks
}

// pumped reports whether the pump has lost nothing, counted each task once though it was killed, and
// kept each result.
func (r *trialReport) pumped() bool {
	return strings.Contains(r.text("The whole pump"), ": 0 lost,") && strings.Contains(r.text("kill -9"), "each exactly once") &&
		strings.Contains(r.text("Results"), ": 0 results are missing, 0 are there twice")
}

// unanswered is how many requests had no answer: on a busy machine some do not arrive in time.
func (r *trialReport) unanswered() (n int64) {
	for _, row := range r.rows("Requests") {
		if row[1] == "no answer" {
			requests, _ := strconv.ParseInt(row[2], 10, 64)
			n += requests
		}
	}
	return n
}

// trialBinary is the test binary that `make azure` runs: a signal and a kill reach it itself.
var trialBinary = sync.OnceValues(func() (string, error) {
	path := filepath.Join(bin, "realaccounts.test")
	args := []string{"test", "-c", "-o", path}
	if raceEnabled {
		args = append(args, "-race")
	}
	out, err := exec.Command("go", append(args, "../../../loadtest/realaccounts")...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	return path, err
})

// startTrial starts the trial of accounts without some of its parts, as `make azure` does.
func startTrial(t *testing.T, dir string, connections []string, skip string, args ...string) *process {
	t.Helper()
	path, err := trialBinary()
	must(t, err)
	args = append([]string{"-test.v", "-test.parallel", "8", "-test.run", "^TestAccounts$", "-without", skip, "-azure", "-bin", bin, "-out", dir}, args...)
	cmd := exec.Command(path, args...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(pair string) bool { return strings.HasPrefix(pair, "QUEUEPUMP_AZURE_") })
	for i, c := range connections {
		cmd.Env = append(cmd.Env, "QUEUEPUMP_AZURE_"+string(rune('1'+i))+"="+c)
	}
	return startAs(t, "trial", cmd)
}

// readTrial reads the report, and sees that nothing that was written has a key in it.
func readTrial(t *testing.T, dir string, keys ...string) (r trialReport) {
	t.Helper()
	must(t, json.Unmarshal([]byte(readText(t, filepath.Join(dir, "report.json"))), &r))
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) < 2 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, file := range files {
		for _, key := range keys {
			if strings.Contains(readText(t, file), key) {
				t.Errorf("a key is in %s", file)
			}
		}
	}
	return r
}

// startShortTrial leaves out what takes long: the limits, and most of the tasks.
func startShortTrial(t *testing.T, dir string, connections []string, without string) *process {
	t.Helper()
	if *azureFull {
		return startTrial(t, dir, connections, "")
	}
	return startTrial(t, dir, connections, without, "-tasks", "400")
}

func (w *world) connections() (list []string) {
	for _, name := range w.names {
		list = append(list, w.server.ConnectionString(name))
	}
	return list
}

// empty sees that accounts hold no queue, and no table that answers.
func (w *world) empty() {
	w.t.Helper()
	for _, name := range w.names {
		a := w.account(name)
		queues, err := a.Queues(w.t.Context(), "")
		if err != nil || len(queues) > 0 {
			w.t.Errorf("account %s has %v, %v", name, queues, err)
		}
		if _, err := a.Table("queuepump").Read(w.t.Context(), "p", "r"); !storage.Is(err, storage.Missing) {
			w.t.Errorf("account %s has the pump's table: %v", name, err)
		}
	}
}

// TestTheTrialOfAccountsFindsTheSimulatorToBeAsItIs: every check is answered, the pump loses
// nothing, each request is counted, all that was made is removed, and no key is written anywhere.
func TestTheTrialOfAccountsFindsTheSimulatorToBeAsItIs(t *testing.T) {
	t.Parallel()
	limits := azsim.NoLimits()
	if *azureFull {
		limits = azsim.PublishedLimits()
	}
	w := newWorldOf(t, azsim.Config{Limits: limits}, 2, 2)
	p := startShortTrial(t, w.path("trial"), w.connections(), "limits,refusals")
	t.Cleanup(func() {
		if text, err := os.ReadFile(filepath.Join(w.path("trial"), "report.md")); t.Failed() && err == nil {
			t.Logf("%s", text)
		}
	})
	p.succeeds()
	r := readTrial(t, w.path("trial"), w.sim.Key("account1"), w.sim.Key("account2"))
	if !r.Same || len(r.Left) > 0 || !r.pumped() || len(r.rows("The plan")) != 3 || len(r.rows("What a request takes")) != 6 {
		t.Errorf("%+v", r)
	}
	var cases, same int
	if _, err := fmt.Sscanf(r.text("Conformance"), "%d of %d cases", &same, &cases); err != nil || cases < 90 || same != cases {
		t.Errorf("conformance: %v, %s", err, r.text("Conformance"))
	}
	if got := r.different(); len(got) > 0 || !strings.Contains(r.text("Rules"), " same, 0 different, ") || !strings.Contains(p.out.String(), "--- PASS: TestAccounts/rules/batch-index ") {
		t.Errorf("different: %v", got)
	}
	undecided := slices.DeleteFunc(r.NotDecided, func(check string) bool {
		return check == "unknown-account" || check == "account-limit"
	})
	if len(undecided) > 0 && !*azureFull { // under load this machine decides
		t.Errorf("not decided: %v", undecided)
	}
	if n, used := w.sim.Stats().Count("", ""), r.Used; n > used || n < used-r.unanswered() || used > r.Most {
		t.Errorf("%d requests were served, %d counted, %d without an answer", n, used, r.unanswered())
	}
	w.empty()
	t.Logf("%d checks, not decided: %v; %s", len(r.rows("Rules")), undecided, tail(p.out.String()))
}

// TestTheTrialOfAccountsFindsHowAzuriteDiffers: what azsim/AZURE.md lists, and no more.
func TestTheTrialOfAccountsFindsHowAzuriteDiffers(t *testing.T) {
	proof.Only(t)
	t.Parallel()
	server := storagetest.StartAzurite(t, "one", "two")
	dir := t.TempDir()
	connections := []string{server.ConnectionString("one"), server.ConnectionString("two")}
	p := startShortTrial(t, dir, connections, "limits")
	if *azureFull { // Azurite is slow under load
		select {
		case <-p.done:
		case <-time.After(4 * patience):
		}
	}
	proof.Same(t, p.wait(), 1, "exit status")
	r := readTrial(t, dir)
	if r.Same || len(r.Left) > 0 || !r.pumped() || !strings.Contains(r.text("Refusals"), "each exactly once") {
		t.Errorf("%+v", r)
	}
	want := []string{
		"batch-index", "batch-two-partitions", "batch-two-tables", "bodies", "clamped-lease", "entity-bounds", "entity-conditions",
		"future-date", "gets", "key-too-long", "old-date", "queue-name-free", "superseded-receipt", "table-name-free",
		"top-over-1000", "top-zero", "ttl", "update-parameters", "versions", "wire",
	}
	proof.Alike(t, r.different(), want, "different")
	known := map[string]bool{}
	for _, d := range storagetest.AzuriteDifferences {
		known[d.Case] = true
	}
	for _, d := range r.rows("Conformance") {
		if !known[d[0]] {
			t.Errorf("%s: %s", d[0], d[1])
		}
	}
	t.Log(tail(p.out.String()))
}

// TestTheTrialOfAccountsWithoutAnySaysWhatToSet and does nothing.
func TestTheTrialOfAccountsWithoutAnySaysWhatToSet(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "trial")
	p := startTrial(t, dir, nil, "")
	proof.Same(t, p.wait(), 1, "exit status")
	for _, want := range []string{"QUEUEPUMP_AZURE_1=", "az", "Nothing was done"} {
		has(t, p.out.String(), want)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("it has made a directory")
	}
}

// TestTheTrialOfAccountsRemovesWhatItMade also when it is interrupted in the middle of the pump.
// The next run removes the leftovers of one that was killed.
func TestTheTrialOfAccountsRemovesWhatItMade(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2, 2)
	begin := func() *process {
		return startTrial(t, w.path("trial"), w.connections(), "conformance|rules|limits|figures|pump|blobs|refusals")
	}
	started := func() int64 { return w.sim.Stats().Count("", "PutMessage") }
	interrupt := begin()
	interrupt.until("it sends", func() bool { return started() > 5 })
	interrupt.signal(syscall.SIGINT)
	proof.Same(t, interrupt.wait(), 1, "exit status")
	w.empty()
	if r := readTrial(t, w.path("trial")); r.Same || len(r.Left) > 0 {
		t.Errorf("%+v", r)
	}
	for _, name := range w.names {
		w.sim.Reset(name) // the name of the pump's table is free at once
	}

	before := started()
	kill := begin()
	kill.until("it sends", func() bool { return started() > before+5 })
	kill.kill()
	// Its binaries end with it: nothing more arrives after those requests that were under way.
	next := startTrial(t, w.path("next"), w.connections(), "conformance|rules|limits|pump|kill|blobs|refusals", "-older", "1ms")
	next.succeeds()
	if r := readTrial(t, w.path("next")); r.Earlier < 6 || len(r.Left) > 0 {
		t.Errorf("%+v", r)
	}
	w.empty()
}
