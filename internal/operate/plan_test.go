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
	"slices"
	"strings"
	"testing"

	"github.com/queuepump/queuepump/internal/capacity"
	"github.com/queuepump/queuepump/internal/cli"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
)

// planned runs distributor plan, with some words and more.
func planned(t *testing.T, words string, more ...string) (out string, err error) {
	t.Helper()
	cmd := root()
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	var b bytes.Buffer
	cmd.SetOut(&b)
	cmd.SetErr(&b)
	cmd.SetArgs(append(strings.Fields("plan "+words), more...))
	err = cmd.ExecuteContext(t.Context())
	return b.String(), err
}

// read gives what distributor plan says to programs.
func read(t *testing.T, words string, more ...string) (p capacity.Plan) {
	t.Helper()
	out, err := planned(t, "--json "+words, more...)
	must(t, err)
	must(t, json.Unmarshal([]byte(out), &p))
	return p
}

// tells checks that a plan has some words, or its failure has.
func tells(t *testing.T, want, words string, more ...string) {
	t.Helper()
	out, err := planned(t, words, more...)
	if err != nil {
		out = err.Error()
	}
	proof.Has(t, out, want, words)
}

// near checks a figure, up to a part of it.
func near(t *testing.T, off, got, want float64, of ...any) {
	t.Helper()
	if math.Abs(got-want) > off*want {
		t.Errorf("%v: %v, want %v", of, got, want)
	}
}

// configured writes a configuration of one account, which more may go on with.
func configured(t *testing.T, more string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "pump.yaml")
	must(t, os.WriteFile(path, []byte("workload: work\naccounts:\n"+account+more), 0o600))
	return path
}

const account = "  - connectionString: DefaultEndpointsProtocol=https;AccountName=alpha;" +
	"AccountKey=c2VjcmV0;EndpointSuffix=core.windows.net\n"

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
	args := "--rate 1000 --handler-seconds 0.2 --key id --input"
	out, err := planned(t, args, path)
	must(t, err)
	for _, want := range []string{
		"1,000 tasks/s of 0.2 s each", "Measured on all of the input, 20,000 tasks", "accounts  ",
		"bottleneck: handlers, full at", "money a day", (pump.Prices{}).OrPublished().Source,
	} {
		proof.Has(t, out, want, "the plan")
	}
	p := read(t, "--sample 1000 "+args, path)
	if p.Sample.Tasks != 1000 || p.Sample.Whole || p.Rate != 1000 || !p.Fits ||
		p.Money.Total <= 0 || p.Requests.Put <= 0 || p.Processors < 1 {
		t.Errorf("%+v", p)
	}
}

// Who asks whether something is enough gets the answer by the exit status too.
func TestAPlanThatDoesNotFitIsAFailureThatNamesTheBottleneck(t *testing.T) {
	path := lines(t, 3000) // three keys
	small := " --handler-seconds 0.001 --task-bytes 100 --pack 1 --accounts 1 --queues 20"
	for args, bottleneck := range map[string]string{
		"--rate 10000" + small: "accounts",
		"--rate 1e4 --handler-seconds 0.05 --concurrency 64 --key city --input " + path: "hottest key's",
		"--rate 6000" + small: "accounts", // by the headroom
	} {
		out, err := planned(t, args)
		proof.Says(t, err, bottleneck, args)
		_, usage := errors.AsType[*cli.UsageError](err)
		if usage || !strings.Contains(out, "bottleneck: "+bottleneck) {
			t.Errorf("%s: %v\n%s", args, err, out)
		}
	}
}

