//go:build unix

package handlers

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
)

// commanded is a worker that has commands run.
type commanded interface {
	Worker
	Amiss() string
}

// TestAMomentWithoutDescriptorsIsWaitedForAndSaidOnce by a pool of 64 children, whether the command
// has worked before or not.
func TestAMomentWithoutDescriptorsIsWaitedForAndSaidOnce(t *testing.T) {
	const children = 64
	for _, worked := range []bool{false, true} {
		for name, make := range map[string]func(CommandOptions) (commanded, error){
			"exec":      func(o CommandOptions) (commanded, error) { return NewExec(o) },
			"exec-each": func(o CommandOptions) (commanded, error) { return NewExecEach(o) },
		} {
			t.Run(fmt.Sprintf("%s, worked: %v", name, worked), func(t *testing.T) {
				var log proof.Buffer
				o := command(map[string]string{"exec": "echo", "exec-each": "each"}[name])
				o.Children, o.Log = children, slog.New(slog.NewTextHandler(&log, nil))
				o.Broken = func(err error) { t.Errorf("reported %v", err) }
				w, err := make(o)
				must(t, err)
				if c, is := w.(interface{ Close() error }); is {
					defer c.Close()
				}
				if worked {
					must(t, proof.ErrOf(w.Work(t.Context(), task("1"))))
				}
				var had syscall.Rlimit
				must(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &had))
				none := had
				none.Cur = 0
				must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none))
				var all sync.WaitGroup
				for n := range children {
					all.Go(func() {
						proof.Is(t, proof.ErrOf(w.Work(t.Context(), &pump.Task{N: uint64(n), Body: []byte("1")})), nil)
					})
				}
				// Each of them but the one child that is there has tried.
				waitFor(t, "what it says", func() bool { return strings.Contains(w.Amiss(), "too many open files") })
				must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &had))
				all.Wait()
				if n := strings.Count(log.String(), "level=ERROR"); n != 1 || w.Amiss() != "" {
					t.Errorf("it says %d times, and amiss is %q: %s", n, w.Amiss(), log.String())
				}
			})
		}
	}
}

// TestAFailureCitesWhatItsOwnChildSaidForItsOwnTask: what another child writes, or this one for an
// earlier task, may be a stranger's secret, and stood in quarantine and on the page.
func TestAFailureCitesWhatItsOwnChildSaidForItsOwnTask(t *testing.T) {
	// A child says what its task is, and answers only when it may.
	script := `while read -r line; do
		n=${line#*'"n":'}; n=${n%%,*}; seq=${line#*'"seq":'}; seq=${seq%%,*}
		case $n in
		1|2) echo "customer $n: card declined" >&2; echo "{\"seq\":$seq,\"ok\":true}";;
		*) : >"$DIR/$n"; while [ ! -e "$DIR/go$n" ]; do sleep 0.01; done; exit 3;;
		esac
	done`
	dir := t.TempDir()
	o := CommandOptions{Argv: []string{"sh", "-c", script}, Env: append(os.Environ(), "DIR="+dir), Children: 2}
	e := newExec(t, o)
	works := func(e *Exec, n int) {
		t.Helper()
		proof.Is(t, proof.ErrOf(e.Work(t.Context(), &pump.Task{N: uint64(n)})), nil)
	}
	errs := make(chan error)
	go func() {
		_, err := e.Work(context.WithoutCancel(t.Context()), &pump.Task{N: 3})
		errs <- err
	}()
	waitFor(t, "the third task's begin", func() bool { _, err := os.Stat(filepath.Join(dir, "3")); return err == nil })
	for range 20 { // by the other, and what it says for each has been read by the end of the next
		works(e, 2)
	}
	must(t, os.WriteFile(filepath.Join(dir, "go3"), nil, 0o600))
	proof.Same(t, fmt.Sprint(<-errs), "the child ended (exit status 3)")
	o.Children = 1
	e = newExec(t, o)
	for range 10 { // the same child for an earlier task, whose words may not have been read yet
		works(e, 1)
		proof.Same(t, fmt.Sprint(proof.ErrOf(e.Work(t.Context(), &pump.Task{N: 3}))), "the child ended (exit status 3)")
	}
}
