package realaccounts

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/capacity"
	"github.com/queuepump/queuepump/internal/proof"
)

// must ends a test with an error.
var must = proof.Must

const (
	// pumpQueues is how many queues of each account the pump has.
	pumpQueues = 2
	// stall is for how long nothing may move: a lease and a visibility are far shorter.
	stall = 2 * time.Minute
	// pack is how many tasks a message has: few, so that even a short run has messages enough.
	pack = "20"
)

// cities are what tasks are counted by.
var cities = []string{"Oslo", "Lima", "Cairo", "Delhi", "Quito", "Perth", "Turin"}

// site is where a part runs the real binaries: its configuration, its tasks, and the way to its
// accounts.
type site struct {
	*trial
	t             *testing.T
	config, input string // paths
	env           []string
}

// openSite makes configuration and tasks, and opens the gateways.
func (tr *trial) openSite(t *testing.T, part, delivery string) *site {
	for _, one := range tr.targets {
		tr.must(t, tr.claimTable(tr.ctx, one))
	}
	s := &site{trial: tr, t: t, config: filepath.Join(tr.out, part+".yaml"), input: filepath.Join(tr.out, "tasks.jsonl")}
	var b bytes.Buffer
	for i := range tr.tasks {
		fmt.Fprintf(&b, "{\"id\":\"t%06d\",\"city\":%q,\"text\":%q}\n", i, cities[i%len(cities)], randomText(60))
	}
	tr.must(t, os.WriteFile(s.input, b.Bytes(), 0o644))
	g, err := openGateways(tr.budget, tr.transport, tr.targets, part)
	tr.must(t, err)
	t.Cleanup(g.close)
	text, env := configuration(tr.prefix+part[:1], delivery, tr.targets, g.accounts)
	s.env = env
	tr.must(t, os.WriteFile(s.config, text, 0o600))
	return s
}

// configuration is the pump.yaml of a workload on the accounts, and the environment with their
// credentials: none of those is in the file.
func configuration(workload, delivery string, targets []*target, accounts []Account) ([]byte, []string) {
	var env []string
	text := fmt.Sprintf("workload: %s\ndelivery: %s\nadmin: {listen: \"off\"}\naccounts:\n", workload, delivery)
	for i, a := range accounts {
		name := fmt.Sprintf("TRIAL_ACCOUNT_%d", i+1)
		env = append(env, name+"="+a.Connection, name+"_TABLE="+a.Table, name+"_BLOB="+a.Blob)
		text += fmt.Sprintf("  - name: %s\n    queues: %d\n", targets[i].name, pumpQueues)
		if a.connectionString() {
			text += fmt.Sprintf("    connectionString: \"${%s}\"\n", name)
		} else {
			text += fmt.Sprintf("    endpoint: \"${%s}\"\n    tableEndpoint: \"${%s_TABLE}\"\n", name, name)
			if a.Blob != "" {
				text += fmt.Sprintf("    blobEndpoint: \"${%s_BLOB}\"\n", name)
			}
		}
		if a.ServiceVersion != "" {
			text += fmt.Sprintf("    serviceVersion: %q\n", a.ServiceVersion)
		}
	}
	return []byte(text), env
}

// randomText is text that hardly compresses, the same in each run of the program.
func randomText(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = "abcdefghijklmnopqrstuvwxyz0123456789"[texts.IntN(36)]
	}
	return string(b)
}

var texts = rand.New(rand.NewPCG(1, 2))

// process is a binary of the pump that runs.
type process struct {
	name     string
	cmd      *exec.Cmd
	out, log proof.Buffer
	done     chan struct{}
	err      error // how it ended; valid once done is closed
}

