package realaccounts

import (
	"os/exec"
	"syscall"
)

// alone keeps Ctrl-C at the terminal from the child, and has the kernel kill it when this process is
// killed: nothing else would end it.
func alone(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
