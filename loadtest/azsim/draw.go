// This file makes the choices of the simulator. Each choice is a pure function of the seed and of
// its subject (P9, docs/protocols.md). A generator that is shared in the order of arrival would
// make one request's fate depend on another's.

package azsim

import (
	"encoding/binary"
	"encoding/hex"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// drawMix folds words into one well-spread word (splitmix64's finisher between
// them, so that neighbouring counters give unrelated results).
func drawMix(words ...uint64) uint64 {
	h := uint64(0x9e3779b97f4a7c15)
	for _, w := range words {
		h ^= w
		h += 0x9e3779b97f4a7c15
		h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
		h = (h ^ h>>27) * 0x94d049bb133111eb
		h ^= h >> 31
	}
	return h
}

// drawHash is a word of a text.
func drawHash(s string) uint64 { return xxhash.Sum64String(s) }

// drawShare maps a hash to [0, 1).
func drawShare(h uint64) float64 { return float64(h>>11) / (1 << 53) }

type guid [16]byte

func (g guid) String() string {
	b := make([]byte, 0, 36)
	for i := range g {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			b = append(b, '-')
		}
		b = hex.AppendEncode(b, g[i:i+1])
	}
	return string(b)
}

// parseGUID reads what String writes, in letters of either case.
func parseGUID(text string) (g guid, ok bool) {
	digits, err := hex.DecodeString(strings.ReplaceAll(text, "-", ""))
	copy(g[:], digits)
	return g, err == nil && strings.EqualFold(g.String(), text)
}

// drawGUID makes a version 4 shaped GUID out of two words.
func drawGUID(words ...uint64) guid {
	var u guid
	hi := drawMix(words...)
	binary.BigEndian.PutUint64(u[:8], hi)
	binary.BigEndian.PutUint64(u[8:], drawMix(hi, 1))
	u[6] = u[6]&0x0f | 0x40
	u[8] = u[8]&0x3f | 0x80
	return u
}