// start starts a binary. It ends with the part, at the latest.
func (s *site) start(name, program string, args ...string) *process {
	s.t.Helper()
	path, err := exec.LookPath(filepath.Join(s.bin, program))
	s.must(s.t, err)
	cmd := exec.Command(path, append(args, "--config", s.config)...)
	cmd.Env = append(os.Environ(), s.env...)
	p := &process{name: name, cmd: cmd, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &p.out, &p.log
	alone(cmd)
	s.must(s.t, cmd.Start())
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	s.t.Cleanup(func() {
		if cmd.Process.Signal(syscall.SIGTERM) != nil { // it has ended, or there is no such signal
			_ = cmd.Process.Kill()
		}
		select {
		case <-p.done:
		case <-time.After(20 * time.Second):
			p.kill()
		}
	})
	return p
}

// kill is kill -9.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// failure is the error of a process that ended badly, with the last that it said.
func (p *process) failure() error {
	if p.err == nil {
		return nil
	}
	said := strings.TrimSpace(p.log.String())
	return fmt.Errorf("%s: %w; its last lines:\n%s", p.name, p.err, said[max(0, len(said)-6000):])
}

// wait waits for the end of a process, or of the run.
func (s *site) wait(p *process) error {
	select {
	case <-p.done:
	case <-s.ctx.Done():
	}
	s.must(s.t, nil)
	return p.failure()
}

// await waits until so many tasks are done, and for no longer than nothing moves.
func (s *site) await(want int, every time.Duration, done func() int, needed ...*process) {
	s.t.Helper()
	for moved, before := time.Now(), -1; ; s.must(s.t, wait(s.ctx, every)) {
		n := done()
		if n >= want {
			return
		}
		if n != before {
			moved, before = time.Now(), n
		} else if time.Since(moved) > stall {
			s.must(s.t, fmt.Errorf("%d of %d tasks are done, and nothing has moved for %v", n, want, stall))
		}
		for _, p := range needed {
			select {
			case <-p.done:
				s.must(s.t, errors.Join(p.failure(), fmt.Errorf("%s has ended before the work", p.name)))
			default:
			}
		}
	}
}

// pump runs the whole pump by the real binaries, undisturbed: what it does in a second.
func (tr *trial) pump(t *testing.T) {
	s := tr.openSite(t, partPump, "at-least-once")
	var outs []string
	var processors []*process
	for i := range 2 {
		out := filepath.Join(tr.out, fmt.Sprintf("done-%d.jsonl", i+1))
		if err := os.Remove(out); !errors.Is(err, os.ErrNotExist) {
			tr.must(t, err) // it would be counted
		}
		outs = append(outs, out)
		processors = append(processors, s.start(fmt.Sprintf("processor %d", i+1), "processor", "run", "--out", out, "--json",
			"--beat", "1s", "--lease", "5s"))
	}
	began := time.Now()
	d := s.start("distributor", "distributor", "run", "--once", "--input", s.input, "--key", "id", "--json", "--pack", pack,
		"--beat", "1s", "--lease", "5s")
	var m measured
	done := map[string]int{}
	defer func() {
		if t.Skipped() {
			return // cut short
		}
		twice := -len(done)
		for _, n := range done {
			twice += n
		}
		text := fmt.Sprintf("%d tasks in %d messages, 2 processors, %d queues: %d lost, %d done twice. "+
			"%.1f s from the start of the distributor to the last result, %.0f tasks a second. "+
			"%.1f requests to queues for a thousand tasks, %d to tables.",
			tr.tasks, m.messages, pumpQueues*len(tr.targets), tr.tasks-len(done), twice, m.seconds, m.perSecond, m.perThousand, m.tables)
		tr.report.add("The whole pump", text, nil)
		t.Log(text)
	}()
	s.await(tr.tasks, 100*time.Millisecond, func() int {
		var err error
		done, err = readDone(outs)
		tr.must(t, err)
		return len(done)
	}, processors...)
	m.seconds = time.Since(began).Seconds()
	tr.must(t, s.wait(d))
	var summary struct{ Envelopes int64 }
	tr.must(t, json.Unmarshal([]byte(d.out.String()), &summary))
	queues, tables, money := tr.budget.of(partPump)
	n := float64(tr.tasks)
	m.messages, m.tables, m.perSecond, m.perMessage = summary.Envelopes, tables, n/m.seconds, n/float64(max(summary.Envelopes, 1))
	m.perThousand, m.perMillion = float64(queues)*1000/n, money*1e6/n
	s.plan(m)
}

// measured is what an undisturbed run of the pump came to.
type measured struct {
	messages, tables                                        int64 // tables: requests
	seconds, perSecond, perMessage, perThousand, perMillion float64
}

// plan has `distributor plan` plan the rate that was measured, for the same tasks and accounts, and
// puts what it estimates beside what was measured.
func (s *site) plan(m measured) {
	latency := s.puts
	if latency == 0 {
		latency = 10 * time.Millisecond
	}
	d := s.start("distributor plan", "distributor", "plan", "--json", "--rate", fmt.Sprint(m.perSecond), "--handler-seconds", "0.0001",
		"--input", s.input, "--key", "id", "--pack", pack, "--latency", latency.Round(time.Microsecond).String(),
		"--queue-limit", "2000", "--account-limit", "20000")
	failure := s.wait(d)
	var plan capacity.Plan
	if err := json.Unmarshal([]byte(d.out.String()), &plan); err != nil { // status 1 with a plan: it does not fit
		s.must(s.t, errors.Join(failure, fmt.Errorf("the plan cannot be read: %w", err)))
	}
	money := 0.0 // without machines
	if plan.Money.Total != 0 {
		money = plan.Money.PerMillion * (plan.Money.Queues + plan.Money.Tables) / plan.Money.Total
	}
	row := func(what string, planned, measured float64) []string {
		return []string{what, fmt.Sprintf("%.3g", planned), fmt.Sprintf("%.3g", measured)}
	}
	s.report.add("The plan", fmt.Sprintf("`distributor plan` for %.0f tasks/s at %.1f ms a request (bottleneck: %s):",
		plan.Rate, milliseconds(latency), plan.Bottleneck), []string{"", "planned", "measured"},
		row("tasks a message", plan.Packing.Tasks, m.perMessage),
		row("requests to queues for a thousand tasks", plan.Requests.PerThousand, m.perThousand),
		row("cost of a million tasks in requests, "+plan.Prices.Currency, money, m.perMillion))
}

// readDone counts the lines of each task in what processors have written so far.
func readDone(paths []string) (map[string]int, error) {
	done := map[string]int{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, os.ErrNotExist) { // its processor has not begun
			return nil, err
		}
		for line := range bytes.Lines(text[:bytes.LastIndexByte(text, '\n')+1]) {
			var l struct{ Key string }
			if err := json.Unmarshal(line, &l); err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			done[l.Key]++
		}
	}
	return done, nil
}

