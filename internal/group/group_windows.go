package group

import (
	"os"
	"os/exec"
	"syscall"
)

// own keeps Ctrl-C at the terminal from the child. Ending a group would need a job object.
func own(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}

func terminate(p *os.Process) { _ = p.Kill() }

func kill(p *os.Process) { _ = p.Kill() }
