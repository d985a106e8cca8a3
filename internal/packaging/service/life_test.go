//go:build service

package service

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	distributor = "queuepump-distributor@tasks"
	first       = "queuepump-processor@first"
	second      = "queuepump-processor@second"
	// added is the account that comes by a reload.
	added = "simulated3"

	slow  = "queuepump-processor@slow"
	stuck = "queuepump-processor@stuck"
	// watchdog is shorter than that of the unit, which ends a process half a minute later.
	watchdog = 10 * time.Second
)

var (
	services = []string{distributor, first, second}

	older = flag.String("older", "", "a deb to begin with (default: one of the commit before)")
	// Until there is a last release, a commit stands for it.
	beforeCommit = flag.String("before", "", "the commit whose package the trial begins with")
	tasks        = flag.Int("tasks", 100_000, "how many tasks are done meanwhile")
	rate         = flag.Float64("rate", 1500, "how many tasks a second all processors start at most")
)

// trial is the life of a package in a container.
type trial struct {
	*container
	accounts  *accounts
	ports     map[string]string // of admin, by service
	slowSince time.Time
}

// An older package is installed, instances of it do tasks, one is stopped and started, all are
// upgraded, downgraded and upgraded in the middle and take an account more by a reload; then the
// package is removed and purged. No task is lost or done twice, and nothing is left.
func TestTheLifeOfAService(t *testing.T) {
	begin(t)
	was, is, stuckProgram := *older, oneDeb(t, "out/package"), planted(t)
	if was == "" {
		was = olderPackage(t)
	}
	tr := &trial{accounts: serve(t, 3), ports: map[string]string{}, container: boot(t)}
	t.Cleanup(func() {
		text, _ := tr.try("journalctl", "--no-pager", "-o", "short-precise", "-u", "queuepump*")
		os.WriteFile(filepath.Join(*out, "journal.txt"), []byte(text), 0o644)
	})
	for from, to := range map[string]string{was: "older.deb", is: "newer.deb", stuckProgram: "stuck-processor"} {
		text, err := os.ReadFile(from)
		must(t, err)
		tr.write("srv/"+to, string(text))
	}
	must(t, os.Chmod(tr.root+"/srv/stuck-processor", 0o755))
	t.Logf("from %s to %s", filepath.Base(was), filepath.Base(is))
	begun := time.Now()
	for _, s := range []struct {
		name string
		do   func() string
	}{
		{"install the older package", func() string { return tr.dpkg("-i", "/srv/older.deb") }},
		{"start a distributor and two processors of it", tr.start},
		{"stop a processor in the middle, and start it", tr.stopAndStart},
		{"upgrade in place with dpkg -i; the package restarts them", func() string { return tr.replace("newer") }},
		{"reload with an account more, and use it", tr.reload},
		{"downgrade in the same way", func() string { return tr.replace("older") }},
		{"upgrade again", func() string { return tr.replace("newer") }},
		{"stop all by the target, and start them", tr.target},
		{"start a processor with a slow handler, and a watchdog of 10 s", tr.startSlow},
		{"systemd-analyze verify, and security (3.0 at most)", tr.analyze},
		{"every task is done", tr.end},
		{"a stuck poller, with a watchdog of 10 s", tr.endStuck},
		{"the slow handler, with the same watchdog", tr.endSlow},
		{"remove the package", tr.remove},
		{"purge it", tr.purge},
	} {
		at := time.Now()
		t.Logf("at %5.1f s: %s", at.Sub(begun).Seconds(), s.name)
		found := s.do()
		t.Logf("  %5.1f s  %s", time.Since(at).Seconds(), found)
	}
}

// olderPackage is of an earlier commit, built by its own tools from a copy of it. Its version is before
// that of any other.
func olderPackage(t *testing.T) string {
	source := t.TempDir()
	here(t, "", "git", "archive", "-o", source+"/source.tar", *beforeCommit)
	here(t, source, "tar", "-xf", "source.tar")
	here(t, source, "go", "run", "./internal/packaging/build", "deb", "--version", "0.0.0~0")
	return oneDeb(t, source+"/out/package")
}

func oneDeb(t *testing.T, dir string) string {
	files, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%s: %q, %v", dir, files, err)
	}
	return files[0]
}

// dpkg runs dpkg. This machine may lack packages that these depend on: the trial is not about
// those.
func (t *trial) dpkg(args ...string) string {
	t.run(append([]string{"dpkg", "--force-depends", "--force-confold"}, args...)...)
	return "done"
}

