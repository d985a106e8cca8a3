package realaccounts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/storage"
)

const connection = "DefaultEndpointsProtocol=https;AccountName=one;AccountKey=a2V5a2V5a2V5a2V5a2V5a2V5;EndpointSuffix=core.windows.net"

func environment(pairs ...string) func(string) string {
	set := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		set[pairs[i]] = pairs[i+1]
	}
	return func(name string) string { return set[name] }
}

func TestTheEnvironmentNamesAccounts(t *testing.T) {
	accounts, err := fromEnvironment(environment(
		"QUEUEPUMP_AZURE_1", connection,
		"QUEUEPUMP_AZURE_2", "https://two.queue.core.windows.net/?sv=1&sig=c2VjcmV0",
		"QUEUEPUMP_AZURE_3", "https://three.queue.core.windows.net",
		"QUEUEPUMP_AZURE_4", "https://10.0.0.4:8443/four", "QUEUEPUMP_AZURE_4_TABLE", "https://10.0.0.4:8444/four", "QUEUEPUMP_AZURE_4_BLOB", "https://10.0.0.4:8445/four",
	))
	must(t, err)
	var got []string
	for _, a := range accounts {
		of, err := a.open(nil)
		must(t, err)
		got = append(got, strings.Join([]string{of.Name(), a.credential(), of.Endpoint(), of.TableEndpoint(), of.BlobEndpoint()}, " "))
	}
	want := []string{
		"one key https://one.queue.core.windows.net https://one.table.core.windows.net https://one.blob.core.windows.net",
		"two shared access signature https://two.queue.core.windows.net https://two.table.core.windows.net https://two.blob.core.windows.net",
		"three token https://three.queue.core.windows.net https://three.table.core.windows.net https://three.blob.core.windows.net",
		"four token https://10.0.0.4:8443/four https://10.0.0.4:8444/four https://10.0.0.4:8445/four",
	}
	proof.Alike(t, got, want)
}

