package configfile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
)

// must ends a test with an error.
var must = proof.Must

const connection = "DefaultEndpointsProtocol=https;AccountName=alpha;AccountKey=c2VjcmV0LWtleS1vZi1hbHBoYQ==;EndpointSuffix=core.windows.net"

func environment(pairs ...string) func(string) (string, bool) {
	m := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return func(name string) (string, bool) { v, ok := m[name]; return v, ok }
}

func TestEveryFieldReachesTheConfig(t *testing.T) {
	f, err := parse("pump.yaml", []byte(`
workload: thumbnails
accounts:
  - connectionString: ${CONN}
    queues: 4
    foreignQueues: [orders, "invoices"]
    weight: 2.5
  - endpoint: "https://beta.queue.core.windows.net?${SAS}"
    tableEndpoint: https://beta.table.core.windows.net
    name: beta
    queues: ${QUEUES}
    serviceVersion: 2019-07-07
    allowHTTP: true
control: beta
segments: 1_024
delivery: at-least-once
foreign: {encoding: base64, key: order.city}
budget: {account: 100, queue: 10.5, getCost: request, costPerDay: 1.5}
prices: {currency: EUR, queue: 0.0037, table: 0.0003, source: our contract, date: 2026-10}
admin: {listen: "0.0.0.0:9090", advertise: "worker1:9090"}
page: {tokenFile: /etc/queuepump/token, onAdminPort: false}
`), environment("CONN", connection, "SAS", "sig=a#b", "QUEUES", "12"))
	must(t, err)
	want := pump.Config{
		Workload: "thumbnails",
		Accounts: []pump.Account{
			{ConnectionString: connection, Queues: 4, Foreign: []string{"orders", "invoices"}, Weight: 2.5},
			{Endpoint: "https://beta.queue.core.windows.net?sig=a#b", TableEndpoint: "https://beta.table.core.windows.net", Name: "beta", Queues: 12, ServiceVersion: "2019-07-07", AllowHTTP: true},
		},
		Control:  "beta",
		Segments: 1024,
		Delivery: pump.AtLeastOnce,
		Budget:   pump.Budget{Account: 100, Queue: 10.5, GetCostsMessages: new(false), CostPerDay: 1.5},
	}
	proof.Same(t, cmp.Diff(want.Accounts, f.Config.Accounts, cmpopts.IgnoreUnexported(pump.Account{})), "")
	proof.Same(t, cmp.Diff(want.Budget, f.Config.Budget), "")
	proof.Same(t, f.Config.Prices, pump.Prices{Currency: "EUR", Queue: 0.0037, Table: 3e-4, Source: "our contract", Date: "2026-10"})
	proof.Same(t, f.Config.ForeignEncoding, "base64")
	proof.Same(t, f.Config.ForeignKey, "order.city")
	if f.Config.Workload != want.Workload || f.Config.Control != want.Control || f.Config.Segments != want.Segments || f.Config.Delivery != want.Delivery {
		t.Errorf("got %+v", f.Config)
	}
	proof.Same(t, cmp.Diff(Admin{Listen: "0.0.0.0:9090", Advertise: "worker1:9090"}, f.Admin), "")
	proof.Same(t, cmp.Diff(Page{TokenFile: "/etc/queuepump/token", ByCommand: true}, f.Page), "")
	proof.Same(t, cmp.Diff([]string{"CONN", "QUEUES", "SAS"}, f.Variables), "")
}

func TestAVariableThatOnlyTheAdminPortNeedsIsMissedByThoseWhoOpenOne(t *testing.T) {
	const text = "workload: w1x\naccounts: [{endpoint: 'http://127.0.0.1:1/a'}]\nadmin:\n  advertise: ${POD_IP}:9090\n"
	f, err := parse("pump.yaml", []byte(text), environment())
	must(t, err)
	proof.Same(t, fmt.Sprint(f.CheckAdmin()), "pump.yaml:4: admin.advertise: the environment variable POD_IP is not set; run `export POD_IP=...` first")
	if f, err = parse("pump.yaml", []byte(text), environment("POD_IP", "10.0.0.1")); err != nil || f.CheckAdmin() != nil || f.Admin.Advertise != "10.0.0.1:9090" {
		t.Errorf("%v, %+v", err, f)
	}
	// Whatever else is wrong there is wrong for everybody.
	proof.Says(t, proof.ErrOf(parse("pump.yaml", []byte(strings.ReplaceAll(text, "advertise", "advertize")), environment())), "advertize")
}

