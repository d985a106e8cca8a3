package pump

import (
	"fmt"
	"strconv"
	"strings"
)

// PerKey bounds the work on each key, in all processors of a workload together. The zero value
// bounds nothing. A task without a key is not bounded. A task whose key is over its limit is
// delayed to its computed turn, which takes no attempt, and others go before it.
type PerKey struct {
	// Concurrent is how many tasks of a key are in handlers at once at most; 0: no limit.
	Concurrent int
	// Rate is how many tasks of a key are started a second at most; 0: no limit. A key that had none
	// for a while may start those of one second at once.
	Rate float64
}

// Bounds reports whether it bounds anything.
func (k PerKey) Bounds() bool { return k != PerKey{} }

// Check gives a [*ConfigError] if the limits are not possible.
func (k PerKey) Check() error {
	const most = 100_000
	if k.Concurrent < 0 || k.Concurrent > most {
		return Invalid("perKey.concurrent", fmt.Sprintf("%d is out of range", k.Concurrent),
			fmt.Sprintf("use 1 to %d, or leave it out for no limit", most))
	}
	if k.Rate != 0 && !(k.Rate >= 1./60 && k.Rate <= 1e6) {
		return Invalid("perKey.rate", fmt.Sprintf("%g a second is out of range", k.Rate), rateFix)
	}
	return nil
}

const rateFix = "use 1/m to 1000000/s, as in 10/s, or leave it out for no limit; " +
	"for less use --min-interval"

// SetRate takes a rate as people write it: 10/s, 90/m, or 10 for 10/s. The error is a
// [*ConfigError].
func (k *PerKey) SetRate(text string) error {
	number, unit, _ := strings.Cut(text, "/")
	n, err := strconv.ParseFloat(number, 64)
	k.Rate = n / map[string]float64{"": 1, "s": 1, "m": 60}[unit]
	if err != nil || k.Rate == 0 || (PerKey{Rate: k.Rate}).Check() != nil {
		return Invalid("perKey.rate", fmt.Sprintf("%.40q is not a rate", text), rateFix)
	}
	return nil
}

// KeysOver says which keys a processor holds back because of PerKey.
type KeysOver struct {
	Key   string `json:"key,omitempty"` // if it is about one; cut if it is long
	Keys  int    `json:"keys"`          // that are over their limits
	Tasks int    `json:"tasks"`         // of theirs that are held back, in hand and put back
	// WaitSeconds is how long the last of them waits, about.
	WaitSeconds float64 `json:"waitSeconds"`
	// Top are the few keys that wait for longest.
	Top []KeysOver `json:"top,omitempty"`
}
