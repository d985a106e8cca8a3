package processtest

import (
	"compress/gzip"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/queuepump/queuepump/internal/proof"
)

// untyped are the blocks of commands in README.md and docs/ that no test types as they stand, each
// by its document and the beginning of its first line, with the reason.
var untyped = map[string]string{
	"README.md: git clone":                "needs the network and a minute; TestMain builds the same binaries",
	"README.md: curl -LO":                 "needs the network; TestArchivesHoldWhatIsListed reads archives",
	"CONTRIBUTING.md: make build":         "TestMain builds the same binaries; the rest is make test",
	"README.md: make deb":                 "minutes; make first-hour types it",
	"README.md: sudo apt":                 "needs root and systemd; make first-hour types it",
	"README.md: az login":                 "needs Azure",
	"docs/configuration.md: for i in 1 2": "needs Azure",
	"docs/configuration.md: { echo":       "needs Azure",
	"docs/configuration.md: make build": "needs two fixed ports; " +
		"TestTheCommandsWorkOnAzurite types the commands on ports of its own",
	"docs/distributor.md: distributor run --config pump.yaml --every": "endless; " +
		"TestAKilledLeadersRunIsContinuedFromItsCheckpoint runs it",
	"docs/distributor.md: distributor run --config pump.yaml --cron": "endless; " +
		"TestAYearInWhichEachLeaderDiesAtItsDueTime runs it",
	"docs/processor.md: processor run --config pump.yaml --http": "endless; " +
		"TestTasksArePostedToAnEndpoint runs it",
	"docs/distributor.md: distributor serve": "endless; TestTasksArePostedFromAnyLanguage runs it",
	"docs/distributor.md: curl": "needs a server of tasks; " +
		"TestTasksArePostedFromAnyLanguage types it",
	"docs/processor.md: make run": "needs the source tree; TestATrialOfOnesOwnTasks runs it",
	"docs/distributor.md: processor run": "endless; " +
		"TestWhatEachProducerPutsReachesAChildAsJSON runs it",
	"docs/operations.md: processor run --config pump.yaml --exec": "endless; " +
		"TestProcessorsStartTogetherWhenTheirGateIsReleased runs it",
	"docs/operations.md: $ distributor status": "the screen of one moment; " +
		"cmd/distributor tests screens",
	"docs/operations.md: " + controlLostBlock: "needs a workload whose control account is gone; " +
		"TestTheRunbookOfAControlAccountThatIsGoneForGood types it",
	"docs/operations.md: " + lostBlock: "ten minutes; " +
		"TestTheRunbookOfAnAccountThatIsGoneForGoodIsTyped types it with another clock",
	"docs/page.md: distributor page": "endless; make e2e-page runs it",
	"docs/operations.md: export": "needs a collector; " +
		"TestOneTraceLeadsFromASenderToWhatAChildCalls has one",
	"docs/service.md: make deb":      "minutes, and modules that are fetched; make service-test needs it",
	"docs/service.md: sha256sum":     "needs root; TestTheLifeOfAPackage installs packages",
	"docs/service.md: tar -xzf":      "needs root; TestArchivesHoldWhatIsListed reads archives",
	"docs/service.md: sudo install":  "needs root, systemd and a package",
	"docs/service.md: sudo sh":       "needs root and a package",
	"docs/service.md: journalctl":    "needs systemd",
	"docs/service.md: sudo systemd-": "needs root; the tests of internal/packaging/build verify drop-ins",
	"docs/service.md: sudo apt":      "needs root; TestTheLifeOfAPackage removes and purges",
	"docs/service.md: sudo rm":       "needs root; TestTheLifeOfAPackage types the same",
	"docs/service.md: docker":        "needs an engine; TestTheImageRunsWithoutRights reads the image",
	"loadtest/azsim/README.md":       "needs the network, an engine, or fixed ports",
	"docs/testing.md: loadtest run saturate": "minutes of CPU, or real accounts; " +
		"the tests of loadtest/scenario play each scenario",
	"docs/testing.md: export": "needs Azure; TestTheTrialOfAccountsFindsTheSimulatorToBeAsItIs " +
		"runs it on simulated accounts",
	"docs/testing.md: CGO_ENABLED=0 go test": "needs the source tree, and Azure; " +
		"TestTheTrialOfAccountsFindsTheSimulatorToBeAsItIs makes and runs the same binary",
	"docs/testing.md: loadtest run scale-out": "two minutes; the tests of loadtest/scenario play it",
	"docs/testing.md: loadtest report": "shows files of load tests of another day; " +
		"the tests of loadtest/report do",
}

