// Package group ends child processes together with what they started.
//
// A process group has the id of the child that leads it, until the child is reaped; after that the
// id may be another's. So a group is only signalled under a lock that the reaping takes too. What a
// child left behind is killed after the child has ended and before it is reaped; if the system
// cannot tell these two apart, it is left alone.
package group

import (
	"os"
	"os/exec"
	"sync"
)

// Group is a running child with its group. Its methods may be called from any goroutine.
type Group struct {
	process *os.Process

	mu     sync.Mutex // guards what follows, and is held while the group is signalled
	reaped bool       // or about to be
	alone  bool       // the child may be reaped at any time, and only os.Process knows when
}

// Own puts a child in a process group of its own, before it is started.
func Own(c *exec.Cmd) { own(c) }

// Stop asks a child that was started after [Own] to end, and not what the child started.
func Stop(p *os.Process) { stop(p) }

// New is the group of a child that was started after [Own].
func New(c *exec.Cmd) *Group { return &Group{process: c.Process} }

// Pid is the id of the child, and of its group.
func (g *Group) Pid() int { return g.process.Pid }

// Terminate asks the whole group to end. After the child was reaped it does nothing.
func (g *Group) Terminate() { g.signal(terminate) }

// Kill kills the whole group. After the child was reaped it does nothing.
func (g *Group) Kill() { g.signal(kill) }

func (g *Group) signal(send func(*os.Process)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.alone:
		_ = g.process.Kill() // safe at any time, but only the child
	case !g.reaped:
		send(g.process)
	}
}

// Wait waits until the child has ended, kills what is left of its group if rest says so, and reaps
// the child by wait, the command's Wait, and gives its error. It must be called once.
func (g *Group) Wait(rest bool, wait func() error) error {
	known := ended(g.process)
	g.mu.Lock()
	if known && rest {
		kill(g.process)
	}
	g.reaped, g.alone = known, !known
	g.mu.Unlock()
	return wait()
}
