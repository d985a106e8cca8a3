package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

const (
	distributor = "queuepump-distributor@tasks"
	first       = "queuepump-processor@first"
	second      = "queuepump-processor@second"
	// added is the account that comes by a reload.
	added = "simulated3"
)

var services = []string{distributor, first, second}

// trial is the life of a package in a container.
type trial struct {
	options
	c        *container
	accounts *accounts
	ports    map[string]string // of admin, by service
	begun    time.Time

	slowSince time.Time
}

// inside runs in a mount namespace of its own.
func inside(o options) error {
	t := &trial{options: o, ports: map[string]string{}, begun: time.Now()}
	steps := []struct {
		name string
		do   func() (string, error)
	}{
		{"boot systemd by systemd-nspawn on a copy of this machine", t.boot},
		{"install the older package", t.install},
		{"start a distributor and two processors of it", t.start},
		{"stop a processor in the middle, and start it", t.stopAndStart},
		{"upgrade in place with dpkg -i; the package restarts them", t.upgrade},
		{"start a processor with a slow handler, and a watchdog of 10 s", t.startSlow},
		{"systemd-analyze verify, and security (3.0 at most)", t.analyze},
		{"reload with an account more, and use it", t.reload},
		{"every task is done", t.end},
		{"a stuck poller, with a watchdog of 10 s", t.endStuck},
		{"the slow handler, with the same watchdog", t.endSlow},
		{"remove the package", t.remove},
		{"purge it", t.purge},
	}
	defer func() {
		if t.c != nil {
			t.keepLog()
			t.c.stop()
		}
		if t.accounts != nil {
			t.accounts.server.Process.Kill()
		}
	}()
	fmt.Printf("from %s\nto   %s\n", filepath.Base(o.older), filepath.Base(o.newer))
	fmt.Printf("%8s %8s\n", "at", "took")
	for _, s := range steps {
		at := time.Now()
		found, err := s.do()
		if err != nil {
			return fmt.Errorf("%s: %w\nthe logs are in %s", s.name, err, o.out)
		}
		fmt.Printf("%6.1f s %6.1f s  %s: %s\n",
			at.Sub(t.begun).Seconds(), time.Since(at).Seconds(), s.name, found)
	}
	return nil
}

func (t *trial) boot() (string, error) {
	accounts, err := serve(t.options, 3)
	if err != nil {
		return "", err
	}
	t.accounts = accounts
	if t.c, err = boot(t.base, filepath.Join(t.out, "console.txt")); err != nil {
		return "", err
	}
	for from, to := range map[string]string{t.older: "/srv/older.deb", t.newer: "/srv/newer.deb"} {
		text, err := os.ReadFile(from)
		if err != nil {
			return "", err
		}
		if err := t.c.write(to, string(text)); err != nil {
			return "", err
		}
	}
	version, err := t.c.run("systemctl", "--version")
	line, _, _ := strings.Cut(version, "\n")
	return line, err
}

func (t *trial) install() (string, error) {
	if _, err := t.dpkg("-i", "/srv/older.deb"); err != nil {
		return "", err
	}
	_, err := t.c.run("getent", "passwd", "queuepump")
	return "the user queuepump is there", err
}

// dpkg runs dpkg. This machine may lack packages that these depend on: the trial is not about
// those.
func (t *trial) dpkg(args ...string) (string, error) {
	return t.c.run(append([]string{"dpkg", "--force-depends", "--force-confold"}, args...)...)
}

func (t *trial) start() (string, error) {
	var tasks bytes.Buffer
	for i := range t.tasks {
		fmt.Fprintf(&tasks, "{\"id\":%d,\"city\":\"city%d\"}\n", i, i%1000)
	}
	if err := t.c.write("/srv/tasks.jsonl", tasks.String()); err != nil {
		return "", err
	}
	if err := t.c.write("/etc/queuepump/pump.yaml", t.accounts.config(2)); err != nil {
		return "", err
	}
	// The distributor reads so fast that it is not done before the account more is used.
	args := map[string]string{
		distributor: fmt.Sprintf("--every 24h --input /srv/tasks.jsonl --key city --id id --pack 50"+
			" --max-rate %g", 1.2*t.rate),
		first:  fmt.Sprintf("--out done.jsonl --max-rate %g", t.rate),
		second: fmt.Sprintf("--out done.jsonl --max-rate %g", t.rate),
	}
	for service, words := range args {
		port, err := freePort()
		if err != nil {
			return "", err
		}
		t.ports[service] = port
		text := "ARGS='" + words + " --admin 127.0.0.1:" + port + "'\n"
		if err := t.c.write("/etc/queuepump/"+instance(service)+".env", text); err != nil {
			return "", err
		}
	}
	if _, err := t.systemctl(append([]string{"enable", "--now"}, services...)...); err != nil {
		return "", err
	}
	if err := t.scraped(services...); err != nil {
		return "", err
	}
	return "all three are scraped on their admin ports", t.handled(t.tasks / 10)
}

