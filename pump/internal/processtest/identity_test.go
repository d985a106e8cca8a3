package processtest

import (
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
)

// platform is how a kind of machine gives its processes tokens: an endpoint that answers only
// requests with a secret in a header. Both stand in the environment of the processes.
type platform struct {
	name     string
	variable string // that holds the secret
	header   string
	secure   bool   // the endpoint has a certificate, whose thumbprint is in the environment too
	endpoint string // the variable that holds its address
}

// platforms are those whose secret a process could lose
// (learn.microsoft.com/azure/app-service/overview-managed-identity,
// .../service-fabric/how-to-managed-identity-service-fabric-app-code).
var platforms = []platform{
	{name: "App Service", variable: "IDENTITY_HEADER", header: "X-Identity-Header", endpoint: "IDENTITY_ENDPOINT"},
	{name: "Azure ML", variable: "MSI_SECRET", header: "Secret", endpoint: "MSI_ENDPOINT"},
	{name: "Service Fabric", variable: "IDENTITY_HEADER", header: "Secret", secure: true, endpoint: "IDENTITY_ENDPOINT"},
}

// identity is the endpoint of one machine. Each process has a secret of its own, so that
// it is known who asked for which token.
type identity struct {
	platform
	t      *testing.T
	server *httptest.Server
	lives  time.Duration // of a token; whole seconds

	mu      sync.Mutex
	secrets int
	issued  map[string]int  // tokens, by secret
	good    map[string]bool // tokens
	refused int             // requests without a secret, or with a wrong one
}

// newIdentityWorld is accounts that demand tokens, and the endpoint that gives them.
func newIdentityWorld(t *testing.T, of platform, lives time.Duration) (*world, *identity) {
	t.Helper()
	i := &identity{t: t, platform: of, lives: lives, issued: map[string]int{}, good: map[string]bool{}}
	i.server = httptest.NewUnstartedServer(http.HandlerFunc(i.answer))
	if of.secure {
		i.server.StartTLS()
	} else {
		i.server.Start()
	}
	t.Cleanup(i.server.Close)
	w := newWorldOf(t, azsim.Config{Limits: azsim.NoLimits(), Bearer: i.judge}, 2, 2)
	config := "workload: test\ndelivery: once\naccounts:\n"
	for _, name := range w.names {
		config += fmt.Sprintf("  - endpoint: %s\n    tableEndpoint: %s\n    queues: 2\n", w.server.QueueEndpoint(name), w.server.TableEndpoint(name))
	}
	writeText(t, w.config, config)
	return w, i
}

// answer gives a token to a request with a secret that a process was given.
func (i *identity) answer(rw http.ResponseWriter, r *http.Request) {
	secret := r.Header.Get(i.header)
	i.mu.Lock()
	defer i.mu.Unlock()
	n, known := i.issued[secret]
	switch {
	case !known:
		i.refused++
		http.Error(rw, `{"error":"unauthorized_client"}`, http.StatusUnauthorized)
		return
	case r.URL.Query().Get("resource") != "https://storage.azure.com":
		i.t.Errorf("a token for %q is asked for", r.URL.Query().Get("resource"))
	}
	i.issued[secret] = n + 1
	token := fmt.Sprintf("token %d for %s", n+1, secret)
	i.good[token] = true
	rw.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(rw, `{"access_token":%q,"expires_on":%q,"resource":"https://storage.azure.com","token_type":"Bearer"}`, token, strconv.FormatInt(time.Now().Add(i.lives).Unix(), 10))
}

// judge is the storage accounts': only a token from the endpoint is good. It is so after its end
// too, which a busy machine may pass on the way; that processes ask for another one is counted.
func (i *identity) judge(token string, _ time.Time) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.good[token] {
		return errors.New("no token of this machine")
	}
	return nil
}

// start starts a binary with a secret of its own. Nothing else that azidentity would take
// credentials from is in its environment.
func (i *identity) start(name string, args ...string) (p *process, secret string) {
	i.t.Helper()
	i.mu.Lock()
	i.secrets++
	secret = fmt.Sprintf("the-secret-of-process-%d", i.secrets)
	i.issued[secret] = 0
	i.mu.Unlock()
	return i.startWith(secret, name, args...), secret
}

