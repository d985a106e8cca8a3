package election

import (
	"bytes"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump/internal/testkit"
)

// FuzzRow reads the row of an election, whatever it holds.
func FuzzRow(f *testing.F) {
	table := testkit.NewServer().Client("a")
	testkit.Fuzz(f, []testkit.Kind{testkit.KindOf("election", electionRowOf(table, "work", Options{Lease: time.Second}), electionRow{
		leader: "a-1#1", epoch: 3, beats: 4, phase: Running, run: codec.RunID{1, 2, 3}, checkpoint: bytes.Repeat([]byte{7}, 100),
		every: time.Minute, beat: time.Second, lease: 4 * time.Second, margin: time.Second,
	})})
}