func TestAnEnvironmentThatIsWrongIsRefusedWithoutItsSecrets(t *testing.T) {
	for want, env := range map[string]func(string) string{
		"no account is named":                  environment(),
		"QUEUEPUMP_AZURE_3 is set":             environment("QUEUEPUMP_AZURE_1", connection, "QUEUEPUMP_AZURE_3", connection),
		"QUEUEPUMP_AZURE_1_TABLE is set":       environment("QUEUEPUMP_AZURE_1_TABLE", "https://one.table.core.windows.net"),
		"address of its table service":         environment("QUEUEPUMP_AZURE_1", "https://10.0.0.4:8443/four"),
		"QUEUEPUMP_AZURE_1: azure storage":     environment("QUEUEPUMP_AZURE_1", "AccountKey=c2VjcmV0c2VjcmV0c2VjcmV0"),
		"plain http to one.queue.corp.example": environment("QUEUEPUMP_AZURE_1", "http://one.queue.corp.example/?sig=c2VjcmV0c2VjcmV0c2VjcmV0"),
	} {
		_, err := fromEnvironment(env)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "c2VjcmV0") {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestNamesSayWhoseTheyAreAndHowOld(t *testing.T) {
	now := time.Unix(1_790_000_000, 0)
	prefix := newPrefix(now)
	got, began, ok := prefixOf(prefix + "c12x3")
	if !ok || got != prefix || !began.Equal(now) {
		t.Errorf("%s: %s %v %v", prefix, got, began, ok)
	}
	for _, foreign := range []string{"qpaz", "qpazure-orders", "queuepump", "qpaz12345678", "xqpaz6ab13b800000"} {
		if _, _, ok := prefixOf(foreign); ok {
			t.Errorf("%s is taken for ours", foreign)
		}
	}
}

// TestEveryRuleThatRestsOnMemoryHasACheck compares the list in AZURE.md with the rules, both ways,
// and sees that no other line of the document has such a mark without standing in the list.
func TestEveryRuleThatRestsOnMemoryHasACheck(t *testing.T) {
	text, err := os.ReadFile("../azsim/AZURE.md")
	must(t, err)
	facts, list, found := strings.Cut(string(text), "## What rests on memory")
	if !found {
		t.Fatal("AZURE.md has no list")
	}
	rules := map[string]string{}
	for _, r := range allRules() {
		proof.Same(t, rules[r.id], "", "two rules", r.id)
		rules[r.id] = r.mark
	}
	listed := map[string]bool{}
	for line := range strings.Lines(list) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 4 || strings.Contains(line, "---") || strings.Contains(line, "| mark |") {
			continue
		}
		for id := range strings.SplitSeq(cells[3], ",") {
			id = strings.TrimSpace(id)
			listed[id] = true
			if rules[id] == "" {
				t.Errorf("no rule is %q: %s", id, line)
			}
		}
	}
	for id, mark := range rules {
		proof.Same(t, mark != "DOC" && mark != "REC", listed[id],
			"rule", id, "known", mark, "and in the list")
	}
	if len(listed) < 20 {
		t.Errorf("only %d checks were found", len(listed))
	}
	// Where else a mark stands, the list refers to by the section or the id of the line.
	marked := regexp.MustCompile(`\b(MEM|INF)\b`)
	references := map[string]string{
		"| INF |": "", "| MEM |": "", // the legend, and lines with an id of their own below
		"an account altogether": "(A2)", "mechanism inside the service": "(A2)", "other properties leaves out": "INF; `Limits.GetCost`",
		"| batch: codes": "(A4", "| other codes": "(A4", "refused too is INF": "(A5)", "| D5 ": "(D5", "| D6 ": "D6)",
		"| Q55 ": "Q55", "| Q74 ": "Q74", "| T24 ": "T24", "| T32 ": "T32", "| T42, T43 ": "T42, T43",
	}
	for line := range strings.Lines(facts) {
		if !marked.MatchString(line) {
			continue
		}
		known := false
		for part, reference := range references {
			known = known || strings.Contains(line, part) && strings.Contains(list, reference)
		}
		if !known {
			t.Errorf("a line with a mark of memory that the list does not refer to: %s", line)
		}
	}
}

// TestTheRulesAreAnswered asks a simulator each rule that needs neither load nor a minute, and
// holds what the answers are.
func TestTheRulesAreAnswered(t *testing.T) {
	p, err := simulated(azsim.Limits{})
	must(t, err)
	for _, r := range allRules() {
		if r.part == partLimits || strings.HasSuffix(r.id, "-name-free") || r.id == "unknown-account" {
			continue
		}
		j := r.judge(t.Context(), p)
		if j.err != nil || j.answer == "" {
			t.Errorf("%s: %q, %v", r.id, j.answer, j.err)
		}
		if want := map[string]string{
			"versions":    "unknown: queues 2019-02-03, tables 2019-02-03, queues 2099-01-01, tables 2099-01-01",
			"future-date": "queues, in 5 minutes: 200; queues, in 20 minutes: 403 AuthenticationFailed; tables, in 20 minutes: 403 AuthenticationFailed",
			"batch-index": "202 with 400 InvalidInput, which names change 99",
			"wire":        "mark; no x-ms-error-code of a table",
		}[r.id]; want != "" && j.answer != want {
			t.Errorf("%s: %q, want %q", r.id, j.answer, want)
		}
	}
}

// TestVersionsAreNotJudgedWhereOneIsSet: each request would have that one.
func TestVersionsAreNotJudgedWhereOneIsSet(t *testing.T) {
	_, accounts := listening(t, azsim.NoLimits(), "one")
	accounts[0].ServiceVersion = "2019-07-07"
	tr := newTrial(t.Context(), t, accounts, defaultRequests())
	a, err := tr.open(tr.targets[0], partRules)
	must(t, err)
	p, err := newProber(tr.targets[0], a, tr.prefix, partRules)
	must(t, err)
	var u undecided
	if answer, _, err := askVersions(t.Context(), p); !errors.As(err, &u) {
		t.Errorf("%q, %v", answer, err)
	}
}

func TestAVerdictNeedsTwoAnswers(t *testing.T) {
	r := &rule{id: "x"}
	fails := errors.New("broken")
	for _, c := range []struct {
		account, simulator judged
		want               string
		verdict            string
	}{
		{judged{answer: "400 X"}, judged{answer: "400 X"}, "", same},
		{judged{answer: "400 X"}, judged{answer: "400 Y"}, "", different},
		{judged{err: undecided("why")}, judged{answer: "400 X"}, "", notDecided},
		{judged{err: fails}, judged{answer: "400 X"}, "", different},
		{judged{answer: "400 X"}, judged{err: fails}, "", notDecided},
		{judged{answer: "none"}, judged{err: fails}, "none", same},
	} {
		r.want = c.want
		if res := r.result(c.account, c.simulator); res.verdict != c.verdict {
			t.Errorf("%+v: %+v", c, res)
		}
	}
}

// listening serves simulated accounts over TCP, as the environment would name them.
func listening(t *testing.T, limits azsim.Limits, names ...string) (*azsim.Sim, []Account) {
	t.Helper()
	c := azsim.Config{Limits: limits}
	for _, name := range names {
		c.Accounts = append(c.Accounts, azsim.Account{Name: name})
	}
	sim := azsim.New(c)
	server, err := sim.Listen("", "")
	must(t, err)
	t.Cleanup(func() { _ = server.Close() })
	var accounts []Account
	for _, name := range names {
		accounts = append(accounts, Account{Connection: server.ConnectionString(name)})
	}
	return sim, accounts
}

// left lists what is in an account.
func left(t *testing.T, a Account) (names []string) {
	t.Helper()
	of, err := a.open(nil)
	must(t, err)
	queues, err := of.Queues(t.Context(), "")
	must(t, err)
	re, err := ask(t.Context(), of, question{service: "table", path: "/Tables"})
	must(t, err)
	var page struct{ Value []struct{ TableName string } }
	must(t, json.Unmarshal(re.body, &page))
	boxes, err := containers(t.Context(), of, &target{blobs: of.BlobEndpoint()})
	must(t, err)
	names = append(queues, boxes...)
	for _, one := range page.Value {
		names = append(names, one.TableName)
	}
	slices.Sort(names)
	return names
}

// TestNothingIsSentBeyondTheBudget, and what was made by then is still removed.
func TestNothingIsSentBeyondTheBudget(t *testing.T) {
	t.Parallel()
	sim, accounts := listening(t, azsim.NoLimits(), "one")
	const most = 2 * reserve
	tr := newTrial(t.Context(), t, accounts, most)
	a, err := tr.open(tr.targets[0], partLimits)
	must(t, err)
	p, err := newProber(tr.targets[0], a, tr.prefix, partLimits)
	must(t, err)
	_, err = p.measure(tr.ctx)
	if cause := context.Cause(tr.ctx); !errors.Is(cause, errSpent) || err == nil {
		t.Fatalf("%v, %v", err, cause)
	}
	must(t, tr.clean(t.Context()))
	// A request that is given up on its way counts, and may not have arrived.
	queues, tables, _ := tr.budget.sum(func(counted) bool { return true })
	if served := sim.Stats().Count("", ""); served == 0 || served > queues+tables || queues+tables > most {
		t.Errorf("%d requests were served, %d counted, %d allowed", served, queues+tables, most)
	}
	if names := left(t, accounts[0]); len(names) > 0 {
		t.Errorf("left over: %v", names)
	}
}

// TestWhatAnEarlierRunHasLeftIsRemoved if it is old enough, and nothing else.
func TestWhatAnEarlierRunHasLeftIsRemoved(t *testing.T) {
	t.Parallel()
	_, accounts := listening(t, azsim.NoLimits(), "one", "two")
	old, young := newPrefix(time.Now().Add(-2*time.Hour)), newPrefix(time.Now().Add(-time.Minute))
	for i, a := range accounts {
		of, err := a.open(nil)
		must(t, err)
		for _, name := range []string{old + "c1x1", old + "p-0", young + "c1x1", "orders"} {
			must(t, of.Queue(name).Create(t.Context()))
		}
		for _, prefix := range []string{old, young} {
			box := of.Container(prefix + "b-results")
			must(t, errors.Join(box.Create(t.Context()), box.Put(t.Context(), "kept", []byte("x"), nil)))
		}
		pump := of.Table(pumpTable)
		err = errors.Join(of.Table(old+"c2x1").Create(t.Context()), of.Table(young+"c2x1").Create(t.Context()), pump.Create(t.Context()))
		must(t, err)
		write := func(partition, row string) {
			must(t, proof.ErrOf(pump.Write(t.Context(), storage.Write{Mode: storage.Insert, Entity: storage.Entity{Partition: partition, Row: row}})))
		}
		write(old, madeRow)
		for n := range 230 {
			write(old+"k.runs", fmt.Sprint(n))
		}
		if i == 1 {
			write("orders", "workload")
		}
	}
	tr := newTrial(t.Context(), t, accounts, defaultRequests())
	if n, err := tr.earlier(t.Context()); err != nil || n != 2*(4+231) {
		t.Errorf("%d were removed, %v", n, err)
	}
	// In the first account the table was the old run's own; in the second it is in use.
	for i, want := range [][]string{
		{"orders", young + "b-results", young + "c1x1", young + "c2x1"},
		{"orders", young + "b-results", young + "c1x1", young + "c2x1", pumpTable},
	} {
		proof.Alike(t, left(t, accounts[i]), want, "account", i+1)
	}
	of, err := accounts[1].open(nil)
	must(t, err)
	for e, err := range of.Table(pumpTable).Query(t.Context(), storage.Query{}) {
		if err != nil || e.Partition != "orders" {
			t.Errorf("%s/%s is left, %v", e.Partition, e.Row, err)
		}
	}
}

// TestADryRunMakesNoRequest and says what would be done.
func TestADryRunMakesNoRequest(t *testing.T) {
	sim, accounts := listening(t, azsim.NoLimits(), "one", "two")
	out := newTrial(t.Context(), t, accounts, defaultRequests()).described()
	proof.Same(t, sim.Stats().Count("", ""), 0, "requests")
	for _, want := range []string{"one ", "two ", mark, "at most 67200", "USD", "-poison", pumpTable} {
		proof.Has(t, out, want)
	}
	for _, a := range accounts {
		for _, secret := range a.secrets() {
			if strings.Contains(out, secret) {
				t.Error("a key is in the plan")
			}
		}
	}
}

func TestPartsAreLeftOutByTheirNames(t *testing.T) {
	for list, want := range map[string]string{
		"":                              "conformance rules limits figures pump kill blobs refusals",
		"limits,kill":                   "conformance rules figures pump blobs refusals",
		"limits|kill":                   "conformance rules figures pump blobs refusals",
		"limit":                         `there is no part "limit"`,
		strings.Join(parts, ","):        "every part is left out",
		"rules, figures conformance ,,": "limits pump kill blobs refusals",
	} {
		chosen, err := partsWithout(list)
		if got := strings.Join(chosen, " "); err == nil && got != want || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %q, %v", list, got, err)
		}
	}
}

