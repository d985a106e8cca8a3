package operate

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/cli"
	"github.com/queuepump/queuepump/internal/configfile"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/doctor"
	"github.com/queuepump/queuepump/pump/quarantine"
)

func TestTheDoctorIsSilentAndEndsWellUnlessThereIsAnError(t *testing.T) {
	d := made(t)
	out, err := d.typedWith(d.first, "doctor", "--out", filepath.Join(t.TempDir(), "results.jsonl"))
	// Three tasks wait, and no processor is there: a warning.
	if err != nil || !strings.HasPrefix(out, "warning: processors: no processor works, and ") ||
		!strings.Contains(out, "fix: processor run") {
		t.Errorf("%q, %v", out, err)
	}
	var r doctor.Report
	out, err = d.typedWith(d.first, "doctor", "--json", "--out", "/no/such/folder/results.jsonl")
	if e := json.Unmarshal([]byte(out), &r); e != nil || err == nil || cli.IsMistake(err) ||
		len(r.Findings) != 2 {
		t.Fatalf("%q, %v, %v", out, e, err)
	}
	if f := r.Findings[0]; f.Check != doctor.CheckDisk || f.Severity != doctor.Error ||
		f.Fix != "mkdir -p /no/such/folder" {
		t.Errorf("%+v", f)
	}
	if len(r.Accounts) != 2 || r.Accounts[0].Clock == nil || len(r.Accounts[0].Hosts) != 0 {
		t.Errorf("%+v", r.Accounts)
	}
}

func TestAllMistakesOfAConfigurationAreTheDoctorsFindings(t *testing.T) {
	d := newDesk(t)
	bad := filepath.Join(t.TempDir(), "pump.yaml")
	must(t, os.WriteFile(bad, []byte("workload: test\naccounts: []\nqueeus: 3\nsegmets: 5\n"), 0o600))
	out, err := d.typedWith(bad, "doctor")
	if err == nil || cli.IsMistake(err) || strings.Count(out, "error: configuration") < 2 ||
		!strings.Contains(out, bad+":3") ||
		!strings.Contains(out, "fix: edit "+bad) {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestPeekCountsNothingInAQueueThatItCouldNotLookAt(t *testing.T) {
	var out strings.Builder
	(&peekFlags{}).print(&out, &quarantine.PeekedQueue{Account: "a", Queue: "q", Dark: "no answer"}, time.Now())
	proof.Same(t, out.String(), "a/q: not looked at: no answer\n")
}

func TestPeekIsPrintedForPeopleAndForPrograms(t *testing.T) {
	d := made(t)
	out := d.with(d.first, "peek")
	for _, want := range []string{" 1 task, ", "key=\"a\" \"a\"", "key=\"c\" \"c\"", "4 queues: ", " seen, 0 not seen; "} {
		proof.Has(t, out, want)
	}
	if out := d.with(d.first, "peek", "--key", "b"); strings.Count(out, "key=") != 1 ||
		!strings.Contains(out, "key=\"b\"") {
		t.Errorf("%s", out)
	}
	var bodies []string
	text := d.with(d.first, "peek", "--json")
	for line := range strings.Lines(text) {
		var q struct {
			Account, Queue string
			Messages, Seen int
			Unseen         *int
			Shown          []struct {
				Run      string
				Tasks    int
				Contents []struct{ Key, Body string }
			}
		}
		if strings.HasPrefix(line, "4 queues") { // on standard error, which is the same here
			continue
		}
		if err := json.Unmarshal([]byte(line), &q); err != nil || q.Account == "" || q.Queue == "" ||
			q.Unseen == nil ||
			q.Seen != q.Messages {
			t.Fatalf("%q, %v", line, err)
		}
		for _, m := range q.Shown {
			for _, task := range m.Contents {
				bodies = append(bodies, task.Body)
			}
		}
	}
	proof.Same(t, len(bodies), 3, bodies, "in", text)
	d.fails(true, "only one of", "peek", "--raw", "--json")
	d.fails(true, "--segment: -1", "peek", "--segment", "-1")
	d.fails(true, "no queue of the workload", "peek", "--queue", "acct01/none")
}

func TestTheDoctorAndPeekFindTheConfigurationAsEveryCommandDoes(t *testing.T) {
	d := made(t)
	t.Setenv(configfile.PathVariable, d.first)
	for _, command := range []string{"doctor", "peek"} {
		var out bytes.Buffer
		cmd := root()
		cmd.SetOut(&out)
		cmd.SetErr(io.Discard)
		cmd.SetArgs([]string{command, "--json"})
		err := cmd.ExecuteContext(t.Context())
		if err != nil || !strings.Contains(out.String(), "acct01") {
			t.Errorf("%s: %q, %v", command, &out, err)
		}
	}
}
