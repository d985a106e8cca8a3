package operate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/queuepump/queuepump/internal/cli"
	"github.com/queuepump/queuepump/internal/configfile"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/accounts"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/gates"
	"github.com/queuepump/queuepump/pump/source"
	"github.com/queuepump/queuepump/pump/status"
	"github.com/queuepump/queuepump/pump/workloads"
)

// must ends a test with an error.
var must = proof.Must

// desk is where somebody types commands: simulated accounts, and a configuration
// with all of them and one with the first two.
type desk struct {
	t            *testing.T
	three, first string
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	sim := azsim.New(azsim.Config{Limits: azsim.NoLimits(), Accounts: []azsim.Account{{Name: "acct01"}, {Name: "acct02"}, {Name: "acct03"}}})
	server, err := sim.Listen("", "")
	must(t, err)
	t.Cleanup(func() { _ = server.Close() })
	d := &desk{t: t}
	write := func(accounts ...string) string {
		var b strings.Builder
		b.WriteString("workload: test\naccounts:\n")
		for _, name := range accounts {
			fmt.Fprintf(&b, "  - connectionString: %s\n    queues: 2\n", server.ConnectionString(name))
		}
		path := filepath.Join(t.TempDir(), "pump.yaml")
		must(t, os.WriteFile(path, []byte(b.String()), 0o600))
		return path
	}
	d.three, d.first = write("acct01", "acct02", "acct03"), write("acct01", "acct02")
	return d
}

// made is a desk with a workload in two of three accounts, and three tasks in it.
func made(t *testing.T) *desk {
	d := newDesk(t)
	tasks := filepath.Join(t.TempDir(), "tasks.txt")
	must(t, os.WriteFile(tasks, []byte("a\nb\nc\n"), 0o600))
	d.send(d.first, &source.TextSource{Paths: []string{tasks}, Format: source.FormatLines}, "")
	return d
}

// send sends what a source has, as `distributor run` does.
func (d *desk) send(config string, from source.Source, policy distributor.BadLine) distributor.Summary {
	d.t.Helper()
	file, err := configfile.Load(config)
	must(d.t, err)
	sender, err := distributor.New(file.Config, from, distributor.Options{OnBadLine: policy})
	must(d.t, err)
	sent, err := sender.Run(d.t.Context())
	must(d.t, err)
	return sent
}

// root is the distributor without its run.
func root() *cobra.Command {
	root := &cobra.Command{Use: "distributor"}
	Add(root)
	return root
}

// typed runs a command with the configuration of all accounts.
func (d *desk) typed(args ...string) (string, error) { return d.typedWith(d.three, args...) }

func (d *desk) typedWith(config string, args ...string) (string, error) {
	d.t.Helper()
	var out bytes.Buffer
	cmd := root()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetIn(strings.NewReader(""))
	cmd.SetArgs(append(args, "--config", config))
	err := cmd.ExecuteContext(d.t.Context())
	return out.String(), err
}

func (d *desk) with(config string, args ...string) string {
	d.t.Helper()
	out, err := d.typedWith(config, args...)
	if err != nil {
		d.t.Fatalf("%s: %v", strings.Join(args, " "), err)
	}
	return out
}

func (d *desk) ok(args ...string) string {
	d.t.Helper()
	return d.with(d.three, args...)
}

// says checks that a command prints a text, line by line.
func (d *desk) says(want string, args ...string) {
	d.t.Helper()
	if got := d.ok(args...); got != want {
		d.t.Errorf("%s printed\n%swant\n%s", strings.Join(args, " "), got, want)
	}
}

// fails checks that a command fails with a text in its error, as a mistake of
// its user's or not.
func (d *desk) fails(mistake bool, text string, args ...string) {
	d.t.Helper()
	out, err := d.typed(args...)
	if err == nil || !strings.Contains(err.Error(), text) || cli.IsMistake(err) != mistake {
		d.t.Errorf("%s: %v (a mistake: %v), printed %q", strings.Join(args, " "), err, cli.IsMistake(err), out)
	}
}

func TestAWorkloadIsShownByCommand(t *testing.T) {
	d := made(t)
	got := d.ok("workload", "show")
	for _, want := range []string{
		"workload     test\n", "rows in      acct01\n", "delivery     at-least-once\n", "segments     128\n", "accounts     2, with 4 queues in all",
		"map          version 1 of ", "retention    168h0m0s", "members      0 distributors, 0 processors\n", "runs         1 sealed\n", "made         20",
	} {
		proof.Has(t, got, want)
	}
	var i workloads.Info
	if err := json.Unmarshal([]byte(d.ok("workload", "show", "--json")), &i); err != nil || i.Name != "test" || i.Queues != 4 || i.Runs["sealed"] != 1 || i.Rivals == nil {
		t.Errorf("%+v, %v", i, err)
	}
}

