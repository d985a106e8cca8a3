package handlers

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// starting hands commands to the one thread that starts children.
var starting = sync.OnceValue(func() chan<- func() {
	starts := make(chan func())
	go func() {
		runtime.LockOSThread() // for ever: the thread lives as long as the process
		for start := range starts {
			start()
		}
	}()
	return starts
})

// startTied starts a child that the kernel kills when this process ends in any way: a child that
// hangs would not notice the end of its input. The kernel ties a child to the thread that started
// it, and Go's threads come and go, so one thread starts all. Not tied are the child's own
// children, and a child that changes its user.
func startTied(c *exec.Cmd) error {
	c.SysProcAttr.Pdeathsig = syscall.SIGKILL
	done := make(chan error, 1)
	starting() <- func() { done <- c.Start() }
	return <-done
}