func TestSegmentsAbsentIsTheDefaultAndZeroIsShared(t *testing.T) {
	base := "workload: w1x\naccounts: [{endpoint: 'http://127.0.0.1:1/a'}]\n"
	for text, want := range map[string]int{base: 0, base + "segments: 0\n": pump.Shared} {
		f, err := parse("pump.yaml", []byte(text), environment())
		must(t, err)
		proof.Same(t, f.Config.Segments, want)
	}
}

// TestMistakesAreNamedByLineFieldAndFix holds each message as a user sees it.
func TestMistakesAreNamedByLineFieldAndFix(t *testing.T) {
	const ok = "workload: thumbnails\naccounts:\n  - endpoint: http://127.0.0.1:10001/alpha\n"
	for _, tt := range []struct{ name, text, want string }{
		{"misspelt field", ok + "    quues: 4\n", "pump.yaml:4: accounts[0].quues: is not a field; did you mean queues?"},
		{"wrong case", ok + "    allowHttp: true\n", "pump.yaml:4: accounts[0].allowHttp: is not a field; did you mean allowHTTP?"},
		{"unknown field", ok + "retries: 4\n", "pump.yaml:4: retries: is not a field; the fields here are workload, accounts, control, segments, delivery, foreign, retention, budget, perKey, prices, admin, page, scheduledEvents"},
		{"several at once, by line", "workloads: a\n" + ok + "segmants: 4\n", "pump.yaml:1: workloads: is not a field; did you mean workload?\npump.yaml:5: segmants: is not a field; did you mean segments?"},
		{"text for a number", ok + "    queues: many\n", `pump.yaml:4: accounts[0].queues: "many" is not a whole number; write it as digits without quotes, as in 8`},
		{"quoted number", ok + "    queues: \"8\"\n", `pump.yaml:4: accounts[0].queues: "8" is not a whole number; write it as digits without quotes, as in 8`},
		{"fraction", ok + "    queues: 1.5\n", `pump.yaml:4: accounts[0].queues: "1.5" is not a whole number; write it as digits without quotes, as in 8`},
		{"number too large", ok + "    queues: 99999999999999999999\n", `pump.yaml:4: accounts[0].queues: "99999999999999999999" is not a whole number; write it as digits without quotes, as in 8`},
		{"queues 0", ok + "    queues: 0\n", "pump.yaml:4: accounts[0].queues: 0 is out of range; use 1 to 100, or leave it out for 8"},
		{"weight 0", ok + "    weight: 0\n", "pump.yaml:4: accounts[0].weight: 0 is out of range; use 0.01 to 100, or leave it out for 1"},
		{"weight not a number", ok + "    weight: .nan\n", `pump.yaml:4: accounts[0].weight: ".nan" is not a number; write it as digits without quotes, as in 1.5`},
		{"boolean", ok + "    allowHTTP: yes\n", `pump.yaml:4: accounts[0].allowHTTP: "yes" is neither true nor false; write true or false without quotes`},
		{"service version", ok + "    serviceVersion: 2019-7-7\n", `pump.yaml:4: accounts[0].serviceVersion: "2019-7-7" is not a version that can be used; write a date from 2017-07-29 on, such as 2019-07-07, or leave it out for the newest`},
		{"service version too old", ok + "    serviceVersion: 2009-09-19\n", `pump.yaml:4: accounts[0].serviceVersion: "2009-09-19" is not a version that can be used; write a date from 2017-07-29 on, such as 2019-07-07, or leave it out for the newest`},
		{"negative segments", ok + "segments: -1\n", "pump.yaml:4: segments: -1 is out of range; use a multiple of 64 up to 16384, 0 for a shared workload, or leave it out"},
		{"price", ok + "prices:\n  queue: -1\n", `pump.yaml:5: prices.queue: -1 is out of range; use what 10,000 requests cost, up to 10000, or leave it out for the published price`},
		{"price of another currency", ok + "prices:\n  queue: 0.0037\n  currency: EUR\n", `pump.yaml:6: prices.currency: is "EUR", and the published prices, which are taken where none are given, are in USD; give both prices.queue and prices.table in that currency, or leave it out for USD`},
		{"rate of a key", ok + "perKey:\n  rate: 1/h\n", `pump.yaml:5: perKey.rate: the value (3 characters, not shown: it may be a secret) is not a rate; use 1/m to 1000000/s, as in 10/s, or leave it out for no limit`},
		{"get cost", ok + "budget:\n  getCost: bytes\n", `pump.yaml:5: budget.getCost: "bytes" is not a way to count a get; use messages (each message counts) or request (a get counts as one)`},
		{"budget 0", ok + "budget:\n  queue: 0\n", "pump.yaml:5: budget.queue: 0 is out of range; use 1 to 1e9 messages a second, or leave it out for the published limit"},
		{"admin port", ok + "admin: {listen: 9090}\n", "pump.yaml:4: admin.listen: \"9090\" is not an address; write host:port, as in 127.0.0.1:9090, or off"},
		{"admin sample", ok + "admin: {sample: 10ms}\n", "pump.yaml:4: admin.sample: \"10ms\" is not a length of time from 1s on; write 15s, 1m or off"},
		{"admin advertised", ok + "admin:\n  listen: off\n  advertise: off\n", "pump.yaml:6: admin.advertise: \"off\" is not an address; write host:port, as in worker1.internal:9090"},
		{"page", ok + "page: {token: a}\n", "pump.yaml:4: page.token: is not a field; the fields here are tokenFile, onAdminPort"},
		{"page on", ok + "page: {onAdminPort: off}\n", `pump.yaml:4: page.onAdminPort: "off" is neither true nor false; write true or false without quotes`},
		{"no value", ok + "control:\n", "pump.yaml:4: control: has no value; write its value out, or remove the line"},
		{"empty value", ok + "control: \"\"\n", "pump.yaml:4: control: is empty; give a value, or remove the line"},
		{"group for a value", ok + "control: {a: b}\n", "pump.yaml:4: control: is a YAML mapping, not a single value; write its value out, or remove the line"},
		{"value for a group", "workload: abc\naccounts:\n  - alpha\n", "pump.yaml:3: accounts[0]: is a YAML string, not a list of fields; indent its fields below it, as in `connectionString: ...`"},
		{"group for a list", "workload: abc\naccounts:\n  endpoint: x\n", "pump.yaml:2: accounts: is a YAML mapping, not a list; begin each item with a dash: `  - connectionString: ...`"},
		{"neither string nor endpoint", "workload: abc\naccounts:\n  - queues: 4\n", "pump.yaml:3: accounts[0]: says nothing about where the account is; add `connectionString: ...`, or `endpoint: https://NAME.queue.core.windows.net`"},
		{"string and endpoint", ok + "    connectionString: x\n", "pump.yaml:3: accounts[0].endpoint: stands beside connectionString, which names the endpoint already; keep one of the two"},
		{"string and table endpoint", "workload: abc\naccounts:\n  - connectionString: x\n    tableEndpoint: y\n", "pump.yaml:4: accounts[0].tableEndpoint: belongs to endpoint, not to connectionString; write TableEndpoint= into the connection string"},
		{"field twice", ok + "workload: other\n", "pump.yaml:4: workload: is given twice (first on line 1); keep one"},
		{"alias", "workload: &w abc\naccounts:\n  - endpoint: *w\n", "pump.yaml:1: workload: is a YAML anchor, not a single value; write its value out, or remove the line\npump.yaml:3: accounts[0].endpoint: is a YAML alias, not a single value; write its value out, or remove the line"},
		{"missing", "control: a\n", "pump.yaml: workload: is missing; add `workload: NAME`, 3 to 40 of a-z, 0-9 and single dashes\npump.yaml: accounts: is missing; add `accounts:` and under it `  - connectionString: ...` for each storage account"},
		{"empty", "# nothing\n", "pump.yaml: is empty; give at least workload and accounts"},
		{"a list", "- a\n- b\n", "pump.yaml:1: is not a list of fields; begin with `workload: NAME`"},
		{"two documents", ok + "---\nworkload: b\n", "pump.yaml:5: holds more than one YAML document; keep one, without ---"},
		{"broken YAML", "workload: abc\naccounts: [\n", "pump.yaml:2: is not valid YAML: sequence end token ']' not found; check its indentation, quotes and brackets"},
		{"undefined variable", ok + "control: ${NOPE}\n", "pump.yaml:4: control: the environment variable NOPE is not set; run `export NOPE=...` first"},
		{"unclosed variable", ok + "control: ${NOPE\n", "pump.yaml:4: control: ${ is not closed by }; write ${NAME} or ${file:PATH}, or $${ for a literal ${"},
		{"shell default", ok + "control: ${NOPE:-x}\n", "pump.yaml:4: control: ${...} holds neither the name of an environment variable nor file:PATH; write ${NAME} or ${file:PATH}, or $${ for a literal ${"},
		{"variable that is not a length of time", ok + "retention: ${SECRET}\n", "pump.yaml:4: retention: the variable's value is not a length of time; write it as 168h, 36h or 90m"},
		{"variable that is not a number", ok + "    queues: ${SECRET}\n", "pump.yaml:4: accounts[0].queues: the variable's value is not a whole number; write it as digits without quotes, as in 8"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := parse("pump.yaml", []byte(tt.text), environment("SECRET", "hunter2"))
			if err == nil {
				t.Fatal("accepted")
			}
			proof.Same(t, cmp.Diff(tt.want, err.Error()), "")
		})
	}
}

