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
	"github.com/queuepump/queuepump/loadtest/azsim"
)

// desk is the directory of a first hour: simulated accounts, a configuration of them, and tasks.
type desk struct {
	sim *azsim.Sim
	dir string
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	sim := azsim.New(azsim.Config{Limits: azsim.NoLimits(), Accounts: []azsim.Account{{Name: "acct01"}, {Name: "acct02"}}})
	server, err := sim.Listen("", "")
	must(t, err)
	t.Cleanup(func() { _ = server.Close() })
	d := &desk{sim: sim, dir: t.TempDir()}
	t.Chdir(d.dir)
	t.Setenv("QUEUEPUMP_CONFIG", "")
	one, two := server.ConnectionString("acct01"), server.ConnectionString("acct02")
	good := "workload: test\naccounts:\n  - connectionString: " + one + "\n  - connectionString: " + two + "\n"
	for name, text := range map[string]string{
		"pump.yaml":     good,
		"typo.yaml":     strings.Replace(good, "workload:", "workloda:", 1),
		"upper.yaml":    strings.Replace(good, "test", "My Work", 1),
		"none.yaml":     "workload: test\n",
		"tabs.yaml":     "workload: test\n\taccounts:\n",
		"empty.yaml":    "",
		"unset.yaml":    "workload: test\naccounts:\n  - connectionString: ${NO_SUCH_ACCOUNT}\n",
		"twice.yaml":    good + "  - connectionString: " + one + "\n",
		"half.yaml":     "workload: test\naccounts:\n  - connectionString: AccountName=acct01\n",
		"badkey.yaml":   strings.Replace(good, "AccountKey=", "AccountKey=AAAA", 1),
		"delivery.yaml": good + "delivery: exactly\n",
		"tasks.jsonl":   "{\"city\":\"Oslo\",\"n\":1}\n{\"city\":\"Rome\",\"n\":2}\n",
		"bad.jsonl":     "no json\n",
		"tasks.csv":     "city,n\nOslo,1\n",
		"tasks.xml":     "<a/>\n",
		"broken.gz":     "\x1f\x8b\x08broken",
		"list":          "tasks.csv\n",
		"tasks.txt":     "a\n",
	} {
		must(t, os.WriteFile(filepath.Join(d.dir, name), []byte(text), 0o600))
	}
	return d
}

// made is how many requests have made or put something.
func (d *desk) made() (n int) {
	for _, op := range []string{"CreateQueue", "CreateTable", "InsertEntity", "PutMessage", "Batch"} {
		n += int(d.sim.Stats().Count("", op))
	}
	return n
}