// prepared are the blocks that need something else than a workload with tasks.
var prepared = map[string]func(*desk){
	"README.md: seq 10000":                     func(*desk) {},
	"README.md: seq 200000":                    unpacked,
	"docs/processor.md: $ cat orders.jsonl":    func(d *desk) { d.serve() },
	"docs/operations.md: distributor run":      once,
	"docs/operations.md: distributor accounts": emptied,
	"docs/reports/performance.md: awk":         func(*desk) {},
	"docs/tuning.md: $ distributor plan":       func(*desk) {},
	"docs/formats.md: base64":                  message,
	"docs/testing.md: loadtest serve":          func(*desk) {},
}

func sentTo(d *desk) { d.serve(); d.send() }

// once is a workload that records what is done, with a processor at work.
func once(d *desk) {
	d.serve()
	appendText(d.t, d.path("pump.yaml"), "delivery: once\n")
	d.send()
	d.start("processor", "run", "--discard")
}

// emptied is a workload without a task left, so that an account can be removed.
func emptied(d *desk) {
	sentTo(d)
	d.start("processor", "run", "--discard", "--until-idle", "1s").succeeds()
}

// unpacked is the folder of an archive.
func unpacked(d *desk) {
	for _, name := range []string{"distributor", "processor", "loadtest"} {
		must(d.t, os.Symlink(filepath.Join(bin, name), d.path(name)))
	}
}

// message is the text of one that a file pins.
func message(d *desk) {
	text, err := os.ReadFile("../../../codec/testdata/v2.txt")
	must(d.t, err)
	writeText(d.t, d.path("message.txt"), string(text))
}

// TestTheDocumentsCommands types the commands of README.md and docs/, block by block, each in a
// folder of its own that has the files that the text around it speaks of.
func TestTheDocumentsCommands(t *testing.T) {
	t.Parallel()
	docs, worker := documents(t)
	typed, met := 0, map[string]bool{}
	for _, doc := range docs {
		for _, b := range doc.Blocks() {
			if b.Language != "sh" && (len(b.Lines) == 0 || !strings.HasPrefix(b.Lines[0], "$ ")) {
				continue
			}
			name := doc.Path + ": " + b.Lines[0]
			if key, ok := beginningOf(name, untyped); ok {
				met[key] = true
				continue
			}
			prepare := sentTo
			if key, ok := beginningOf(name, prepared); ok {
				met[key], prepare = true, prepared[key]
			}
			typed++
			t.Run(fmt.Sprintf("%s:%d", doc.Path, b.Line), func(t *testing.T) {
				t.Parallel()
				d := newDesk(t, worker)
				prepare(d)
				d.types(b)
			})
		}
	}
	for _, key := range append(keys(untyped), keys(prepared)...) {
		if !met[key] {
			t.Errorf("no block begins with %q any more", key)
		}
	}
	if typed < 10 {
		t.Errorf("only %d blocks were typed", typed)
	}
}

// documents are README.md and docs/*.md, and the worker that they show.
func documents(t *testing.T) (docs []proof.Document, worker string) {
	t.Helper()
	docs, err := proof.Read("../../..")
	must(t, err)
	for _, doc := range docs {
		for _, b := range doc.Blocks() {
			if b.Language == "python" && doc.Path == "docs/processor.md" && worker == "" {
				worker = b.Text()
			}
		}
	}
	return docs, worker
}

// TestATrialOfOnesOwnTasks is `make run INPUT=... KEY=... EXEC=...` with the documents' worker.
func TestATrialOfOnesOwnTasks(t *testing.T) {
	t.Parallel()
	_, worker := documents(t)
	d := newDesk(t, worker)
	p := d.start("loadtest", "demo", "--out", "out", "--input", "tasks.jsonl", "--key", "city",
		"--exec", "python3 worker.py")
	p.succeeds()
	has(t, p.out.String(), "1,000 handled, 0 lost", "the report")
}

// TestTheWorkerOfBatches is the documents' second worker, with --batch.
func TestTheWorkerOfBatches(t *testing.T) {
	t.Parallel()
	doc, err := proof.ReadFile("../../..", "../../../docs/processor.md")
	must(t, err)
	worker := ""
	for _, b := range doc.Blocks() {
		if b.Language == "python" {
			worker = b.Text()
		}
	}
	d := newDesk(t, worker)
	sentTo(d)
	d.start("processor", "run", "--config", "pump.yaml", "--exec", "python3 worker.py", "--batch", "7",
		"--out", "results.jsonl", "--until-idle", "1s").succeeds()
	text, err := os.ReadFile(d.path("results.jsonl"))
	must(t, err)
	if n := strings.Count(string(text), `"attempt":1}`); n != 1000 ||
		strings.Contains(string(text), "null") {
		t.Errorf("%d of 1,000 tasks have a result", n)
	}
}