func TestNoErrorShowsASecret(t *testing.T) {
	const secret = "AccountKey=c2VjcmV0LWtleQ=="
	for _, text := range []string{
		"workload: abc\naccounts:\n  - connectionString: '" + secret + "\n",   // a quote that is not closed
		"workload: abc\naccounts:\n  - connectionString: " + secret + ": x\n", // a colon too many
		"workload: abc\naccounts:\n  - " + secret + ": x\n",                   // in the place of a name
		"workload: abc\naccounts:\n  - connectionString: [" + secret + "]\n",
		"workload: abc\naccounts:\n  - connectionString: !!int " + secret + "\n",
		"workload: abc\naccounts:\n  - connectionString: ${" + secret + "}\n",
		"workload: abc\naccounts:\n  - connectionString\n    " + secret + "\n",
		"workload: abc\naccounts:\n  - endpoint: https://x?" + secret + "\n    queues: ${K}\n",
		"workload: abc\naccounts:\n\t- connectionString: " + secret + "\n",
		secret + "\n",
		secret + ": 1\n" + secret + ": 2\n",
	} {
		_, err := parse("pump.yaml", []byte(text), environment("K", secret))
		if err == nil {
			t.Errorf("accepted: %s", text)
			continue
		}
		for _, part := range []string{"c2VjcmV0", "AccountKey"} {
			if strings.Contains(err.Error(), part) {
				t.Errorf("shown: %v", err)
			}
		}
	}
}

