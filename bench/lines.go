package bench

import (
	"bufio"
	"io"
	"math/rand/v2"
	"strconv"
)

// LineBytes is the length of a line that WriteLines makes, with its newline, within a byte or two.
const LineBytes = 131

// Keys is how many different keys WriteLines draws from, uniformly. It is far
// more than there are segments, as with a user's own keys.
const Keys = 100_000

var (
	countries = [...]string{"CH", "DE", "FR", "IT", "AT", "ES", "PT", "NL", "BE", "PL", "SE", "NO"}
	kinds     = [...]string{"refresh", "rebuild", "archive", "measure", "compare", "publish"}
)

// WriteLines writes n JSON lines of about 130 bytes, each with a "city" to be
// used as key and an "id" of its own. The same seed gives the same bytes.
func WriteLines(w io.Writer, n int, seed uint64) error {
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
	dst = appendPadded(dst, uint64(rng.IntN(Keys)), 6)
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