func TestPlanSaysWhatIsMissingOrTooMuch(t *testing.T) {
	path := lines(t, 10)
	const two = "--rate 1 --handler-seconds 1 "
	const one = two + "--task-bytes 1 "
	for _, c := range [][2]string{
		{"", "--rate is missing"},
		{"--rate 1", "--handler-seconds is missing"},
		{two, "nothing says how large tasks are"},
		{two + "--task-bytes 1e6", "--task-bytes: "},
		{two + "--sample 0 --input " + path, "--sample: 0 is out of range"},
		{two + "--files . --input " + path, "only one of"},
		{one + "--ratio 0", "--ratio: "},
		{one + "--input " + path, "no input to measure"},
		{one + "--delivery twice", `"twice" is not a delivery mode`},
		{one + "--get-costs nothing", `"nothing" is not a way to count`},
		{one + "--headroom 2", "--headroom: 2 is out of range"},
		{one + "--delivery once --large-share 0.1", "--large-share needs --large-bytes and"},
		{one + "--large-share 0.1 --large-bytes 9", "and --delivery once"},
		{one + "--delivery once --large-share 2 --large-bytes 1e6", "--large-share: 2 is out of range"},
		{one + "--retention -1h", "--retention: -1 is out of range"},
		{one + "--segments 65", "--segments: 65 is not"},
		{one + "--rate -1", "--rate: -1 is out of range"},
	} {
		err := proof.ErrOf(planned(t, c[0]))
		proof.Says(t, err, c[1], c[0])
		if _, usage := errors.AsType[*cli.UsageError](err); !usage {
			t.Errorf("%s is no mistake of usage: %v", c[0], err)
		}
	}
	err := proof.ErrOf(planned(t, two+"--input", filepath.Join(t.TempDir(), "none.jsonl")))
	proof.Is(t, err, os.ErrNotExist, "a file that is not there")
}

func TestAPlanTakesWhatTheConfigurationHas(t *testing.T) {
	config := configured(t, "    queues: 4\n"+strings.Replace(account, "alpha", "beta", 1)+
		"    queues: 4\nsegments: 128\ndelivery: once\nbudget:\n  account: 10000\n")
	messages := map[int]string{8: "2 x 10,000 messages/s", 20: "2 x 5,000 messages/s"}
	for args, want := range map[string]int{"": 8, "--queues 10 --account-limit 5000": 20} {
		args += " --rate 100 --handler-seconds 0.01 --task-bytes 100 --config"
		tells(t, messages[want], "--json "+args, config)
		p := read(t, args, config)
		if p.Accounts != 2 || p.Queues != want || p.Segments != 128 {
			t.Errorf("%s: %+v", args, p)
		}
		if p.Requests.Table <= 1 { // commits to the ledger
			t.Errorf("%s: mode once makes %.1f requests a second to tables", args, p.Requests.Table)
		}
	}
}

func TestWhereSegmentsHaveNoOwnersNoProcessorIsABottleneckByItself(t *testing.T) {
	for segments, fits := range map[string]bool{"segments: 0\n": true, "": false} {
		// Ten processors on four queues: those who own segments pass on what is another's.
		out, err := planned(t, "--rate 6000 --handler-seconds 0.1 --concurrency 64 --task-bytes 100",
			"--config", configured(t, "    queues: 4\n"+segments))
		if (err == nil) != fits || strings.Contains(out, "processors a queue") == fits {
			t.Errorf("%q: %v\n%s", segments, err, out)
		}
	}
}

// A sum of prices of two currencies is none.
func TestAPlanIsInOneCurrency(t *testing.T) {
	config := configured(t, "prices: {currency: EUR, queue: 0.0037, table: 0.0003, source: ours}\n")
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
		tells(t, want, "--rate 10 --handler-seconds 0.1 --task-bytes 100 "+args)
	}
}

func TestTheCommandThatAPlanMeasuresSeesNoCredentials(t *testing.T) {
	t.Setenv("AZURE_CLIENT_SECRET", "hunter2")
	t.Setenv("OF_THE_CONFIGURATION", "c2VjcmV0")
	dir := t.TempDir()
	config := configured(t, "")
	text, err := os.ReadFile(config)
	must(t, err)
	text = bytes.Replace(text, []byte("c2VjcmV0"), []byte("${OF_THE_CONFIGURATION}"), 1)
	must(t, os.WriteFile(config, text, 0o600))
	seen := filepath.Join(dir, "seen")
	script := filepath.Join(dir, "tasks.sh")
	must(t, os.WriteFile(script, []byte("env > "+seen+"\necho '{}'\n"), 0o600))
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("no shell here")
	}
	for _, args := range []string{"", "--config " + config} {
		must(t, proof.ErrOf(planned(t, "--rate 1 --handler-seconds 1 "+args, "--exec", "sh "+script)))
		env, err := os.ReadFile(seen)
		must(t, err)
		saw := func(secret string) bool { return bytes.Contains(env, []byte(secret)) }
		if saw("hunter2") || args != "" && saw("c2VjcmV0") {
			t.Errorf("%q: the command has seen\n%s", args, env)
		}
	}
}