func (i *identity) startWith(secret, name string, args ...string) *process {
	i.t.Helper()
	cmd := exec.Command(filepath.Join(bin, name), args...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(pair string) bool {
		return strings.HasPrefix(pair, "AZURE_") || strings.HasPrefix(pair, "IDENTITY_") || strings.HasPrefix(pair, "IMDS_") || strings.HasPrefix(pair, "MSI_")
	})
	cmd.Env = append(cmd.Env, i.endpoint+"="+i.server.URL, i.variable+"="+secret, "NO_SECRET=shown")
	if i.secure {
		thumbprint := sha1.Sum(i.server.Certificate().Raw) // as the platform has it
		cmd.Env = append(cmd.Env, "IDENTITY_SERVER_THUMBPRINT="+hex.EncodeToString(thumbprint[:]))
	}
	return startAs(i.t, name, cmd)
}

// tokens is how many a process has been given.
func (i *identity) tokens(secret string) int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.issued[secret]
}

// refusals is how many requests for a token had no secret, or none of this machine.
func (i *identity) refusals() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.refused
}

func (i *identity) requireNoneRefused() {
	i.t.Helper()
	proof.Same(i.t, i.refusals(), 0, "requests for a token had no secret")
}

// identityCommand is a command of a binary on a machine with a managed identity.
type identityCommand struct {
	command string
	args    []string
	local   bool // it asks nothing of any account
	serves  bool // it serves a page until a signal, and reads while one watches
	takes   bool // tasks over HTTP, until a signal
	haste   bool // it gives an account seconds to answer, which a busy machine may take
	code    int  // exit status
	says    string
}

// TestEveryCommandWorksWithAManagedIdentity whose endpoint demands the secret of the process:
// B2. The commands are those that the binaries' help names, so a new one needs a row here.
func TestEveryCommandWorksWithAManagedIdentity(t *testing.T) {
	t.Parallel()
	w, machine := newIdentityWorld(t, platforms[0], time.Hour)
	writeTasks(t, w.path("tasks.jsonl"), 40)
	writeText(t, w.path("more.jsonl"), `{"city":"Oslo","id":"more","n":1}`+"\n")
	var first, second sent
	has := map[string]bool{}
	do := func(c identityCommand) *process {
		t.Helper()
		has[c.command] = true
		words := strings.Fields(c.command)
		args := append(words[1:], c.args...)
		if !c.local {
			args = append(args, "--config", w.config)
		}
		p, secret := machine.start(words[0], args...)
		for deadline := time.Now().Add(patience); c.haste && p.wait() != c.code && time.Now().Before(deadline); {
			t.Logf("%s again, which said\n%s%s", c.command, p.out.String(), p.log.String())
			p, secret = machine.start(words[0], args...)
		}
		switch {
		case c.takes:
			resp, err := http.Post(p.takesAt()+"/v1/tasks", "application/json", strings.NewReader(`{"city":"Oslo"}`))
			if must(t, err); resp.Body.Close() != nil || resp.StatusCode != http.StatusOK {
				t.Errorf("a post: %s", resp.Status)
			}
			p.signal(syscall.SIGTERM)
		case c.serves:
			watchUntil(p, `"segments":`)
			p.signal(syscall.SIGTERM)
		}
		if code := p.wait(); code != c.code || !strings.Contains(p.out.String()+p.log.String(), c.says) {
			t.Errorf("%s: exit status %d, want %d and %q:\n%s%s", c.command, code, c.code, c.says, tail(p.out.String()), tail(p.log.String()))
		}
		n := machine.tokens(secret)
		proof.Same(t, n == 0, c.local, c.command, "asked for tokens:", n)
		return p
	}

	// A task is rejected, whose body has no number: what is in quarantine is seen, tried again and
	// dropped.
	work := `sh -c 'case "$QUEUEPUMP_TASK_KEY" in *Lima*|*Cairo*) exit 65;; esac'`
	do(identityCommand{command: "distributor run", args: []string{"--input", w.path("tasks.jsonl"), "--key", "city", "--json"}}).summary(&first)
	do(identityCommand{command: "distributor runs repair", args: []string{first.Run, "--input", w.path("tasks.jsonl"), "--key", "city"}, says: first.Run})
	do(identityCommand{command: "processor run", args: []string{"--exec-each", work, "--until-idle", "1s"}})
	for _, c := range identityCommands(w, first.Run) {
		do(c)
	}
	do(identityCommand{command: "distributor run", args: []string{"--input", w.path("more.jsonl"), "--key", "city", "--json"}}).summary(&second)
	do(identityCommand{command: "distributor runs end", args: []string{second.Run}, says: second.Run})
	do(identityCommand{command: "distributor workload delete", args: []string{"--dry-run"}, says: "dry run"})
	machine.requireNoneRefused()

	for _, binary := range []string{"distributor", "processor"} {
		for _, command := range commandsOf(t, binary) {
			if !has[command] {
				t.Errorf("%q has no row: whether it works with a managed identity is not known", command)
			}
			delete(has, command)
		}
	}
	for command := range has {
		t.Errorf("the help names no %q", command)
	}

	// The endpoint does demand it, or the rows above show nothing.
	without := machine.startWith("of-no-user", "distributor", "status", "--config", w.config)
	if code := without.wait(); code == 0 || machine.refusals() == 0 {
		t.Errorf("with a wrong secret: exit status %d, %d requests refused", code, machine.refusals())
	}
}

