package realaccounts

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"regexp"
	"strconv"
	"time"
)

// mark begins the name of everything that a run makes. Both queues and tables may be called so.
const mark = "qpaz"

// pumpTable is the table in which the pump keeps the rows of all workloads of an account
// (pump/internal/row). It may be in use, so only the run's own rows are removed from it.
const pumpTable = "queuepump"

var named = regexp.MustCompile(`^` + mark + `([0-9a-f]{8})[0-9a-f]{4}`)

// newPrefix begins the names of one run: the mark, when it began, and a random part.
func newPrefix(now time.Time) string {
	var b [2]byte
	_, _ = rand.Read(b[:])
	return fmt.Sprintf("%s%08x%s", mark, uint32(now.Unix()), hex.EncodeToString(b[:]))
}

// prefixOf finds the prefix in a name, and when its run began. A name that only looks like one is
// not ours.
func prefixOf(name string) (prefix string, began time.Time, ok bool) {
	m := named.FindStringSubmatch(name)
	if m == nil {
		return "", began, false
	}
	seconds, err := strconv.ParseUint(m[1], 16, 32)
	return m[0], time.Unix(int64(seconds), 0), err == nil
}
