//go:build unix

package group

import (
	"os"
	"os/exec"
	"syscall"
)

// own also keeps Ctrl-C at the terminal from the child.
func own(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

func stop(p *os.Process) { _ = p.Signal(syscall.SIGTERM) }

func terminate(p *os.Process) { _ = syscall.Kill(-p.Pid, syscall.SIGTERM) }

func kill(p *os.Process) { _ = syscall.Kill(-p.Pid, syscall.SIGKILL) }
