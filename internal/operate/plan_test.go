package operate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dustin/go-humanize"

	"github.com/queuepump/queuepump/internal/capacity"
	"github.com/queuepump/queuepump/internal/cli"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
)

// planned runs distributor plan.
func planned(t *testing.T, args ...string) (out string, err error) {
	t.Helper()
	cmd := root()
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	var b bytes.Buffer
	cmd.SetOut(&b)
	cmd.SetErr(&b)
	cmd.SetArgs(append([]string{"plan"}, args...))
	err = cmd.ExecuteContext(t.Context())
	return b.String(), err
}

func lines(t *testing.T, n int) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "tasks.jsonl")
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintf(&b, `{"id":%d,"city":"city-%d","amount":%d}`+"\n", i, i%3, i*i%1000)
	}
	must(t, os.WriteFile(path, b.Bytes(), 0o600))
	return path
}

func TestAPlanMeasuresTheUsersOwnInput(t *testing.T) {
	path := lines(t, 20_000)
	// One processor's handlers are full at 1,280 tasks/s, at which packing and unpacking must take
	// less than 1.5 ms a task. They are measured here, on a machine that may be slow and busy.
	args := []string{"--rate", "1000", "--handler-seconds", "0.2", "--input", path, "--key", "id"}
	out, err := planned(t, args...)
	must(t, err)
	for _, want := range []string{"1,000 tasks/s of 0.2 s each", "Measured on all of the input, 20,000 tasks", "bottleneck: handlers, full at", "accounts  ", "money a day", (pump.Prices{}).OrPublished().Source} {
		if !strings.Contains(out, want) {
			t.Errorf("the plan lacks %q:\n%s", want, out)
		}
	}
	out, err = planned(t, append(args, "--sample", "1000", "--json")...)
	must(t, err)
	var p capacity.Plan
	if err := json.Unmarshal([]byte(out), &p); err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	if p.Sample.Tasks != 1000 || p.Sample.Whole || p.Rate != 1000 || !p.Fits || p.Money.Total <= 0 || p.Requests.Put <= 0 || p.Processors < 1 {
		t.Errorf("%+v", p)
	}
}

// Who asks whether something is enough gets the answer by the exit status too.
func TestAPlanThatDoesNotFitIsAFailureThatNamesTheBottleneck(t *testing.T) {
	path := lines(t, 3000) // three keys
	for _, tt := range []struct {
		name       string
		args       []string
		bottleneck string
	}{
		{"an account", []string{"--rate", "10000", "--handler-seconds", "0.001", "--task-bytes", "100", "--pack", "1", "--accounts", "1", "--queues", "20"}, "accounts"},
		{"a key", []string{"--rate", "10000", "--handler-seconds", "0.05", "--concurrency", "64", "--input", path, "--key", "city"}, "hottest key's processor"},
		{"the headroom", []string{"--rate", "6000", "--handler-seconds", "0.001", "--task-bytes", "100", "--pack", "1", "--accounts", "1", "--queues", "20"}, "accounts"},
	} {
		out, err := planned(t, tt.args...)
		if err == nil || !strings.Contains(err.Error(), tt.bottleneck) || !strings.Contains(out, "bottleneck: "+tt.bottleneck) {
			t.Errorf("%s: %v\n%s", tt.name, err, out)
		}
		if _, usage := errors.AsType[*cli.UsageError](err); usage {
			t.Errorf("%s is a mistake of usage: %v", tt.name, err)
		}
	}
}

