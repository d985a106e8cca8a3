package waits

import (
	"encoding/binary"
	"time"

	"github.com/cespare/xxhash/v2"
)

// Jitter spreads what many processes would otherwise do at the same moment. A draw is a hash of the
// instance, the operation, the object and the count of such draws. It never comes from a generator
// shared by order of arrival, so an instance has the same history whenever the same things happen
// to it (P9).
type Jitter string // the instance

// Float draws from [0, 1).
func (j Jitter) Float(operation, object string, n uint64) float64 {
	var d xxhash.Digest
	d.Reset()
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], n)
	for _, s := range [...]string{string(j), operation, object} {
		_, _ = d.WriteString(s)
		_, _ = d.Write([]byte{0}) // so that "a", "bc" is not "ab", "c"
	}
	_, _ = d.Write(b[:])
	return float64(d.Sum64()>>11) / (1 << 53)
}

// Pick draws one of n.
func (j Jitter) Pick(n int, operation, object string, nth uint64) int {
	return int(j.Float(operation, object, nth) * float64(n))
}

// Around draws a duration from d less a quarter to d plus a quarter.
func (j Jitter) Around(d time.Duration, operation, object string, n uint64) time.Duration {
	return time.Duration((0.75 + 0.5*j.Float(operation, object, n)) * float64(d))
}

// Full draws from 0 to base doubled n times, at most limit: full jitter, which
// clears a crowd of retries faster than any narrower spread.
func (j Jitter) Full(base, limit time.Duration, operation, object string, n uint64) time.Duration {
	return time.Duration(j.Float(operation, object, n) * float64(Doubled(base, limit, n)))
}

// Doubled is base doubled n times, at most limit.
func Doubled(base, limit time.Duration, n uint64) time.Duration {
	for ; n > 0 && base > 0 && base < limit; n-- {
		base *= 2
	}
	return min(base, limit)
}
