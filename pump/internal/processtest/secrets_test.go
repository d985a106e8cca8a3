package processtest

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/queuepump/queuepump/loadtest/azsim"
)

// oddKey is an account key with all the characters that are written differently in
// URLs, headers and JSON, made of a name.
func oddKey(name string) string {
	for n := 0; ; n++ {
		var raw []byte
		for i := range 2 {
			sum := sha256.Sum256(fmt.Appendf(nil, "%s %d %d", name, n, i))
			raw = append(raw, sum[:]...)
		}
		if key := base64.StdEncoding.EncodeToString(raw); strings.Contains(key, "+") && strings.Contains(key, "/") {
			return key
		}
	}
}

// accountSAS signs a shared access signature for both services of an account
// (learn.microsoft.com/rest/api/storageservices/create-account-sas), whose signature has a + and a
// / in it.
func accountSAS(t *testing.T, name, key, permissions, expiry string) (query, signature string) {
	t.Helper()
	raw, err := base64.StdEncoding.DecodeString(key)
	must(t, err)
	for minute := range 60 {
		q := url.Values{"sv": {"2019-02-02"}, "ss": {"qt"}, "srt": {"sco"}, "sp": {permissions}, "se": {expiry}, "st": {fmt.Sprintf("2020-01-01T00:%02d:00Z", minute)}}
		h := hmac.New(sha256.New, raw)
		fmt.Fprintf(h, "%s\n%s\nqt\nsco\n%s\n%s\n\n\n2019-02-02\n", name, permissions, q.Get("st"), expiry)
		signature = base64.StdEncoding.EncodeToString(h.Sum(nil))
		if strings.Contains(signature, "+") && strings.Contains(signature, "/") {
			q.Set("sig", signature)
			return q.Encode(), signature
		}
	}
	t.Fatal("no such signature")
	return "", ""
}

// secretWorld is three accounts that are reached with a key in the configuration, a SAS
// in a connection string in the environment, and an endpoint with a SAS.
type secretWorld struct {
	*world
	evidence *evidence
	env      []string
	keys     map[string]string
}

func newSecretWorld(t *testing.T) *secretWorld {
	t.Helper()
	w := &secretWorld{world: &world{t: t, dir: t.TempDir(), names: []string{"account1", "account2", "account3"}}, keys: map[string]string{}}
	v := &vault{}
	w.evidence = &evidence{t: t, vault: v}
	c := azsim.Config{Limits: azsim.NoLimits()}
	for _, name := range w.names {
		w.keys[name] = oddKey(name)
		v.plant("the key of "+name, w.keys[name])
		c.Accounts = append(c.Accounts, azsim.Account{Name: name, Key: w.keys[name]})
	}
	w.sim = azsim.New(c)
	var err error
	w.server, err = w.sim.Listen("", "")
	must(t, err)
	t.Cleanup(func() { _ = w.server.Close() })
	for _, name := range []string{"HANDLER_TOKEN", "AZURE_CLIENT_SECRET"} {
		v.plant(name, oddKey(name))
	}
	w.env = []string{
		"ACCOUNT_2=" + w.connectionSAS("account2", "rwdlacup", "2099-01-01T00:00:00Z"),
		"ACCOUNT_3=" + w.endpointSAS("account3"),
		"A_COPY_OF_A_KEY=" + w.keys["account1"],
		"AZURE_CLIENT_SECRET=" + oddKey("AZURE_CLIENT_SECRET"), "AZURE_STORAGE_KEY=" + w.keys["account3"], "AZURE_STORAGE_CONNECTION_STRING=" + w.server.ConnectionString("account1"),
	}
	w.config = w.path("pump.yaml")
	w.write(w.config, w.server.ConnectionString("account1"), "${ACCOUNT_2}", "${ACCOUNT_3}")
	return w
}