// TestAPartThatTriesNothingFails: -run with a name that nothing has would find no difference.
func TestAPartThatTriesNothingFails(t *testing.T) {
	_, accounts := listening(t, azsim.NoLimits(), "one")
	tr := newTrial(t.Context(), t, accounts, defaultRequests())
	tr.chosen = []string{partRules, partLimits}
	if out := tr.described(); strings.Contains(out, partPump) || strings.Contains(out, "cNxM") || !strings.Contains(out, partRules) {
		t.Errorf("the parts that are left out are described\n%s", out)
	}
	failing := new(testing.T)
	tr.some(failing, 0)
	if !failing.Failed() || len(tr.report.Failed) != 1 {
		t.Errorf("%v", tr.report.Failed)
	}
}

// TestAReportHoldsNoSecret, whatever stands in a failure.
func TestAReportHoldsNoSecret(t *testing.T) {
	a := Account{Connection: "https://two.queue.core.windows.net/?sv=1&sig=c2Vjcm%2BV0"}
	r := &report{
		Failed: []string{"GET https://two.queue.core.windows.net/q?sv=1&sig=c2Vjcm%2BV0: refused; c2Vjcm+V0"}, secrets: a.secrets(),
	}
	r.add("Rules", "", []string{"check", "the account"}, []string{"x", "c2Vjcm+V0"})
	dir := t.TempDir()
	must(t, proof.ErrOf(r.write(dir)))
	var again report
	for _, name := range []string{"report.md", "report.json"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || strings.Contains(string(text), "c2Vjcm") || !strings.Contains(string(text), "Rules") {
			t.Errorf("%v: a signature is in, or a table is not\n%s", err, text)
		}
		if name == "report.json" && json.Unmarshal(text, &again) != nil || again.Same {
			t.Errorf("%s", text)
		}
	}
}