// identityCommands are the commands in the order in which they are tried, but for those whose
// output the test reads. The run has ten tasks in quarantine.
func identityCommands(w *world, run string) []identityCommand {
	return []identityCommand{
		{command: "distributor runs wait", args: []string{run}, code: 3, says: "10 in quarantine"},
		{command: "distributor quarantine list", says: "rejected"},
		{command: "distributor quarantine show", says: "Lima"},
		{command: "distributor quarantine redrive", args: []string{"--key", "Lima"}, says: "with 5 tasks redriven"},
		{command: "distributor quarantine drop", args: []string{"--key", "Cairo", "--yes"}, says: "with 5 tasks dropped"},
		{command: "distributor status", says: run[:12]},
		{command: "processor run", args: []string{"--count-by", "city", "--until-idle", "1s"}}, // what was redriven
		{command: "distributor counts", says: "Lima"},
		{command: "distributor results", args: []string{run}, says: "0 results"},
		{command: "processor results", args: []string{run}, says: "0 results"},
		{command: "distributor runs list", says: run[:12]},
		{command: "distributor runs show", args: []string{run}, says: run},
		{command: "distributor gate list"},
		{command: "distributor gate close", args: []string{"morning"}},
		{command: "distributor gate open", args: []string{"morning"}},
		{command: "distributor gate remove", args: []string{"morning"}},
		{command: "distributor workload pause", says: "is paused"},
		{command: "distributor workload resume", says: "goes on"},
		{command: "distributor ids next", args: []string{"orders", "--count", "3"}, says: "3"},
		{command: "distributor workload set", args: []string{"max-attempts=9"}, says: "max-attempts        9"},
		{command: "distributor workload log", says: "set max-attempts=9"},
		{command: "distributor workload show", says: "account1"},
		{command: "distributor accounts list", says: "account2"},
		{command: "distributor accounts drain", args: []string{"account2", "--yes"}},
		{command: "distributor accounts remove", args: []string{"account2", "--yes"}, code: 1, says: `account "account2":`}, // it drains, or is not empty yet
		{command: "distributor accounts add", args: []string{"account2"}},
		{command: "distributor plan", args: []string{"--rate", "100", "--handler-seconds", "0.1", "--task-bytes", "100"}, local: true},
		{command: "distributor ids", local: true},      // tells what it has
		{command: "distributor accounts", local: true}, // as these do
		{command: "distributor", local: true},
		{command: "distributor gate", local: true},
		{command: "distributor generate", local: true},
		{command: "distributor quarantine", local: true},
		{command: "distributor runs", local: true},
		{command: "distributor workload", local: true},
		{command: "processor", local: true},
		{command: "processor quarantine", local: true},
		{command: "processor runs", local: true},
		{command: "processor status", says: "account1"},
		{command: "processor counts", says: "Lima"},
		{command: "processor quarantine list"},
		{command: "processor quarantine show"},
		{command: "processor runs list", says: run[:12]},
		{command: "processor runs show", args: []string{run}, says: run},
		{command: "processor plan", args: []string{"--rate", "100", "--handler-seconds", "0.1", "--task-bytes", "100"}, local: true},
		{command: "distributor doctor", haste: true},
		{command: "distributor peek"},
		{command: "distributor page", says: "/page/", serves: true},
		{command: "distributor serve", args: []string{"--listen", "127.0.0.1:0"}, says: "the server has ended", takes: true},
		// It reads what the page reads; here it has no terminal.
		{command: "distributor top", args: []string{"--config", w.config}, local: true, code: 2, says: "top needs a terminal"},
		{command: "processor top", args: []string{"--config", w.config}, local: true, code: 2, says: "processor status"},
		{command: "processor doctor", haste: true},
		{command: "processor peek"},
		{command: "processor check", args: []string{"--exec-each", "true", "--input", w.path("more.jsonl")}, local: true},
		{command: "distributor generate alerts", local: true},
		{command: "distributor generate bicep", args: []string{"--account", "pumpone"}, local: true},
		{command: "distributor generate grafana", local: true},
		{command: "distributor generate keda", args: []string{"--workload", "test"}, local: true},
		{command: "distributor generate kubernetes-job", args: []string{"--name", "test"}, local: true},
		{command: "distributor generate kubernetes", args: []string{"--name", "test", "--image", "registry.example/test:1"}, local: true},
		{command: "distributor generate terraform", args: []string{"--account", "pumpone"}, local: true},
		{command: "distributor version", local: true},
		{command: "processor version", local: true},
	}
}