func TestAccountsAreAddedAndDrainedByCommands(t *testing.T) {
	d := made(t)
	d.says("ACCOUNT  STATE   QUEUES  WEIGHT  SEGMENTS  NOTE\n"+
		"acct01   active       2       1        64  control account\n"+
		"acct02   active       2       1        64\n"+
		"acct03   unused       2       1         0\n", "accounts", "list")
	if got := d.with(d.first, "accounts", "list"); strings.Contains(got, "acct03") {
		t.Errorf("it lists what is nowhere:\n%s", got)
	}
	d.says("account acct03 is active now (map version 2); 42 segments moved\n", "accounts", "add", "acct03", "--quiet")
	d.says("account acct03 was active already (map version 2)\n", "accounts", "add", "acct03", "--quiet")
	proof.Has(t, d.with(d.first, "accounts", "list"), "not in this configuration", "what is missing")
	d.fails(true, "Give --yes", "accounts", "drain", "acct03")
	d.says("account acct03 is draining now (map version 3); 42 segments moved\nwhen it is empty: distributor accounts remove acct03 --config "+d.three+"\n",
		"accounts", "drain", "acct03", "--quiet", "--yes")
	var c accounts.Change
	if err := json.Unmarshal([]byte(d.ok("accounts", "drain", "acct03", "--yes", "--json")), &c); err != nil || c != (accounts.Change{Account: "acct03", State: "draining", MapVersion: 3}) {
		t.Errorf("%+v, %v", c, err)
	}
	d.fails(false, "not been draining for long enough", "accounts", "remove", "acct03", "--yes")
	d.fails(false, "it is active; drain it first: distributor accounts drain acct02", "accounts", "remove", "acct02", "--yes")
	d.fails(false, "cannot be removed", "accounts", "remove", "acct01", "--yes")
	d.fails(true, `no account is called "acct04"; add it`, "accounts", "add", "acct04")
	var list struct {
		Workload string
		Accounts []accounts.Use
	}
	if err := json.Unmarshal([]byte(d.ok("accounts", "list", "--json")), &list); err != nil || list.Workload != "test" || len(list.Accounts) != 3 || list.Accounts[2].State != "draining" {
		t.Errorf("%+v, %v", list, err)
	}
}

func TestGatesAndNumbersByCommands(t *testing.T) {
	d := made(t)
	d.says("no gate was ever opened or closed, and no process waits at one\n", "gate", "list")
	d.says("gate morning is closed\n", "gate", "close", "morning")
	d.says("gate morning is open; no process waits at it\n", "gate", "open", "morning")
	var g struct{ Gates []gates.Status }
	if err := json.Unmarshal([]byte(d.ok("gate", "list", "--json")), &g); err != nil || len(g.Gates) != 1 || !g.Gates[0].Open || g.Gates[0].By == "" || g.Gates[0].Since == nil {
		t.Errorf("%+v, %v", g, err)
	}
	if got := d.ok("gate", "list"); !strings.HasPrefix(got, "GATE     STATE  SINCE") || !strings.Contains(got, "morning  open") {
		t.Errorf("printed\n%s", got)
	}
	d.fails(true, `"a b"`, "gate", "open", "a b")
	d.says("gate morning is removed\n", "gate", "remove", "morning")
	d.says("there is no gate morning\n", "gate", "remove", "morning")
	d.says("{\"gate\":\"morning\",\"removed\":false}\n", "gate", "remove", "morning", "--json")
	d.says("no gate was ever opened or closed, and no process waits at one\n", "gate", "list")
	d.fails(true, `"a b"`, "gate", "remove", "a b")

	d.says("1\n", "ids", "next", "orders")
	d.says("2 101\n", "ids", "next", "orders", "--count", "100")
	d.says(`{"first":"102","last":"103","name":"orders"}`+"\n", "ids", "next", "orders", "--count", "2", "--json")
	d.says("1\n", "ids", "next", "bills")
	d.fails(true, "--count: 0", "ids", "next", "orders", "--count", "0")
	d.fails(true, "id range name", "ids", "next", "a/b")
}

func TestTheStatusByCommand(t *testing.T) {
	d := made(t)
	var s status.Status
	must(t, json.Unmarshal([]byte(d.ok("status", "--json")), &s))
	if s.Workload != "test" || len(s.Runs) != 1 || s.Runs[0].State != "sealed" || *s.Runs[0].Sent != 3 || len(s.Accounts) != 3 || len(s.Problems) != 0 {
		t.Errorf("%+v", s)
	}
	messages := int64(0)
	for _, a := range s.Accounts {
		messages += a.Visible
		proof.Same(t, a.InFlight, 0, a)
	}
	proof.Same(t, messages, 3, "messages of 3")
	text := d.ok("status")
	for _, want := range []string{"workload test · 128 segments · map 1", s.Runs[0].ID[:12] + "  sealed  once", "acct03", "unused"} {
		proof.Has(t, text, want)
	}
	for line := range strings.Lines(text) {
		if Width(strings.TrimSpace(line)) > 80 {
			t.Errorf("too long: %s", line)
		}
	}
	d.fails(true, `"2s" is not understood`, "status", "2s")
	d.fails(true, "--watch", "status", "--watch", "1ms")
	d.fails(true, "--width", "status", "--width", "10")
	d.fails(true, "--runs", "status", "--runs", "0")
}

