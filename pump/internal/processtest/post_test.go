package processtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
)

var takingTasks = regexp.MustCompile(`msg="taking tasks".* listen=(\S+)`)

// takes starts a server of tasks, and gives it and its address.
func (w *world) takes(args ...string) (p *process, url string) {
	w.t.Helper()
	p = start(w.t, "distributor", append([]string{"serve", "--config", w.config, "--listen", "127.0.0.1:0"}, args...)...)
	return p, p.takesAt()
}

// takesAt waits until a server takes tasks, and gives its address.
func (p *process) takesAt() string {
	p.until("it takes tasks", func() bool { return takingTasks.MatchString(p.log.String()) })
	return "http://" + takingTasks.FindStringSubmatch(p.log.String())[1]
}

// postExamples are the blocks of docs/distributor.md that post tasks, by language.
func postExamples(t *testing.T) map[string]string {
	t.Helper()
	doc, err := proof.ReadFile("../../..", "../../../docs/distributor.md")
	must(t, err)
	found := map[string]string{}
	for _, b := range doc.Blocks() {
		if strings.Contains(b.Text(), "/v1/tasks") && found[b.Language] == "" {
			found[b.Language] = b.Text()
		}
	}
	return found
}

// TestTasksArePostedFromAnyLanguage runs the examples of docs/distributor.md, each twice: with a key
// the tasks are done once.
func TestTasksArePostedFromAnyLanguage(t *testing.T) {
	t.Parallel()
	w := newOnceWorld(t, 2, 2)
	server, url := w.takes("--key", "city")
	writeText(t, w.path("tasks.jsonl"), "{\"city\":\"Oslo\",\"from\":\"curl\"}\n{\"city\":\"Rome\",\"from\":\"curl\"}\n")
	want := map[string]int{}
	for language, text := range postExamples(t) {
		var cmd *exec.Cmd
		name := map[string]string{"sh": "curl", "python": "Python", "js": "JavaScript"}[language]
		switch language {
		case "sh":
			cmd = exec.Command("sh", "-ec", strings.TrimSpace(strings.ReplaceAll(text, "http://127.0.0.1:8080", url))+" -fsS")
		case "python":
			writeText(t, w.path("post.py"), text)
			cmd = exec.Command("python3", "post.py")
		case "js":
			writeText(t, w.path("post.mjs"), text)
			cmd = exec.Command("node", "post.mjs")
		}
		if _, err := exec.LookPath(map[string]string{"sh": "curl", "python": "python3", "js": "node"}[language]); err != nil {
			t.Logf("the example for %s is not run: %v", name, err)
			continue
		}
		for range 2 {
			again := exec.Command(cmd.Path, cmd.Args[1:]...)
			again.Dir, again.Env = w.dir, append(os.Environ(), "SERVE="+url)
			startAs(t, name, again).succeeds()
		}
		want[name] = strings.Count(text, "from")
		if language == "sh" { // without a key a repeat is other tasks
			want[name] = 2 * 2
		}
	}
	for _, c := range []struct {
		path, body string
		status     int
		says       string
	}{
		{"/v1/tasks", "{\"n\":1}\n", 400, `"field":"city"`}, {"/v1/tasks", "[", 400, `"line":1`}, {"/readyz", "", 200, "ok"},
	} {
		status, text := fetched(t, url+c.path, c.body)
		if status != c.status || !strings.Contains(text, c.says) {
			t.Errorf("%s %s: %d %s", c.path, c.body, status, text)
		}
	}
	stop(server)
	start(t, "processor", "run", "--config", w.config, "--out", w.path("done.jsonl"), "--until-idle", "2s", "--quiet").succeeds()
	got := map[string]int{}
	for line := range strings.Lines(readText(t, w.path("done.jsonl"))) {
		var d struct{ Body struct{ From string } }
		must(t, json.Unmarshal([]byte(line), &d))
		got[d.Body.From]++
	}
	for name, n := range want {
		proof.Same(t, got[name], n, "tasks from", name, "done")
	}
}

