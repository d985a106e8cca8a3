//go:build linux || darwin

package group

import (
	"io"
	"os"
	"os/exec"
	"testing"

	"github.com/queuepump/queuepump/internal/proof"
)

func started(t *testing.T, script string) (*exec.Cmd, *Group, io.Reader) {
	t.Helper()
	cmd := exec.Command("sh", "-c", script)
	Own(cmd)
	r, w, err := os.Pipe()
	proof.Must(t, err)
	t.Cleanup(func() { _ = r.Close() })
	cmd.Stdout = w
	proof.Must(t, cmd.Start())
	_ = w.Close()
	return cmd, New(cmd), r
}

func TestWhatAChildLeavesBehindIsKilledBeforeItIsReaped(t *testing.T) {
	cmd, g, out := started(t, "sleep 100000 & exit 3")
	if err := g.Wait(true, cmd.Wait); err == nil || cmd.ProcessState.ExitCode() != 3 {
		t.Errorf("got %v", err)
	}
	if _, err := io.ReadAll(out); err != nil { // ends when no process has the other end any more
		t.Error(err)
	}
}

// The id of a child that was reaped may be another's.
func TestAReapedChildsGroupIsNotSignalled(t *testing.T) {
	cmd, g, _ := started(t, "exit 0")
	reaped := false
	err := g.Wait(true, func() error {
		g.signal(func(*os.Process) { t.Error("signalled while it is reaped") })
		reaped = true
		return cmd.Wait()
	})
	if err != nil || !reaped {
		t.Error(err)
	}
	g.signal(func(*os.Process) { t.Error("signalled after it was reaped") })
	g.Kill()
	g.Terminate()
}

func TestARunningGroupIsKilledWhole(t *testing.T) {
	cmd, g, out := started(t, "sleep 100000 & wait")
	g.Kill()
	proof.Says(t, g.Wait(true, cmd.Wait), "killed")
	proof.Is(t, proof.ErrOf(io.ReadAll(out)), nil)
}