// write writes a configuration with a connection string, another, and an endpoint.
func (w *secretWorld) write(path, first, second, third string) {
	writeText(w.t, path, fmt.Sprintf("workload: test\naccounts:\n  - connectionString: '%s'\n    queues: 1\n  - connectionString: '%s'\n    queues: 1\n  - endpoint: '%s'\n    tableEndpoint: %s\n    queues: 1\n",
		first, second, third, w.server.TableEndpoint("account3")))
}

func (w *secretWorld) sas(account, permissions, expiry string) string {
	query, signature := accountSAS(w.t, account, w.keys[account], permissions, expiry)
	w.evidence.vault.plant("a signature of "+account, signature)
	return query
}

func (w *secretWorld) connectionSAS(account, permissions, expiry string) string {
	return "QueueEndpoint=" + w.server.QueueEndpoint(account) + ";TableEndpoint=" + w.server.TableEndpoint(account) + ";SharedAccessSignature=" + w.sas(account, permissions, expiry)
}

func (w *secretWorld) endpointSAS(account string) string {
	return w.server.QueueEndpoint(account) + "?" + w.sas(account, "rwdlacup", "2099-01-01T00:00:00Z")
}

// start starts a binary that logs all it can.
func (w *secretWorld) start(name string, args ...string) *process {
	w.t.Helper()
	return startEnv(w.t, w.env, name, args...)
}

// run runs a binary to its end, whatever that is, and keeps what it wrote.
func (w *secretWorld) run(name string, args ...string) *process {
	w.t.Helper()
	p := w.start(name, args...)
	p.wait()
	w.evidence.output(p)
	return p
}

// TestAPlantedSecretIsFoundInEveryForm, or the tests below would show nothing.
func TestAPlantedSecretIsFoundInEveryForm(t *testing.T) {
	t.Parallel()
	key := oddKey("account")
	raw, err := base64.StdEncoding.DecodeString(key)
	must(t, err)
	v := &vault{}
	v.plant("it", key)
	quoted, _ := json.Marshal(map[string]string{"key": key})
	for name, text := range map[string]string{
		"plain": "AccountKey=" + key + ";", "in a query": "?sig=" + url.QueryEscape(key) + "&x", "in small letters": strings.ToLower("%2B") + percentEscape.ReplaceAllStringFunc(url.QueryEscape(key), strings.ToLower), "in a path": "/" + url.PathEscape(key),
		"JSON": string(quoted), "HTML": html.EscapeString("<" + key + ">"), "bytes": string(raw), "hexadecimal": hex.EncodeToString(raw), "a part": "..." + key[20:45] + "...",
		"encoded at 0": base64.StdEncoding.EncodeToString([]byte(key)), "encoded at 1": base64.StdEncoding.EncodeToString([]byte("x" + key)), "encoded at 2": base64.StdEncoding.EncodeToString([]byte("xy" + key)),
	} {
		if name2, _ := v.find(text); name2 != "it" {
			t.Errorf("%s: it is not found in %s", name, text)
		}
	}
	if name, around := v.find("AccountName=account1;EndpointSuffix=core.windows.net " + oddKey("another")); name != "" {
		t.Errorf("it is found in %s", around)
	}
}