func keys[V any](m map[string]V) (list []string) {
	for key := range m {
		list = append(list, key)
	}
	return list
}

// beginningOf finds the key that a name begins with.
func beginningOf[V any](name string, m map[string]V) (string, bool) {
	for key := range m {
		if strings.HasPrefix(name, key) {
			return key, true
		}
	}
	return "", false
}

// desk is the folder in which a reader types.
type desk struct {
	t   *testing.T
	dir string
	run string // the run that was sent, as $RUN
}

// newDesk has the files that the documents speak of.
func newDesk(t *testing.T, worker string) *desk {
	t.Helper()
	d := &desk{t: t, dir: t.TempDir()}
	must(t, os.Symlink(bin, d.path("bin")))
	var tasks strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&tasks, `{"city":"c%d","n":%d,"euros":%d.50}`+"\n", i%100, i, i)
	}
	writeText(t, d.path("tasks.jsonl"), tasks.String())
	writeText(t, d.path("worker.py"), worker)
	writeText(t, d.path("convert.sh"), "#!/bin/sh\ncat\n")
	must(t, os.Chmod(d.path("convert.sh"), 0o700)) //nolint:gosec // it is run
	must(t, os.Mkdir(d.path("images"), 0o700))
	writeText(t, d.path("images/a.jpg"), "a")
	f, err := os.Create(d.path("part-1.csv.gz"))
	must(t, err)
	z := gzip.NewWriter(f)
	fmt.Fprint(z, "customer,order\nc1,1\nc2,2\n")
	must(t, z.Close())
	must(t, f.Close())
	return d
}

func (d *desk) path(name string) string { return filepath.Join(d.dir, name) }

// start starts a binary in the folder.
func (d *desk) start(name string, args ...string) *process {
	d.t.Helper()
	cmd := exec.Command(filepath.Join(bin, name), args...)
	cmd.Dir = d.dir
	return startAs(d.t, name, cmd)
}

// serve serves four accounts for as long as the test runs.
func (d *desk) serve() {
	d.t.Helper()
	p := d.start("loadtest", "serve", "--accounts", "4", "--queues", "2",
		"--write-config", "pump.yaml")
	p.until("the configuration is written", func() bool {
		_, err := os.Stat(d.path("pump.yaml"))
		return err == nil
	})
}

// send sends the tasks, which makes the workload.
func (d *desk) send() {
	d.t.Helper()
	p := d.start("distributor", "run", "--input", "tasks.jsonl", "--key", "city", "--json")
	p.succeeds()
	var s sent
	p.summary(&s)
	d.run = s.Run[:12]
}

// typesRunbook types the block of the operator's document that begins so.
func (d *desk) typesRunbook(docs []proof.Document, begins string) {
	d.t.Helper()
	for _, doc := range docs {
		for _, b := range doc.Blocks() {
			if doc.Path == "docs/operations.md" && strings.HasPrefix(b.Lines[0], begins) {
				d.types(b)
				return
			}
		}
	}
	d.t.Fatalf("docs/operations.md has no %q", begins)
}

// types gives a block to a shell. Of one with prompts the lines between them must come out in
// their order.
func (d *desk) types(b proof.Block) {
	d.t.Helper()
	script, shown := b.Lines, []string(nil)
	if strings.HasPrefix(b.Lines[0], "$ ") {
		script = nil
		for _, line := range b.Lines {
			if command, ok := strings.CutPrefix(line, "$ "); ok {
				script = append(script, command)
			} else {
				shown = append(shown, line)
			}
		}
	}
	if file, ok := strings.CutPrefix(script[0], "cat "); ok { // its lines follow
		var text strings.Builder
		for _, line := range b.Lines[1:] {
			if strings.HasPrefix(line, "$ ") {
				break
			}
			text.WriteString(line + "\n")
		}
		writeText(d.t, d.path(file), text.String())
	}
	// Processes that were started beside the shell end with it.
	const atEnd = "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n"
	cmd := exec.Command("bash", "-e", "-u", "-o", "pipefail", "-c", atEnd+strings.Join(script, "\n"))
	cmd.Dir = d.dir
	path := bin + string(os.PathListSeparator) + os.Getenv("PATH")
	cmd.Env = append(os.Environ(), "PATH="+path, "RUN="+d.run)
	p := startAs(d.t, "bash", cmd)
	p.succeeds()
	out := strings.Split(p.out.String(), "\n")
	for _, line := range shown {
		for len(out) > 0 && out[0] != line {
			out = out[1:]
		}
		if len(out) == 0 {
			d.t.Fatalf("%q does not come out, or not in its place", line)
		}
	}
}