// slips are what a user mistypes in the first hour: each is refused with its status and a word that
// names the cause, and makes nothing.
var slips = []struct {
	args   string
	status int
	says   string
}{
	{"run", 2, "nothing says what to read"},
	{"run tasks.jsonl", 2, "--input tasks.jsonl"},
	{"workload pause everything", 2, "takes no arguments"},
	{"workload resume test", 2, "takes no arguments"},
	{"workload pause --run 0123 --key Oslo", 2, "one at a time"},
	{"workload pause --run= ", 2, "--run"},
	{"workload pause --key=", 2, "--key"},
	{"workload pause --key Oslo --wait", 2, "--wait"},
	{"workload resume --run 0123 --key Oslo", 2, "one at a time"},
	{"run --imput tasks.jsonl", 2, "--input"},
	{"--input tasks.jsonl", 2, "distributor run --input"},
	{"rnu --input tasks.jsonl", 2, "run"},
	{"send tasks.jsonl", 2, "there is no command `distributor send`"},
	{"completion foo", 2, "there is no command `distributor completion foo`; there are bash, fish,"},
	{"run --input nope.jsonl", 1, "nope.jsonl"},
	{"run --input nope-*.jsonl", 1, "nope-*.jsonl"},
	{"run --input .", 2, "format"},
	{"run --input . --format jsonl", 1, "directory"},
	{"run --input tasks.xml", 2, "--format"},
	{"run --input tasks.jsonl --format xml", 2, "xml"},
	{"run --input tasks.jsonl --key citty", 1, "citty"},
	{"run --input tasks.csv --key citty", 1, "citty"},
	{"run --input tasks.csv --id citty", 1, "citty"},
	{"run --input bad.jsonl", 1, "bad.jsonl:1"},
	{"run --input broken.gz --format jsonl", 1, "broken.gz"},
	{"run --input tasks.jsonl --files .", 2, "only one of"},
	{"run --files nope", 1, "nope"},
	{"run --files . --key city", 2, "--key"},
	{"run --list nope", 1, "nope"},
	{"run --list list --format csv", 2, "--format"},
	{"run --exec no-such-command-here", 1, "no-such-command-here"},
	{"run --exec 'ls", 2, "quotes"},
	{"run --input tasks.jsonl --keep-env HOME", 2, "--exec"},
	{"run --input tasks.jsonl --once --every 1m", 2, "exclude"},
	{"run --input tasks.jsonl --every 0s", 2, "--every"},
	{"run --input tasks.jsonl --every 5", 2, "duration"},
	{"run --input - --every 1m", 2, "standard input"},
	{"run --input - --cron @daily", 2, "standard input"},
	{"run --input tasks.jsonl --once --cron @daily", 2, "exclude"},
	{"run --input tasks.jsonl --every 1m --cron @daily", 2, "leave cron or every out"},
	{"run --input tasks.jsonl --cron @daily --wait", 2, "has no end"},
	{"run --input tasks.jsonl --cron '0 25 * * *'", 2, "as the hour"},
	{"run --input tasks.jsonl --cron '@every 5m'", 2, "use every"},
	{"run --input tasks.jsonl --cron @daily --timezone Europe/Olso", 2, "Europe/Oslo"},
	{"run --input tasks.jsonl --timezone Europe/Oslo", 2, "timezone"},
	{"run --input tasks.jsonl --cron @daily --missed never", 2, "once or skip"},
	{"run --input tasks.jsonl --every 1m --wait", 2, "has no end"},
	{"run --input tasks.jsonl --wait", 2, "delivery"},
	{"run --input tasks.jsonl --stuck-after 1m", 2, "--wait"},
	{"run --input tasks.jsonl --wait-timeout 1m", 2, "--wait"},
	{"run --input tasks.jsonl --max-rate -5", 2, "--max-rate"},
	{"run --input tasks.jsonl --pack -1", 2, "--pack"},
	{"run --input tasks.jsonl --on-bad-line ignore", 2, "quarantine"},
	{"run --input tasks.jsonl --lease 1s", 2, "--lease"},
	{"run --input tasks.jsonl --quiet --debug", 2, "exclude"},
	{"run --input tasks.jsonl --log-format xml", 2, "--log-format"},
	{"run --input tasks.jsonl --admin 9090", 2, "9090"},
	{"run --input tasks.jsonl --config nope.yaml", 2, "nope.yaml"},
	{"run --input tasks.jsonl --config tasks.jsonl", 2, "tasks.jsonl"},
	{"run --input tasks.jsonl --config typo.yaml", 2, "did you mean workload"},
	{"run --input tasks.jsonl --config upper.yaml", 2, "not a workload name"},
	{"run --input tasks.jsonl --config none.yaml", 2, "accounts"},
	{"run --input tasks.jsonl --config tabs.yaml", 2, "YAML"},
	{"run --input tasks.jsonl --config empty.yaml", 2, "empty"},
	{"run --input tasks.jsonl --config unset.yaml", 2, "NO_SUCH_ACCOUNT"},
	{"run --input tasks.jsonl --config twice.yaml", 2, "already"},
	{"run --input tasks.jsonl --config half.yaml", 2, "accounts[0]"},
	{"run --input tasks.jsonl --config badkey.yaml", 1, "access denied"},
	{"run --input tasks.jsonl --config delivery.yaml", 2, "delivery"},
	{"run --input tasks.jsonl --name=", 2, "--name is empty"},
	{"run --input tasks.jsonl --cron=", 2, "--cron is empty"},
	{"run --input tasks.jsonl --cron 'H 6 * * *'", 2, "as the minute"},
	{"serve --token-file=", 2, "--token-file is empty"},
	{"runs wait", 2, "RUN is missing"},
	{"runs wait 1234 5678", 2, "one RUN"},
	{"status", 1, "distributor run"},
	{"status now", 2, "not understood"},
	{"status --watch 1ms", 2, "--watch"},
	{"runs lst", 2, "list"},
	{"runs wiat", 2, "did you mean wait?"},
	{"rnu", 2, "did you mean run?"},
	{"wait 1234", 2, "did you mean `distributor runs wait`?"},
	{"pause", 2, "did you mean `distributor workload pause`?"},
	{"generate systemd", 2, "there are alerts, bicep"},
	{"status --jsno", 2, "did you mean --json?"},
	{"run --ipnut tasks.jsonl", 2, "did you mean --input?"},
	{"run --kye city", 2, "did you mean --key?"},
	{"quarantine list --rnu 0123", 2, "did you mean --run?"},
	{"run --qiuet", 2, "did you mean --quiet?"},
	{"run --zebra", 2, "unknown flag: --zebra"},
	{"runs show", 2, "RUN is missing"},
	{"runs list all", 2, "takes no arguments"},
	{"runs list --stat open", 2, "--state"},
	{"counts", 1, "distributor run"},
	{"quarantine list --cause atempts", 2, "atempts"},
	{"quarantine redrive --rate 0", 2, "--rate"},
	{"quarantine show --since yesterday", 2, "yesterday"},
	{"accounts add", 2, "NAME is missing"},
	{"accounts remove acct02", 2, "--yes"},
	{"gate open", 2, "NAME is missing"},
	{"gate open morning", 1, "distributor run"},
	{"runs repair 1234", 2, "nothing says what to read"},
	{"workload delete --yes other", 2, "test"},
}