// TestSecretsAreNowhereInWhatIsWritten when all goes well: logs, summaries, pages,
// profiles, dumps, results, rows, messages, causes, and what children are given.
func TestSecretsAreNowhereInWhatIsWritten(t *testing.T) {
	t.Parallel()
	w := newSecretWorld(t)
	writeTasks(t, w.path("tasks.jsonl"), 60)
	appendText(t, w.path("tasks.jsonl"), "not a task\n")
	w.run("distributor", "run", "--config", w.config, "--input", w.path("tasks.jsonl"), "--key", "city", "--pack", "3", "--on-bad-line", "quarantine", "--json", "--debug").succeeds()

	d := w.start("distributor", "run", "--config", w.config, "--input", w.path("tasks.jsonl"), "--every", "1h", "--on-bad-line", "skip", "--debug")
	d.until("it has printed a summary", func() bool { return strings.Contains(d.out.String(), "run ") })
	w.evidence.pages(d.admin())
	stop(d)
	w.evidence.output(d)

	// A worker that tells everything it knows: in its results, in what it says of failures and in
	// the log.
	worker := w.path("worker.sh")
	writeText(t, worker, `env >&2
all=$(env | base64 | tr -d '\n')
while read -r line; do
  seq=${line#*:}; seq=${seq%%,*}
  case $line in
  *'"n":7'*|*'"id":"t2'*) printf '{"seq":%s,"reject":true,"error":"%s"}\n' "$seq" "$(env | tr -d '\n"\\' | head -c 400)";;
  *'"id":"t3'*) printf '{"seq":%s,"error":"failed: %s"}\n' "$seq" "$(env | tr -d '\n"\\' | tail -c 400)";;
  *) printf '{"seq":%s,"ok":true,"result":{"env":"%s"}}\n' "$seq" "$all";;
  esac
done
`)
	p := w.start("processor", "run", "--config", w.config, "--exec", "sh "+worker, "--children", "2", "--out", w.path("results.jsonl"), "--max-attempts", "1", "--debug", "--log-format", "json")
	p.until("it has results", func() bool { return strings.Count(w.text(w.path("results.jsonl")), "\n") >= 30 })
	w.evidence.pages(strings.Trim(jsonAdmin.FindString(p.log.String()), `"`))
	stop(p)
	w.evidence.output(p)

	// A processor that ends with the stacks of all its goroutines.
	p = w.start("processor", "run", "--config", w.config, "--exec-each", "sh -c 'env; env >&2; exit 1'", "--max-attempts", "2", "--debug")
	p.says("admin port")
	p.signal(syscall.SIGQUIT)
	p.wait()
	w.evidence.output(p)
	has(t, p.log.String(), "goroutine ", "no stacks were dumped")

	for _, args := range [][]string{
		{"status", "--config", w.config},
		{"status", "--config", w.config, "--json"},
		{"doctor", "--config", w.config},
		{"doctor", "--config", w.config, "--json"},
		{"peek", "--config", w.config},
		{"peek", "--config", w.config, "--json"},
		{"accounts", "list", "--config", w.config, "--json"},
		{"accounts", "drain", "account2", "--config", w.config},
		{"quarantine", "list", "--config", w.config},
		{"quarantine", "list", "--config", w.config, "--json"},
		{"quarantine", "show", "--config", w.config, "--json"},
		{"quarantine", "redrive", "--config", w.config, "--dry-run"},
		{"gate", "list", "--config", w.config},
		{"gate", "close", "morning", "--config", w.config},
		{"gate", "open", "morning", "--config", w.config},
		{"workload", "pause", "--config", w.config},
		{"workload", "resume", "--config", w.config},
		{"ids", "next", "numbers", "--config", w.config},
		{"counts", "--config", w.config, "--json"},
		{"run", "--config", w.config, "--exec", "sh -c 'env; env >&2; echo {}; exit 3'", "--on-bad-line", "skip", "--debug"},
	} {
		w.run("distributor", args...)
	}
	for _, name := range w.names {
		w.evidence.rows(w.sim, name)
	}
	w.evidence.files(w.dir, w.config)
	w.evidence.judge("HOME=", "queuepump_requests_total", "quarantined", `"handled"`, "SIGQUIT", "queuepump_distributions_total", "Oslo", "row test.runs/", "cause in test-poison", "exit status 3")
}

var jsonAdmin = regexp.MustCompile(`"127\.0\.0\.1:\d+"`)

