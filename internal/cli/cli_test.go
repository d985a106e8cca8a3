package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/queuepump/queuepump/internal/admin"
	"github.com/queuepump/queuepump/internal/configfile"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
)

// must ends a test with an error.
var must = proof.Must

func TestTheExitStatusSaysWhatWentWrong(t *testing.T) {
	for _, tt := range []struct {
		name string
		err  error
		want int
	}{
		{"done", nil, 0},
		{"failed", &failure{errors.New("no")}, 1},
		{"found by cobra", errors.New("unknown flag"), 2},
		{"a mistake of usage", &failure{fmt.Errorf("wrapped: %w", Usage("no"))}, 2},
		{"a wrong address of the admin port", &failure{wrongAddress()}, 2},
		{"a wrong file", &failure{configfile.Errors{{}}}, 2},
		{"tasks in quarantine", &failure{fmt.Errorf("wrapped: %w", &Status{ExitQuarantined, errors.New("no")})}, 3},
		{"stuck", &failure{&Status{ExitStuck, errors.New("no")}}, 4},
		{"told to stop while it waited", &failure{errors.Join(&Interrupted{syscall.SIGINT}, &Status{ExitStuck, errors.New("no")})}, 130},
		{"SIGINT", &failure{&Interrupted{syscall.SIGINT}}, 130},
		{"SIGTERM", &failure{&Interrupted{syscall.SIGTERM}}, 143},
	} {
		proof.Same(t, exitCode(tt.err), tt.want, tt.name)
	}
}

func wrongAddress() error {
	_, err := admin.Open(admin.Options{Listen: "9090", Log: slog.New(slog.DiscardHandler)})
	return err
}

func TestOnlyACommandThatWasBegunFails(t *testing.T) {
	run := func(args ...string) error {
		root := &cobra.Command{Use: "x", SilenceErrors: true, SilenceUsage: true}
		root.AddCommand(&cobra.Command{Use: "go", Args: cobra.NoArgs, RunE: Command(func(*cobra.Command) error { return errors.New("boom") })})
		root.SetArgs(args)
		root.SetOut(&bytes.Buffer{})
		return root.Execute()
	}
	for _, tt := range []struct {
		args string
		want int
	}{{"go", 1}, {"go --fast", 2}, {"go home", 2}, {"stop", 2}} {
		proof.Same(t, exitCode(run(strings.Fields(tt.args)...)), tt.want, tt.args)
	}
}

func TestAFieldThatIsNotInTheFileIsAFlag(t *testing.T) {
	err := Explain(&pump.ConfigError{Field: "retry.base", Problem: "p", Fix: "f"}, nil)
	proof.Same(t, err.Error(), "--retry-base: p; f")
	proof.Same(t, exitCode(&failure{err}), 2)
	err = Explain(&pump.ConfigError{Field: "accounts[1].queues", Problem: "p", Fix: "f"}, &configfile.File{})
	if _, ok := errors.AsType[configfile.Errors](err); !ok {
		t.Errorf("got %v", err)
	}
}

func TestTheFirstSignalEndsTheContext(t *testing.T) {
	ctx, stop := withSignals(t.Context(), func() {})
	defer stop()
	if WasInterrupted(ctx) != nil {
		t.Error("interrupted before the signal")
	}
	must(t, syscall.Kill(syscall.Getpid(), syscall.SIGTERM))
	<-ctx.Done()
	if i, ok := errors.AsType[*Interrupted](WasInterrupted(ctx)); !ok || i.Signal != syscall.SIGTERM {
		t.Errorf("got %v", context.Cause(ctx))
	}
}

func TestChildrenGetNoCredentialsOfOurs(t *testing.T) {
	const key, signature = "c2VjcmV0LWtleS1vZi1hbHBoYQ==", "c2VjcmV0+c2lnbmF0dXJl/b2YgYmV0YQ=="
	file := &configfile.File{
		Variables: []string{"ACCOUNT_1", "ACCOUNT_2"},
		Config: pump.Config{Accounts: []pump.Account{
			{ConnectionString: "AccountName=alpha; accountkey=" + key}, {Endpoint: "https://beta.queue.core.windows.net?sv=1&sig=" + url.QueryEscape(signature)},
		}},
	}
	for name, value := range map[string]string{
		"ACCOUNT_1": "secret", "AZURE_CLIENT_SECRET": "secret", "AZURE_CLIENT_CERTIFICATE_PATH": "secret", "AZURE_FEDERATED_TOKEN_FILE": "secret", "AZURE_PASSWORD": "secret",
		"AZURE_STORAGE_KEY": "secret", "AZURE_STORAGE_SAS_TOKEN": "secret", "AZURE_STORAGE_CONNECTION_STRING": "secret", "IDENTITY_HEADER": "secret", "QUEUEPUMP_HTTP_HEADER": "Token: secret", "QUEUEPUMP_CONFIG": "pump.yaml",
		"MY_COPY": "AccountKey=" + key, "MY_TOKEN": "?sig=" + signature, "MY_ESCAPED_TOKEN": url.QueryEscape(signature),
		"ACCOUNT_2": "kept", "AZURE_SUBSCRIPTION_TOKEN": "kept too", "HARMLESS": "yes", "AZURE_CLIENT_ID": "no credential", "AZURE_REGION": "norwayeast",
	} {
		t.Setenv(name, value)
	}
	keep := []string{"ACCOUNT_2", "AZURE_SUBSCRIPTION_TOKEN"}
	check := func(all string) {
		t.Helper()
		for _, hidden := range []string{"secret", key, signature, url.QueryEscape(signature)} {
			if strings.Contains(all, hidden) {
				t.Errorf("%s is in the environment:\n%s", hidden, all)
			}
		}
		for _, shown := range []string{"HARMLESS=yes", "ACCOUNT_2=kept", "AZURE_SUBSCRIPTION_TOKEN=kept too", "AZURE_CLIENT_ID=no credential", "AZURE_REGION=norwayeast", "QUEUEPUMP_CONFIG=pump.yaml"} {
			proof.Has(t, all, shown, "the environment")
		}
	}
	check(strings.Join(ChildEnv(file, keep), "\n"))
	if os.Getenv("ACCOUNT_1") == "" {
		t.Error("the process has lost a variable")
	}
}