func TestASlipOfTheFirstHourIsRefusedWithItsCauseAndMakesNothing(t *testing.T) {
	d := newDesk(t)
	if len(slips) < 60 {
		t.Errorf("only %d slips", len(slips))
	}
	for _, s := range slips {
		t.Run(strings.ReplaceAll(s.args, "/", "_"), func(t *testing.T) {
			before := d.made()
			status, said := cli.Run(t.Context(), root(), words(s.args), io.Discard)
			proof.Same(t, status, s.status, said)
			proof.Has(t, said, s.says)
			if len(said) > 1500 {
				t.Errorf("%d bytes are said", len(said))
			}
			if made := d.made() - before; made > 0 {
				t.Fatalf("%d requests made something", made)
			}
		})
	}
	// The right options make what they say.
	if status, said := cli.Run(t.Context(), root(), words("run --input tasks.jsonl --key city --quiet --json"), io.Discard); status != 0 || d.made() == 0 {
		t.Errorf("status %d: %s", status, said)
	}
}

// words splits a command line as typed; a quote that is not closed stays in its word.
func words(line string) []string {
	if argv, err := cli.Split(line); err == nil {
		return argv
	}
	return append(strings.Fields(line)[:2], strings.SplitN(line, " ", 3)[2])
}

// C3: the default path, and the file that is used, are said.
func TestTheConfigurationInUseIsSaid(t *testing.T) {
	d := newDesk(t)
	config := filepath.Join(d.dir, "badkey.yaml")
	t.Setenv("QUEUEPUMP_CONFIG", config)
	if status, said := cli.Run(t.Context(), root(), words("run --input tasks.jsonl"), io.Discard); status != 1 || !strings.Contains(said, config+", which QUEUEPUMP_CONFIG names") {
		t.Errorf("status %d: %s", status, said)
	}
	t.Setenv("QUEUEPUMP_CONFIG", "gone.yaml")
	if status, said := cli.Run(t.Context(), root(), words("status"), io.Discard); status != 2 || !strings.Contains(said, "gone.yaml") || !strings.Contains(said, "QUEUEPUMP_CONFIG") {
		t.Errorf("status %d: %s", status, said)
	}
}