// TestSecretsAreNowhereInFailures of storage: a wrong key, an account without
// permission, one that is dark, one that is not there, one whose certificate is no good, and
// servers that throw back whatever they are sent.
func TestSecretsAreNowhereInFailures(t *testing.T) {
	t.Parallel()
	w := newSecretWorld(t)
	writeTasks(t, w.path("tasks.jsonl"), 20)
	good := w.server.ConnectionString("account1")
	echo := newEcho(t)
	sas := w.sas("account3", "rwdlacup", "2099-01-01T00:00:00Z")
	escapedLow := percentEscape.ReplaceAllStringFunc(sas, strings.ToLower)
	for name, accounts := range map[string][3]string{
		"a wrong key":                    {strings.Replace(good, w.keys["account1"], w.keys["account2"], 1), "${ACCOUNT_2}", "${ACCOUNT_3}"},
		"a signature that has expired":   {w.connectionSAS("account1", "rwdlacup", "2021-01-01T00:00:00Z"), "${ACCOUNT_2}", "${ACCOUNT_3}"},
		"a signature that allows little": {w.connectionSAS("account1", "r", "2099-01-01T00:00:00Z"), "${ACCOUNT_2}", "${ACCOUNT_3}"},
		"a name that is not there":       {"DefaultEndpointsProtocol=https;AccountName=account1;AccountKey=" + w.keys["account1"] + ";EndpointSuffix=queuepump.invalid", "${ACCOUNT_2}", "${ACCOUNT_3}"},
		"no TLS":                         {"AccountName=account1;AccountKey=" + w.keys["account1"] + ";QueueEndpoint=https://" + w.server.QueueAddr() + "/account1;TableEndpoint=https://" + w.server.TableAddr() + "/account1", "${ACCOUNT_2}", "${ACCOUNT_3}"},
		"a closed port":                  {"AccountName=account1;AccountKey=" + w.keys["account1"] + ";QueueEndpoint=http://127.0.0.1:1/account1;TableEndpoint=http://127.0.0.1:1/account1", "${ACCOUNT_2}", "${ACCOUNT_3}"},
		"an echo of a key":               {"AccountName=account1;AccountKey=" + w.keys["account1"] + ";QueueEndpoint=" + echo.URL + "/account1;TableEndpoint=" + echo.URL + "/account1", "${ACCOUNT_2}", "${ACCOUNT_3}"},
		"an echo of a signature":         {"QueueEndpoint=" + echo.URL + "/account1;TableEndpoint=" + echo.URL + "/account1;SharedAccessSignature=?" + sas, "${ACCOUNT_2}", "${ACCOUNT_3}"},
		"an echo of an endpoint":         {good, "${ACCOUNT_2}", echo.URL + "/account3?" + escapedLow},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := filepath.Join(t.TempDir(), "pump.yaml")
			w.write(config, accounts[0], accounts[1], accounts[2])
			v := &secretWorld{world: &world{t: t, dir: w.dir, sim: w.sim, server: w.server}, env: w.env, evidence: &evidence{t: t, vault: w.evidence.vault}}
			for _, args := range [][]string{
				{"distributor", "run", "--config", config, "--input", w.path("tasks.jsonl"), "--key", "city", "--debug", "--grace", "1s"},
				{"processor", "run", "--config", config, "--discard", "--until-idle", "1s", "--debug"},
				{"distributor", "status", "--config", config, "--json"},
				{"distributor", "doctor", "--config", config},
				{"processor", "doctor", "--config", config, "--json"},
				{"distributor", "accounts", "list", "--config", config},
			} {
				p := v.start(args[0], args[1:]...)
				select { // what tries again for a minute has said by now what is wrong
				case <-p.done:
				case <-time.After(4 * time.Second):
					if address := adminAddress.FindStringSubmatch(p.log.String()); address != nil {
						v.evidence.pages(address[1])
					}
					p.signal(syscall.SIGINT)
					p.signal(syscall.SIGKILL)
					p.wait()
				}
				v.evidence.output(p)
			}
			v.evidence.judge("account")
		})
	}
	t.Run("dark accounts", w.darkAccounts)
}

