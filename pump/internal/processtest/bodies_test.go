package processtest

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
)

// TestTasksOf10MBBesideSmallOnes: each body comes whole to its handler, and neither process takes
// the memory of all of them.
func TestTasksOf10MBBesideSmallOnes(t *testing.T) {
	besideOthers(t)
	if runtime.GOOS != "linux" {
		t.Skip("it measures by what Linux says of a process")
	}
	const small, large, size = 300, 30, 10_000_000
	w := newWorld(t, 3, 2)
	appendText(t, w.config, "delivery: once\n")
	file, err := os.Create(w.path("tasks.jsonl"))
	must(t, err)
	out := bufio.NewWriter(file)
	for i := range small + large {
		text := ""
		if i%11 == 0 && i/11 < large {
			text = strings.Repeat("0123456789", size/10)
		}
		fmt.Fprintf(out, `{"city":"c%d","text":%q}`+"\n", i%7, text)
	}
	must(t, out.Flush())
	must(t, file.Close())
	var whole, short atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if n, _ := io.Copy(io.Discard, r.Body); n > size {
			whole.Add(1)
		} else {
			short.Add(1)
		}
	}))
	t.Cleanup(s.Close)
	d := start(t, "distributor", "run", "--config", w.config, "--input", w.path("tasks.jsonl"), "--key", "city",
		"--blob-above", "40KiB", "--max-line", "20000000")
	sent := peak(d)
	d.succeeds()
	p := start(t, "processor", "run", "--config", w.config, "--http", s.URL, "--concurrency", "16", "--until-idle", "5s")
	handled := peak(p)
	p.succeeds()
	t.Logf("%d MiB in the distributor, %d MiB in the processor", sent>>10, handled>>10)
	if whole.Load() != large || short.Load() != small {
		t.Errorf("%d large tasks and %d small ones came", whole.Load(), short.Load())
	}
	if (sent > 450<<10 || handled > 450<<10) && !raceEnabled {
		t.Errorf("%d KiB and %d KiB of memory", sent, handled)
	}
}