func TestExpandReplacesOnlyVariables(t *testing.T) {
	env := environment("A", "1", "B", "${A}$")
	for in, want := range map[string]string{
		"": "", "plain $ {}": "plain $ {}", "${A}": "1", "x${A}y${A}": "x1y1",
		"${B}": "${A}$", "$${A}": "${A}", "a$${A}${A}": "a${A}1", "$A": "$A",
	} {
		got, _, err := Expand(in, env)
		if err != nil || got != want {
			t.Errorf("Expand(%q) = %q, %v; want %q", in, got, err, want)
		}
	}
}

// TestAVariableCannotChangeTheStructure is why expansion comes after parsing.
func TestAVariableCannotChangeTheStructure(t *testing.T) {
	f, err := parse("pump.yaml", []byte("workload: ${W}\naccounts: [{endpoint: 'http://127.0.0.1:1/a'}]\n"),
		environment("W", "abc\nsegments: 64"))
	must(t, err)
	proof.Same(t, f.Config.Segments, 0, f.Config)
	proof.Same(t, f.Config.Workload, "abc\nsegments: 64")
}

func TestTheEnginesOwnErrorsGetTheirLine(t *testing.T) {
	f, err := parse("pump.yaml", []byte("# a comment\nworkload: abc\naccounts:\n  - endpoint: http://127.0.0.1:1/a\n  - queues: 2\n    endpoint: http://127.0.0.1:1/b\n"), environment())
	must(t, err)
	for field, want := range map[string]string{
		"workload":           "pump.yaml:2: workload: p; f",
		"accounts[1].queues": "pump.yaml:5: accounts[1].queues: p; f",
		"accounts[0].weight": "pump.yaml:4: accounts[0].weight: p; f", // not in the file: the account's line
		"accounts[1]":        "pump.yaml:5: accounts[1]: p; f",
		"segments":           "pump.yaml: segments: p; f",
	} {
		err := f.Locate(fmt.Errorf("wrapped: %w", &pump.ConfigError{Field: field, Problem: "p", Fix: "f"}))
		proof.Same(t, err.Error(), want, err)
	}
	other := errors.New("other")
	proof.Same(t, f.Locate(other), other)
}

