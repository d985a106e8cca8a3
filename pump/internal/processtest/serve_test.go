package processtest

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"

	"github.com/queuepump/queuepump/internal/proof"
)

// served is a loadtest serve that runs, and where its admin endpoint is.
type served struct {
	t     *testing.T
	p     *process
	admin string
}

var adminLine = regexp.MustCompile(`(?m)^admin +(http://127\.0\.0\.1:\d+)  seed (\d+)$`)

func serveWith(t *testing.T, args ...string) *served {
	t.Helper()
	s := &served{t: t, p: start(t, "loadtest", append([]string{"serve"}, args...)...)}
	s.p.until("it serves", func() bool {
		return strings.Contains(s.p.out.String(), "serving until a signal")
	})
	m := adminLine.FindStringSubmatch(s.p.out.String())
	if m == nil {
		t.Fatalf("no admin endpoint is named:\n%s", s.p.out.String())
	}
	s.admin = m[1]
	return s
}

// ask asks the admin endpoint and reads the answer into v.
func (s *served) ask(method, path, body string, v any) {
	s.t.Helper()
	r, err := http.NewRequest(method, s.admin+path, strings.NewReader(body))
	must(s.t, err)
	resp, err := http.DefaultClient.Do(r)
	must(s.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		s.t.Fatalf("%s %s: %d %s %v", method, path, resp.StatusCode, text, err)
	}
	if v != nil {
		must(s.t, json.Unmarshal(text, v))
	}
}

// queue is a queue of an account, which it makes, to a client that never tries again.
func (s *served) queue(account, name string) *azqueue.QueueClient {
	s.t.Helper()
	var in struct {
		Accounts []struct{ Name, ConnectionString string }
	}
	s.ask("GET", "/accounts", "", &in)
	for _, a := range in.Accounts {
		if a.Name != account {
			continue
		}
		service, err := azqueue.NewServiceClientFromConnectionString(a.ConnectionString,
			&azqueue.ClientOptions{ClientOptions: azcore.ClientOptions{
				Retry: policy.RetryOptions{MaxRetries: -1},
			}})
		must(s.t, err)
		q := service.NewQueueClient(name)
		must(s.t, proof.ErrOf(q.Create(context.Background(), nil)))
		return q
	}
	s.t.Fatalf("there is no account %s: %+v", account, in)
	return nil
}

// put puts one message; it is told whether that was answered.
func put(q *azqueue.QueueClient) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err := q.EnqueueMessage(ctx, "x", nil)
	return err
}

// TestFaultsChangeWhileTheSimulatorServes drives loadtest serve as others do: over TCP, with an
// SDK, and by its admin endpoint.
func TestFaultsChangeWhileTheSimulatorServes(t *testing.T) {
	t.Parallel()
	s := serveWith(t, "--accounts", "2", "--seed", "7", "--limits", "queue=1000,account=5000",
		"--latency", "1ms", "--fault", "lost-answer op=PutMessage account=simulated1 first=1")
	one, two := s.queue("simulated1", "work"), s.queue("simulated2", "work")
	proof.Same(t, put(one) == nil, false, "the answer of the first put is not lost")
	must(t, put(one))
	got, err := one.DequeueMessages(context.Background(),
		&azqueue.DequeueMessagesOptions{NumberOfMessages: new(int32(32))})
	if err != nil || len(got.Messages) != 2 {
		t.Errorf("%d messages are there, want both: %v", len(got.Messages), err)
	}

	s.ask("PUT", "/faults", `{"faults":[{"fault":"error","op":"PutMessage","status":500},
		{"fault":"dark","account":"simulated2"}]}`, nil)
	proof.Says(t, put(one), "500", "a put is answered")
	proof.Same(t, put(two) == nil, false, "the dark account answers")
	s.ask("DELETE", "/faults", "", nil)
	for _, q := range []*azqueue.QueueClient{one, two} {
		proof.Is(t, put(q), nil, "when all faults are gone")
	}

	s.ask("PUT", "/limits", `{"queue":0.01,"burst":"1ms"}`, nil)
	busy := 0
	for range 3 {
		if err := put(one); err != nil && strings.Contains(err.Error(), "ServerBusy") {
			busy++
		}
	}
	proof.Same(t, busy, 2, "puts are throttled")
	s.ask("PUT", "/limits", `"none"`, nil)
	s.ask("PUT", "/latency", `{"queue":"300ms"}`, nil)
	began := time.Now()
	if err := put(one); err != nil || time.Since(began) < 300*time.Millisecond {
		t.Errorf("a put took %v: %v", time.Since(began), err)
	}
	s.ask("PUT", "/latency", `{}`, nil)

	var counts struct {
		Seed           int
		Throttled      int
		Happened, Dark map[string]int
		Requests       []struct{ Operation string }
	}
	s.ask("GET", "/counts", "", &counts)
	if counts.Seed != 7 || counts.Throttled != 2 || counts.Happened["lost-answer"] != 1 ||
		counts.Happened["error"] != 1 || counts.Dark["simulated2"] == 0 || len(counts.Requests) < 3 {
		t.Errorf("%+v", counts)
	}
	s.ask("POST", "/reset", `{"account":"simulated1"}`, nil)
	proof.Says(t, put(one), "QueueNotFound", "after a reset")
	proof.Is(t, put(two), nil, "the other account, after a reset")
	stop(s.p)
}