// fetched makes a request: a post if there is a body.
func fetched(t *testing.T, url, body string) (status int, text string) {
	t.Helper()
	get := func() (*http.Response, error) { return http.Get(url) }
	if body != "" {
		get = func() (*http.Response, error) { return http.Post(url, "application/x-ndjson", strings.NewReader(body)) }
	}
	resp, err := get()
	must(t, err)
	defer resp.Body.Close()
	read, err := io.ReadAll(resp.Body)
	must(t, err)
	return resp.StatusCode, string(read)
}

// resident is the memory of a process, in bytes.
func (p *process) resident() int64 {
	p.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		p.t.Skip("there is no /proc here: ", err)
	}
	m := regexp.MustCompile(`VmRSS:\s+(\d+) kB`).FindSubmatch(text)
	n, err := strconv.ParseInt(string(m[1]), 10, 64)
	must(p.t, err)
	return n << 10
}

func TestAThousandIdleClientsTakeLittle(t *testing.T) {
	t.Parallel()
	if raceEnabled {
		t.Skip("the race detector keeps several bytes for each one that is in use")
	}
	w := newWorld(t, 1, 2)
	// What clients take is in use. Garbage is not theirs, and without a limit the collector would let
	// it stand up to the goal of the distributor.
	server := startEnv(t, []string{"GOMEMLIMIT=32MiB"},
		"distributor", "serve", "--config", w.config, "--listen", "127.0.0.1:0")
	url := server.takesAt()
	address := strings.TrimPrefix(url, "http://")
	fetched(t, url+"/v1/tasks", "1")
	before := server.resident()
	const request = "GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n"
	for range 1000 {
		c, err := net.Dial("tcp", address)
		must(t, err)
		t.Cleanup(func() { c.Close() })
		_, err = c.Write([]byte(request))
		must(t, err)
		answer := make([]byte, 4096)
		if n, err := c.Read(answer); err != nil || !bytes.HasPrefix(answer[:n], []byte("HTTP/1.1 200 OK")) {
			t.Fatalf("%s, %v", answer[:n], err)
		}
	}
	if took := server.resident() - before; took > 64<<20 {
		t.Errorf("1,000 idle clients take %d MiB", took>>20)
	} else {
		t.Logf("1,000 idle clients take %d MiB", took>>20)
	}
}

// balancer passes connections on to the servers that are there.
type balancer struct {
	net.Listener
	mu      sync.Mutex
	servers []string
	turn    int
}

func (b *balancer) run() {
	for {
		c, err := b.Accept()
		if err != nil {
			return
		}
		b.mu.Lock()
		b.turn++
		to := b.servers[b.turn%len(b.servers)]
		b.mu.Unlock()
		go func() {
			defer c.Close()
			s, err := net.Dial("tcp", to)
			if err != nil {
				return
			}
			defer s.Close()
			go func() {
				_, _ = io.Copy(s, c)
				_ = s.(*net.TCPConn).CloseWrite()
			}()
			_, _ = io.Copy(c, s)
		}()
	}
}

// client posts as the example of docs/distributor.md does, many times, and counts the answers.
const client = `
def posts(name, n):
    answered = 0
    for i in range(n):
        tasks = [{"city": "%s-%d" % (name, i % 16), "task": "%s/%d/%d" % (name, i, k)} for k in range(10)]
        answered += post(tasks, "%s/%d" % (name, i))["tasks"]
    print(answered)


import sys
posts(sys.argv[1], int(sys.argv[2]))
`

