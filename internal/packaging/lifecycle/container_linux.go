package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// container is a systemd that runs on an overlay of this machine's root, with this machine's
// network, so that it reaches the simulated accounts.
type container struct {
	base   string
	root   string // all files, as the container sees them
	nspawn *exec.Cmd
	leader int // its process 1, as this machine counts
}

// boot makes the copy and starts systemd on it. base is an empty folder; what is mounted there is
// seen by this process and its children only.
func boot(base, console string) (*container, error) {
	c := &container{base: base, root: filepath.Join(base, "root")}
	if err := c.mount(); err != nil {
		return nil, untried{err.Error()}
	}
	// A service that runs here must not run twice, and the files of queuepump are the package's.
	for _, pattern := range []string{
		"etc/systemd/system/*", "etc/rc?.d/*", "etc/queuepump", "var/lib/queuepump",
	} {
		files, err := filepath.Glob(filepath.Join(c.root, pattern))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			if err := os.RemoveAll(file); err != nil {
				return nil, err
			}
		}
	}
	// An empty file, other than none, has systemd make a number and not ask for settings.
	if err := os.WriteFile(filepath.Join(c.root, "etc/machine-id"), nil, 0o444); err != nil {
		return nil, err
	}
	out, err := os.Create(console)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	c.nspawn = exec.Command("systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--boot",
		"--directory="+c.root, "--machine=queuepump-"+filepath.Base(base)[len("queuepump-service-"):],
		"--resolv-conf=off", "--timezone=off", "--link-journal=no", "systemd.unit=multi-user.target")
	c.nspawn.Stdout, c.nspawn.Stderr = out, out
	c.nspawn.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.nspawn.Start(); err != nil {
		return nil, untried{err.Error()}
	}
	if err := c.ready(); err != nil {
		text, _ := os.ReadFile(console)
		why := fmt.Sprintf("systemd-nspawn boots no systemd here: %v\n%s", err, tail(text, 20))
		return nil, untried{why}
	}
	return c, nil
}

func (c *container) mount() error {
	if err := syscall.Mount("tmpfs", c.base, "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("no tmpfs can be mounted: %w", err)
	}
	for _, name := range []string{"upper", "work", "root"} {
		if err := os.Mkdir(filepath.Join(c.base, name), 0o755); err != nil {
			return err
		}
	}
	layers := "lowerdir=/,upperdir=" + c.base + "/upper,workdir=" + c.base + "/work"
	if err := syscall.Mount("overlay", c.root, "overlay", 0, layers); err != nil {
		return fmt.Errorf("no overlay of the root folder can be mounted: %w", err)
	}
	return nil
}

// ready waits until systemd has started what it starts at boot.
func (c *container) ready() error {
	ended := make(chan error, 1)
	go func() { ended <- c.nspawn.Wait() }()
	state := "no process"
	for deadline := time.Now().Add(90 * time.Second); time.Now().Before(deadline); {
		select {
		case err := <-ended:
			return fmt.Errorf("it ended: %v", err)
		case <-time.After(200 * time.Millisecond):
		}
		pid := strconv.Itoa(c.nspawn.Process.Pid)
		text, err := os.ReadFile("/proc/" + pid + "/task/" + pid + "/children")
		children := strings.Fields(string(text))
		if err != nil || len(children) == 0 {
			continue
		}
		if c.leader, err = strconv.Atoi(children[len(children)-1]); err != nil {
			return err
		}
		text, _ = c.command("systemctl", "is-system-running").Output()
		// Degraded: a service of this machine does not run in the copy.
		if state = strings.TrimSpace(string(text)); state == "running" || state == "degraded" {
			return nil
		}
	}
	return errors.New("after 90 s it is: " + state)
}

// command is a command that runs in the container.
func (c *container) command(args ...string) *exec.Cmd {
	enter := []string{
		"--target", strconv.Itoa(c.leader), "--mount", "--uts", "--ipc", "--pid", "--root", "--wd=/",
		"--", "env", "-i", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"LC_ALL=C", "DEBIAN_FRONTEND=noninteractive",
	}
	return exec.Command("nsenter", append(enter, args...)...)
}

// run runs a command in the container and gives its standard output.
func (c *container) run(args ...string) (string, error) {
	cmd := c.command(args...)
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s: %w\n%s%s", strings.Join(args, " "), err,
			tail(out.Bytes(), 20), tail(problems.Bytes(), 20))
	}
	return out.String(), nil
}

func (c *container) write(path, text string) error {
	return os.WriteFile(filepath.Join(c.root, path), []byte(text), 0o644)
}

func (c *container) read(path string) ([]byte, error) {
	return os.ReadFile(filepath.Join(c.root, path))
}

func (c *container) exists(path string) bool {
	_, err := os.Lstat(filepath.Join(c.root, path))
	return err == nil
}

// left are the files that were written in the copy and have queuepump in their names.
func (c *container) left() (found []string, err error) {
	upper := filepath.Join(c.base, "upper")
	err = filepath.WalkDir(upper, func(path string, e fs.DirEntry, err error) error {
		// A device in an upper layer says that the file below is gone.
		if err == nil && strings.Contains(e.Name(), "queuepump") && e.Type()&fs.ModeCharDevice == 0 {
			found = append(found, strings.TrimPrefix(path, upper))
		}
		return err
	})
	for _, file := range []string{"passwd", "group", "shadow", "gshadow"} {
		text, err := c.read("etc/" + file)
		if err != nil {
			return nil, err
		}
		if bytes.Contains(text, []byte("queuepump")) {
			found = append(found, "/etc/"+file+" (the user)")
		}
	}
	slices.Sort(found)
	return found, err
}

// stop has systemd stop all and end; what does not is killed with this process.
func (c *container) stop() {
	c.nspawn.Process.Signal(syscall.SIGTERM)
	for range 100 {
		if syscall.Kill(c.leader, 0) != nil {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	c.nspawn.Process.Kill()
}

// tail is the last lines of a text.
func tail(text []byte, n int) string {
	lines := strings.SplitAfter(string(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "")
}
