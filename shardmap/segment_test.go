package shardmap

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"
	"pgregory.net/rapid"

	"github.com/queuepump/queuepump/internal/proof"
)

// goldenKey reads the key column of testdata/segments.txt.
func goldenKey(t *testing.T, field string) []byte {
	t.Helper()
	field, times, repeated := strings.Cut(field, "x")
	if field == "-" {
		return nil
	}
	key, err := hex.DecodeString(field)
	must(t, err)
	if !repeated {
		return key
	}
	n, err := strconv.Atoi(times)
	must(t, err)
	return bytes.Repeat(key, n)
}

func TestSegmentIsPinnedByGoldenVectors(t *testing.T) {
	file, err := os.Open("testdata/segments.txt")
	must(t, err)
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	vectors := 0
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		vectors++
		var name, sum string
		var of64, of1024, of4096 uint32
		if _, err := fmt.Sscan(lines.Text(), &name, &sum, &of64, &of1024, &of4096); err != nil {
			t.Fatalf("line %q: %v", lines.Text(), err)
		}
		key := goldenKey(t, name)
		proof.Same(t, fmt.Sprintf("%016x", xxhash.Sum64(key)), sum, name, "xxhash64 of is")
		for segments, want := range map[int]uint32{1: 0, 64: of64, 1024: of1024, 4096: of4096} {
			proof.Same(t, Segment(key, segments), want, name, segments, "Segment")
		}
	}
	must(t, lines.Err())
	if vectors < 20 {
		t.Fatalf("only %d vectors", vectors)
	}
}

func TestSegmentIsBelowTheNumberOfSegmentsForAnyKey(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.SliceOf(rapid.Byte()).Draw(t, "key")
		segments := 1 << rapid.IntRange(0, 12).Draw(t, "log2 S")
		if got := Segment(key, segments); int(got) >= segments {
			t.Fatalf("Segment = %d of %d", got, segments)
		}
	})
}

func TestSegmentsOfManyKeysAreEvenlyUsed(t *testing.T) {
	const segments, keys = 256, 256 * 1000
	var used [segments]int
	for i := range keys {
		used[Segment(fmt.Appendf(nil, "customer-%d", i), segments)]++
	}
	for s, n := range used {
		// 1,000 expected, standard deviation 32: 200 away is over six of them.
		if n < 800 || n > 1200 {
			t.Errorf("segment %d has %d of %d keys", s, n, keys)
		}
	}
}

func TestDefaultSegmentsIsAPowerOfTwoOfAtLeast32AShardFrom64To4096(t *testing.T) {
	for shards, want := range map[int]int{-1: 64, 0: 64, 1: 64, 2: 64, 3: 128, 4: 128, 5: 256, 8: 256, 9: 512, 32: 1024, 33: 2048, 64: 2048, 65: 4096, 100: 4096, 128: 4096, 129: 4096, 1 << 40: 4096} {
		proof.Same(t, DefaultSegments(shards), want, shards, "DefaultSegments")
	}
	for shards := range MaxShards {
		s := DefaultSegments(shards)
		if checkSegments(s) != nil || s < 64 || (s < 32*shards && s != 4096) || (s > 64 && s/2 >= 32*shards) {
			t.Fatalf("DefaultSegments(%d) = %d", shards, s)
		}
	}
}

func BenchmarkSegment(b *testing.B) {
	key := []byte("customer-1234567")
	for b.Loop() {
		Segment(key, 1024)
	}
}

// A long body that is its own key stands once, and every key comes back, whatever it is.
func TestAKeyComesBackAsItWasWhetherItIsStoredOnceOrNot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		segments := SegmentStep * rapid.IntRange(1, MaxSegments/SegmentStep).Draw(t, "steps")
		body := rapid.SliceOfN(rapid.Byte(), 0, 2*onceFrom).Draw(t, "body")
		if rapid.Bool().Draw(t, "long") {
			body = append(body, make([]byte, onceFrom)...)
		}
		key := body
		switch rapid.IntRange(0, 2).Draw(t, "key") {
		case 1:
			key = rapid.SliceOfN(rapid.Byte(), 0, 3).Draw(t, "short")
		case 2:
			key = append(bytes.Clone(body), 'x')
		}
		segment := Segment(key, segments)
		stored := StoredKey(key, body, segments)
		if once := bytes.Equal(key, body) && len(key) >= onceFrom; once != (len(stored) < len(key)) || len(stored) > len(key) {
			t.Fatalf("a key of %d bytes is stored as %d", len(key), len(stored))
		}
		if got := KeyOf(stored, body, segment, segments); !bytes.Equal(got, key) {
			t.Fatalf("%q came back as %q", key, got)
		}
	})
}
