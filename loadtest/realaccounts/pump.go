package realaccounts

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
)

const (
	// pumpQueues is how many queues of each account the pump has.
	pumpQueues = 2
	// stall is for how long nothing may move: a lease and a visibility are far shorter.
	stall = 2 * time.Minute
	// pack is how many tasks a message has: few, so that even a short run has messages enough.
	pack = 20
)

// cities are what tasks are counted by.
var cities = []string{"Oslo", "Lima", "Cairo", "Delhi", "Quito", "Perth", "Turin"}

// workload names the workload of a part.
func (r *runner) workload(part string) string { return r.prefix + part[:1] }

// site is where a part of the pump runs: its configuration, its tasks, and how its accounts are
// reached.
type site struct {
	r             *runner
	part          string
	gateways      *gateways
	config, tasks string // paths
	env           []string
	processes     []*process
}

// open makes configuration and tasks, and opens the gateways.
func (r *runner) openSite(ctx context.Context, part, delivery string) (*site, error) {
	for _, t := range r.targets {
		if err := r.claimTable(ctx, t); err != nil {
			return nil, err
		}
	}
	s := &site{
		r: r, part: part, config: filepath.Join(r.o.Dir, part+".yaml"),
		tasks: filepath.Join(r.o.Dir, "tasks.jsonl"),
	}
	if err := writeTasks(s.tasks, r.o.Tasks); err != nil {
		return nil, err
	}
	var err error
	if s.gateways, err = r.openGateways(); err != nil {
		return nil, err
	}
	s.gateways.of(part)
	text, env, err := configuration(r.workload(part), delivery, r.targets, s.gateways.accounts)
	if err == nil {
		s.env, err = env, os.WriteFile(s.config, text, 0o600)
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// close ends what still runs, and then the way to the accounts.
func (s *site) close() {
	for _, p := range s.processes {
		if !p.ended() {
			p.stop(20 * time.Second)
		}
	}
	s.gateways.close()
}

// start starts a binary of the site.
func (s *site) start(name, binary string, args ...string) (*process, error) {
	path := map[string]string{"distributor": s.r.o.Distributor, "processor": s.r.o.Processor}[binary]
	p, err := start(name, path, s.env, append(args, "--config", s.config)...)
	if err == nil {
		s.processes = append(s.processes, p)
	}
	return p, err
}

// broken is the failure of a process that should run and has ended.
func broken(processes ...*process) error {
	for _, p := range processes {
		if p.ended() {
			return errors.Join(p.failure(), fmt.Errorf("%s has ended before the work", p.name))
		}
	}
	return nil
}

// configuration is the pump.yaml of a workload on the accounts, and the environment with their
// credentials: none of those is in the file.
func configuration(
	workload, delivery string, targets []*target, accounts []Account,
) ([]byte, []string, error) {
	type account struct {
		ConnectionString string `yaml:"connectionString,omitempty"`
		Endpoint         string `yaml:"endpoint,omitempty"`
		TableEndpoint    string `yaml:"tableEndpoint,omitempty"`
		Name             string `yaml:"name"`
		ServiceVersion   string `yaml:"serviceVersion,omitempty"`
		Queues           int    `yaml:"queues"`
	}
	var c struct {
		Workload string            `yaml:"workload"`
		Accounts []account         `yaml:"accounts"`
		Delivery string            `yaml:"delivery"`
		Admin    map[string]string `yaml:"admin"`
	}
	c.Workload, c.Delivery, c.Admin = workload, delivery, map[string]string{"listen": "off"}
	var env []string
	for i, a := range accounts {
		name := fmt.Sprintf("TRIAL_ACCOUNT_%d", i+1)
		env = append(env, name+"="+a.Connection)
		one := account{Name: targets[i].name, ServiceVersion: a.ServiceVersion, Queues: pumpQueues}
		if a.connectionString() {
			one.ConnectionString = "${" + name + "}"
		} else {
			one.Endpoint, one.TableEndpoint = "${"+name+"}", "${"+name+"_TABLE}"
			env = append(env, name+"_TABLE="+a.Table)
		}
		c.Accounts = append(c.Accounts, one)
	}
	text, err := yaml.MarshalWithOptions(c, yaml.IndentSequence(true))
	return text, env, err
}

// writeTasks writes n tasks, each with an id and a city.
func writeTasks(path string, n int) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	for i := range n {
		fmt.Fprintf(w, "{\"id\":\"t%06d\",\"city\":%q,\"text\":%q}\n", i, cities[i%len(cities)],
			randomText(60))
	}
	return errors.Join(w.Flush(), f.Close())
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

// pump runs the whole pump by the real binaries, undisturbed: what it does in a second.
func (r *runner) pump(ctx context.Context) error {
	s, err := r.openSite(ctx, partPump, "at-least-once")
	if err != nil {
		return err
	}
	defer s.close()
	p := &PumpRun{Tasks: r.o.Tasks, Processors: 2, Queues: pumpQueues * len(r.targets)}
	r.report.Pump = p
	var outs []string
	var processors []*process
	for i := range p.Processors {
		out := filepath.Join(r.o.Dir, fmt.Sprintf("done-%d.jsonl", i+1))
		if err := os.Remove(out); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err // it would be counted
		}
		outs = append(outs, out)
		one, err := s.start(fmt.Sprintf("processor %d", i+1), "processor", "run", "--out", out, "--json",
			"--beat", "1s", "--lease", "5s")
		if err != nil {
			return err
		}
		processors = append(processors, one)
	}
	began := time.Now()
	d, err := s.start("distributor", "distributor", "run", "--once", "--input", s.tasks, "--key",
		"id", "--json", "--pack", strconv.Itoa(pack), "--beat", "1s", "--lease", "5s")
	if err != nil {
		return err
	}
	done, err := r.awaitTasks(ctx, outs, processors)
	p.Seconds = time.Since(began).Seconds()
	p.Lost, p.Duplicates = p.Tasks-len(done), 0
	for _, n := range done {
		p.Duplicates += n - 1
	}
	if err != nil {
		return err
	}
	if err := d.wait(ctx); err != nil {
		return err
	}
	var summary struct{ Envelopes int64 }
	if err := json.Unmarshal([]byte(d.out.String()), &summary); err != nil {
		return fmt.Errorf("the summary of the distributor: %w", err)
	}
	p.Messages = summary.Envelopes
	p.TasksPerSecond = float64(p.Tasks) / p.Seconds
	p.TasksPerMessage = float64(p.Tasks) / float64(max(p.Messages, 1))
	queues, tables, money := r.budget.of(partPump)
	p.RequestsPerThousand, p.TableRequests = float64(queues)*1000/float64(p.Tasks), tables
	p.CostPerMillion = money * 1e6 / float64(p.Tasks)
	return r.plan(ctx, s)
}

// awaitTasks waits until every task has a line, and gives how many each has.
func (r *runner) awaitTasks(
	ctx context.Context, outs []string, processors []*process,
) (map[string]int, error) {
	moved, before := time.Now(), -1
	for {
		done, err := readDone(outs)
		if err != nil || len(done) >= r.o.Tasks {
			return done, err
		}
		if len(done) != before {
			moved, before = time.Now(), len(done)
		}
		if time.Since(moved) > stall {
			return done, fmt.Errorf("%d of %d tasks are done, and nothing has moved for %v", len(done),
				r.o.Tasks, stall)
		}
		if err := broken(processors...); err != nil {
			return done, err
		}
		if err := wait(ctx, 100*time.Millisecond); err != nil {
			return done, err
		}
	}
}

// readDone counts the lines of each task in what processors have written so far.
func readDone(paths []string) (map[string]int, error) {
	done := map[string]int{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			continue // its processor has not begun
		}
		if err != nil {
			return nil, err
		}
		whole := string(text)[:strings.LastIndexByte(string(text), '\n')+1]
		for line := range strings.Lines(whole) {
			var l struct{ Key string }
			if err := json.Unmarshal([]byte(line), &l); err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			done[l.Key]++
		}
	}
	return done, nil
}

