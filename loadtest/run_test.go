package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/cli"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/loadtest/report"
	"github.com/queuepump/queuepump/loadtest/scenario"
	"github.com/queuepump/queuepump/loadtest/simserver"
	"github.com/queuepump/queuepump/pump"
)

// must ends a test with an error.
var must = proof.Must

// asProgram in the environment makes the test binary the program itself, so that its exit
// status, its virtual time and the process beside it are those of the real one.
const asProgram = "LOADTEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// program is the program with arguments, in a directory of its own.
func program(t *testing.T, dir string, args ...string) (cmd *exec.Cmd, out, log *bytes.Buffer) {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	out, log = new(bytes.Buffer), new(bytes.Buffer)
	cmd = exec.CommandContext(t.Context(), self, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.Env = dir, out, log, append(os.Environ(), asProgram+"=1")
	return cmd, out, log
}

// run runs it and checks its status.
func run(t *testing.T, dir string, status int, args ...string) (out, log string) {
	t.Helper()
	cmd, o, l := program(t, dir, args...)
	err := cmd.Run()
	if exit, is := errors.AsType[*exec.ExitError](err); err != nil && !is || cmd.ProcessState.ExitCode() != status {
		t.Fatalf("%q: %v, %v, want status %d\n%s\n%s", args, err, exit, status, o, l)
	}
	return o.String(), l.String()
}

// saved is the only report in a directory.
func saved(t *testing.T, dir string) (path string) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "loadtest-*.json"))
	if err != nil || len(found) != 1 {
		t.Fatalf("%q are saved, %v", found, err)
	}
	return found[0]
}

// drawnAsTold runs the command that the report names.
func drawnAsTold(t *testing.T, text, path string) {
	t.Helper()
	_, command, found := strings.Cut(text, "as a page with plots: loadtest ")
	words, err := cli.Split(command)
	if !found || err != nil || len(words) == 0 {
		t.Fatalf("no command for plots in %q: %v", text, err)
	}
	run(t, filepath.Dir(path), 0, words...)
	page, err := os.ReadFile(strings.TrimSuffix(path, ".json") + ".html")
	if err != nil || !bytes.Contains(page, []byte(`class="plot"`)) {
		t.Errorf("the page: %v", err)
	}
}

func TestAVirtualTestIsSavedShownAndCompared(t *testing.T) {
	dir := t.TempDir()
	began := time.Now()
	text, log := run(t, dir, 0, "run", "soak", "--virtual", "--accounts", "2", "--rate", "100", "--duration", "30s", "--quiet", "--out", filepath.Join(dir, "out"))
	proof.Same(t, log, "", "with --quiet the log")
	path := saved(t, filepath.Join(dir, "out"))
	proof.Has(t, text, "soak on simulated accounts in virtual time", "printed")
	proof.Has(t, text, filepath.Base(path), "printed")
	out, _ := run(t, dir, 0, "report", path, "--json")
	r, err := report.Read(strings.NewReader(out))
	must(t, err)
	if r.Against != report.Virtual || len(r.Accounts) != 2 || r.Accounts[0].Limit != 4000 || r.Tasks.Sent != 4500 || r.Tasks.Lost != 0 || r.Machine.CPUSeconds != nil {
		t.Errorf("got %+v", r)
	}
	if r.Started.Before(began.Add(-time.Minute)) || r.Started.After(time.Now()) {
		t.Errorf("it was started at %v", r.Started)
	}
	if shown, _ := run(t, dir, 0, "report", path); !strings.HasPrefix(text, shown) {
		t.Errorf("the saved report is shown otherwise:\n%s", shown)
	}
	drawnAsTold(t, text, path)
	out, _ = run(t, dir, 0, "report", path, path, "--json")
	var c report.Comparison
	if err := json.Unmarshal([]byte(out), &c); err != nil || len(c.Lines) == 0 || len(c.Differing) != 0 {
		t.Errorf("compared with itself: %+v, %v", c, err)
	}
}

