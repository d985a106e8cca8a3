//go:build unix

package pump

import (
	"os/exec"
	"syscall"
)

// killWhole makes cmd's context end the program and all that it started: a
// shell that is killed alone leaves its pipeline running, and with it our own
// standard error open.
func killWhole(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