func TestACommandLineIsSplitAsAShellWouldWithoutRunningOne(t *testing.T) {
	for in, want := range map[string][]string{
		`python3 work.py`:        {"python3", "work.py"},
		`a 'b c' "d e" f\ g`:     {"a", "b c", "d e", "f g"},
		`echo $HOME *; rm | cat`: {"echo", "$HOME", "*;", "rm", "|", "cat"},
		`a'b'"c" '' "\"\x"`:      {"abc", "", `"\x`},
		"a \\\n b\\\nc 'd\\\n'":  {"a", "bc", "d\\\n"},
	} {
		got, err := Split(in)
		if d := cmp.Diff(want, got); err != nil || d != "" {
			t.Errorf("%s: %v %s", in, err, d)
		}
		if again, err := Split(Join(got...)); err != nil || !slices.Equal(got, again) {
			t.Errorf("%s: %q %v", Join(got...), again, err)
		}
	}
	for _, in := range []string{"", "  ", "a 'b", `a "b\"`, `a\`} {
		proof.Says(t, proof.ErrOf(Split(in)), "the command", in)
	}
}

func TestNumbersAreWrittenToBeRead(t *testing.T) {
	for n, want := range map[int64]string{0: "0 tasks", 1: "1 task", 1234: "1,234 tasks"} {
		proof.Same(t, Plural(n, "task"), want, n, "became")
	}
	for n, want := range map[int64]string{1: "1 B", 20 << 10: "20.0 KiB", 20 << 20: "20.0 MiB", 20 << 30: "20.0 GiB"} {
		proof.Same(t, Bytes(n), want, n, "became")
	}
}

func TestTheBarSaysHowFarItIsAndFitsItsTerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bar{since: time.Now()}
		check := func(done, total int64, columns int, want string) {
			t.Helper()
			proof.Same(t, b.line(done, total, "400 tasks", columns), want)
		}
		check(0, 400, 80, "   0% |                        |  [0s] 400 tasks")
		time.Sleep(4 * time.Second)
		check(200, 400, 80, "  50% |████████████            |  [4s:8s] 400 tasks")
		check(200, 400, 38, "  50% |█████      |  [4s:8s] 400 tasks")
		check(200, 400, 20, "  50% ||  [4s:8s] 4…")
		check(500, 400, 80, " 100% |████████████████████████|  [4s:0s] 400 tasks")
		check(7, 0, 80, "⠋  [4s] 400 tasks")
		check(8, 0, 10, "⠙  [4s] 4…")
	})
}

func TestRequestsAreATable(t *testing.T) {
	var b bytes.Buffer
	Requests(&b, pump.Requests{"beta": {"put": 1200}, "alpha": {"get": 3, "put": 1}}, 2, 12040)
	want := "1,204 requests, 100.0 for a thousand tasks, 2 throttled\n" +
		"         get    put\n" +
		"  alpha    3      1\n" +
		"   beta    0  1,200\n"
	proof.Same(t, cmp.Diff(want, b.String()), "")
}

func TestMistakesAreOfWhatWasTyped(t *testing.T) {
	cmd := &cobra.Command{Use: "show RUN"}
	cmd.Flags().Int("most", 1, "")
	for args, mistake := range map[string]bool{"": true, "a": false, "a b": true} {
		if err := OneArgument(cmd, strings.Fields(args)); IsMistake(err) != mistake {
			t.Errorf("%q: %v", args, err)
		}
	}
	must(t, Belong(cmd, "--all", false, "most"))
	must(t, cmd.Flags().Set("most", "2"))
	must(t, Belong(cmd, "--all", true, "most"))
	if err := Belong(cmd, "--all", false, "most"); !IsMistake(err) || IsMistake(errors.New("no answer")) {
		t.Error(err)
	}
}