// kill runs the pump with delivery once, and kills a processor and the leading distributor with
// SIGKILL in the middle. Each task must be counted exactly once.
func (tr *trial) kill(t *testing.T) {
	s := tr.openSite(t, partKill, "once")
	lease := []string{"--beat", "1s", "--lease", "5s", "--quiet"}
	// A third of the tasks are read by the time of the blow, whatever this machine is.
	distribute := append([]string{
		"run", "--every", "1h", "--input", s.input, "--key", "id", "--pack", pack,
		"--max-rate", fmt.Sprint(max(float64(tr.tasks)/12, 20)),
	}, lease...)
	process := append([]string{"run", "--count-by", "city", "--visibility", "8s"}, lease...)
	counts, before, after := map[string]int{}, 0, time.Duration(0)
	total := func() (n int) { counts, n = s.counts(counts); return n }
	leader := s.start("distributor 1", "distributor", distribute...)
	victim := s.start("processor 1", "processor", process...)
	other := s.start("processor 2", "processor", process...)
	s.await(tr.tasks/4, 2*time.Second, func() int { before = total(); return before }, leader, victim, other)
	victim.kill()
	leader.kill()
	blow := time.Now()
	defer func() {
		if t.Skipped() {
			return // cut short
		}
		exact := exactly[maps.Equal(counts, tr.perCity())]
		text := fmt.Sprintf("Delivery once, %d tasks. Killed: processor 1, distributor 1, when %d were counted. In the end %v are counted, %s, %.0f s after the blow.",
			tr.tasks, before, counts, exact, after.Seconds())
		tr.report.add("kill -9", text, nil)
		t.Log(text)
	}()
	second := s.start("distributor 2", "distributor", distribute...)
	third := s.start("processor 3", "processor", process...)
	s.await(tr.tasks, 2*time.Second, total, second, other, third)
	after = time.Since(blow)
	tr.must(t, wait(tr.ctx, 10*time.Second)) // what comes in twice, comes late
	if total(); !maps.Equal(counts, tr.perCity()) {
		tr.fail(t, "%v are counted, want %v", counts, tr.perCity())
	}
}

// exactly says whether each task was counted once.
var exactly = map[bool]string{true: "each exactly once", false: "and not each once"}

// perCity is how many tasks each city has.
func (tr *trial) perCity() map[string]int {
	n := map[string]int{}
	for i := range tr.tasks {
		n[cities[i%len(cities)]]++
	}
	return n
}

// counts asks `distributor counts`. That there is no workload yet is a count of nothing.
func (s *site) counts(before map[string]int) (counts map[string]int, all int) {
	p := s.start("distributor counts", "distributor", "counts", "--json")
	if err := s.wait(p); err != nil {
		if len(before) > 0 {
			s.must(s.t, err)
		}
		return before, 0
	}
	counts = map[string]int{}
	for line := range strings.Lines(p.out.String()) {
		var l struct {
			Key   string
			Count int
		}
		if json.Unmarshal([]byte(line), &l) == nil {
			counts[l.Key] = l.Count
			all += l.Count
		}
	}
	return counts, all
}