func (t *trial) systemctl(args ...string) string {
	return strings.TrimSpace(t.run(append([]string{"systemctl"}, args...)...))
}

// instance is the name of a service behind its @.
func instance(service string) string { return service[strings.Index(service, "@")+1:] }

func (t *trial) start() string {
	var lines bytes.Buffer
	for i := range *tasks {
		fmt.Fprintf(&lines, "{\"id\":%d,\"city\":\"city%d\"}\n", i, i%1000)
	}
	t.write("srv/tasks.jsonl", lines.String())
	t.write("etc/queuepump/pump.yaml", t.accounts.config("demo", 2))
	// The distributor reads so fast that it is not done before the account more is used.
	handle := fmt.Sprintf("--out done.jsonl --max-rate %g", *rate)
	for service, words := range map[string]string{
		distributor: fmt.Sprintf("--every 24h --input /srv/tasks.jsonl --key city --id id --pack 50"+
			" --max-rate %g", 1.2**rate),
		first: handle, second: handle,
	} {
		t.ports[service] = freePort(t.t)
		t.write("etc/queuepump/"+instance(service)+".env",
			"ARGS='"+words+" --admin 127.0.0.1:"+t.ports[service]+"'\n")
	}
	t.systemctl(append([]string{"enable", "--now"}, services...)...)
	t.scraped(services...)
	t.handled(*tasks / 10)
	return "all three are scraped on their admin ports"
}

var isReady = regexp.MustCompile(`(?m)^queuepump_ready(\{.*\})? 1$`)

// scraped waits until each service answers Prometheus and says that it is ready.
func (t *trial) scraped(services ...string) {
	for _, s := range services {
		within(t.t, time.Minute, s+" is ready, as its metrics say", func() bool {
			text, err := get("http://127.0.0.1:" + t.ports[s] + "/metrics")
			return err == nil && isReady.Match(text)
		})
	}
}

// handled waits until so many tasks are in the processors' files.
func (t *trial) handled(n int) {
	// A takeover may be waited for beside the tasks themselves.
	most := time.Duration(float64(n) / *rate * float64(time.Second)) + 2*time.Minute
	within(t.t, most, fmt.Sprintf("%d tasks are done", n), func() bool {
		return bytes.Count(t.done("first"), []byte("\n"))+bytes.Count(t.done("second"), []byte("\n")) >= n
	})
}

// pids are the main processes of the services.
func (t *trial) pids() (found []string) {
	for _, s := range services {
		found = append(found, t.systemctl("show", "--value", "-p", "MainPID", s))
	}
	return found
}

func (t *trial) stopAndStart() string {
	began := time.Now()
	t.systemctl("stop", first)
	stopped := time.Since(began)
	if state, _ := t.try("systemctl", "is-active", first); state != "inactive\n" {
		t.t.Fatalf("after its stop %s is %s", first, state)
	}
	t.handled(*tasks / 5)
	began = time.Now()
	t.systemctl("start", first)
	t.scraped(first)
	took := time.Since(began)
	t.handled(*tasks / 4)
	return fmt.Sprintf("stopped in %.1f s, ready %.1f s after its start", stopped.Seconds(), took.Seconds())
}

// restarted waits until all services run as other processes than these.
func (t *trial) restarted(before []string) {
	t.t.Helper()
	within(t.t, 3*time.Minute, "all services are started again", func() bool {
		for i, pid := range t.pids() {
			if pid == "0" || pid == before[i] {
				return false
			}
		}
		states, _ := t.try(append([]string{"systemctl", "is-active"}, services...)...)
		return states == "active\nactive\nactive\n"
	})
	t.scraped(services...)
}

func (t *trial) replace(by string) string {
	before, began := t.pids(), time.Now()
	t.dpkg("-i", "/srv/"+by+".deb")
	installed := time.Since(began)
	t.restarted(before)
	restarted := time.Since(began)
	status := t.systemctl("status", "--no-pager", "-n", "0", first)
	says := regexp.MustCompile(`Status: "(.*)"`).FindStringSubmatch(status)
	if says == nil {
		t.t.Fatalf("systemctl status does not show what the process does:\n%s", status)
	}
	return fmt.Sprintf("dpkg took %.1f s, all are ready after %.1f s; systemctl status says %q",
		installed.Seconds(), restarted.Seconds(), says[1])
}

