package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const (
	slow  = "queuepump-processor@slow"
	stuck = "queuepump-processor@stuck"
	// watchdog is shorter than that of the unit, which ends a process half a minute later.
	watchdog = 10 * time.Second
	// poller is the file with the loop that is stuck in a build for the trial, and before is the
	// line that it is stuck at: once it finds a file, which it removes, so that the next process is
	// not stuck. It holds no lock there: the process would be found dead by that, and not by its loop.
	poller = "pump/processor/internal/poll/poll.go"
	before = "\t\twait := p.round(ctx)\n"
	plant  = "\t\tif os.Remove(\"stuck\") == nil {\n\t\t\tselect {}\n\t\t}\n"
)

// spoil plants a poller that can be had to be stuck into the text of its file.
func spoil(text string) (string, error) {
	if strings.Count(text, before) != 1 {
		return "", fmt.Errorf("%s has no place to be stuck at: find one in it as it is now", poller)
	}
	text = strings.Replace(text, before, plant+before, 1)
	return strings.Replace(text, "import (\n", "import (\n\t\"os\"\n", 1), nil
}

// planted builds a processor with such a poller.
func planted(out string) (string, error) {
	text, err := os.ReadFile(poller)
	if err != nil {
		return "", err
	}
	spoilt, err := spoil(string(text))
	if err != nil {
		return "", err
	}
	file, overlay := filepath.Join(out, "poll.go.txt"), filepath.Join(out, "overlay.json")
	original, err := filepath.Abs(poller)
	if err != nil {
		return "", err
	}
	list, err := json.Marshal(map[string]any{"Replace": map[string]string{original: file}})
	if err != nil {
		return "", err
	}
	for path, data := range map[string][]byte{file: []byte(spoilt), overlay: list} {
		if err := os.WriteFile(path, data, 0o644); err != nil {
			return "", err
		}
	}
	program := filepath.Join(out, "stuck-processor")
	cmd := exec.Command(goTool(), "build", "-overlay", overlay, "-o", program, "./cmd/processor")
	cmd.Env, cmd.Stderr = append(os.Environ(), "CGO_ENABLED=0"), os.Stderr
	return program, cmd.Run()
}

// watched starts a processor that the watchdog looks at, with a workload of its own.
func (t *trial) watched(service, args, directives string) error {
	port, err := freePort()
	if err != nil {
		return err
	}
	name := instance(service)
	t.ports[service] = port
	config := strings.Replace(t.accounts.config(1), "workload: demo", "workload: "+name, 1)
	dropIn := "etc/systemd/system/" + service + ".service.d"
	if err := os.MkdirAll(filepath.Join(t.c.root, dropIn), 0o755); err != nil {
		return err
	}
	for path, text := range map[string]string{
		"etc/queuepump/" + name + ".yaml": config,
		"etc/queuepump/" + name + ".env": "CONFIG=/etc/queuepump/" + name + ".yaml\n" +
			"ARGS='" + args + " --grace 1s --beat 1s --admin 127.0.0.1:" + port + "'\n",
		dropIn + "/override.conf": fmt.Sprintf("[Service]\nWatchdogSec=%d\n%s",
			int(watchdog.Seconds()), directives),
	} {
		if err := t.c.write(path, text); err != nil {
			return err
		}
	}
	if err := t.send(service); err != nil {
		return err
	}
	if _, err := t.systemctl("daemon-reload"); err != nil {
		return err
	}
	if _, err := t.systemctl("start", service); err != nil {
		return err
	}
	return t.scraped(service)
}

// send sends a hundred tasks to the workload of a watched service.
func (t *trial) send(service string) error {
	if err := t.c.write("srv/hundred.jsonl", strings.Repeat("{}\n", 100)); err != nil {
		return err
	}
	_, err := t.c.run("distributor", "run", "--quiet", "--beat", "1s", "--once",
		"--input", "/srv/hundred.jsonl", "--config", "/etc/queuepump/"+instance(service)+".yaml")
	return err
}

// startSlow starts a processor with tasks that take longer than a loop may stand still.
func (t *trial) startSlow() (string, error) {
	t.slowSince = time.Now()
	args := `--exec-each "sleep 600" --task-timeout 20m --children 2`
	return "each of its tasks takes ten minutes", t.watched(slow, args, "")
}

// restarts is how often systemd has started a service again by itself.
func (t *trial) restarts(service string) (string, error) {
	n, err := t.systemctl("show", "--value", "-p", "NRestarts", service)
	return strings.TrimSpace(n), err
}

// endStuck has a poller be stuck, and waits until another process does its work.
func (t *trial) endStuck() (string, error) {
	text, err := os.ReadFile(t.stuck)
	if err != nil {
		return "", err
	}
	program := "/srv/stuck-processor"
	if err := os.WriteFile(filepath.Join(t.c.root, program), text, 0o755); err != nil {
		return "", err
	}
	start := "ExecStart=\nExecStart=" + program + " run --config ${CONFIG} $ARGS\n"
	if err := t.watched(stuck, "--out done.jsonl", start); err != nil {
		return "", err
	}
	if err := t.lines(stuck, 100); err != nil {
		return "", err
	}
	if err := t.c.write("/var/lib/queuepump/stuck/stuck", ""); err != nil {
		return "", err
	}
	began := time.Now()
	err = within(2*time.Minute, "the process with the stuck poller is ended and started again",
		func() (bool, error) {
			n, err := t.restarts(stuck)
			return n == "1", err
		})
	if err != nil {
		return "", err
	}
	took := time.Since(began)
	log, err := t.c.run("journalctl", "--no-pager", "-u", stuck)
	if err != nil {
		return "", err
	}
	for _, want := range []string{
		"a loop of this process is stuck", "Watchdog timeout", "poll.(*Poller).Run",
	} {
		if !strings.Contains(log, want) {
			return "", fmt.Errorf("the log does not say %q:\n%s", want, tail([]byte(log), 40))
		}
	}
	if err := t.send(stuck); err != nil {
		return "", err
	}
	if err := t.lines(stuck, 200); err != nil {
		return "", err
	}
	return fmt.Sprintf("started again after %.1f s, with its stacks in the log; then it does tasks",
		took.Seconds()), nil
}

// lines waits until a service has done so many tasks.
func (t *trial) lines(service string, n int) error {
	what := fmt.Sprintf("%s has done %d tasks", service, n)
	return within(2*time.Minute, what, func() (bool, error) {
		text, err := t.c.read("/var/lib/queuepump/" + instance(service) + "/done.jsonl")
		if os.IsNotExist(err) {
			err = nil
		}
		return bytes.Count(text, []byte("\n")) >= n, err
	})
}

// endSlow looks whether the processor with the slow handler was left alone.
func (t *trial) endSlow() (string, error) {
	// Half a minute is the longest that its poller may stand still.
	const most = 30*time.Second + 2*watchdog
	time.Sleep(time.Until(t.slowSince.Add(most)))
	n, err := t.restarts(slow)
	if err != nil {
		return "", err
	}
	state, _ := t.systemctl("is-active", slow)
	if n != "0" || strings.TrimSpace(state) != "active" {
		return "", fmt.Errorf("after %s restarts it is %s", n, state)
	}
	sleeping, err := t.c.run("pgrep", "-c", "-f", "^[^ ]*sleep 600$")
	if err != nil {
		return "", fmt.Errorf("no task is at work: %w", err)
	}
	return fmt.Sprintf("left alone for %.0f s, with %s tasks at work",
		time.Since(t.slowSince).Seconds(), strings.TrimSpace(sleeping)), nil
}
