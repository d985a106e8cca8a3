package testworld

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"
)

// SimHash is where all chance comes from: seed, what for, about what, how many-th time (P9).
func SimHash(seed uint64, what, object string, times int) uint64 {
	var d xxhash.Digest
	d.ResetWithSeed(seed)
	_, _ = d.WriteString(what)
	_, _ = d.Write([]byte{0})
	_, _ = d.WriteString(object)
	_, _ = d.Write(binary.LittleEndian.AppendUint64([]byte{0}, uint64(times)))
	return d.Sum64()
}