func (t *trial) target() string {
	t.systemctl(append([]string{"reenable"}, services...)...) // by the units of the newer package
	before := t.pids()
	t.systemctl("stop", "queuepump.target")
	within(t.t, 2*time.Minute, "all instances are stopped", func() bool {
		states, _ := t.try(append([]string{"systemctl", "is-active"}, services...)...)
		return states == "inactive\ninactive\ninactive\n"
	})
	t.systemctl("start", "queuepump.target")
	t.restarted(before)
	return "all stopped and started"
}

func (t *trial) analyze() string {
	var levels []string
	for _, unit := range []string{"queuepump-distributor@.service", "queuepump-processor@.service", "queuepump.target"} {
		// The man pages that units name are looked for, too, where this machine keeps any.
		if text, err := t.try("systemd-analyze", "verify", "/usr/lib/systemd/system/"+unit); err != nil || text != "" {
			t.t.Fatalf("%v\n%s", err, text)
		}
	}
	for _, s := range services {
		text := t.run("systemd-analyze", "security", "--no-pager", "--threshold=30", s+".service")
		level := regexp.MustCompile(`exposure level for \S+: ([0-9.]+)`).FindStringSubmatch(text)
		levels = append(levels, level[1])
	}
	return "clean; " + strings.Join(levels, ", ")
}

func (t *trial) reload() string {
	before := t.pids()
	t.handled(*tasks * 4 / 10)
	t.write("etc/queuepump/pump.yaml", t.accounts.config("demo", 3))
	began := time.Now()
	t.systemctl(append([]string{"reload"}, services...)...)
	within(t.t, time.Minute, "the account is added", func() bool {
		// It is refused while a process has not said that it can read the account.
		_, err := t.try("distributor", "accounts", "add", added, "--config", "/etc/queuepump/pump.yaml")
		return err == nil
	})
	took := time.Since(began)
	within(t.t, time.Minute, "messages are put into "+added, func() bool {
		return t.accounts.puts(t.t, added) > 0
	})
	if after := t.pids(); !slices.Equal(before, after) {
		t.t.Fatalf("processes %s are %s after the reload", before, after)
	}
	return fmt.Sprintf("added %.1f s after the reload, by the same processes, and has messages", took.Seconds())
}

// end waits for the record of every task, and counts what was written.
func (t *trial) end() string {
	t.handled(*tasks)
	within(t.t, time.Minute, "the ledger holds every task", func() bool {
		var status struct {
			Runs []struct{ Exact struct{ Done int } }
		}
		text := t.run("distributor", "status", "--json", "--config", "/etc/queuepump/pump.yaml")
		must(t.t, json.Unmarshal([]byte(text), &status))
		return len(status.Runs) == 1 && status.Runs[0].Exact.Done == *tasks
	})
	times := make([]int, *tasks)
	for _, name := range []string{"first", "second"} {
		for line := range bytes.Lines(t.done(name)) {
			var task struct{ Body struct{ ID *int } }
			must(t.t, json.Unmarshal(line, &task))
			times[*task.Body.ID]++
		}
	}
	lost, twice := 0, 0
	for _, n := range times {
		lost, twice = lost+max(0, 1-n), twice+max(0, n-1)
	}
	found := fmt.Sprintf("%d tasks, %d lost, %d twice", *tasks, lost, twice)
	if lost > 0 || twice > 0 {
		t.t.Fatal(found)
	}
	t.scraped(services...)
	return fmt.Sprintf("%s; %s took %d messages", found, added, t.accounts.puts(t.t, added))
}

// planted builds a processor with a poller that can be had to be stuck.
func planted(t *testing.T) string {
	text, err := os.ReadFile(poller)
	must(t, err)
	dir := t.TempDir()
	original, err := filepath.Abs(poller)
	must(t, err)
	list, err := json.Marshal(map[string]any{"Replace": map[string]string{original: dir + "/poll.txt"}})
	must(t, err)
	must(t, os.WriteFile(dir+"/poll.txt", []byte(spoil(string(text))), 0o644))
	must(t, os.WriteFile(dir+"/overlay.json", list, 0o644))
	here(t, "", "env", "CGO_ENABLED=0", "go", "build", "-overlay", dir+"/overlay.json",
		"-o", dir+"/processor", "./cmd/processor")
	return dir + "/processor"
}

