package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/queuepump/queuepump/loadtest/report"
)

// saved writes a small report and gives its path.
func saved(t *testing.T, dir, name, scenario string) string {
	t.Helper()
	r := report.Result{Format: report.Format, Scenario: scenario, Phases: []report.Phase{{To: 2}}}
	v := []float64{1, 2}
	p := []*float64{nil, nil}
	r.Series = report.Series{
		Interval: 1, Sent: v, Handled: v, Put: v, Taken: v, Throttled: v, Failed: v, MemoryBytes: v,
		ScheduleP50: p, ScheduleP99: p, SendP50: p, SendP99: p,
	}
	var b bytes.Buffer
	if err := r.Write(&b); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func execute(args ...string) (string, error) {
	cmd, out := command(), new(bytes.Buffer)
	cmd.SetArgs(args)
	cmd.SetOut(out)
	cmd.SetErr(out)
	err := cmd.Execute()
	return out.String(), err
}

func TestAReportIsDrawnBesideItselfAndTwoWhereTold(t *testing.T) {
	dir := t.TempDir()
	one, two := saved(t, dir, "one.json", "soak"), saved(t, dir, "two.json", "soak")
	both := filepath.Join(dir, "both.html")
	for _, c := range []struct {
		args        []string
		page, title string
	}{
		{[]string{one}, filepath.Join(dir, "one.html"), "Load test: soak"},
		{[]string{one, two, "--to", both}, both, "Two load tests: soak"},
	} {
		out, err := execute(c.args...)
		if err != nil || out != c.page+" is written\n" {
			t.Errorf("%q: %v, %s", c.args, err, out)
		}
		page, err := os.ReadFile(c.page)
		if err != nil || !strings.Contains(string(page), c.title) || !strings.Contains(string(page), "<svg") {
			t.Errorf("%q: %v\n%s", c.args, err, page)
		}
	}
}

func TestWhatCannotBeDrawnIsAMistakeOfTheCommandLine(t *testing.T) {
	dir := t.TempDir()
	one, two := saved(t, dir, "one.json", "soak"), saved(t, dir, "two.json", "ramp")
	for want, args := range map[string][]string{
		"one saved report, or two": {},
		"need --to FILE":           {one, two},
		"nowhere.json":             {"nowhere.json"},
		"cannot be compared":       {one, two, "--to", filepath.Join(dir, "x.html")},
	} {
		if _, err := execute(args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
}
