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

var consoleEvent = syscall.NewLazyDLL("kernel32.dll").NewProc("GenerateConsoleCtrlEvent")

// stop sends Ctrl-Break to the child's group. A program in Go takes it as os.Interrupt.
func stop(p *os.Process) { _, _, _ = consoleEvent.Call(syscall.CTRL_BREAK_EVENT, uintptr(p.Pid)) }

func terminate(p *os.Process) { _ = p.Kill() }

func kill(p *os.Process) { _ = p.Kill() }
