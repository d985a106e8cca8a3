package coordination

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
)

const (
	// maxKeyShown is how much of a key its row shows, in bytes.
	maxKeyShown = 256
	// maxTaskShown is the longest identity of a task that stands in a row as it is.
	maxTaskShown = 250
)

// TaskRef is the identity of a task, the same in each delivery of it: Run,
// Segment and N, or, of a message that no distributor made, Foreign.
type TaskRef struct {
	Run     codec.RunID
	Segment uint32
	N       uint64
	Foreign string
}

// String is the identity as claims keep it.
func (t TaskRef) String() string {
	if t.Foreign == "" {
		return fmt.Sprintf("%s/%d/%d", t.Run, t.Segment, t.N)
	}
	if len(t.Foreign) <= maxTaskShown && !strings.ContainsFunc(t.Foreign, unshown) {
		return "foreign " + t.Foreign
	}
	sum := sha256.Sum256([]byte(t.Foreign))
	return "foreign " + hex.EncodeToString(sum[:])
}

// unshown is what cannot stand in a property or on a line: control characters and bytes that are
// not text.
func unshown(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) }

// claimRow is the row of a key. Its times are the service's own stamps: it is
// written when work starts and when it stops, so that a running row's last
// write is the start, and that of a stopped one the stop, took after the start.
type claimRow struct {
	key      string // for people: its first bytes, as base64 if it is not text
	base64   bool
	bytes    uint64 // of the whole key
	task     string
	owner    string // token of the process
	running  bool
	failed   bool          // how it stopped
	took     time.Duration // from start to stop at least; zero while running
	interval time.Duration // of the process that claimed
}

func newClaimRow(key []byte, task TaskRef) claimRow {
	c := claimRow{bytes: uint64(len(key)), task: task.String(), running: true}
	shown := key[:min(len(key), maxKeyShown)]
	if len(shown) < len(key) { // not through the middle of a character
		for i := 1; i < utf8.UTFMax && i < len(shown); i++ {
			if last := shown[len(shown)-i:]; utf8.RuneStart(last[0]) {
				if !utf8.FullRune(last) {
					shown = shown[:len(shown)-i]
				}
				break
			}
		}
	}
	c.key = string(shown)
	if c.base64 = strings.ContainsFunc(c.key, unshown); c.base64 {
		c.key = base64.StdEncoding.EncodeToString(key[:min(len(key), maxKeyShown)])
	}
	return c
}

// started is when the work of a row that was last written at `modified` began.
// It may be said to be a little later than it was, never earlier.
func (c claimRow) started(modified time.Time) time.Time { return modified.Add(-c.took) }

// claimRowOf is the row of a key, named by a hash for which no two keys can be found: a key may
// have any bytes and length, a row key may not.
func claimRowOf(
	t storage.Table, workloadName string, key []byte,
) (r row.Row[claimRow], part int) {
	sum := sha256.Sum256(key)
	part = int(sum[0] >> 4)
	partition := workload.ClaimsPartition(workloadName, part)
	return claimRowAt(t, partition, hex.EncodeToString(sum[:])), part
}

func claimRowAt(t storage.Table, partition, key string) row.Row[claimRow] {
	return row.Row[claimRow]{
		Table: t, Partition: partition, Key: key, Timeout: row.RequestTimeout, Encode: encodeClaim,
		Decode: decodeClaim,
	}
}

func encodeClaim(c claimRow) map[string]any {
	return map[string]any{
		"Key": c.key, "KeyBase64": c.base64, "KeyBytes": int64(c.bytes), "Task": c.task, "Owner": c.owner,
		// ns
		"Running": c.running, "Failed": c.failed, "Took": int64(c.took), "Interval": int64(c.interval),
	}
}

func decodeClaim(f *row.Fields) claimRow {
	c := claimRow{
		key: f.Text("Key"), base64: f.Flag("KeyBase64"), bytes: f.Count("KeyBytes"), task: f.Text("Task"),
		owner:   f.Text("Owner"),
		running: f.Flag("Running"), failed: f.Flag("Failed"), took: f.Duration("Took"),
		interval: f.Duration("Interval"),
	}
	switch {
	case c.task == "" || c.owner == "":
		f.Fail("Task or Owner", "is empty")
	case c.interval == 0:
		f.Fail("Interval", "is not there")
	case c.running && (c.took != 0 || c.failed):
		f.Fail("Running", "does not agree with Took and Failed")
	}
	return c
}
