package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
)

// withinFiveMinutes is what a reader of README.md is promised: from an empty folder to a service
// that runs and can be watched, with the downloads and the build.
const withinFiveMinutes = 5 * time.Minute

const (
	published = "https://github.com/queuepump/queuepump"
	asService = "As a service"
	// demoTasks is how many tasks README.md makes.
	demoTasks = 10_000
)

// firstHour types the commands of README.md in an empty folder: this source tree as it was
// committed stands in for the published one, and a container with systemd for the machine that the
// service joins.
func firstHour(o options) (err error) {
	if o.out, err = filepath.Abs(o.out); err != nil {
		return err
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	// Not below /tmp, where a container has a file system of its own.
	desk, err := os.MkdirTemp("/var/tmp", "queuepump-desk-")
	if err != nil {
		return err
	}
	defer remove(desk)
	begun := time.Now()
	if err := typeHere(o, desk); err != nil {
		return err
	}
	defer killThatRunIn(desk)
	if err := apart("-first-hour", "-out", o.out, "-desk", desk); err != nil {
		return err
	}
	took := time.Since(begun).Round(time.Second)
	fmt.Printf("from an empty folder to a service that runs and is watched: %v\n", took)
	if took > withinFiveMinutes {
		return fmt.Errorf("it took %v, and README.md promises %v", took, withinFiveMinutes)
	}
	return nil
}

// typeHere types what needs no service.
func typeHere(o options, desk string) error {
	readme, err := proof.ReadFile(".", "README.md")
	if err != nil {
		return err
	}
	var lines []string
	for _, title := range []string{"Try it", "Your own tasks", asService} {
		for _, b := range readme.Section(title) {
			if b.Language == "sh" && !strings.Contains(b.Text(), "sudo ") {
				lines = append(lines, "echo \"== $(date +%T) README.md, line "+fmt.Sprint(b.Line)+"\"",
					b.Text())
			}
		}
	}
	source, err := filepath.Abs(".")
	if err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(o.out, "first-hour.txt"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command("bash", "-e", "-x", "-c", strings.Join(lines, "\n"))
	cmd.Dir, cmd.Stdout, cmd.Stderr = desk, log, log
	// A home of its own: no module, build or setting of this machine is there.
	cmd.Env = append(os.Environ(), "HOME="+desk, "GOPATH="+desk+"/go", "GOCACHE="+desk+"/.cache",
		"GOFLAGS=-modcacherw", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url."+source+".insteadOf",
		"GIT_CONFIG_VALUE_0="+published)
	if err := cmd.Run(); err != nil {
		killThatRunIn(desk)
		text, _ := os.ReadFile(log.Name())
		return fmt.Errorf("README.md, typed in an empty folder: %w\n%s", err, tail(text, 30))
	}
	fmt.Println("made, tried, and packed; the simulated accounts are served still")
	return nil
}

// serviceHour types what makes a service of it, in a container, and looks whether it runs.
func serviceHour(o options) error {
	readme, err := proof.ReadFile(".", "README.md")
	if err != nil {
		return err
	}
	c, err := boot(o.base, filepath.Join(o.out, "console.txt"))
	if err != nil {
		return err
	}
	defer c.stop()
	typed := 0
	for _, b := range readme.Section(asService) {
		if b.Language != "sh" || !strings.Contains(b.Text(), "sudo ") {
			continue
		}
		typed++
		// The user in the container is root already, so a container without sudo needs none.
		script := "sudo() { \"$@\"; }\ncd " + filepath.Join(o.desk, "queuepump") + "\n" + b.Text()
		out, err := c.run("bash", "-e", "-x", "-c", script)
		if err != nil {
			journal, _ := c.run("journalctl", "--no-pager", "-n", "20", "-u", first)
			return fmt.Errorf("README.md, line %d: %w\n%s", b.Line, err, journal)
		}
		fmt.Print(tail([]byte(out), 8))
	}
	if typed == 0 {
		return errors.New("README.md says no more how it becomes a service")
	}
	return watched(c, o.desk)
}

// watched is whether the service runs, says how it is, and has done every task once.
func watched(c *container, desk string) error {
	err := within(time.Minute, "every task is in the service's file", func() (bool, error) {
		text, err := c.read("/var/lib/queuepump/first/done.jsonl")
		if errors.Is(err, os.ErrNotExist) {
			return false, nil
		}
		return strings.Count(string(text), "\n") == demoTasks, err
	})
	if err != nil {
		return err
	}
	state, err := c.run("systemctl", "show", "-p", "ActiveState,StatusText", first)
	if err != nil {
		return err
	}
	if !strings.Contains(state, "ActiveState=active") || strings.Contains(state, "StatusText=\n") {
		return fmt.Errorf("%s is not as a running service is:\n%s", first, state)
	}
	text, err := c.run(filepath.Join(desk, "queuepump/bin/distributor"), "status", "--json",
		"--config", "/etc/queuepump/pump.yaml")
	if err != nil {
		return err
	}
	var seen struct {
		Instances []struct {
			Role   string `json:"role"`
			Silent bool   `json:"silent"`
		} `json:"instances"`
		Problems []string `json:"problems"`
	}
	if err := json.Unmarshal([]byte(text), &seen); err != nil {
		return err
	}
	if len(seen.Instances) != 1 || seen.Instances[0].Role != "processor" || len(seen.Problems) > 0 {
		return fmt.Errorf("status --json is not as of one healthy processor:\n%s", text)
	}
	fmt.Printf("%d tasks done by %s, which %s\n", demoTasks, first,
		strings.Join(strings.Fields(state), " "))
	return nil
}

// killThatRunIn ends the programs that the commands left at work in a folder.
func killThatRunIn(folder string) {
	links, _ := filepath.Glob("/proc/[0-9]*/cwd")
	for _, link := range links {
		at, err := os.Readlink(link)
		var pid int
		if _, scanned := fmt.Sscanf(link, "/proc/%d/cwd", &pid); err == nil && scanned == nil &&
			strings.HasPrefix(at, folder) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

func remove(folder string) {
	if err := os.RemoveAll(folder); err != nil {
		fmt.Fprintln(os.Stderr, "left behind:", err)
	}
}
