package cli

import (
	"bufio"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"
)

// A reader of the log that reads no more holds up nothing but the log.
func TestALogThatIsNotReadHoldsNothingUp(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	must(t, err)
	defer r.Close()
	defer w.Close()
	for failed := 0; failed < 3; failed++ { // until it is full, and not only slow once
		must(t, w.SetWriteDeadline(time.Now().Add(100*time.Millisecond)))
		if _, err := w.WriteString(strings.Repeat("x", 1023) + "\n"); err == nil {
			failed = -1
		}
	}
	must(t, w.SetWriteDeadline(time.Time{}))
	c := &Console{out: w}
	c.Log = slog.New(slog.NewTextHandler(c, nil))
	logged := make(chan struct{})
	go func() {
		c.Log.Info("first")
		c.Log.Info("second")
		c.Done()
		close(logged)
	}()
	select {
	case <-logged:
	case <-time.After(time.Minute):
		t.Fatal("who writes to the log waits for its reader")
	}
	for lines := bufio.NewScanner(r); lines.Scan(); {
		if text := lines.Text(); strings.Contains(text, "second") {
			t.Errorf("a line that was left out came: %s", text)
		} else if strings.Contains(text, "lines were left out") {
			if !strings.Contains(text, "lines=1") {
				t.Error(text)
			}
			return
		}
	}
	t.Error("nothing says that a line was left out")
}