func TestPlanSaysWhatIsMissingOrTooMuch(t *testing.T) {
	path := lines(t, 10)
	enough := []string{"--rate", "1", "--handler-seconds", "1"}
	for _, tt := range []struct {
		args []string
		want string
	}{
		{nil, "--rate is missing"},
		{[]string{"--rate", "1"}, "--handler-seconds is missing"},
		{enough, "nothing says how large tasks are"},
		{append(enough, "--task-bytes", "1e6"), "--task-bytes: "},
		{append(enough, "--task-bytes", "1", "--ratio", "0"), "--ratio: "},
		{append(enough, "--task-bytes", "1", "--input", path), "no input to measure"},
		{append(enough, "--task-bytes", "1", "--delivery", "twice"), `"twice" is not a delivery mode`},
		{append(enough, "--task-bytes", "1", "--get-costs", "nothing"), `"nothing" is not a way to count`},
		{append(enough, "--task-bytes", "1", "--headroom", "2"), "--headroom: 2 is out of range"},
		{append(enough, "--input", path, "--sample", "0"), "--sample: 0 is out of range"},
		{append(enough, "--task-bytes", "1", "--delivery", "once", "--large-share", "0.1"), "--large-share needs --large-bytes and"},
		{append(enough, "--task-bytes", "1", "--large-share", "0.1", "--large-bytes", "9"), "and --delivery once"},
		{append(enough, "--task-bytes", "1", "--delivery", "once", "--large-share", "2", "--large-bytes", "1e6"), "--large-share: 2 is out of range"},
		{append(enough, "--task-bytes", "1", "--retention", "-1h"), "--retention: -1 is out of range"},
		{append(enough, "--task-bytes", "1", "--segments", "65"), "--segments: 65 is not"},
		{append(enough, "--input", path, "--files", "."), "only one of"},
		{[]string{"--rate", "-1", "--handler-seconds", "1", "--task-bytes", "1"}, "--rate: -1 is out of range"},
	} {
		_, err := planned(t, tt.args...)
		if _, usage := errors.AsType[*cli.UsageError](err); !usage || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: %v, want %q", tt.args, err, tt.want)
		}
	}
	if _, err := planned(t, append(enough, "--input", filepath.Join(t.TempDir(), "none.jsonl"))...); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}

func TestAPlanTakesWhatTheConfigurationHas(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pump.yaml")
	account := "  - connectionString: DefaultEndpointsProtocol=https;AccountName=%s;AccountKey=c2VjcmV0;EndpointSuffix=core.windows.net\n    queues: 4\n"
	config := "workload: work\nsegments: 128\ndelivery: once\nbudget:\n  account: 10000\naccounts:\n" + fmt.Sprintf(account, "alpha") + fmt.Sprintf(account, "beta")
	must(t, os.WriteFile(path, []byte(config), 0o600))
	for _, tt := range []struct {
		args                                         []string
		accounts, queues, segments, accountsMessages int
	}{
		{nil, 2, 8, 128, 10_000},
		{[]string{"--queues", "10", "--account-limit", "5000"}, 2, 20, 128, 5_000},
	} {
		out, err := planned(t, append([]string{"--rate", "100", "--handler-seconds", "0.01", "--task-bytes", "100", "--config", path, "--json"}, tt.args...)...)
		must(t, err)
		var p capacity.Plan
		must(t, json.Unmarshal([]byte(out), &p))
		if p.Accounts != tt.accounts || p.Queues != tt.queues || p.Segments != tt.segments || !strings.Contains(out, fmt.Sprintf("2 x %s messages/s", humanize.Comma(int64(tt.accountsMessages)))) {
			t.Errorf("%q: %s", tt.args, out)
		}
		if p.Requests.Table <= 1 { // commits to the ledger
			t.Errorf("%q: mode once makes %.1f requests a second to tables", tt.args, p.Requests.Table)
		}
	}
}

func TestWhereSegmentsHaveNoOwnersNoProcessorIsABottleneckByItself(t *testing.T) {
	account := "workload: work\n%saccounts:\n  - connectionString: DefaultEndpointsProtocol=https;AccountName=alpha;AccountKey=c2VjcmV0;EndpointSuffix=core.windows.net\n    queues: 4\n"
	for segments, fits := range map[string]bool{"segments: 0\n": true, "": false} {
		path := filepath.Join(t.TempDir(), "pump.yaml")
		must(t, os.WriteFile(path, fmt.Appendf(nil, account, segments), 0o600))
		// Ten processors on four queues: those who own segments pass on what is another's.
		out, err := planned(t, "--rate", "6000", "--handler-seconds", "0.1", "--concurrency", "64", "--task-bytes", "100", "--config", path)
		if (err == nil) != fits || strings.Contains(out, "processors a queue") == fits {
			t.Errorf("%q: %v\n%s", segments, err, out)
		}
	}
}

// A sum of prices of two currencies is none.
func TestAPlanIsInOneCurrency(t *testing.T) {
	config := filepath.Join(t.TempDir(), "pump.yaml")
	text := "workload: work\naccounts:\n  - connectionString: DefaultEndpointsProtocol=https;AccountName=alpha;AccountKey=c2VjcmV0;EndpointSuffix=core.windows.net\n" +
		"prices: {currency: EUR, queue: 0.0037, table: 0.0003, source: ours}\n"
	must(t, os.WriteFile(config, []byte(text), 0o600))
	for args, want := range map[string]string{
		"":                " USD",
		"--queue-price 1": "Prices: as given, the others list prices",
		"--currency EUR":  "--queue-price is missing",
		"--currency EUR --queue-price 1 --table-price 1":                "--vm-price is missing",
		"--currency EUR --queue-price 1 --table-price 1 --vm-price 0.2": "Prices: as given.",
		"--config " + config:                                             "--vm-price is missing",
		"--vm-price 0 --config " + config:                                "machines 0.00 EUR",
		"--vm-price 0 --currency USD --config " + config:                 "--queue-price is missing",
		"--vm-price 0 --results 9 --config " + config:                    "--stored-price is missing",
		"--vm-price 0 --currency USD --queue-price 1 --config " + config: "--table-price is missing",
	} {
		args := append(strings.Fields(args), "--rate", "10", "--handler-seconds", "0.1", "--task-bytes", "100")
		out, err := planned(t, args...)
		if err != nil {
			out += err.Error()
		}
		if !strings.Contains(out, want) {
			t.Errorf("%v: want %q\n%s", args, want, out)
		}
	}
}

func TestTheCommandThatAPlanMeasuresSeesNoCredentials(t *testing.T) {
	t.Setenv("AZURE_CLIENT_SECRET", "hunter2")
	t.Setenv("OF_THE_CONFIGURATION", "c2VjcmV0")
	dir := t.TempDir()
	config := filepath.Join(dir, "pump.yaml")
	must(t, os.WriteFile(config, []byte("workload: work\naccounts:\n  - connectionString: DefaultEndpointsProtocol=https;AccountName=alpha;AccountKey=${OF_THE_CONFIGURATION};EndpointSuffix=core.windows.net\n"), 0o600))
	seen := filepath.Join(dir, "seen")
	script := filepath.Join(dir, "tasks.sh")
	must(t, os.WriteFile(script, []byte("env > "+seen+"\necho '{}'\n"), 0o600))
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("no shell here")
	}
	for _, args := range [][]string{nil, {"--config", config}} {
		must(t, proof.ErrOf(planned(t, append([]string{"--rate", "1", "--handler-seconds", "1", "--exec", "sh " + script}, args...)...)))
		env, err := os.ReadFile(seen)
		must(t, err)
		if bytes.Contains(env, []byte("hunter2")) || len(args) > 0 && bytes.Contains(env, []byte("c2VjcmV0")) {
			t.Errorf("%q: the command has seen\n%s", args, env)
		}
	}
}

