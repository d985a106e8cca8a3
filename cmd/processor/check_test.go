package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/queuepump/queuepump/internal/cli"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/internal/taskline"
)

// checking runs `processor check` and gives what it prints.
func checking(t *testing.T, input string, args ...string) (string, error) {
	t.Helper()
	return checkingFile(t, "sample.jsonl", input, args...)
}

// checkingFile is checking with a file of that name.
func checkingFile(t *testing.T, name, input string, args ...string) (string, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	must(t, os.WriteFile(path, []byte(input), 0o600))
	var out bytes.Buffer
	cmd := check()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetOut(&out)
	cmd.SetArgs(append(args, "--input", path, "--quiet"))
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

// outcomes are the lines of --json, without the times.
func outcomes(t *testing.T, text string) (lines []string) {
	t.Helper()
	for line := range strings.Lines(text) {
		var c taskline.Checked
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		lines = append(lines, strings.TrimSpace(c.Outcome+" "+string(c.Result)))
	}
	return lines
}

// As for a distributor, the file's name says what its lines are.
func TestAFileIsTriedAsADistributorReadsIt(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("it has no cat")
	}
	text, err := checkingFile(t, "sample.csv", "customer,n\nOslo,1\nRome,2\n", "--exec-each", "cat", "--key", "customer", "--json")
	want := `done {"customer":"Oslo","n":"1"}|done {"customer":"Rome","n":"2"}`
	if got := strings.Join(outcomes(t, text), "|"); err != nil || got != want {
		t.Errorf("%v: %s", err, got)
	}
	if _, err := checkingFile(t, "sample.dat", "a", "--exec-each", "cat"); !cli.IsMistake(err) || !strings.Contains(err.Error(), "give --format") {
		t.Errorf("a name that says nothing: %v", err)
	}
}

func TestACommandForEachTaskIsTriedWithoutAnAccount(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("it has no sh")
	}
	const command = `sh -c 'read x; case $x in *bad*) echo no >&2; exit 65;; *later*) exit 75;; *wrong*) exit 3;; esac; echo "{\"key\":\"$QUEUEPUMP_TASK_KEY\"}"'`
	text, err := checking(t, "{\"city\":\"Oslo\"}\n{\"city\":\"bad\"}\n{\"city\":\"later\"}\n{\"city\":\"wrong\"}\n{no json\n",
		"--exec-each", command, "--key", "city", "--json")
	if err == nil || cli.IsMistake(err) {
		t.Errorf("%v", err)
	}
	got := strings.Join(outcomes(t, text), "\n")
	proof.Same(t, got, "done {\"key\":\"Oslo\"}\nrejected null\nretry null\nfailed null\nbad-line null", text)
	text, err = checking(t, "{\"city\":\"Oslo\"}\n{\"city\":\"later\"}\n", "--exec-each", command, "--key", "city")
	if err == nil || !strings.Contains(text, `line 1: done in `) ||
		!strings.Contains(text, "line 2: retry in 30s in ") ||
		!strings.Contains(text, "2 tasks tried, 1 done, 1 not, in ") {
		t.Errorf("%v\n%s", err, text)
	}
}

func TestALongLivedChildIsTried(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("it has no sh")
	}
	text, err := checking(t, "{\"n\":1}\n{\"n\":2}\n{\"n\":3}\n", "--limit", "2", "--json", "--exec",
		`sh -c 'i=0; while read x; do i=$((i+1)); echo "{\"seq\":$i,\"ok\":true,\"result\":$i}"; done'`)
	if got := strings.Join(outcomes(t, text), " "); err != nil || got != "done 1 done 2" {
		t.Errorf("%q, %v", got, err)
	}
	// One that cannot work is reported as it would be by processor run.
	_, err = checking(t, strings.Repeat("{}\n", 20), "--exec", "sh -c 'exit 1'", "--json")
	if err == nil || cli.IsMistake(err) || !strings.Contains(err.Error(), "command") {
		t.Errorf("%v", err)
	}
	if _, err := checking(t, "{}\n", "--exec", "/no/such/command"); !cli.IsMistake(err) {
		t.Errorf("%v", err)
	}
}

func TestAnEndpointIsTriedAndOneThatIsNotThereIsSaidAtOnce(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Queuepump-Key") == "bad" {
			w.WriteHeader(http.StatusUnprocessableEntity)
			return
		}
		_, _ = w.Write([]byte(`"` + r.Header.Get("Token") + `"`))
	}))
	defer server.Close()
	text, err := checking(t, "{\"k\":\"good\"}\n{\"k\":\"bad\"}\n",
		"--http", server.URL, "--http-header", "Token: t", "--key", "k", "--json")
	if got := strings.Join(outcomes(t, text), " "); err == nil || got != `done "t" rejected null` {
		t.Errorf("%q, %v", got, err)
	}
	// Where nobody listens: a port that was free may be another's by now.
	text, err = checking(t, strings.Repeat("{}\n", 20), "--http", "http://127.0.0.1:1", "--json")
	if got := strings.Join(outcomes(t, text), " "); err == nil || got != "untried null" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestWhatToTryIsSaidExactlyOnce(t *testing.T) {
	for _, args := range [][]string{{}, {"--exec", "cat", "--http", "http://127.0.0.1:1"}, {"--exec", "cat", "--limit", "-1"}, {"--exec", "cat", "--format", "xml"}} {
		if _, err := checking(t, "{}\n", args...); !cli.IsMistake(err) {
			t.Errorf("%q: %v", args, err)
		}
	}
}

func TestLinesAreTriedAsMessagesOfOtherPrograms(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("it has no sh")
	}
	text, err := checking(t, "eyJjaXR5IjoiT3NsbyJ9\n{\"city\":\"Rome\"}\nhello\n",
		"--exec-each", `sh -c 'read x; echo "\"$QUEUEPUMP_TASK_KEY $QUEUEPUMP_TASK_FOREIGN ${#x}\""'`, "--foreign", "auto", "--key", "city", "--json")
	want := []string{`done "Oslo check/1 15"`, `done "Rome check/2 15"`, `done " check/3 5"`}
	if got := outcomes(t, text); err != nil || strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%q, %v", got, err)
	}
	for _, wrong := range [][]string{{"--foreign", "utf-8"}, {"--foreign", "auto", "--format", "csv"}, {"--foreign", "auto", "--id", "id"}} {
		if _, err := checking(t, "x\n", append(wrong, "--exec-each", "true")...); !cli.IsMistake(err) {
			t.Errorf("%q: %v", wrong, err)
		}
	}
}
