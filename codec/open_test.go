package codec

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"math"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/queuepump/queuepump/internal/proof"
)

// recordsOf are the records of tasks as they stand in an envelope.
func recordsOf(tasks []Task) (b []byte) {
	for i := range tasks {
		b = appendRecord(b, &tasks[i])
	}
	var contexts traces
	for i := range tasks {
		if len(tasks[i].Trace) > 0 {
			contexts.add(i, tasks[i].Trace)
		}
	}
	return append(b, contexts.section...)
}

// packed is a gzip body of content: DEFLATE stream, CRC-32, size.
func packed(t testing.TB, content []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := flate.NewWriter(&b, flate.BestCompression)
	must(t, err)
	must(t, errOf(w.Write(content)))
	must(t, w.Close())
	return trailer(b.Bytes(), content)
}

func trailer(stream, content []byte) []byte {
	stream = binary.LittleEndian.AppendUint32(stream, crc32.ChecksumIEEE(content))
	return binary.LittleEndian.AppendUint32(stream, uint32(len(content)))
}

// forged is an envelope with a right header around body. The header declares
// the tasks of set, and raw as the size of records that have this checksum.
func forged(set NSet, raw, sum uint64, body []byte) []byte {
	h := testHeader()
	h.Version, h.Tasks, h.RawLen, h.Checksum = 2, set, raw, sum
	return appendText(nil, &h, body)
}

func TestAnEnvelopeIsAGzipFile(t *testing.T) {
	tasks := jsonTasks(1, 1000)
	text := seal(t, testHeader(), tasks)
	member, err := base64.StdEncoding.DecodeString(string(text))
	must(t, err)
	want := recordsOf(tasks)

	t.Run("for compress/gzip", func(t *testing.T) {
		r, err := gzip.NewReader(bytes.NewReader(member))
		must(t, err)
		r.Multistream(false)
		got, err := io.ReadAll(r)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes, want %d; %v", len(got), len(want), err)
		}
		if !bytes.HasPrefix(r.Extra, []byte("QP")) || string(r.Extra[4:9]) != magic {
			t.Errorf("extra field %q", r.Extra[:16])
		}
	})
	t.Run("for the gunzip command", func(t *testing.T) {
		path, err := exec.LookPath("gunzip")
		if err != nil {
			t.Skip("there is no gunzip here")
		}
		cmd := exec.CommandContext(t.Context(), path, "-c")
		cmd.Stdin = bytes.NewReader(member)
		got, err := cmd.Output()
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes, want %d; %v", len(got), len(want), err)
		}
	})
}

func TestAnyEnvelopeIsAGzipFileForOthers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tasks := drawTasks(t, 50)
		b := NewBuilder(0)
		b.Reset(testHeader())
		n := 0
		for _, task := range tasks {
			fits, err := b.Add(task)
			must(t, err)
			if !fits {
				break
			}
			n++
		}
		text, _, err := b.Seal(nil)
		must(t, err)
		r, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, bytes.NewReader(text)))
		must(t, err)
		if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, recordsOf(tasks[:n])) {
			t.Fatalf("gunzip: %v", err)
		}
	})
}

func TestATruncatedEnvelopeIsTruncatedWhereverItEnds(t *testing.T) {
	text := seal(t, testHeader(), jsonTasks(1, 20))
	for n := signatureTxt; n < len(text); n++ {
		if _, err := Open(text[:n], Limits{}); !errors.Is(err, ErrTruncated) {
			t.Fatalf("%d of %d characters: %v", n, len(text), err)
		}
	}
}