// A thousand results, 8 MiB of them or a second make an object, whose put costs a dozen requests to queues.
func TestAPlanSaysWhatResultsCost(t *testing.T) {
	for results, want := range map[string]float64{"": 0, "2000": 50, "100000": 50_000 * 100_000.0 / (8 << 20)} {
		args := []string{"--rate", "50000", "--handler-seconds", "0.02", "--task-bytes", "200", "--json"}
		if results != "" {
			args = append(args, "--results", results)
		}
		out, err := planned(t, args...)
		must(t, err)
		var p capacity.Plan
		must(t, json.Unmarshal([]byte(out), &p))
		cost := want * 24 * 3600 * 12.5 * p.Prices.Queue / 1e4
		if math.Abs(p.Requests.Objects-want) > 1e-6 || math.Abs(p.Money.Results-cost) > 1e-6 ||
			math.Abs(p.Money.Total-p.Money.Queues-p.Money.Tables-p.Money.Results-p.Money.Stored-p.Money.VMs) > 1e-6 {
			t.Errorf("results of %s bytes: %v objects a second, %+v", results, p.Requests.Objects, p.Money)
		}
		var size float64
		fmt.Sscan(results, &size)
		stored := 50_000 * size / 4 * 169 * 3600 // a retention and an hour
		if math.Abs(p.StoredResults-stored) > 1 || p.StoredBodies != 0 || math.Abs(p.Money.Stored-stored/1e9*0.02*12/365) > 1e-6 {
			t.Errorf("results of %s bytes: %v, %+v", results, p.StoredResults, p.Money)
		}
	}
	out, err := planned(t, "--rate", "3", "--handler-seconds", "0.02", "--task-bytes", "200", "--results", "2000")
	must(t, err)
	if !strings.Contains(out, "1 objects/s") {
		t.Errorf("a trickle:\n%s", out)
	}
	// 10 hours of 100 results a second, 20 days: 3.6 GB of lines a day are 0.9 stored.
	config := configured(t, "delivery: once\nretention: 479h\n")
	out, err = planned(t, "--rate", "100", "--hours", "10", "--handler-seconds", "0.02", "--task-bytes", "200", "--results", "1000", "--config", config)
	must(t, err)
	if !strings.Contains(out, "of lines a day, 4 to 1 compressed; 18 GB lie stored in the long run: 0.36 USD a month") {
		t.Errorf("20 days of results:\n%s", out)
	}
}

// configured writes a configuration of one account.
func configured(t *testing.T, more string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "pump.yaml")
	must(t, os.WriteFile(path, []byte("workload: work\naccounts:\n  - connectionString: DefaultEndpointsProtocol=https;AccountName=alpha;AccountKey=c2VjcmV0;EndpointSuffix=core.windows.net\n"+more), 0o600))
	return path
}

// One of a hundred tasks has a body of 1 MB: it is a message of its own, is put and got once, and lies for a day.
func TestAPlanSaysWhatBodiesInBlobsCost(t *testing.T) {
	large := []string{"--delivery", "once", "--large-share", "0.01", "--large-bytes", "1e6"}
	for _, sample := range [][]string{{"--input", lines(t, 3000), "--key", "id"}, {"--task-bytes", "40"}} {
		args := append(sample, "--rate", "1000", "--handler-seconds", "0.001")
		read := func(args ...string) (p capacity.Plan) {
			t.Helper()
			out, err := planned(t, append(args, "--json")...)
			must(t, err)
			must(t, json.Unmarshal([]byte(out), &p))
			return p
		}
		small, p := read(args...), read(append(args, large...)...)
		near := func(what string, got, want float64) {
			t.Helper()
			if math.Abs(got-want) > 1e-2*want {
				t.Errorf("%q: %s is %v, want %v", args, what, got, want)
			}
		}
		near("bodies a second", p.Requests.Bodies, 10)
		near("what they cost", p.Money.Bodies, 10*86400*(12.5+1)*0.004/1e4)
		near("stored", p.StoredBodies, 10*86400*1e6)
		near("of it a day", p.Money.Stored, 864*0.02*12/365)
		near("in all", p.Money.Total, p.Money.Queues+p.Money.Tables+p.Money.Bodies+p.Money.Stored+p.Money.VMs)
		// The others open as many messages as they did, with fewer tasks in each.
		if more := p.Requests.Put - small.Requests.Put; more < 9 || more > 10.1 || small.Requests.Bodies+small.StoredBodies > 0 {
			t.Errorf("%q: %v more messages a second", args, more)
		}
		network := func(p *capacity.Plan) (used float64) {
			for _, l := range p.Limits {
				if l.Name == "processors' network" {
					used = l.Used
				}
			}
			return used
		}
		near("more of the network", network(&p)-network(&small), 10*1e6*8/12_500e6)
		out, err := planned(t, append(args, large...)...)
		if err != nil || !strings.Contains(out, "864 GB lie stored in the long run: 17.28 USD a month") {
			t.Errorf("%q: %v\n%s", args, err, out)
		}
	}
	out, err := planned(t, "--task-bytes", "0", "--rate", "10", "--handler-seconds", "0.001", "--delivery", "once", "--large-share", "1", "--large-bytes", "1e7")
	if err != nil || !strings.Contains(out, "100 % of the tasks have bodies in blobs, each in a message of its own") {
		t.Errorf("%v\n%s", err, out)
	}
}
