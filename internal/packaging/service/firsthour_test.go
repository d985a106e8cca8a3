//go:build service

package service

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
)

const (
	// withinFiveMinutes is what a reader of README.md is promised: from an empty folder to a service
	// that runs and can be watched, with the downloads and the build.
	withinFiveMinutes = 5 * time.Minute

	published = "https://github.com/queuepump/queuepump"
	asService = "As a service"
	// demoTasks is how many tasks README.md leaves to the service: 10,000 posted, and 10,000 sent.
	demoTasks = 20_000
)

// The commands of README.md are typed in an empty folder: this source tree as it was committed
// stands in for the published one, and a container with systemd for the machine that the service
// joins.
func TestTheFirstHour(t *testing.T) {
	begin(t)
	readme, err := proof.ReadFile(".", "README.md")
	must(t, err)
	// Not below /tmp, where a container has a file system of its own.
	desk, err := os.MkdirTemp("/var/tmp", "queuepump-desk-")
	must(t, err)
	t.Cleanup(func() { killThatRunIn(desk); os.RemoveAll(desk) })
	begun := time.Now()
	typeHere(t, readme, desk)
	c, typed := boot(t), 0
	for _, b := range readme.Section(asService) {
		if b.Language != "sh" || !strings.Contains(b.Text(), "sudo ") {
			continue
		}
		typed++
		// The user in the container is root already, so a container without sudo needs none.
		script := "sudo() { \"$@\"; }\ncd " + filepath.Join(desk, "queuepump") + "\n" + b.Text()
		text, err := c.try("bash", "-e", "-x", "-c", script)
		if err != nil {
			t.Fatalf("README.md, line %d: %v", b.Line, err)
		}
		t.Log(tail(text, 8))
	}
	if typed == 0 {
		t.Fatal("README.md says no more how it becomes a service")
	}
	within(t, time.Minute, "every task is in the service's file", func() bool {
		return strings.Count(string(c.done("first")), "\n") >= demoTasks
	})
	state := c.run("systemctl", "show", "-p", "ActiveState,StatusText", first)
	if !strings.Contains(state, "ActiveState=active") || strings.Contains(state, "StatusText=\n") {
		t.Fatalf("%s is not as a running service is:\n%s", first, state)
	}
	text := c.run("distributor", "status", "--json", "--config", "/etc/queuepump/pump.yaml")
	if strings.Count(text, `"role":"processor"`) != 1 || strings.Contains(text, `"silent":true`) {
		t.Fatalf("status --json is not as of one healthy processor:\n%s", text)
	}
	took := time.Since(begun).Round(time.Second)
	t.Logf("from an empty folder to a service that runs and is watched: %v", took)
	if took > withinFiveMinutes {
		t.Errorf("it took %v, and README.md promises %v", took, withinFiveMinutes)
	}
}

// typeHere types what needs no service.
func typeHere(t *testing.T, readme proof.Document, desk string) {
	var lines []string
	for _, title := range []string{"Your own tasks", asService} {
		for _, b := range readme.Section(title) {
			if b.Language == "sh" && !strings.Contains(b.Text(), "sudo ") {
				lines = append(lines, "echo \"== $(date +%T) README.md, line "+fmt.Sprint(b.Line)+"\"", b.Text())
			}
		}
	}
	source, err := filepath.Abs(".")
	must(t, err)
	log, err := os.Create(filepath.Join(*out, "first-hour.txt"))
	must(t, err)
	cmd := exec.Command("bash", "-e", "-x", "-c", strings.Join(lines, "\n"))
	cmd.Dir, cmd.Stdout, cmd.Stderr = desk, log, log
	// A home of its own: no module, build or setting of this machine is there.
	cmd.Env = append(os.Environ(), "HOME="+desk, "GOPATH="+desk+"/go", "GOCACHE="+desk+"/.cache",
		"GOFLAGS=-modcacherw", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url."+source+".insteadOf",
		"GIT_CONFIG_VALUE_0="+published)
	if err := cmd.Run(); err != nil {
		text, _ := os.ReadFile(log.Name())
		t.Fatalf("README.md, typed in an empty folder: %v\n%s", err, tail(string(text), 30))
	}
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
