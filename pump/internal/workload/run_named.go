package workload

import (
	"crypto/sha256"

	"github.com/queuepump/queuepump/codec"
)

// NamedRun is the id of the run with a name in a workload of an incarnation: a workload that is
// made again has other runs.
func NamedRun(incarnation, name string) (id codec.RunID) {
	sum := sha256.Sum256([]byte("run\x00" + incarnation + "\x00" + name))
	copy(id[:], sum[:])
	return id
}
