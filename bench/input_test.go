package bench

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/queuepump/queuepump/internal/proof"
)

// inputOf is a file of so many lines, which is made if it is not there.
func inputOf(tb testing.TB, lines int) (path string) {
	tb.Helper()
	path = filepath.Join(dir, fmt.Sprintf("tasks-%d.jsonl", lines))
	if _, err := os.Stat(path); err == nil {
		return path
	}
	f, err := os.Create(path)
	if err == nil {
		err = errors.Join(writeLines(f, lines, 1), f.Close())
	}
	must(tb, err)
	return path
}

// inputLines are the lines of such a file.
func inputLines(tb testing.TB, n int) (lines []string) {
	tb.Helper()
	text, err := os.ReadFile(inputOf(tb, n))
	must(tb, err)
	for line := range strings.Lines(string(text)) {
		lines = append(lines, strings.TrimSuffix(line, "\n"))
	}
	return lines
}

// lineBytes is the length of a line that writeLines makes, with its newline, within a byte or two.
const lineBytes = 131

// taskKeys is how many different keys writeLines draws from, uniformly. It is far
// more than there are segments, as with a user's own keys.
const taskKeys = 100_000

var (
	countries = [...]string{"CH", "DE", "FR", "IT", "AT", "ES", "PT", "NL", "BE", "PL", "SE", "NO"}
	kinds     = [...]string{"refresh", "rebuild", "archive", "measure", "compare", "publish"}
)

// writeLines writes n JSON lines of about 130 bytes, each with a "city" to be
// used as key and an "id" of its own. The same seed gives the same bytes.
func writeLines(w io.Writer, n int, seed uint64) error {
	out := bufio.NewWriterSize(w, 1<<16)
	rng := rand.New(rand.NewPCG(seed, 0))
	var line []byte
	for i := range n {
		line = appendLine(line[:0], i, rng)
		if _, err := out.Write(line); err != nil {
			return err
		}
	}
	return out.Flush()
}

func appendLine(dst []byte, i int, rng *rand.Rand) []byte {
	dst = append(dst, `{"id":"task-`...)
	dst = appendPadded(dst, uint64(i), 9)
	dst = append(dst, `","city":"city-`...)
	dst = appendPadded(dst, uint64(rng.IntN(taskKeys)), 6)
	dst = append(dst, `","country":"`...)
	dst = append(dst, countries[rng.IntN(len(countries))]...)
	dst = append(dst, `","kind":"`...)
	dst = append(dst, kinds[rng.IntN(len(kinds))]...)
	dst = append(dst, `","amount":`...)
	dst = appendPadded(dst, uint64(100000+rng.IntN(900000)), 6)
	dst = append(dst, `,"at":"2026-11-`...)
	dst = appendPadded(dst, uint64(1+rng.IntN(28)), 2)
	dst = append(dst, 'T')
	dst = appendPadded(dst, uint64(rng.IntN(24)), 2)
	dst = append(dst, ':')
	dst = appendPadded(dst, uint64(rng.IntN(60)), 2)
	return append(dst, ":00Z\",\"try\":100}\n"...)
}

func appendPadded(dst []byte, v uint64, width int) []byte {
	var buf [20]byte
	digits := strconv.AppendUint(buf[:0], v, 10)
	for range width - len(digits) {
		dst = append(dst, '0')
	}
	return append(dst, digits...)
}

func TestLinesAreJSONOfTheNamedLengthAndAlwaysTheSame(t *testing.T) {
	var a, b bytes.Buffer
	must(t, writeLines(&a, 1000, 7))
	must(t, writeLines(&b, 1000, 7))
	if !bytes.Equal(a.Bytes(), b.Bytes()) {
		t.Fatal("the same seed gave other bytes")
	}
	proof.Same(t, a.Len()/1000, lineBytes, "mean line is … bytes, the constant says")
	ids := map[string]bool{}
	for line := range bytes.Lines(a.Bytes()) {
		var task struct{ ID, City string }
		if err := json.Unmarshal(line, &task); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if task.City == "" || ids[task.ID] {
			t.Fatalf("line without a city or with a known id: %s", line)
		}
		ids[task.ID] = true
	}
}