// Every single bit of a message may change on the way, or be changed by hand.
func TestAFlippedBitIsFoundOrHarmless(t *testing.T) {
	tasks := jsonTasks(1, 12)
	text := seal(t, testHeader(), tasks)
	quarantined, err := Quarantined(text, Cause{Reason: "bad", Detail: "line 7", Instance: "host-1", Attempts: 3})
	must(t, err)
	// A body that does not compress is stored, where nothing but the checksums notices.
	stored := seal(t, testHeader(), []Task{{N: 3, Key: []byte("k"), Body: []byte{0xf0, 0x01, 0x99}}})
	for name, text := range map[string][]byte{"compressed": text, "quarantined": quarantined, "stored": stored} {
		whole := open(t, text)
		found := map[error]int{}
		for i := range 8 * len(text) {
			text[i/8] ^= 1 << (i % 8)
			e, err := Open(text, Limits{})
			text[i/8] ^= 1 << (i % 8)
			if err == nil {
				found[nil]++
				sameTasks(t, e.Tasks, whole.Tasks)
				if diff := cmp.Diff(whole.Header, e.Header); diff != "" {
					t.Fatalf("%s: bit %d changed the header:\n%s", name, i, diff)
				}
				e.Release()
				continue
			}
			for _, kind := range []error{ErrForeign, ErrTruncated, ErrCorrupt, ErrVersion, ErrBomb} {
				if errors.Is(err, kind) {
					found[kind]++
				}
			}
		}
		t.Logf("%s: %v", name, found)
		if found[ErrForeign]+found[ErrVersion]+found[ErrTruncated] > 0 {
			t.Errorf("%s: a flipped bit was taken for something else: %v", name, found)
		}
		// DEFLATE pads to byte boundaries with bits that mean nothing.
		if found[nil] > 20 {
			t.Errorf("%s: %d bits are not covered", name, found[nil])
		}
		whole.Release()
	}
}

func TestABombIsRefused(t *testing.T) {
	zeros := make([]byte, 32<<20)
	one := MakeNSet(0)
	body := packed(t, zeros) // 32 KiB that unpack to 32 MiB
	if len(body) > 48<<10 {
		t.Fatalf("%d packed bytes", len(body))
	}
	honest := forged(one, uint64(len(zeros)), xxhash.Sum64(zeros), body)
	lying := forged(one, 1000, xxhash.Sum64(zeros[:1000]), body)
	many := []Task{}
	for n := range uint64(maxTasks + 1) {
		many = append(many, Task{N: n})
	}
	manyRaw := recordsOf(many)
	var manySet NSet
	manySet.AddRange(0, uint64(len(many)))
	crowd := forged(manySet, uint64(len(manyRaw)), xxhash.Sum64(manyRaw), packed(t, manyRaw))
	for name, tc := range map[string]struct {
		text   []byte
		limits Limits
	}{
		"says what it is":          {honest, Limits{}},
		"says it is small":         {lying, Limits{}},
		"declares the impossible":  {forged(one, math.MaxUint64, 0, body), Limits{}},
		"beyond the ratio":         {honest, Limits{MaxRaw: 64 << 20, MaxRatio: 100}},
		"too many tasks":           {crowd, Limits{}},
		"a task too many, limited": {seal(t, testHeader(), jsonTasks(1, 11)), Limits{MaxTasks: 10}},
		"a byte too many, limited": {seal(t, testHeader(), jsonTasks(1, 11)), Limits{MaxRaw: 1000}},
	} {
		proof.Is(t, proof.ErrOf(Open(tc.text, tc.limits)), ErrBomb, name)
	}
	// The limits are the caller's.
	e, err := Open(crowd, Limits{MaxTasks: maxTasks + 1})
	must(t, err)
	e.Release()
}

// A declaration costs nothing before it comes true: a few hundred bytes that
// declare megabytes and hold almost none.
func TestADeclaredSizeIsNotTrustedWithMemory(t *testing.T) {
	const declared = 40 << 20
	text := forged(MakeNSet(0), declared, 0, append(packed(t, []byte("x")), make([]byte, 47<<10)...))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 10 {
		if _, err := Open(text, Limits{MaxRaw: math.MaxInt}); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), strconv.Itoa(declared)) {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	if allocated := (after.TotalAlloc - before.TotalAlloc) / 10; allocated > 1<<20 {
		t.Errorf("%d bytes allocated for each", allocated)
	}
}