// newEcho is an endpoint that throws what it is asked back at who asks, in each way in which a
// client may take up what a server says.
func newEcho(t *testing.T) *httptest.Server {
	var echoes atomic.Int64
	echo := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		n := echoes.Add(1)
		said := "you asked for " + r.URL.String() + " as " + r.Header.Get("Authorization") + " with " + fmt.Sprint(r.Header)
		rw.Header().Set("Location", "http://127.0.0.1:1"+r.URL.String())
		rw.Header().Set("X-Ms-Request-Id", said)
		rw.Header().Set("X-Ms-Error-Code", "AuthenticationFailed"+r.URL.RawQuery)
		rw.Header().Set("ETag", said)
		switch n % 4 {
		case 0:
			http.Error(rw, said, http.StatusForbidden)
		case 1:
			rw.WriteHeader(http.StatusFound)
		case 2:
			rw.WriteHeader(http.StatusBadRequest)
			fmt.Fprintf(rw, "<Error><Code>InvalidUri</Code><Message>%s</Message></Error>", html.EscapeString(said))
		case 3:
			rw.WriteHeader(http.StatusForbidden)
			text, _ := json.Marshal(said)
			fmt.Fprintf(rw, `{"odata.error":{"code":"AuthorizationFailure","message":{"value":%s}}}`, text)
		}
	}))
	t.Cleanup(func() { // after parallel tests
		echo.Close()
		if echoes.Load() == 0 {
			t.Error("no request was thrown back")
		}
	})
	return echo
}

// darkAccounts looks at what a processor says while none of its accounts answers.
func (w *secretWorld) darkAccounts(t *testing.T) {
	v := &secretWorld{world: &world{t: t, dir: w.dir, sim: w.sim, server: w.server}, env: w.env, evidence: &evidence{t: t, vault: w.evidence.vault}}
	p := v.start("processor", "run", "--config", w.config, "--discard", "--debug")
	p.says("admin port")
	for _, name := range w.names {
		w.sim.Blackout(name, true)
		defer w.sim.Blackout(name, false)
	}
	p.until("it says that an account is silent", func() bool {
		_, body := ask(t, adminAddress.FindStringSubmatch(p.log.String())[1], "/readyz")
		return strings.Contains(body, "answer")
	})
	v.evidence.pages(adminAddress.FindStringSubmatch(p.log.String())[1])
	p.signal(syscall.SIGQUIT)
	p.wait()
	v.evidence.output(p)
	v.evidence.judge("account", "goroutine ")
}