func TestOfAWorkloadThatIsNotThereTheCommandsSayWhatMakesIt(t *testing.T) {
	d := newDesk(t)
	for _, args := range []string{"status", "workload show", "workload delete --yes test", "accounts list", "accounts add acct02", "accounts drain acct02 --yes", "accounts remove acct02 --yes", "gate open a", "gate close a", "gate list", "ids next a"} {
		d.fails(false, "the first `distributor run` makes it", strings.Fields(args)...)
	}
}

func TestEveryCommandHasAConfigurationAndExamples(t *testing.T) {
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, c := range cmd.Commands() {
			walk(c)
		}
		if cmd.RunE == nil || cmd.Hidden || cmd.HasSubCommands() || slices.Contains([]string{"version", "help", "run"}, cmd.Name()) {
			return
		}
		if cmd.Example == "" || cmd.Short == "" || cmd.Flags().Lookup("config") == nil && cmd.Parent().Name() != "generate" {
			t.Errorf("%s lacks an example, a description or --config", cmd.CommandPath())
		}
		for line := range strings.Lines(cmd.Long + "\n" + cmd.Example) {
			if Width(line) > 100 {
				t.Errorf("%s: a line of its help is too long: %s", cmd.CommandPath(), line)
			}
		}
	}
	walk(root())
}

func TestAMissingArgumentIsNamedWithTheUsage(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"gate", "close"}, "NAME is missing\nusage: distributor gate close NAME [flags]"},
		{[]string{"gate", "remove"}, "NAME is missing\nusage: distributor gate remove NAME [flags]"},
		{[]string{"gate", "open"}, "NAME is missing\nusage: distributor gate open NAME [flags]"},
		{[]string{"ids", "next", "--count", "3"}, "NAME is missing\nusage: distributor ids next NAME [flags]"},
		{[]string{"accounts", "add"}, "NAME is missing\nusage: distributor accounts add NAME [flags]"},
		{[]string{"accounts", "drain", "a", "b"}, "there is one NAME, not 2\nusage: distributor accounts drain NAME [flags]"},
	} {
		cmd := root()
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetArgs(tt.args)
		proof.Same(t, fmt.Sprint(cmd.Execute()), tt.want, tt.args)
	}
}

func TestWhoWasToldIsSaid(t *testing.T) {
	for _, tt := range []struct {
		change gates.Change
		want   string
	}{
		{gates.Change{Gate: "g", Waiting: 1}, "gate g is closed; 1 process waits at it"},
		{gates.Change{Gate: "g\x1b", Open: true, Waiting: 1, Nudged: 1}, "gate g\ufffd is open; 1 process waits at it, and was told"},
		{gates.Change{Gate: "g", Open: true, Waiting: 1200, Nudged: 1200}, "gate g is open; 1,200 processes wait at it, and were told"},
		{gates.Change{Gate: "g", Open: true, Waiting: 3, Nudged: 1}, "gate g is open; 3 processes wait at it, 1 of them could be told, the others look within 2.5 s"},
	} {
		proof.Same(t, gateText(tt.change), tt.want, tt.change)
	}
	for _, tt := range []struct {
		nudged, members int
		want            string
	}{
		{0, 0, "account a is active now (map version 2); 1 segment moved"},
		{2, 2, "account a is active now (map version 2); 1 segment moved; all running processes were told"},
		{1, 2, "account a is active now (map version 2); 1 segment moved; 1 of 2 processes were told, the others see it at their next beat"},
	} {
		c := change{}
		proof.Same(t, c.text(accounts.Change{Account: "a", State: "active", Changed: true, MapVersion: 2, Moved: 1, Members: tt.members, Nudged: tt.nudged}), tt.want)
	}
}

// What may be lost is said before anything is changed, and where nobody can be asked nothing is.
func TestALostAccountIsGivenUpByCommand(t *testing.T) {
	d := made(t)
	got, err := d.typed("accounts", "remove", "acct02", "--lost")
	if err == nil || !strings.Contains(err.Error(), "Give --yes") || !cli.IsMistake(err) {
		t.Error(err)
	}
	if want := "with account acct02 this may be lost for good:\n  its messages: nobody has counted them in the last six hours\n" +
		"  with delivery: at-least-once nothing says which tasks those are"; !strings.HasPrefix(got, want) {
		t.Errorf("it says %q", got)
	}
	d.fails(false, "it is active; drain it first", "accounts", "remove", "acct02", "--lost", "--yes")
	d.ok("accounts", "drain", "acct02", "--yes", "--quiet")
	d.fails(false, "it may answer again for another", "accounts", "remove", "acct02", "--lost", "--yes")
	d.fails(false, "it may answer again for another", "workload", "delete", "--lost", "acct02", "--yes", "test")
}