// instance is the name of a service behind its @.
func instance(service string) string { return service[strings.Index(service, "@")+1:] }

func (t *trial) systemctl(args ...string) (string, error) {
	return t.c.run(append([]string{"systemctl"}, args...)...)
}

var isReady = regexp.MustCompile(`(?m)^queuepump_ready(\{.*\})? 1$`)

// scraped waits until each service answers Prometheus and says that it is ready.
func (t *trial) scraped(services ...string) error {
	for _, s := range services {
		err := within(time.Minute, s+" is ready, as its metrics say", func() (bool, error) {
			text, err := get("http://127.0.0.1:" + t.ports[s] + "/metrics")
			return err == nil && isReady.Match(text), nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// handled waits until so many tasks are in the processors' files.
func (t *trial) handled(n int) error {
	// A takeover may be waited for beside the tasks themselves.
	most := time.Duration(float64(n)/t.rate*float64(time.Second)) + 2*time.Minute
	return within(most, fmt.Sprintf("%d tasks are done", n), func() (bool, error) {
		lines := 0
		for _, s := range []string{first, second} {
			text, err := t.c.read("/var/lib/queuepump/" + instance(s) + "/done.jsonl")
			if err != nil && !os.IsNotExist(err) {
				return false, err
			}
			lines += bytes.Count(text, []byte("\n"))
		}
		return lines >= n, nil
	})
}

func (t *trial) stopAndStart() (string, error) {
	began := time.Now()
	if _, err := t.systemctl("stop", first); err != nil {
		return "", err
	}
	stopped := time.Since(began)
	if state, _ := t.systemctl("is-active", first); strings.TrimSpace(state) != "inactive" {
		return "", fmt.Errorf("after its stop %s is %s", first, state)
	}
	if err := t.handled(t.tasks / 5); err != nil {
		return "", err
	}
	began = time.Now()
	if _, err := t.systemctl("start", first); err != nil {
		return "", err
	}
	if err := t.scraped(first); err != nil {
		return "", err
	}
	found := fmt.Sprintf("stopped in %.1f s, ready %.1f s after its start",
		stopped.Seconds(), time.Since(began).Seconds())
	return found, t.handled(3 * t.tasks / 10)
}

// pids are the main processes of the services.
func (t *trial) pids() (found []string, err error) {
	for _, s := range services {
		pid, err := t.systemctl("show", "--value", "-p", "MainPID", s)
		if err != nil {
			return nil, err
		}
		found = append(found, strings.TrimSpace(pid))
	}
	return found, nil
}

func (t *trial) upgrade() (string, error) {
	before, err := t.pids()
	if err != nil {
		return "", err
	}
	began := time.Now()
	if _, err := t.dpkg("-i", "/srv/newer.deb"); err != nil {
		return "", err
	}
	installed := time.Since(began)
	err = within(3*time.Minute, "all services are started again", func() (bool, error) {
		after, err := t.pids()
		if err != nil {
			return false, err
		}
		for i, pid := range after {
			if pid == "0" || pid == before[i] {
				return false, nil
			}
		}
		states, _ := t.systemctl(append([]string{"is-active"}, services...)...)
		return states == "active\nactive\nactive\n", nil
	})
	if err != nil {
		return "", err
	}
	if err := t.scraped(services...); err != nil {
		return "", err
	}
	restarted := time.Since(began)
	status, err := t.systemctl("status", "--no-pager", "-n", "0", first)
	if err != nil {
		return "", err
	}
	says := regexp.MustCompile(`Status: "(.*)"`).FindStringSubmatch(status)
	if says == nil {
		return "", fmt.Errorf("systemctl status does not show what the process does:\n%s", status)
	}
	return fmt.Sprintf("dpkg took %.1f s, all are ready after %.1f s; systemctl status says %q",
		installed.Seconds(), restarted.Seconds(), says[1]), nil
}

func (t *trial) analyze() (string, error) {
	for _, unit := range []string{"queuepump-distributor@.service", "queuepump-processor@.service"} {
		text, err := t.c.run("systemd-analyze", "verify", "--man=no", "/usr/lib/systemd/system/"+unit)
		if err != nil || text != "" {
			return "", fmt.Errorf("%v\n%s", err, text)
		}
	}
	var levels []string
	for _, s := range services {
		text, err := t.c.run("systemd-analyze", "security", "--no-pager", "--threshold=30", s+".service")
		if err != nil {
			return "", err
		}
		level := regexp.MustCompile(`exposure level for \S+: ([0-9.]+)`).FindStringSubmatch(text)
		if level == nil {
			return "", fmt.Errorf("no level is in\n%s", tail([]byte(text), 5))
		}
		levels = append(levels, level[1])
	}
	return "clean; " + strings.Join(levels, ", "), nil
}

func (t *trial) reload() (string, error) {
	before, err := t.pids()
	if err != nil {
		return "", err
	}
	if err := t.handled(4 * t.tasks / 10); err != nil {
		return "", err
	}
	if err := t.c.write("/etc/queuepump/pump.yaml", t.accounts.config(3)); err != nil {
		return "", err
	}
	began := time.Now()
	if _, err := t.systemctl(append([]string{"reload"}, services...)...); err != nil {
		return "", err
	}
	var refused error
	err = within(time.Minute, "the account is added", func() (bool, error) {
		// It is refused while a process has not said that it can read the account.
		_, refused = t.c.run("distributor", "accounts", "add", added,
			"--config", "/etc/queuepump/pump.yaml")
		return refused == nil, nil
	})
	if err != nil {
		return "", fmt.Errorf("%w: %w", err, refused)
	}
	took := time.Since(began)
	puts := 0
	err = within(time.Minute, "messages are put into "+added, func() (bool, error) {
		puts, err = t.accounts.puts(added)
		return puts > 0, err
	})
	if err != nil {
		return "", err
	}
	after, err := t.pids()
	if err != nil {
		return "", err
	}
	if strings.Join(before, " ") != strings.Join(after, " ") {
		return "", fmt.Errorf("processes %s are %s after the reload", before, after)
	}
	return fmt.Sprintf("added %.1f s after the reload, by the same processes, and has messages",
		took.Seconds()), nil
}

// end waits for the record of every task, and counts what was written.
func (t *trial) end() (string, error) {
	if err := t.handled(t.tasks); err != nil {
		return "", err
	}
	var status struct {
		Runs []struct {
			State string
			Exact struct{ Total, Done, Quarantined, Remaining int }
		}
	}
	err := within(time.Minute, "the ledger holds every task", func() (bool, error) {
		text, err := t.c.run("distributor", "status", "--json",
			"--config", "/etc/queuepump/pump.yaml")
		if err != nil {
			return false, err
		}
		if err := json.Unmarshal([]byte(text), &status); err != nil {
			return false, err
		}
		return len(status.Runs) == 1 && status.Runs[0].Exact.Done == t.tasks, nil
	})
	if err != nil {
		return "", fmt.Errorf("%w: runs are %+v", err, status.Runs)
	}
	times := make([]int, t.tasks)
	for _, s := range []string{first, second} {
		text, err := t.c.read("/var/lib/queuepump/" + instance(s) + "/done.jsonl")
		if err != nil {
			return "", err
		}
		for line := range bytes.Lines(text) {
			var task struct{ Body struct{ ID *int } }
			err := json.Unmarshal(line, &task)
			if err != nil || task.Body.ID == nil || *task.Body.ID < 0 || *task.Body.ID >= t.tasks {
				return "", fmt.Errorf("%s wrote %s: %v", s, line, err)
			}
			times[*task.Body.ID]++
		}
	}
	lost, twice := 0, 0
	for _, n := range times {
		switch {
		case n == 0:
			lost++
		case n > 1:
			twice++
		}
	}
	found := fmt.Sprintf("%d tasks, %d lost, %d twice", t.tasks, lost, twice)
	if lost > 0 || twice > 0 {
		return "", fmt.Errorf("%s", found)
	}
	if err := t.scraped(services...); err != nil {
		return "", err
	}
	puts, err := t.accounts.puts(added)
	return fmt.Sprintf("%s; %s took %d messages", found, added, puts), err
}

func (t *trial) remove() (string, error) {
	t.keepLog()
	if _, err := t.dpkg("-r", "queuepump"); err != nil {
		return "", err
	}
	if text, err := t.c.run("pgrep", "-a", "-f", "^/(usr/bin/(distributor|processor)|srv/)"); err == nil {
		return "", fmt.Errorf("these still run: %s", text)
	}
	if t.c.exists("/usr/bin/processor") {
		return "", fmt.Errorf("a binary is left")
	}
	for _, path := range []string{
		"/etc/queuepump/pump.yaml", "/etc/queuepump/first.env", "/var/lib/queuepump/first/done.jsonl",
	} {
		if !t.c.exists(path) {
			return "", fmt.Errorf("%s is gone", path)
		}
	}
	if left, err := t.c.left(); err != nil || !slices.Contains(left, "/etc/queuepump") {
		return "", fmt.Errorf("what is left is not found: %q, %v", left, err)
	}
	return "no process runs, the configuration and the data are there", nil
}

func (t *trial) purge() (string, error) {
	if _, err := t.dpkg("-P", "queuepump"); err != nil {
		return "", err
	}
	left, err := t.c.left()
	if err != nil {
		return "", err
	}
	if len(left) > 0 {
		return "", fmt.Errorf("left are %s", strings.Join(left, ", "))
	}
	return "nothing is left", nil
}

// keepLog writes what the services logged into a file.
func (t *trial) keepLog() {
	text, err := t.c.run("journalctl", "--no-pager", "-o", "short-precise", "-u", "queuepump-*")
	if err == nil {
		err = os.WriteFile(filepath.Join(t.out, "journal.txt"), []byte(text), 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "the journal is not kept:", err)
	}
}