// kill runs the pump with delivery once, and kills a processor and the leading distributor with
// SIGKILL in the middle. Each task must be counted exactly once.
func (r *runner) kill(ctx context.Context) error {
	s, err := r.openSite(ctx, partKill, "once")
	if err != nil {
		return err
	}
	defer s.close()
	k := &KillRun{Tasks: r.o.Tasks, Counts: map[string]int64{}}
	r.report.Kill = k
	lease := []string{"--beat", "1s", "--lease", "5s", "--quiet"}
	// A third of the tasks are read by the time of the blow, whatever this machine is.
	rate := max(float64(r.o.Tasks)/12, 20)
	distribute := append([]string{
		"run", "--every", "1h", "--input", s.tasks, "--key", "id",
		"--pack", strconv.Itoa(pack), "--max-rate", fmt.Sprint(rate),
	}, lease...)
	process := append([]string{"run", "--count-by", "city", "--visibility", "8s"}, lease...)
	leader, err := s.start("distributor 1", "distributor", distribute...)
	if err != nil {
		return err
	}
	victim, err := s.start("processor 1", "processor", process...)
	if err != nil {
		return err
	}
	other, err := s.start("processor 2", "processor", process...)
	if err != nil {
		return err
	}
	if err := s.awaitCounts(ctx, k, int64(r.o.Tasks)/4, leader, victim, other); err != nil {
		return err
	}
	r.o.Log.Info("kill -9 of a processor and of the leading distributor", "counted", k.total())
	victim.kill()
	leader.kill()
	k.Killed, k.CountedBefore = []string{"processor 1", "distributor 1"}, k.total()
	blow := time.Now()
	second, err := s.start("distributor 2", "distributor", distribute...)
	if err != nil {
		return err
	}
	third, err := s.start("processor 3", "processor", process...)
	if err != nil {
		return err
	}
	err = s.awaitCounts(ctx, k, int64(r.o.Tasks), second, other, third)
	k.SecondsAfter = time.Since(blow).Seconds()
	if err == nil {
		err = s.settle(ctx, k)
	}
	k.Exact = err == nil && k.exact()
	return err
}

