package azsim

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// make suites takes minutes and root; that its judge finds what is wrong is seen at once.
func TestTheJudgeOfTheSuitesFindsWhatIsWrong(t *testing.T) {
	const excluded = "# a suite\na 2\nb 1\na TestKnown  has a reason\n"
	const results = "a Test PASS\na Test/one PASS\na Test/two PASS\na TestKnown SKIP\nb works PASS\n"
	for _, c := range []struct{ from, to, says string }{
		{"", "", "  2 pass, 1 do not"},
		{"two PASS", "two FAIL", "FAIL: a Test/two"},
		{"a Test/two PASS\n", "", "a: at least 2 passed"},
		{"b works PASS\n", "", "b: at least 1 passed"},
		{"Known SKIP", "Known PASS", "PASS: a TestKnown, which is excluded"},
		{"a TestKnown SKIP\n", "", "no test that ran: a TestKnown"},
		{"b works PASS", "b works PASS\nb new SKIP", "SKIP: b new"},
		{"a Test PASS", "a Test FAIL", "FAIL: a Test\n"},
		{"a TestKnown  has", "a Test has", "no test that ran: a Test\n"},
		{"Known  has a reason", "Known", "without a reason: a TestKnown"},
	} {
		var args []string
		for _, text := range []string{excluded, results} {
			args = append(args, filepath.Join(t.TempDir(), "text"))
			text = strings.Replace(text, c.from, c.to, 1)
			must(t, os.WriteFile(args[len(args)-1], []byte(text), 0o600))
		}
		out, err := exec.Command("awk", append([]string{"-f", "suites/judge.awk"}, args...)...).Output()
		if !strings.Contains(string(out), c.says) || (err != nil) != (c.from != "") {
			t.Errorf("%q instead of %q: %v, and not %q in\n%s", c.to, c.from, err, c.says, out)
		}
	}
}