// TestTheEncodingsOfWindowsEditorsAreReadOrNamed: UTF-8 with a byte order mark
// is read, UTF-16 is not.
func TestTheEncodingsOfWindowsEditorsAreReadOrNamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pump.yaml")
	text := "workload: test\r\naccounts:\r\n  - connectionString: " + connection + "\r\n"
	wide := func(order binary.AppendByteOrder, s string) string {
		var b []byte
		for _, u := range utf16.Encode([]rune(s)) {
			b = order.AppendUint16(b, u)
		}
		return string(b)
	}
	for name, tt := range map[string]struct{ text, want string }{
		"UTF-8 with a mark":        {"\ufeff" + text, ""},
		"UTF-16 with a mark":       {wide(binary.LittleEndian, "\ufeff"+text), path + ": is UTF-16; save it as UTF-8"},
		"UTF-16 BE with a mark":    {wide(binary.BigEndian, "\ufeff"+text), path + ": is UTF-16; save it as UTF-8"},
		"UTF-16 without a mark":    {wide(binary.LittleEndian, text), path + ": is UTF-16; save it as UTF-8"},
		"UTF-16 BE without a mark": {wide(binary.BigEndian, text), path + ": is UTF-16; save it as UTF-8"},
	} {
		must(t, os.WriteFile(path, []byte(tt.text), 0o600))
		f, err := Load(path)
		switch {
		case tt.want != "" && (err == nil || err.Error() != tt.want):
			t.Errorf("%s: got %v", name, err)
		case tt.want == "" && (err != nil || f.Config.Workload != "test"):
			t.Errorf("%s: got %+v, %v", name, f, err)
		}
	}
}

func TestLoadRefusesWhatIsNoConfiguration(t *testing.T) {
	dir := t.TempDir()
	big := filepath.Join(dir, "big.yaml")
	must(t, os.WriteFile(big, make([]byte, maxSize+1), 0o600))
	for path, want := range map[string]string{
		filepath.Join(dir, "no.yaml"): "there is no such file",
		big:                           "larger than 256 KiB",
		dir:                           "cannot be read: is a directory",
	} {
		proof.Says(t, proof.ErrOf(Load(path)), want, path)
	}
}