// watched starts a processor that the watchdog looks at, with a workload of its own.
func (t *trial) watched(service, args, directives string) {
	name := instance(service)
	t.ports[service] = freePort(t.t)
	t.write("etc/queuepump/"+name+".yaml", t.accounts.config(name, 1))
	t.write("etc/queuepump/"+name+".env", "CONFIG=/etc/queuepump/"+name+".yaml\nARGS='"+args+
		" --grace 1s --beat 1s --admin 127.0.0.1:"+t.ports[service]+"'\n")
	t.write("etc/systemd/system/"+service+".service.d/override.conf",
		fmt.Sprintf("[Service]\nWatchdogSec=%d\n%s", int(watchdog.Seconds()), directives))
	t.send(service)
	t.systemctl("daemon-reload")
	t.systemctl("start", service)
	t.scraped(service)
}

// send sends a hundred tasks to the workload of a watched service.
func (t *trial) send(service string) {
	t.write("srv/hundred.jsonl", strings.Repeat("{}\n", 100))
	t.run("distributor", "run", "--quiet", "--beat", "1s", "--once", "--input", "/srv/hundred.jsonl",
		"--config", "/etc/queuepump/"+instance(service)+".yaml")
}

// startSlow starts a processor with tasks that take longer than a loop may stand still.
func (t *trial) startSlow() string {
	t.slowSince = time.Now()
	t.watched(slow, `--exec-each "sleep 600" --task-timeout 20m --children 2`, "")
	return "each of its tasks takes ten minutes"
}

// restarts is how often systemd has started a service again by itself.
func (t *trial) restarts(service string) string {
	return t.systemctl("show", "--value", "-p", "NRestarts", service)
}

// endStuck has a poller be stuck, and waits until another process does its work.
func (t *trial) endStuck() string {
	lines := func(n int) {
		within(t.t, 2*time.Minute, fmt.Sprintf("%d tasks are done", n), func() bool {
			return bytes.Count(t.done("stuck"), []byte("\n")) >= n
		})
	}
	t.watched(stuck, "--out done.jsonl",
		"ExecStart=\nExecStart=/srv/stuck-processor run --config ${CONFIG} $ARGS\n")
	lines(100)
	t.write("var/lib/queuepump/stuck/stuck", "")
	began := time.Now()
	within(t.t, 2*time.Minute, "the process with the stuck poller is ended and started again",
		func() bool { return t.restarts(stuck) == "1" })
	took := time.Since(began)
	log := t.run("journalctl", "--no-pager", "-u", stuck)
	for _, want := range []string{
		"a loop of this process is stuck", "Watchdog timeout", "poll.(*Poller).Run",
	} {
		if !strings.Contains(log, want) {
			t.t.Fatalf("the log does not say %q:\n%s", want, tail(log, 40))
		}
	}
	t.send(stuck)
	lines(200)
	return fmt.Sprintf("started again after %.1f s, with its stacks in the log; then it does tasks", took.Seconds())
}

// endSlow looks whether the processor with the slow handler was left alone.
func (t *trial) endSlow() string {
	// Half a minute is the longest that its poller may stand still.
	time.Sleep(time.Until(t.slowSince.Add(30*time.Second + 2*watchdog)))
	n, state := t.restarts(slow), t.systemctl("is-active", slow)
	if n != "0" || state != "active" {
		t.t.Fatalf("after %s restarts it is %s", n, state)
	}
	sleeping := t.run("pgrep", "-c", "-f", "^[^ ]*sleep 600$")
	return fmt.Sprintf("left alone for %.0f s, with %s tasks at work",
		time.Since(t.slowSince).Seconds(), strings.TrimSpace(sleeping))
}

func (t *trial) remove() string {
	t.dpkg("-r", "queuepump")
	if text, err := t.try("pgrep", "-a", "-f", "^/(usr/bin/(distributor|processor)|srv/)"); err == nil {
		t.t.Fatalf("these still run: %s", text)
	}
	t.run("sh", "-c", "! test -e /usr/bin/processor && test -e /etc/queuepump/pump.yaml && "+
		"test -e /etc/queuepump/first.env && test -e /var/lib/queuepump/first/done.jsonl")
	if left := t.left(); !slices.Contains(left, "/etc/queuepump") {
		t.t.Fatalf("what is left is not found: %q", left)
	}
	return "no process runs, the configuration and the data are there"
}

func (t *trial) purge() string {
	t.dpkg("-P", "queuepump")
	if left := t.left(); len(left) > 0 {
		t.t.Fatalf("left are %s", strings.Join(left, ", "))
	}
	return "nothing is left"
}
