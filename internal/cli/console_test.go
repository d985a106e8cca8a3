package cli

import (
	"bufio"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
)

// A reader of the log that reads no more holds up nothing but the log.
func TestALogThatIsNotReadHoldsNothingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe() // holds nothing, as a pipe that is full
		c := &Console{out: w}
		c.Log = slog.New(slog.NewTextHandler(c, nil))
		c.Log.Info("first") // after logPatience; second is left out at once
		c.Log.Info("second")
		lines := bufio.NewScanner(r)
		for _, want := range []string{"first", "lines=1"} {
			if !lines.Scan() || !strings.Contains(lines.Text(), want) {
				t.Errorf("%q, and not %q", lines.Text(), want)
			}
		}
		go c.Log.Info("third")
		if !lines.Scan() || !strings.Contains(lines.Text(), "third") {
			t.Errorf("a line that is read again is lost: %q", lines.Text())
		}
	})
}