func TestOperationsAreNamedAsAzureDoes(t *testing.T) {
	for _, style := range [][3]string{
		{"https://one.queue.core.windows.net", "https://one.table.core.windows.net", "https://one.blob.core.windows.net"},
		{"http://127.0.0.1:10001/one", "http://127.0.0.1:10002/one", "http://127.0.0.1:10000/one"},
	} {
		for want, at := range map[string]string{
			"CreateQueue": "PUT 0 /q", "DeleteQueue": "DELETE 0 /q", "ListQueues": "GET 0 /?comp=list", "PutMessage": "POST 0 /q/messages",
			"GetMessages": "GET 0 /q/messages?numofmessages=32", "PeekMessages": "GET 0 /q/messages?peekonly=true", "DeleteMessage": "DELETE 0 /q/messages/id",
			"UpdateMessage": "PUT 0 /q/messages/id", "ClearMessages": "DELETE 0 /q/messages", "GetQueueMetadata": "GET 0 /q?comp=metadata",
			"CreateTable": "POST 1 /Tables", "DeleteTable": "DELETE 1 /Tables('t')", "QueryTables": "GET 1 /Tables", "Batch": "POST 1 /$batch",
			"QueryEntities": "GET 1 /t()", "GetEntity": "GET 1 /t(PartitionKey='p',RowKey='r')", "InsertEntity": "POST 1 /t", "MergeEntity": "PATCH 1 /t(PartitionKey='p',RowKey='r')",
			"CreateContainer": "PUT 2 /c?restype=container", "DeleteContainer": "DELETE 2 /c?restype=container", "ListContainers": "GET 2 /?comp=list",
			"ListBlobs": "GET 2 /c?comp=list", "PutBlob": "PUT 2 /c/a/b", "GetBlob": "GET 2 /c/a", "DeleteBlob": "DELETE 2 /c/a",
		} {
			words := strings.Fields(at)
			u, err := url.Parse(style[words[1][0]-'0'] + words[2])
			must(t, err)
			proof.Same(t, operationOf(&http.Request{Method: words[0], URL: u}, &target{queues: style[0], tables: style[1], blobs: style[2]}), want, at)
		}
	}
}