// Reports of tests that begin in the same second stand beside each other, whole.
func TestAReportOverwritesNoOther(t *testing.T) {
	f := runFlags{out: t.TempDir()}
	r := &report.Result{Format: report.Format, Scenario: "soak", Started: time.Unix(1, 0).UTC()}
	for r.Tasks.Sent = range int64(3) {
		must(t, proof.ErrOf(f.save(r)))
	}
	for i, name := range []string{"", "-2", "-3"} {
		text, err := os.ReadFile(filepath.Join(f.out, "loadtest-soak-19700101-000001"+name+".json"))
		if got, _ := report.Read(bytes.NewReader(text)); err != nil || got == nil || got.Tasks.Sent != int64(i) {
			t.Errorf("%q: %v, %+v", name, err, got)
		}
	}
}

func TestSimulatedAccountsAreLoadedOverTCPByTheSameCommand(t *testing.T) {
	dir := t.TempDir()
	out, _ := run(t, dir, 0, "run", "soak", "--accounts", "2", "--rate", "50", "--duration", "5s", "--warm-up", "0", "--json", "--out", "here", "--progress-every", "100ms")
	r, err := report.Read(strings.NewReader(out))
	must(t, err)
	if r.Against != report.Simulated || r.Tasks.Lost != 0 || r.Machine.CPUSeconds == nil {
		t.Errorf("got %+v", r)
	}
	// What a busy machine does not get to before the load ends is not sent: 50 tasks for each second
	// that it lags behind then.
	if sent, unsent := r.Tasks.Sent, r.Tasks.Unsent; sent < 50 || sent+unsent != 5*50 {
		t.Errorf("%d tasks were sent and %d not, want 250 in all and 50 or more sent", sent, unsent)
	}
	saved(t, filepath.Join(dir, "here"))
}

func TestTheAccountsOfAConfigurationAreLeftAsTheyWere(t *testing.T) {
	f := simserver.Accounts{Count: 2, Queues: 2, Limits: "none", Workload: "real", Seed: 1}
	s, err := f.Serve("127.0.0.1")
	must(t, err)
	defer s.Close()
	dir := t.TempDir()
	must(t, s.WriteConfig(filepath.Join(dir, "pump.yaml")))
	out, _ := run(t, dir, 0, "run", "account-dark", "--config", "pump.yaml", "--rate", "50", "--duration", "6s", "--warm-up", "0", "--json", "-q")
	r, err := report.Read(strings.NewReader(out))
	must(t, err)
	if r.Against != report.Real || r.Tasks.Lost != 0 || len(r.Events) != 2 || r.Limits.Queue != 2000 {
		t.Errorf("got %+v", r)
	}
	st := s.Sim.Stats()
	created, dropped, tables := st.Count("", "CreateQueue"), st.Count("", "DeleteQueue"), st.Count("", "DeleteTable")
	if created == 0 || dropped == 0 || int(tables) != len(s.Sim.Accounts()) {
		t.Errorf("%d queues were made and %d removed, %d tables removed, want one in each account", created, dropped, tables)
	}
	for _, line := range strings.Split(out, "\n") {
		if strings.Contains(line, s.Sim.Key("simulated1")) {
			t.Errorf("a key is in the report: %s", line)
		}
	}
}

func TestAStoppedTestIsSavedAllTheSame(t *testing.T) {
	dir := t.TempDir()
	cmd, out, _ := program(t, dir, "run", "soak", "--rate", "20", "--duration", "10m", "--progress-every", "100ms")
	log := &proof.Buffer{}
	cmd.Stderr = log
	must(t, cmd.Start())
	for deadline := time.Now().Add(2 * time.Minute); !strings.Contains(log.String(), "phase=warm-up"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no load is on:\n%s", log)
		}
	}
	must(t, cmd.Process.Signal(syscall.SIGTERM))
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 143 {
		t.Fatalf("status %d\n%s\n%s", code, out, log)
	}
	proof.Has(t, out.String(), "! the test was cut short", "printed")
	saved(t, filepath.Join(dir, "out"))
}