// commandsOf gives the commands of a binary that do something, by its help.
func commandsOf(t *testing.T, words ...string) (all []string) {
	t.Helper()
	p := start(t, words[0], append(words[1:], "--help-all")...)
	p.succeeds()
	part, group := "", false
	for line := range strings.Lines(p.out.String()) {
		line = strings.TrimRight(line, "\n")
		switch {
		case !strings.HasPrefix(line, " "):
			part = line
		case part == "Usage:" && !strings.HasSuffix(line, "[command]"):
			all = append(all, strings.Join(words, " "))
		case slices.Contains([]string{"Send:", "Process:", "Watch:", "Operate:", "Plan:", "Available Commands:", "Additional Commands:"}, part) && line != "":
			group = true
			if name := strings.Fields(line)[0]; name != "help" && name != "completion" { // cobra's own
				all = append(all, commandsOf(t, append(words[:len(words):len(words)], name)...)...)
			}
		}
	}
	if len(all) == 0 && !group {
		t.Errorf("the help of %q names no usage and no commands:\n%s", words, p.out.String())
	}
	return all
}

// TestChildrenGetNoSecretOfAManagedIdentity, on no platform, from neither binary, while the
// processes themselves keep it.
func TestChildrenGetNoSecretOfAManagedIdentity(t *testing.T) {
	t.Parallel()
	for _, of := range platforms {
		t.Run(of.name, func(t *testing.T) {
			t.Parallel()
			w, machine := newIdentityWorld(t, of, time.Hour)
			writeTasks(t, w.path("tasks.jsonl"), 8)
			worker := w.path("worker.sh")
			writeText(t, worker, `env >>`+w.path("child.env")+`
while read -r line; do seq=${line#*:}; echo "{\"seq\":${seq%%,*},\"ok\":true}"; done
`)
			for _, args := range [][]string{
				{"distributor", "run", "--exec", "sh -c 'env >" + w.path("source.env") + "; cat " + w.path("tasks.jsonl") + "'"},
				{"processor", "run", "--exec", "sh " + worker, "--children", "1", "--until-idle", "1s"},
				{"distributor", "run", "--input", w.path("tasks.jsonl")},
				{"processor", "run", "--exec-each", "sh -c 'env >>" + w.path("each.env") + "'", "--until-idle", "1s"},
			} {
				p, secret := machine.start(args[0], append(args[1:], "--config", w.config)...)
				p.succeeds()
				if machine.tokens(secret) == 0 {
					t.Errorf("%s %s asked for no token", args[0], args[2])
				}
			}
			machine.requireNoneRefused()
			for _, file := range []string{"source.env", "child.env", "each.env"} {
				text := readText(t, w.path(file))
				if strings.Contains(text, "the-secret-of-process") || !strings.Contains(text, "NO_SECRET=shown") {
					t.Errorf("%s: a child has this environment:\n%s", file, text)
				}
			}
		})
	}
}

// TestATokenThatEndsIsRenewed while a distributor, a repair and a processor are at work: each
// put lasts longer than a token lives, and more requests follow.
func TestATokenThatEndsIsRenewed(t *testing.T) {
	t.Parallel()
	w, machine := newIdentityWorld(t, platforms[0], 2*time.Second)
	writeTasks(t, w.path("tasks.jsonl"), 40)
	slow := w.sim.Inject(azsim.Rule{Fault: azsim.DelayBefore, Delay: 2100 * time.Millisecond, Operations: []string{"PutMessage"}, Probability: 1})
	do := func(name string, args ...string) *process {
		p, secret := machine.start(name, append(args, "--config", w.config)...)
		p.succeeds()
		if n := machine.tokens(secret); n < 2 {
			t.Errorf("%s %s had %d tokens", name, args[0], n)
		}
		return p
	}
	var s sent
	do("distributor", "run", "--input", w.path("tasks.jsonl"), "--key", "city", "--json").summary(&s)
	do("distributor", "runs", "repair", s.Run, "--input", w.path("tasks.jsonl"), "--key", "city")
	slow.Remove()
	do("processor", "run", "--out", w.path("done.jsonl"), "--until-idle", "3s")
	proof.Same(t, requireEachOnceNamed(t, readDone(t, w.path("done.jsonl")), 40), 0,
		"tasks were handled twice")
	machine.requireNoneRefused()
}
