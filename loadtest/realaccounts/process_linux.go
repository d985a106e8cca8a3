package realaccounts

import (
	"os/exec"
	"syscall"
)

// dieWithParent has the kernel kill the child when this process is killed: nothing else would end
// it. It must be started by a thread that lasts.
func dieWithParent(cmd *exec.Cmd) { cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL }
