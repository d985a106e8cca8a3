package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
)

func run(o options) error {
	switch {
	case o.base != "" && o.firstHour:
		return serviceHour(o)
	case o.base != "":
		return inside(o)
	}
	if err := possible(); err != nil {
		return err
	}
	if o.firstHour {
		return firstHour(o)
	}
	if o.build == "" || o.loadtest == "" {
		return errors.New("-build and -loadtest are needed: make service-test builds and names both")
	}
	if err := packages(&o); err != nil {
		return err
	}
	return apart("-loadtest", o.loadtest, "-out", o.out,
		"-older", o.older, "-newer", o.newer, "-stuck", o.stuck,
		"-tasks", fmt.Sprint(o.tasks), "-rate", fmt.Sprint(o.rate))
}

// apart runs this program again with a mount namespace of its own: only that process and its
// children see the mounts, which end with it.
func apart(args ...string) error {
	base, err := os.MkdirTemp("", "queuepump-service-")
	if err != nil {
		return err
	}
	defer os.Remove(base) // what is mounted there is gone with the namespace
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, append([]string{"-inside", base}, args...)...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL,
	}
	signal.Ignore(os.Interrupt) // the child gets it too, and ends
	runtime.LockOSThread()      // a parent that dies is a thread, for Linux
	return cmd.Run()
}

// possible says what this machine lacks.
func possible() error {
	if os.Geteuid() != 0 {
		return untried{"it needs root, to mount a copy of the root folder and to boot it"}
	}
	for program, pack := range map[string]string{
		"systemd-nspawn": "systemd-container", "nsenter": "util-linux", "dpkg": "dpkg", "git": "git",
		"tar": "tar", "systemd-analyze": "systemd", "pgrep": "procps",
	} {
		if _, err := exec.LookPath(program); err != nil {
			return untried{fmt.Sprintf("%s is not here; on Debian the package %s has it", program, pack)}
		}
	}
	if _, err := os.Stat("/usr/lib/systemd/systemd"); err != nil {
		return untried{"systemd is not installed here: " + err.Error()}
	}
	if exec.Command("dpkg-query", "-W", "queuepump").Run() == nil {
		return untried{"queuepump is installed on this machine, and would be in the copy too"}
	}
	return nil
}

// packages builds the packages that are not given.
func packages(o *options) (err error) {
	for _, path := range []*string{&o.build, &o.loadtest, &o.out} {
		if *path, err = filepath.Abs(*path); err != nil {
			return err
		}
	}
	if o.older == "" {
		if o.older, err = olderPackage(o); err != nil {
			return err
		}
	}
	if o.newer == "" {
		if o.newer, err = deb(o.build, ".", filepath.Join(o.out, "newer")); err != nil {
			return err
		}
	}
	if o.stuck == "" {
		if o.stuck, err = planted(o.out); err != nil {
			return err
		}
	}
	for _, path := range []*string{&o.older, &o.newer, &o.stuck} {
		if *path, err = filepath.Abs(*path); err != nil {
			return err
		}
	}
	return nil
}

// olderPackage is of an earlier commit, built from a copy of it.
func olderPackage(o *options) (string, error) {
	source, err := os.MkdirTemp("", "queuepump-older-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(source)
	archive := filepath.Join(source, "source.tar")
	text, err := exec.Command("git", "archive", "-o", archive, olderCommit).CombinedOutput()
	if err != nil {
		return "", untried{fmt.Sprintf("git has no commit %s here, as in a shallow clone; "+
			"give an older package: make service-test OLDER=file.deb (%s)",
			olderCommit, strings.TrimSpace(string(text)))}
	}
	if text, err := exec.Command("tar", "-xf", archive, "-C", source).CombinedOutput(); err != nil {
		return "", fmt.Errorf("tar: %w: %s", err, text)
	}
	return deb(o.build, source, filepath.Join(o.out, "older"), "--version", "0.0.0~0."+olderCommit)
}

// goTool is the go command, as the Makefile names it.
func goTool() string { return cmp.Or(os.Getenv("GO"), "go") }

// deb makes a package of a source tree.
func deb(build, source, out string, args ...string) (string, error) {
	cmd := exec.Command(build, append([]string{"deb", "--out", out}, args...)...)
	cmd.Dir, cmd.Stderr = source, os.Stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w", cmd, err)
	}
	files, err := filepath.Glob(filepath.Join(out, "package", "*.deb"))
	if err != nil || len(files) != 1 {
		return "", cmp.Or(err, fmt.Errorf("%s made the packages %q", cmd, files))
	}
	return files[0], nil
}