// The first help of a command has what most need; --help-all has all, and both can be typed.
func TestWhatIsSeldomNeededIsInTheLongHelp(t *testing.T) {
	for _, c := range []struct{ command, never, all string }{
		{"", "  gate  ", "  gate  "},
		{"", "  ids  ", "  ids  "},
		{"plan", "--get-costs", "--get-costs"},
		{"run", "--lease", "--lease"},
		{"run", "--progress-every", "--progress-every"},
		{"status", "--watch", "--watch"},
	} {
		short, err := printed(t, words("-q " + c.command + " --help")[1:])
		long, err2 := printed(t, words("-q " + c.command + " --help-all")[1:])
		if err != nil || err2 != nil || strings.Contains(short, c.never) || !strings.Contains(long, c.all) || !strings.Contains(short, "--help-all") {
			t.Errorf("%s: %v, %v\n%s\n%s", c.command, err, err2, short, long)
		}
	}
	text, err := printed(t, words("plan --help"))
	_, flags, _ := strings.Cut(text, "\nFlags:\n")
	if n := strings.Count("\n"+flags, "\n      --") - 1; err != nil || n != 6 {
		t.Errorf("%d flags of plan, %v\n%s", n, err, flags)
	}
	for _, slip := range []string{"plan --vm-prise 1", "gaet list"} {
		if _, said := cli.Run(t.Context(), root(), words(slip), io.Discard); !strings.Contains(said, "did you mean") {
			t.Errorf("%s: %s", slip, said)
		}
	}
}

// A flag may come from the environment, and the command line wins. A value that is wrong is refused
// as that of the flag is, with the variable named and no secret shown.
func TestTheEnvironmentGivesFlagsToo(t *testing.T) {
	d := newDesk(t)
	for _, c := range []struct {
		env, args string
		status    int
		says      []string
	}{
		{"MAX_RATE=abc", "run --input tasks.jsonl", 2, []string{`invalid argument "abc" for "--max-rate" flag`, "QUEUEPUMP_MAX_RATE"}},
		{"MAX_RATE=-5", "run --input tasks.jsonl", 2, []string{"--max-rate: -5", "QUEUEPUMP_MAX_RATE"}},
		{"LEASE=1s", "run --input tasks.jsonl", 2, []string{"--lease", "QUEUEPUMP_LEASE"}},
		{"EVERY=1m", "run --input tasks.jsonl --once", 2, []string{"--once and --every exclude each other", "QUEUEPUMP_EVERY"}},
		{"QUIET=perhaps", "status", 1, nil}, // which has no --quiet
		{"QUIET=perhaps", "run --input tasks.jsonl", 2, []string{"QUEUEPUMP_QUIET"}},
		{"PACK=AccountKey=0123456789abcdef0123", "run --input tasks.jsonl", 2, []string{"AccountKey=REDACTED", "QUEUEPUMP_PACK"}},
		{"CONFIG=gone.yaml", "plan --rate 1 --handler-seconds 1 --task-bytes 1", 2, []string{"gone.yaml", "QUEUEPUMP_CONFIG"}},
		{"INPUT=tasks.csv\nnope.csv", "run", 1, []string{"nope.csv"}},
		{"INPUT=tasks.csv\nnope.csv", "run --input tasks.jsonl --key citty", 1, []string{"citty"}},
		{"HELP=true", "run", 2, []string{"nothing says what to read"}},
		{"INPUT=", "run", 2, []string{"nothing says what to read"}},
	} {
		t.Run(c.env+" "+c.args, func(t *testing.T) {
			name, value, _ := strings.Cut(c.env, "=")
			t.Setenv("QUEUEPUMP_"+name, value)
			status, said := cli.Run(t.Context(), root(), words(c.args), io.Discard)
			if status != c.status || strings.Contains(said, "0123") {
				t.Errorf("status %d, want %d: %s", status, c.status, said)
			}
			for _, want := range c.says {
				proof.Has(t, said, want)
			}
		})
	}
	if made := d.made(); made > 0 {
		t.Fatalf("%d requests made something", made)
	}
	t.Setenv("QUEUEPUMP_INPUT", "tasks.csv\ntasks.csv\n")
	t.Setenv("QUEUEPUMP_QUIET", "true")
	t.Setenv("QUEUEPUMP_MAX_RATE", "no number")
	if status, said := cli.Run(t.Context(), root(), words("run --max-rate 1000"), io.Discard); status != 0 || d.made() == 0 {
		t.Errorf("status %d: %s", status, said)
	}
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