// A thousand results, 8 MiB of them or a second make an object, whose put costs a dozen requests to
// queues.
func TestAPlanSaysWhatResultsCost(t *testing.T) {
	for size, want := range map[float64]float64{0: 0, 2000: 50, 1e5: 50_000 * 100_000.0 / (8 << 20)} {
		args := "--rate 50000 --handler-seconds 0.02 --task-bytes 200"
		if size > 0 {
			args += fmt.Sprint(" --results ", size)
		}
		p := read(t, args)
		m, stored := p.Money, 50_000*size/4*169*3600 // a retention and an hour
		near(t, 1e-6, p.Requests.Objects, want, size, "objects a second")
		near(t, 1e-6, m.Results, want*24*3600*12.5*p.Prices.Queue/1e4, size, "the costs")
		near(t, 1e-6, m.Total, m.Queues+m.Tables+m.Results+m.Stored+m.VMs, size, "all costs")
		near(t, 1e-6, p.StoredResults, stored, size, "stored bytes")
		near(t, 1e-6, p.StoredBodies, 0, size, "stored bodies")
		near(t, 1e-6, m.Stored, stored/1e9*0.02*12/365, size, "costs of what is stored")
	}
	tells(t, "1 objects/s", "--rate 3 --handler-seconds 0.02 --task-bytes 200 --results 2000")
	// 10 hours of 100 results a second, 20 days: 3.6 GB of lines a day are 0.9 stored.
	tells(t, "of lines a day, 4 to 1 compressed; 18 GB lie stored in the long run: 0.36 USD a month",
		"--rate 100 --hours 10 --handler-seconds 0.02 --task-bytes 200 --results 1000 --config",
		configured(t, "delivery: once\nretention: 479h\n"))
}

// One of a hundred tasks has a body of 1 MB: it is a message of its own, is put and got once, and lies
// for a day.
func TestAPlanSaysWhatBodiesInBlobsCost(t *testing.T) {
	large := " --delivery once --large-share 0.01 --large-bytes 1e6"
	for _, sample := range []string{"--key id --input " + lines(t, 3000), "--task-bytes 40"} {
		args := "--rate 1000 --handler-seconds 0.001 " + sample
		small, p := read(t, args), read(t, args+large)
		m := p.Money
		near(t, 1e-2, p.Requests.Bodies, 10, args, "bodies a second")
		near(t, 1e-2, m.Bodies, 10*86400*(12.5+1)*0.004/1e4, args, "what they cost")
		near(t, 1e-2, p.StoredBodies, 10*86400*1e6, args, "stored")
		near(t, 1e-2, m.Stored, 864*0.02*12/365, args, "of it a day")
		near(t, 1e-2, m.Total, m.Queues+m.Tables+m.Bodies+m.Stored+m.VMs, args, "in all")
		// The others open as many messages as they did, with fewer tasks in each.
		more, none := p.Requests.Put-small.Requests.Put, small.Requests.Bodies+small.StoredBodies
		if more < 9 || more > 10.1 || none > 0 {
			t.Errorf("%s: %v more messages a second", args, more)
		}
		network := func(p capacity.Plan) float64 {
			at := func(l capacity.Limit) bool { return l.Name == "processors' network" }
			return p.Limits[slices.IndexFunc(p.Limits, at)].Used
		}
		near(t, 1e-2, network(p)-network(small), 10*1e6*8/12_500e6, args, "more of the network")
		tells(t, "864 GB lie stored in the long run: 17.28 USD a month", args+large)
	}
	tells(t, "100 % of the tasks have bodies in blobs, each in a message of its own",
		"--task-bytes 0 --rate 9 --handler-seconds 0.1 --delivery once --large-share 1 --large-bytes 1e7")
}
