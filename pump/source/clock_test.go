package source

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
)

// must ends a test with an error.
var must = proof.Must

// Opening a pipe that no process writes to ends with its context.
func TestAPipeWithoutAWriterHoldsUpNoStop(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Skipf("no named pipe here: %v", err)
	}
	r, err := Lines(path).Open(t.Context(), nil)
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	r.(*textReader).Pauses(func(bool) error { cancel(); return nil }) // just before it is opened
	ended := make(chan error, 1)
	go func() { ended <- r.(*textReader).fill(ctx, &Record{}) }()
	select {
	case err := <-ended:
		proof.Is(t, err, context.Canceled, "ended with")
	case <-time.After(time.Minute):
		t.Fatal("it waits for a writer")
	}
	must(t, r.Close())
}

// A call that hangs is said once, given up with its context, and what it gives later is let go of.
func TestACallThatHangsIsSaidAndGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log proof.Buffer
		ctx, cancel := context.WithCancel(t.Context())
		thaw, left := make(chan int), make(chan int, 1)
		call := func() (int, error) { return <-thaw, nil }
		done := make(chan error, 1)
		hangs := func() {
			_, err := await(ctx, slog.New(slog.NewTextHandler(&log, nil)), "a.txt", call, func(n int) { left <- n })
			done <- err
		}
		go hangs()
		time.Sleep(time.Hour)
		proof.Same(t, strings.Count(log.String(), "file=a.txt"), 1, "times it is said", log.String())
		thaw <- 1
		if err := <-done; err != nil || !strings.Contains(log.String(), "has returned") {
			t.Errorf("%v: %q", err, log.String())
		}
		go hangs()
		synctest.Wait()
		cancel()
		proof.Is(t, <-done, context.Canceled, "given up with")
		thaw <- 2
		proof.Same(t, <-left, 2, "was let go of")
	})
}