// TestSecretsAreNowhereInWhatIsSaidOfMistakes in the configuration and on the command
// line: a secret in the wrong field, a misspelt one, in YAML that is none, as an argument.
func TestSecretsAreNowhereInWhatIsSaidOfMistakes(t *testing.T) {
	t.Parallel()
	w := newSecretWorld(t)
	w.env = append(w.env, "HANDLER_TOKEN="+oddKey("HANDLER_TOKEN"))
	connection, key := w.server.ConnectionString("account1"), w.keys["account1"]
	sas := w.sas("account3", "rwdlacup", "2099-01-01T00:00:00Z")
	token := w.env[1][len("ACCOUNT_3="):]
	account := "workload: test\naccounts:\n  - connectionString: '" + connection + "'\n"
	configs := []string{
		account + "control: '" + connection + "'\n", account + "segments: " + key + "\n", account + "delivery: '" + token + "'\n", account + "'" + key + "': 1\n", account + key + "\n",
		account + "    queues: '" + connection + "'\n", account + "    conectionString: '" + connection + "'\n", account + "    weight: " + key + "\n", account + "    allowHTTP: '" + token + "'\n",
		account + "    name: '" + connection + "'\n", account + "    name: '" + key + "'\n", account + "    endpoint: '" + token + "'\n", account + "    connectionString: '" + connection + "'\n",
		account + "budget: {getCost: '" + connection + "'}\n", account + "budget: {account: " + key + "}\n", account + "admin: {listen: '" + connection + "'}\n", account + "admin: {advertise: 'host:" + key + "'}\n", account + "admin: '" + key + "'\n",
		"workload: '" + connection + "'\naccounts: [{connectionString: '" + connection + "'}]\n", "workload: ${A_COPY_OF_A_KEY}\naccounts: [{connectionString: '" + connection + "'}]\n", "workload: test\naccounts: '" + connection + "'\n",
		"workload: test\naccounts: [" + connection + "]\n", "workload: test\naccounts:\n  - connectionString: '" + connection + "\n", "workload: test\naccounts:\n  - connectionString: \"" + connection + "\n    queues: 1\n",
		"workload: test\naccounts:\n  - connectionString: " + connection + " # '\n   queues: 1\n", "workload: test\naccounts:\n\t- connectionString: " + connection + "\n", "workload: test\naccounts:\n  - connectionString " + connection + "\n", "workload: test\naccounts:\n  - {connectionString: " + connection + "\n",
		"workload: test\naccounts:\n  - connectionString: *" + key + "\n", "workload: test\naccounts:\n  - connectionString: !" + key + " x\n", "workload: test\naccounts:\n  - connectionString: @" + connection + "\n", "workload: test\naccounts:\n  - connectionString: ${" + key + "}\n",
		"workload: test\naccounts: [{connectionString: 'AccountName=" + key + ";AccountKey=" + key + "'}]\n", "workload: test\naccounts: [{connectionString: 'AccountKey=" + key[:40] + "'}]\n", "workload: test\naccounts: [{connectionString: '" + key + "'}]\n", "workload: test\naccounts: [{connectionString: 'AccountName=a b;AccountKey=" + key + "x'}]\n",
		"workload: test\naccounts: [{connectionString: 'DefaultEndpointsProtocol=" + key + ";AccountName=acct;AccountKey=" + key + "'}]\n", "workload: test\naccounts: [{connectionString: 'DefaultEndpointsProtocol=http;AccountName=acct;AccountKey=" + key + "'}]\n",
		"workload: test\naccounts: [{endpoint: '" + connection + "'}]\n", "workload: test\naccounts: [{endpoint: 'http://" + connection + "'}]\n", "workload: test\naccounts: [{endpoint: 'https://account3.queue.core.windows.net/" + sas + "'}]\n", "workload: test\naccounts: [{endpoint: '" + sas + "'}]\n",
		"workload: test\naccounts: [{endpoint: 'https://user:" + url.QueryEscape(key) + "@account3.queue.core.windows.net/'}]\n", "workload: test\naccounts: [{endpoint: 'https://account3.queue.core.windows.net#" + sas + "'}]\n", "workload: test\naccounts: [{endpoint: 'http://account3.queue.core.windows.net?" + sas + "'}]\n",
		"workload: test\naccounts: [{endpoint: 'https://" + url.PathEscape(key) + "'}]\n", "workload: test\naccounts: [{endpoint: 'https://account3.queue.core.windows.net?" + strings.Replace(sas, "sig=", "sg=", 1) + "'}]\n", "workload: test\naccounts: [{endpoint: 'https://account3.queue.core.windows.net', tableEndpoint: '" + sas + "'}]\n",
	}
	for i, text := range configs {
		path := w.path(fmt.Sprintf("bad%d.yaml", i))
		writeText(t, path, text)
		name, args := "processor", []string{"run", "--config", path, "--discard", "--until-idle", "100ms", "--admin", "off"}
		if i%2 == 1 {
			name, args = "distributor", []string{"status", "--config", path}
		}
		if p := w.run(name, args...); p.cmd.ProcessState.ExitCode() == 0 {
			t.Errorf("this is taken:\n%s", text)
		}
	}
	for _, args := range [][]string{
		{"distributor", connection},
		{"distributor", "status", connection},
		{"distributor", "status", "--config", connection},
		{"distributor", "doctor", "--config", connection},
		{"distributor", "doctor", "--config", w.config, "--out", connection},
		{"distributor", "peek", "--config", w.config, "--queue", connection},
		{"distributor", "status", "--config", w.config, "--watch=" + token},
		{"distributor", "status", "--" + connection},
		{"distributor", "status", "--connection=" + connection},
		{"distributor", "accounts", "add", connection, "--config", w.config},
		{"distributor", "accounts", "remove", key, "--config", w.config},
		{"distributor", "gate", "open", connection, "--config", w.config},
		{"distributor", "ids", "next", "AccountKey=" + key, "--config", w.config},
		{"distributor", "runs", "wait", connection, "--config", w.config},
		{"distributor", "run", "--config", w.config, "--input", connection},
		{"distributor", "run", "--config", w.config, "--input", w.path("tasks.jsonl"), "--format", connection},
		{"distributor", "run", "--config", w.config, "--exec", "sh -c 'exit 1' " + connection},
		{"processor", "run", "--config", w.config, "--exec", connection},
		{"processor", "run", "--config", w.config, "--discard", "--admin", connection},
		{"processor", "run", "--config", w.config, "--discard", "--gate", connection},
		{"processor", "check", "--exec", connection, "--input", w.path("tasks.jsonl")},
		{"processor", "check", "--http", "http://127.0.0.1:1/?" + sas, "--input", w.path("tasks.jsonl")},
		{"processor", "check", "--exec", "cat", "--input", connection},
		{"processor", "run", "--config", w.config, "--discard", "--max-attempts", connection},
		{"processor", "run", "--config", w.config, "--http", token + " ", "--until-idle", "100ms"},
		{"processor", "run", "--config", w.config, "--http", "http://127.0.0.1:1/?" + sas, "--until-idle", "100ms", "--debug"},
		{"processor", "run", "--config", w.config, "--http", "http://127.0.0.1:1", "--http-header", "Authorization Bearer " + key},
		{"processor", "run", "--config", w.config, "--log-format", connection, "--discard"},
		{"processor", "run", "--config", w.config, "--http", "http://127.0.0.1:1", "--http-header", "Authorization: Bearer ${HANDLER_TOKEN}", "--until-idle", "100ms", "--debug"},
		{"loadtest", "serve", "--limits", connection},
		{"loadtest", connection},
		{"distributor", "--help"},
		{"distributor", "run", "--help"},
		{"processor", "run", "--help"},
		{"loadtest", "serve", "--help"},
		{"processor", "version"},
		{"distributor", "completion", "bash"},
		{"distributor", "__complete", "status", "--config", ""},
	} {
		w.run(args[0], args[1:]...)
	}
	w.evidence.judge("is not a field", "is not valid YAML", "not shown: it may be a secret", "Usage:")
}

// TestTheKeysOfSimulatedAccountsStandInTheirConfigurationOnly, which no other user can read.
func TestTheKeysOfSimulatedAccountsStandInTheirConfigurationOnly(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	config := filepath.Join(dir, "pump.yaml")
	serve := start(t, "loadtest", "serve", "--accounts", "2", "--write-config", config)
	serve.until("it serves", func() bool { return strings.Contains(serve.out.String(), "serving until a signal") })
	st, err := os.Stat(config)
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	v := &vault{}
	keys := regexp.MustCompile(`AccountKey=([^;\s]+)`).FindAllStringSubmatch(readText(t, config), -1)
	if len(keys) != 2 {
		t.Fatalf("%d keys", len(keys))
	}
	for _, k := range keys {
		v.plant("a simulated key", k[1])
	}
	writeTasks(t, filepath.Join(dir, "tasks.jsonl"), 10)
	start(t, "distributor", "run", "--config", config, "--input", filepath.Join(dir, "tasks.jsonl")).succeeds()
	stop(serve)
	e := &evidence{t: t, vault: v}
	e.output(serve)
	e.judge("requests served")
}