func TestMistakesOfRunAndReportAreNamed(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "other.json"), []byte(`{"tasks": 3}`), 0o600))
	for args, want := range map[string]string{
		"run":                                   "SCENARIO is missing",
		"run saturated":                         "use one of saturate, ramp",
		"run soak --virtual --config pump.yaml": "exclude each other",
		"run soak --config pump.yaml":           "pump.yaml",

		"run soak --config pump.yaml --accounts 3": "--accounts is for simulated accounts",
		"run soak --duration 1s --virtual":         "--duration: 1s is too short",
		"run soak --task-bytes 5 --virtual":        "--task-bytes",
		"run account-dark --accounts 1 --virtual":  "needs 2 accounts",
		"run soak --accounts 0":                    "--accounts: 0 is out of range",
		"run soak --limits nowhere.json":           "--limits",
		"run soak --pack -1":                       "--pack",
		"report":                                   "one saved report, or two",
		"report a b c":                             "one saved report, or two",
		"report nowhere.json":                      "nowhere.json",
		"report other.json":                        "not a result of a load test",
		"run scale-out --virtual --over queues":    "--over",
		"run soak --virtual --delivery exactly":    "delivery",
		"run hot-key --virtual --hot-share 2":      "--hot-share",
		"run drain-add --virtual --account nobody": "--account",
		"run soak --virtual --account simulated1":  "--account: soak does nothing to one account",
		"run saturate --virtual --rate 100":        "--rate: saturate offers as much as is taken",
		"run scale-out --virtual --rate 100":       "--rate: scale-out offers as much as is taken",
		"run ramp --virtual --over processors":     "--over: ramp adds nothing",
	} {
		if _, log := run(t, dir, 2, strings.Fields(args)...); !strings.Contains(log, want) {
			t.Errorf("%s: %q does not say %q", args, log, want)
		}
	}
}

func TestTheHelpNamesEveryScenario(t *testing.T) {
	out, _ := run(t, t.TempDir(), 0, "run", "--help")
	for _, s := range scenario.Scenarios() {
		proof.Has(t, out, s.Name, "the help")
		proof.Has(t, out, s.Asks, "the help of", s.Name)
	}
	for line := range strings.Lines(scenarioHelp()) {
		if len(strings.TrimRight(line, "\n")) > 90 {
			t.Errorf("too long a line: %s", line)
		}
	}
}

func TestThePumpIsToldWhatSimulatedAccountsGive(t *testing.T) {
	for name, tt := range map[string]struct {
		limits azsim.Limits
		want   report.Limits
	}{
		"published": {azsim.PublishedLimits(), report.Limits{Queue: 2000, Account: 20000, GetCost: 32}},
		"none":      {azsim.NoLimits(), report.Limits{Queue: 2000, Account: 20000, GetCost: 32}}, // to which the pump keeps by itself
		"own":       {azsim.Limits{Queue: 500, QueueAccount: 900, GetCost: 1}, report.Limits{Queue: 500, Account: 900, GetCost: 1}},
	} {
		proof.Same(t, budgetLimits(budget(tt.limits)), tt.want, name)
	}
	proof.Same(t, budgetLimits(pump.Budget{}), report.Limits{Queue: 2000, Account: 20000, GetCost: 32}, "by default")
}

func TestAWarningIsShownTwice(t *testing.T) {
	var b bytes.Buffer
	f := newFewer(slog.NewTextHandler(&b, nil))
	log := slog.New(f).With("of", "pump")
	for range 5 {
		log.Warn("it hurts")
		log.Warn(unused)
		log.Info("it goes on")
	}
	f.rest(slog.New(slog.NewTextHandler(&b, nil)))
	if n := strings.Count(b.String(), `msg="it hurts"`); n != 2 || !strings.Contains(b.String(), "times=3") || strings.Contains(b.String(), "goes on") || strings.Contains(b.String(), "not in use") {
		t.Errorf("%d times:\n%s", n, b.String())
	}
	b.Reset()
	log = slog.New(newFewer(slog.NewTextHandler(&b, &slog.HandlerOptions{Level: slog.LevelDebug})))
	for range 3 {
		log.Info("it goes on")
	}
	proof.Same(t, strings.Count(b.String(), "goes on"), 3, "with details … times")
}
