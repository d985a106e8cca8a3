package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/queuepump/queuepump/internal/cli"
	"github.com/queuepump/queuepump/internal/proof"
)

// must ends a test with an error.
var must = proof.Must

// A user's slip of the first hour is refused with its status and a word that names the
// cause, before a file is opened or an account is asked.
func TestASlipOfTheFirstHourIsRefusedWithItsCause(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("QUEUEPUMP_CONFIG", "")
	const config = "workload: test\naccounts:\n  - connectionString: DefaultEndpointsProtocol=http;AccountName=a1;AccountKey=YWJj;" +
		"QueueEndpoint=http://127.0.0.1:1/a1;TableEndpoint=http://127.0.0.1:1/a1\n"
	must(t, os.WriteFile(filepath.Join(dir, "pump.yaml"), []byte(config), 0o600))
	for _, s := range []struct{ args, says string }{
		{"run", "nothing says what to do"},
		{"run ./worker", "--exec ./worker"},
		{"run --outt done.jsonl", "did you mean --out"},
		{"--out done.jsonl", "processor run --out"},
		{"run --exec ./a --http http://127.0.0.1:1", "only one of"},
		{"run --http http://127.0.0.1:1 --children 4", "--exec"},
		{"run --out o --task-timeout 1s", "--task-timeout"},
		{"run --out o --keep-env HOME", "--keep-env"},
		{"run --exec ./a --out-patience 1s", "--out"},
		{"run --exec ./a --sum amount", "--count-by"},
		{"run --exec ./a --http-header A:b", "--http"},
		{"run --discard --max-attempts 3", "--discard"},
		{"run --discard --out o", "--out"},
		{"run --out o --until-idle 0s", "--until-idle"},
		{"run --out o --until-idle 5", "duration"},
		{"run --out o --concurrency -1", "--concurrency"},
		{"run --out o --max-rate 0", "--max-rate"},
		{"run --out o --lease 1s", "--lease"},
		{"run --out o --admin 9090", "9090"},
		{"run --out o --config nope.yaml", "nope.yaml"},
		{"run --exec 'python3", "quotes"},
		{"status now", "not understood"},
		{"runs end 1234", "no command"},
		{"quarantine drop", "no command"},
		{"sttus", "status"},
	} {
		t.Run(strings.ReplaceAll(s.args, "/", "_"), func(t *testing.T) {
			argv, err := cli.Split(s.args)
			if err != nil {
				argv = append(strings.Fields(s.args)[:2], strings.SplitN(s.args, " ", 3)[2])
			}
			status, said := cli.Run(t.Context(), root(), argv, io.Discard)
			proof.Same(t, status, 2, said)
			proof.Has(t, said, s.says)
			if made, err := os.ReadDir(dir); err != nil || len(made) != 1 {
				t.Errorf("%v, %v in the directory", made, err)
			}
		})
	}
}

// The help fits two screens of 50 lines. A topic of its own says what a command or an endpoint is
// told.
func TestTheHelpOfRunFitsTwoScreens(t *testing.T) {
	for _, args := range []string{"run --help", "help exec", "help http", "help out", "help count", "--help"} {
		text := help(t, args)
		if n := strings.Count(text, "\n"); n > 100 || n < 3 {
			t.Errorf("processor %s has %d lines", args, n)
		}
		for line := range strings.Lines(text) {
			if len(line) > 125 {
				t.Errorf("processor %s: a long line: %s", args, line)
			}
		}
	}
	for _, topic := range []string{"exec", "http", "out", "count"} {
		proof.Has(t, help(t, "run --help"), topic)
		proof.Has(t, help(t, "--help"), "processor "+topic)
	}
	for _, want := range []string{"Process:", "Watch:", "Plan:", "completion"} {
		proof.Has(t, help(t, "--help"), want, "the help")
	}
}

func help(t *testing.T, args string) string {
	t.Helper()
	text, err := printed(t, strings.Fields(args))
	must(t, err)
	return text
}

// printed is what the program prints.
func printed(t *testing.T, args []string) (string, error) {
	t.Helper()
	var b strings.Builder
	if status, said := cli.Run(t.Context(), root(), args, &b); status != 0 {
		return b.String(), errors.New(said)
	}
	return b.String(), nil
}