// TestAzuritesAccountIsServed: what knows Azurite's account reaches the simulator.
func TestAzuritesAccountIsServed(t *testing.T) {
	t.Parallel()
	s := serveWith(t, "--accounts", "1", "--azurite", "--queue-port", "0", "--table-port", "0", "--blob-port", "0")
	must(t, put(s.queue("devstoreaccount1", "work")))
}

// TestWhatServeCannotDoIsRefused: a mistake is named with what is known, and nothing is served.
func TestWhatServeCannotDoIsRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		says []string
	}{
		{[]string{"--fault", "lost-anwser rate=0.1"}, []string{"--fault", `"lost-anwser"`, "lost-answer"}},
		{[]string{"--fault", "dark account=sim9"}, []string{`"sim9"`, "simulated1, simulated2"}},
		{[]string{"--fault", "error rate=2"}, []string{`rate: "2"`}},
		{[]string{"--limits", "queues=5"}, []string{`--limits`, `"queues"`, "queueAccount"}},
		{[]string{"--limits", "publishd"}, []string{"publishd", "published"}},
		{[]string{"--latency", "-5ms"}, []string{"--latency", "-5ms"}},
		{[]string{"--latency-spread", "5ms"}, []string{"--latency"}},
	} {
		p := start(t, "loadtest", append([]string{"serve", "--accounts", "2"}, c.args...)...)
		proof.Same(t, p.wait(), 2, c.args, "status")
		for _, says := range c.says {
			has(t, p.log.String(), says, c.args)
		}
	}
}

// TestTheSimulatorsExamplesWork plays the examples of docs/testing.md in other languages.
func TestTheSimulatorsExamplesWork(t *testing.T) {
	t.Parallel()
	const modules = "../../storage/storagetest/azurite/node_modules"
	python := "/usr/bin/python3" // the one that has Debian's packages
	doc, err := proof.ReadFile("../../..", "../../../docs/testing.md")
	must(t, err)
	shown := map[string]string{}
	for _, b := range doc.Blocks() {
		shown[b.Language] += b.Text()
	}
	play := func(t *testing.T, file, text, program string, args ...string) {
		d := newDesk(t, "")
		writeText(t, d.path(file), text)
		if there, err := filepath.Abs(modules); err != nil || os.Symlink(there, d.path("node_modules")) != nil {
			t.Fatal(there, err)
		}
		cmd := exec.Command(program, append(args, file)...)
		cmd.Dir, cmd.Env = d.dir, append(os.Environ(), "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"))
		startAs(t, program, cmd).succeeds()
	}
	t.Run("JavaScript", func(t *testing.T) {
		t.Parallel()
		if _, err := os.Stat(modules + "/@azure/storage-queue"); err != nil {
			if testing.Short() {
				t.Skipf("no SDK in -short mode: %v", err)
			}
			t.Fatalf("make azurite installs the SDK: %v", err)
		}
		play(t, "example.test.mjs", shown["js"], "node", "--test")
	})
	t.Run("Python", func(t *testing.T) {
		t.Parallel()
		if err := exec.Command(python, "-c", "import azure.storage.queue").Run(); err != nil {
			t.Skipf("apt-get install python3-azure-storage installs the SDK: %v", err)
		}
		play(t, "example.py", shown["python"], python)
	})
}
