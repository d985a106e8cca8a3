//go:build service

// Package service tries packages under systemd, which systemd-nspawn boots on a copy of this
// machine's root: an overlay in memory, so that nothing is installed here. `make service-test` and
// `make first-hour` run it in a mount namespace of its own.
package service

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
)

// must ends a test with an error.
var must = proof.Must

var out = flag.String("out", "", "the `folder` for packages and logs")

// begin goes to the root of the source tree, and skips where this machine cannot try it.
func begin(t *testing.T) {
	t.Chdir("../../..")
	must(t, os.MkdirAll(*out, 0o755))
	if os.Geteuid() != 0 {
		t.Skip("this needs root, to mount a copy of the root folder and to boot it")
	}
	for program, pack := range map[string]string{
		"systemd-nspawn": "systemd-container", "nsenter": "util-linux", "dpkg": "dpkg", "git": "git",
		"tar": "tar", "systemd-analyze": "systemd", "pgrep": "procps",
	} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not here; on Debian the package %s has it", program, pack)
		}
	}
	if exec.Command("dpkg-query", "-W", "queuepump").Run() == nil {
		t.Skip("queuepump is installed on this machine, and would be in the copy too")
	}
}

// here runs a command on this machine.
func here(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	text, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, tail(string(text), 20))
	}
	return string(text)
}

// container is a systemd that runs on an overlay of this machine's root, with this machine's
// network, so that it reaches the simulated accounts.
type container struct {
	t          *testing.T
	base, root string // root are all files, as the container sees them
	leader     int    // its process 1, as this machine counts
}

// boot makes the copy and starts systemd on it.
func boot(t *testing.T) *container {
	t.Helper()
	base, err := os.MkdirTemp("", "queuepump-service-")
	must(t, err)
	c := &container{t: t, base: base, root: base + "/root"}
	t.Cleanup(func() { syscall.Unmount(base, syscall.MNT_DETACH); os.Remove(base) })
	if err := syscall.Mount("tmpfs", base, "tmpfs", 0, "mode=755"); err != nil {
		t.Skipf("no tmpfs can be mounted: %v", err)
	}
	for _, name := range []string{"upper", "work", "root"} {
		must(t, os.Mkdir(filepath.Join(base, name), 0o755))
	}
	layers := "lowerdir=/,upperdir=" + base + "/upper,workdir=" + base + "/work"
	if err := syscall.Mount("overlay", c.root, "overlay", 0, layers); err != nil {
		t.Skipf("no overlay of the root folder can be mounted: %v", err)
	}
	t.Cleanup(func() { syscall.Unmount(c.root, syscall.MNT_DETACH) })
	// A service that runs here must not run twice, and the files of queuepump are the package's.
	for _, pattern := range []string{
		"etc/systemd/system/*", "etc/rc?.d/*", "etc/queuepump", "var/lib/queuepump",
	} {
		files, err := filepath.Glob(filepath.Join(c.root, pattern))
		must(t, err)
		for _, file := range files {
			must(t, os.RemoveAll(file))
		}
	}
	// An empty file, other than none, has systemd make a number and not ask for settings.
	c.write("etc/machine-id", "")
	console, err := os.Create(filepath.Join(*out, "console.txt"))
	must(t, err)
	nspawn := exec.Command("systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--boot",
		"--directory="+c.root, "--machine=queuepump-trial", "--resolv-conf=off", "--timezone=off",
		"--link-journal=no", "systemd.unit=multi-user.target")
	nspawn.Stdout, nspawn.Stderr = console, console
	must(t, nspawn.Start())
	t.Cleanup(func() {
		nspawn.Process.Signal(syscall.SIGTERM)
		time.AfterFunc(20*time.Second, func() { nspawn.Process.Kill() })
		nspawn.Wait()
	})
	within(t, 90*time.Second, "systemd-nspawn boots systemd ("+console.Name()+")", func() bool {
		pid := strconv.Itoa(nspawn.Process.Pid)
		text, _ := os.ReadFile("/proc/" + pid + "/task/" + pid + "/children")
		for child := range strings.FieldsSeq(string(text)) {
			c.leader, _ = strconv.Atoi(child)
		}
		state, _ := c.try("systemctl", "is-system-running")
		// Degraded: a service of this machine does not run in the copy.
		return c.leader > 0 && (state == "running\n" || state == "degraded\n")
	})
	return c
}