// FuzzParse looks for a panic, for a value of the environment in an error, and for a secret of
// the file in one, in whichever field it stands. A file that is accepted can be read again.
func FuzzParse(f *testing.F) {
	const planted = "Q2FuWW91U2VlTWU/IFRoaXNJc0FTZWNyZXRBbmRJdE11c3ROb3RCZVNob3duSW5BbnlFcnJvcg=="
	f.Add("workload: abc\naccounts:\n  - connectionString: ${SECRET}\n    queues: ${SECRET}\n")
	f.Add("a: &x [*x, *x]\n<<: *x\n? b\n: |\n  c\n")
	f.Add("workload: abc\naccounts: [{connectionString: 'AccountName=a;AccountKey=" + planted + "', queues: 2, weight: 1.5, allowHTTP: true}]\ncontrol: a\nsegments: 64\ndelivery: once\nbudget: {account: 100, queue: 1e3, getCost: request}\nadmin: {listen: '127.0.0.1:0', advertise: 'a:1'}\n")
	for _, line := range []string{
		"workload: KEY", "KEY: abc", "segments: KEY", "accounts: KEY", "accounts: [KEY]", "accounts: [{queues: KEY}]", "accounts: [{KEY: 1}]", "accounts: [{weight: KEY}]", "accounts: [{allowHTTP: KEY}]",
		"budget: {getCost: KEY}", "budget: {account: KEY}", "admin: {listen: KEY}", "admin: KEY", "workload: 'KEY", "workload: \"KEY\n", "workload: [KEY", "  KEY\nworkload: a", "workload: ${KEY}", "workload: !KEY x", "workload: &KEY x", "workload: *KEY", "- KEY", "KEY",
		"workload: a\n KEY", "workload: a\n\tKEY", "workload: |KEY\n a", "%KEY\n---\n", "workload: @KEY", "? KEY\n: 1", "{KEY", "accounts:\n- connectionString: AccountKey=KEY\n  connectionString KEY\n", "workload: `KEY",
	} {
		f.Add(strings.ReplaceAll(line, "KEY", planted))
	}
	f.Fuzz(func(t *testing.T, text string) {
		env := environment("SECRET", "hunter2hunter2")
		var file *File
		var err error
		// goccy/go-yaml keeps some hundred bytes for each of the text.
		proof.AtMost(t, 8<<20+4096*len(text), func() { file, err = parse("f", []byte(text), env) })
		if err == nil {
			if again, err := parse("f", []byte(text), env); err != nil || !cmp.Equal(file.Config, again.Config, cmpopts.IgnoreUnexported(pump.Account{})) {
				t.Fatalf("%+v, then %+v, %v", file.Config, again.Config, err)
			}
			return
		}
		said := err.Error()
		if strings.Contains(said, "hunter2hunter2") && !strings.Contains(text, "hunter2hunter2") {
			t.Error(err)
		}
		for i := 0; i+16 <= len(planted); i++ {
			if part := planted[i : i+16]; strings.Contains(text, planted) && strings.Contains(said, part) {
				t.Fatalf("a part of the secret is shown: %v", err)
			}
		}
		if _, ok := errors.AsType[Errors](err); !ok || len(said) > 64<<10 {
			t.Fatalf("%T of %d bytes", err, len(said))
		}
	})
}

func TestTheQueuesAreSampledUnlessTheFileSaysOtherwise(t *testing.T) {
	const text = "workload: w1x\naccounts: [{endpoint: 'http://127.0.0.1:1/a'}]\n"
	for admin, want := range map[string]time.Duration{
		"": 15 * time.Second, "admin: {sample: 1m}\n": time.Minute, "admin: {sample: off}\n": 0, "admin: {listen: '127.0.0.1:0'}\n": 15 * time.Second,
	} {
		f, err := parse("pump.yaml", []byte(text+admin), environment())
		if err != nil || f.Admin.SampleEvery() != want {
			t.Errorf("%q: every %v, %v", admin, f.Admin.SampleEvery(), err)
		}
	}
}
