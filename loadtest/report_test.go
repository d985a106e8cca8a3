package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/report"
)

// savedReport writes a small report and gives its path.
func savedReport(t *testing.T, dir, name, scenario string) string {
	t.Helper()
	r := report.Result{Format: report.Format, Scenario: scenario, Phases: []report.Phase{{To: 2}}}
	v := []float64{1, 2}
	p := []*float64{nil, nil}
	r.Series = report.Series{
		Interval: 1, Sent: v, Handled: v, Put: v, Taken: v, Throttled: v, Failed: v, MemoryBytes: v,
		ScheduleP50: p, ScheduleP99: p, SendP50: p, SendP99: p,
	}
	var b bytes.Buffer
	must(t, r.Write(&b))
	path := filepath.Join(dir, name)
	must(t, os.WriteFile(path, b.Bytes(), 0o600))
	return path
}

func reported(args ...string) (string, error) {
	cmd, out := reportCommand(), new(bytes.Buffer)
	cmd.SetArgs(args)
	cmd.SetOut(out)
	cmd.SetErr(out)
	err := cmd.Execute()
	return out.String(), err
}

func TestAReportIsDrawnBesideItselfAndTwoWhereTold(t *testing.T) {
	dir := t.TempDir()
	one, two := savedReport(t, dir, "one.json", "soak"), savedReport(t, dir, "two.json", "soak")
	both := filepath.Join(dir, "both.html")
	for _, c := range []struct {
		args        []string
		page, title string
	}{
		{[]string{"--html", one}, filepath.Join(dir, "one.html"), "Load test: soak"},
		{[]string{"--html", one, two, "--to", both}, both, "Two load tests: soak"},
	} {
		out, err := reported(c.args...)
		if err != nil || out != c.page+" is written\n" {
			t.Errorf("%q: %v, %s", c.args, err, out)
		}
		page, err := os.ReadFile(c.page)
		if err != nil || !strings.Contains(string(page), c.title) || !strings.Contains(string(page), `class="plot"`) {
			t.Errorf("%q: %v\n%s", c.args, err, page)
		}
	}
}

func TestWhatCannotBeReportedIsAMistakeOfTheCommandLine(t *testing.T) {
	dir := t.TempDir()
	one, two := savedReport(t, dir, "one.json", "soak"), savedReport(t, dir, "two.json", "ramp")
	for want, args := range map[string][]string{
		"one saved report, or two": {"--html"},
		"--json or --html":         {"--json", "--html", one},
		"needs --html":             {one, "--to", filepath.Join(dir, "x.html")},
		"needs --to FILE":          {"--html", one, two},
		"nowhere.json":             {"--html", "nowhere.json"},
		"cannot be compared":       {"--html", one, two, "--to", filepath.Join(dir, "x.html")},
	} {
		proof.Says(t, proof.ErrOf(reported(args...)), want, args)
	}
}