// try runs a command in the container and gives what it printed.
func (c *container) try(args ...string) (string, error) {
	cmd := exec.Command("nsenter", append([]string{
		"--target", strconv.Itoa(c.leader), "--mount", "--uts", "--ipc", "--pid", "--root", "--wd=/",
		"--", "env", "-i", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"LC_ALL=C", "DEBIAN_FRONTEND=noninteractive",
	}, args...)...)
	var printed, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &printed, &problems
	if err := cmd.Run(); err != nil {
		return printed.String(), fmt.Errorf("%s: %w\n%s%s", strings.Join(args, " "), err,
			tail(printed.String(), 20), tail(problems.String(), 20))
	}
	return printed.String(), nil
}

func (c *container) run(args ...string) string {
	c.t.Helper()
	text, err := c.try(args...)
	must(c.t, err)
	return text
}

func (c *container) write(path, text string) {
	c.t.Helper()
	file := filepath.Join(c.root, path)
	must(c.t, os.MkdirAll(filepath.Dir(file), 0o755))
	must(c.t, os.WriteFile(file, []byte(text), 0o644))
}

// done is the file that an instance writes its tasks into.
func (c *container) done(instance string) []byte {
	text, err := os.ReadFile(filepath.Join(c.root, "var/lib/queuepump", instance, "done.jsonl"))
	if !os.IsNotExist(err) {
		must(c.t, err)
	}
	return text
}

// left are the files that were written in the copy and have queuepump in their names.
func (c *container) left() (found []string) {
	upper := filepath.Join(c.base, "upper")
	must(c.t, filepath.WalkDir(upper, func(path string, e fs.DirEntry, err error) error {
		// A device in an upper layer says that the file below is gone.
		if err == nil && strings.Contains(e.Name(), "queuepump") && e.Type()&fs.ModeCharDevice == 0 {
			found = append(found, strings.TrimPrefix(path, upper))
		}
		return err
	}))
	if text := c.run("sh", "-c", "cat /etc/passwd /etc/group /etc/shadow /etc/gshadow"); strings.Contains(text, "queuepump") {
		found = append(found, "the user")
	}
	return found
}

// accounts are simulated ones, which loadtest serves beside the container.
type accounts struct {
	admin string
	lines []string // of pump.yaml, an account each
}

func serve(t *testing.T, n int) *accounts {
	t.Helper()
	port := freePort(t)
	a := &accounts{admin: "http://127.0.0.1:" + port}
	log, err := os.Create(filepath.Join(*out, "accounts.txt"))
	must(t, err)
	server := exec.Command("bin/loadtest", "serve", "--accounts", fmt.Sprint(n), "--admin-port", port)
	server.Stdout, server.Stderr = log, log
	must(t, server.Start())
	t.Cleanup(func() { server.Process.Kill() })
	var answer struct {
		Accounts []struct{ Name, ConnectionString string }
	}
	within(t, 20*time.Second, "loadtest serves accounts", func() bool {
		text, err := get(a.admin + "/accounts")
		return err == nil && json.Unmarshal(text, &answer) == nil && len(answer.Accounts) == n
	})
	for _, one := range answer.Accounts {
		a.lines = append(a.lines, "  - connectionString: "+one.ConnectionString+"\n    queues: 4\n")
	}
	return a
}

// config is a pump.yaml with the first n accounts.
func (a *accounts) config(workload string, n int) string {
	return "workload: " + workload + "\ndelivery: once\naccounts:\n" + strings.Join(a.lines[:n], "")
}

// puts are the messages that an account took.
func (a *accounts) puts(t *testing.T, name string) (n int) {
	text, err := get(a.admin + "/counts")
	must(t, err)
	var counts struct {
		Requests []struct {
			Account, Operation string
			Status, Count      int
		}
	}
	must(t, json.Unmarshal(text, &counts))
	for _, r := range counts.Requests {
		if r.Account == name && r.Operation == "PutMessage" && r.Status == http.StatusCreated {
			n += r.Count
		}
	}
	return n
}

func freePort(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

func get(url string) ([]byte, error) {
	client := http.Client{Timeout: 5 * time.Second}
	answer, err := client.Get(url)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	var text bytes.Buffer
	_, err = text.ReadFrom(answer.Body)
	return text.Bytes(), err
}

// within asks again and again until it is so.
func within(t *testing.T, most time.Duration, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(most); !so(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", most, what)
		}
	}
}

// tail is the last lines of a text.
func tail(text string, n int) string {
	lines := strings.SplitAfter(text, "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "")
}