func TestWhatIsWrongBehindAGoodHeaderIsCorrupt(t *testing.T) {
	tasks := []Task{{N: 0, Key: []byte("k"), Body: []byte("hello")}, {N: 1, Body: []byte("world")}}
	raw := recordsOf(tasks)
	set := MakeNSet(0, 1)
	size, sum := uint64(len(raw)), xxhash.Sum64(raw)
	good := packed(t, raw)
	text := forged(set, size, sum, good)
	open(t, text).Release()

	changed := func(b []byte, at int) []byte {
		b = bytes.Clone(b)
		b[(at+len(b))%len(b)] ^= 1
		return b
	}
	records := func(set NSet, raw ...byte) []byte {
		return forged(set, uint64(len(raw)), xxhash.Sum64(raw), packed(t, raw))
	}
	for name, tc := range map[string]struct {
		text []byte
		want error
	}{
		"wrong size in the trailer":    {forged(set, size, sum, changed(good, -1)), ErrCorrupt},
		"wrong CRC-32":                 {forged(set, size, sum, changed(good, -5)), ErrCorrupt},
		"wrong checksum":               {forged(set, size, sum+1, good), ErrCorrupt},
		"records larger than declared": {forged(set, size-1, sum, good), ErrBomb},
		"records smaller":              {forged(set, size+1, sum, good), ErrCorrupt},
		"no DEFLATE stream":            {forged(set, size, sum, bytes.Repeat([]byte{0xff}, 100)), ErrCorrupt},
		"stream that does not end":     {forged(set, size, sum, good[:len(good)-9]), ErrCorrupt},
		"nothing packed":               {forged(set, size, sum, nil), ErrBomb},
		"a byte behind the end":        {forged(set, size, sum, append(bytes.Clone(good), 0)), ErrCorrupt},
		"a second member":              {forged(set, size, sum, append(bytes.Clone(good), gzipMember(t)...)), ErrCorrupt},
		"text behind the end":          {append(bytes.Clone(text), "AAAA"...), ErrCorrupt},
		"a line break":                 {append(append(bytes.Clone(text[:len(text)-9]), '\n'), text[len(text)-8:]...), ErrCorrupt},
		"a line break at the end":      {append(bytes.Clone(text), '\n'), ErrCorrupt},
		"a character outside base64":   {append(append(bytes.Clone(text[:len(text)-9]), '%'), text[len(text)-8:]...), ErrCorrupt},
		"a replacement character":      {bytes.Replace(text, text[len(text)-9:len(text)-6], []byte("\uFFFD"), 1), ErrCorrupt},
		"a record too few":             {records(MakeNSet(0, 1, 2), append(raw, make([]byte, 2)...)...), ErrCorrupt},
		"a record too many":            {records(MakeNSet(0), raw...), ErrCorrupt},
		"a length beyond the end":      {records(MakeNSet(0), 0, 0, 200, 1), ErrCorrupt},
		"a length of 2^63":             {records(MakeNSet(0), 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f), ErrCorrupt},
		"a length that does not end":   {records(MakeNSet(0), 0, 0, 0x80), ErrCorrupt},
		"a length not in short form":   {records(MakeNSet(0), 0, 0, 0x80, 0), ErrCorrupt},
	} {
		proof.Is(t, proof.ErrOf(Open(tc.text, Limits{})), tc.want, name)
	}
}

func gzipMember(t testing.TB) []byte {
	t.Helper()
	member, err := base64.StdEncoding.DecodeString(string(gzipText(t, gzip.Header{OS: 255}, "another")))
	must(t, err)
	return member
}

func TestReleasedEnvelopesDoNotShareMemoryWithOpenOnes(t *testing.T) {
	first, second := jsonTasks(1, 500), jsonTasks(2, 500)
	text1, text2 := seal(t, testHeader(), first), seal(t, testHeader(), second)
	a := open(t, text1)
	clear(text1) // Open keeps nothing of the text
	b := open(t, text2)
	sameTasks(t, a.Tasks, first)
	a.Release()
	a.Release() // does nothing
	if a.Tasks != nil || a.Header.Workload != "orders" {
		t.Errorf("after Release: %d tasks, header %+v", len(a.Tasks), a.Header)
	}
	c, d := open(t, text2), open(t, text2)
	for _, e := range []*Envelope{b, c, d} {
		sameTasks(t, e.Tasks, second)
	}
	// Nor can appending to a task reach the next one.
	_ = append(c.Tasks[0].Body, "overwritten"...)
	sameTasks(t, c.Tasks, second)
	for _, e := range []*Envelope{b, c, d} {
		e.Release()
	}
}

func TestOpeningAllocatesNothingPerTask(t *testing.T) {
	if racing {
		t.Skip("pools forget at random under the race detector")
	}
	tasks := jsonTasks(1, 1000)
	text := seal(t, testHeader(), tasks)
	allocs := testing.AllocsPerRun(50, func() {
		e, err := Open(text, Limits{})
		must(t, err)
		e.Release()
	})
	t.Logf("%v allocations for %d tasks", allocs, len(tasks))
	if allocs > 0.01*float64(len(tasks)) {
		t.Errorf("%v allocations for %d tasks", allocs, len(tasks))
	}
}