// settle looks once more after a while: what comes in twice, comes late.
func (s *site) settle(ctx context.Context, k *KillRun) error {
	if err := wait(ctx, 10*time.Second); err != nil {
		return err
	}
	return s.count(ctx, k)
}

// exact reports whether each city has as many as there are tasks of it.
func (k *KillRun) exact() bool {
	for i, city := range cities {
		want := k.Tasks / len(cities)
		if i < k.Tasks%len(cities) {
			want++
		}
		if k.Counts[city] != int64(want) {
			return false
		}
	}
	return true
}

func (k *KillRun) total() (n int64) {
	for _, count := range k.Counts {
		n += count
	}
	return n
}

// awaitCounts waits until so many tasks are counted.
func (s *site) awaitCounts(ctx context.Context, k *KillRun, want int64, needed ...*process) error {
	moved, before := time.Now(), int64(-1)
	for {
		if err := broken(needed...); err != nil {
			return err
		}
		if err := s.count(ctx, k); err != nil {
			return err
		}
		n := k.total()
		switch {
		case n >= want:
			return nil
		case n != before:
			moved, before = time.Now(), n
		case time.Since(moved) > stall:
			return fmt.Errorf("%d of %d tasks are counted, and nothing has moved for %v", n, want, stall)
		}
		if err := wait(ctx, 2*time.Second); err != nil {
			return err
		}
	}
}

// count asks `distributor counts`. That there is no workload yet is a count of nothing.
func (s *site) count(ctx context.Context, k *KillRun) error {
	p, err := s.start("distributor counts", "distributor", "counts", "--json")
	if err != nil {
		return err
	}
	err = p.wait(ctx)
	s.processes = slices.DeleteFunc(s.processes, func(other *process) bool { return other == p })
	if ctx.Err() != nil {
		return err
	}
	counts := map[string]int64{}
	for line := range strings.Lines(p.out.String()) {
		var l struct {
			Key   string
			Count int64
		}
		if json.Unmarshal([]byte(line), &l) == nil {
			counts[l.Key] = l.Count
		}
	}
	if err == nil {
		k.Counts = counts
	} else if len(k.Counts) > 0 {
		return err
	}
	return nil
}
