package handlers

import (
	"os"
	"os/exec"
	"syscall"
)

// lock is not there on Windows: see to it that each processor has a file of its own.
func lock(*os.File) error { return nil }

// syncDir has nothing to do: a directory cannot be synced on Windows.
func syncDir(string) error { return nil }

// ownGroup keeps Ctrl-C at the terminal from a child.
func ownGroup(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}

func terminateGroup(p *os.Process) { _ = p.Kill() }

func killGroup(p *os.Process) { _ = p.Kill() }