// TestPostsUnderKillsAreDoneOnce has Python clients post with keys to two servers behind a balancer,
// of which either is killed by -9 at random. With -scale it has the size of the documentation.
func TestPostsUnderKillsAreDoneOnce(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("there is no python3 here")
	}
	besideOthers(t)
	clients, posts, kills := sized(8, 64), sized(25, 1000), sized(4, 40)
	w := newOnceWorld(t, 2, 2)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { l.Close() })
	b := &balancer{Listener: l, servers: make([]string, 2)}
	servers := make([]*process, 2)
	stand := func(i int) {
		p, url := w.takes("--key", "city")
		b.mu.Lock()
		defer b.mu.Unlock()
		servers[i], b.servers[i] = p, strings.TrimPrefix(url, "http://")
	}
	stand(0)
	stand(1)
	go b.run()
	example, _, _ := strings.Cut(postExamples(t)["python"], "\n\n\npost(")
	writeText(t, w.path("client.py"), example+"\n\n"+client)
	var all []*process
	for i := range clients {
		cmd := exec.Command("python3", "client.py", fmt.Sprint("client", i), fmt.Sprint(posts))
		cmd.Dir, cmd.Env = w.dir, append(os.Environ(), "SERVE=http://"+l.Addr().String())
		all = append(all, startAs(t, "client", cmd))
	}
	files := []string{filepath.Join(w.dir, "one.jsonl"), filepath.Join(w.dir, "two.jsonl")}
	for _, file := range files {
		start(t, "processor", "run", "--config", w.config, "--out", file, "--quiet")
	}
	random := rand.New(rand.NewPCG(1, 2))
	var spent time.Duration
	for range kills {
		time.Sleep(time.Duration(300+random.IntN(700)) * time.Millisecond)
		i := random.IntN(2)
		servers[i].kill()
		spent += servers[i].cmd.ProcessState.UserTime() + servers[i].cmd.ProcessState.SystemTime()
		stand(i)
	}
	want := clients * posts * 10
	for _, c := range all {
		c.succeeds()
		proof.Same(t, strings.TrimSpace(c.out.String()), fmt.Sprint(posts*10), "sent, says the answer")
	}
	for _, s := range servers {
		stop(s)
		spent += s.cmd.ProcessState.UserTime() + s.cmd.ProcessState.SystemTime()
	}
	t.Logf("the servers spent %v, %.1f µs a task", spent, float64(spent.Microseconds())/float64(want))
	times := map[string]int{}
	w.eventually("all tasks are done", func() bool {
		clear(times)
		for _, d := range doneSoFar(t, files...) {
			times[string(d.Body)]++
		}
		return len(times) >= want
	})
	for task, n := range times {
		if n > 1 {
			t.Errorf("%s was done %d times", task, n)
		}
	}
}

// TestWhatATaskOfAPostCosts measures the CPU of a server whose clients post a hundred tasks at a
// time, with -scale.
func TestWhatATaskOfAPostCosts(t *testing.T) {
	if !*scale {
		t.Skip("it measures: give -scale")
	}
	w := newOnceWorld(t, 2, 2)
	server, url := w.takes("--key", "city")
	var body strings.Builder
	for i := range 100 {
		fmt.Fprintf(&body, `{"city":"city-%d","order":%d,"lines":["a","b"],"note":"leave it at the door"}`+"\n", i%16, i)
	}
	cpu := func() time.Duration {
		text := readText(t, fmt.Sprintf("/proc/%d/stat", server.cmd.Process.Pid))
		fields := strings.Fields(text[strings.LastIndex(text, ")"):])
		user, err := strconv.Atoi(fields[12])
		must(t, err)
		system, err := strconv.Atoi(fields[11])
		must(t, err)
		return time.Duration(user+system) * 10 * time.Millisecond
	}
	fetched(t, url+"/v1/tasks", body.String())
	for _, keyed := range []bool{false, true} {
		before, posts := cpu(), 0
		var mu sync.Mutex
		var clients sync.WaitGroup
		for c := range 32 {
			clients.Go(func() {
				for n := range 100 {
					r, err := http.NewRequest("POST", url+"/v1/tasks", strings.NewReader(body.String()))
					must(t, err)
					if keyed {
						r.Header.Set("Idempotency-Key", fmt.Sprint(c, " ", n))
					}
					resp, err := http.DefaultClient.Do(r)
					must(t, err)
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
					mu.Lock()
					if posts++; resp.StatusCode != 200 {
						t.Errorf("%d", resp.StatusCode)
					}
					mu.Unlock()
				}
			})
		}
		clients.Wait()
		took := cpu() - before
		t.Logf("with keys %v: %v for %d posts of 100 tasks, %.1f µs a task", keyed, took, posts, float64(took.Microseconds())/float64(100*posts))
	}
}
