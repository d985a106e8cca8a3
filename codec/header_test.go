package codec

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/queuepump/queuepump/internal/proof"
)

// drawHeader draws any header that can be written, with at least one task.
func drawHeader(t *rapid.T) Header {
	set, _ := drawNSet(t)
	if set.Len() == 0 {
		set = MakeNSet(rapid.Uint64Max(1<<63).Draw(t, "n"))
	}
	h := Header{
		Version:    rapid.Uint8Range(1, Version).Draw(t, "version"),
		Workload:   rapid.StringN(-1, -1, maxWorkload).Draw(t, "workload"),
		Run:        RunID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "run")),
		Segment:    rapid.Uint32().Draw(t, "segment"),
		Tasks:      set,
		Attempt:    rapid.Uint32().Draw(t, "attempt"),
		Generation: rapid.Uint32().Draw(t, "generation"),
		MapVersion: rapid.Uint64().Draw(t, "map version"),
		RawLen:     uint64(set.Len())*minRecord + rapid.Uint64Max(1<<20).Draw(t, "more raw"),
		Checksum:   rapid.Uint64().Draw(t, "checksum"),
	}
	if h.Version >= sealedSince {
		h.Sealed = drawTime(t, "sealed")
	}
	if h.Version >= NotNowSince {
		h.NotNow.First, h.NotNow.Deliveries = drawTime(t, "not now"), rapid.Uint32().Draw(t, "deliveries")
		h.NotNow.Here = rapid.Uint32Max(h.NotNow.Deliveries).Draw(t, "here")
	}
	if h.Version >= bodySince {
		n := rapid.Uint64Max(1<<63).Draw(t, "only n")
		h.Tasks = MakeNSet(n)
		h.Body = BodyRef{
			rapid.StringN(1, -1, maxAccount).Draw(t, "account"), rapid.Uint64().Draw(t, "size"),
			rapid.Uint64().Draw(t, "body's checksum"),
		}
	}
	if rapid.Bool().Draw(t, "quarantined") {
		h.Cause = &Cause{
			Reason:   rapid.StringN(-1, -1, maxReason).Draw(t, "reason"),
			Detail:   rapid.StringN(-1, -1, maxDetail).Draw(t, "detail"),
			Instance: rapid.StringN(-1, -1, maxInstance).Draw(t, "instance"),
			Attempts: rapid.Uint32().Draw(t, "attempts"),
			First:    drawTime(t, "first"),
			Last:     drawTime(t, "last"),
		}
	}
	return h
}

func drawTime(t *rapid.T, name string) time.Time {
	ms := rapid.Int64Range(minMillis, maxMillis).Draw(t, name)
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

func TestEveryHeaderReadsBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := drawHeader(t)
		wire := appendHead(nil, &h, maxText/2)
		if size := headSize(len(h.appendFields(nil))); size != len(wire) || size%3 != 0 {
			t.Fatalf("header of %d bytes, %d predicted", len(wire), size)
		}
		plain := h
		plain.Cause = nil
		if got, want := plain.fieldsSize()+uvarintLen(h.RawLen)+h.Tasks.size(), len(plain.appendFields(nil)); got != want {
			t.Fatalf("fields of %d bytes, %d predicted", want, got)
		}
		got, err := ReadHeader(base64.StdEncoding.AppendEncode(nil, wire))
		must(t, err)
		if diff := cmp.Diff(h, got); diff != "" {
			t.Fatalf("read back differently (-want +got):\n%s", diff)
		}
	})
}

func TestTimesOfACauseKeepTheirMilliseconds(t *testing.T) {
	text := seal(t, testHeader(), jsonTasks(1, 1))
	for _, tc := range []struct{ in, want time.Time }{
		{time.Time{}, time.Time{}},
		{time.Date(2026, 7, 1, 12, 0, 0, 123_999_999, time.FixedZone("x", 3600)), time.Date(2026, 7, 1, 11, 0, 0, 123_000_000, time.UTC)},
		{time.Date(60000, 1, 1, 0, 0, 0, 0, time.UTC), time.UnixMilli(maxMillis).UTC()},
		{time.Date(-5, 1, 1, 0, 0, 0, 0, time.UTC), time.UnixMilli(minMillis).UTC()},
	} {
		q, err := Quarantined(text, Cause{First: tc.in})
		must(t, err)
		h, err := ReadHeader(q)
		if err != nil || !h.Cause.First.Equal(tc.want) {
			t.Errorf("%v came back as %v, want %v (%v)", tc.in, h.Cause.First, tc.want, err)
		}
	}
}

func TestTheHeaderIsReadWithoutTheRest(t *testing.T) {
	text := seal(t, testHeader(), jsonTasks(1, 1000))
	want, err := ReadHeader(text)
	must(t, err)
	// Whatever stands behind the header is neither needed nor looked at.
	got, err := ReadHeader(append(text[:120:120], "!!!!"...))
	must(t, err)
	proof.Same(t, cmp.Diff(want, got), "")
	if got.Tasks.String() != "0-999" || got.Workload != "orders" || got.Segment != 42 || got.Attempt != 1 || got.Generation != 2 || got.MapVersion != 3 {
		t.Errorf("header %+v", got)
	}
	// The workload's name and the n-set's spans.
	if allocs := testing.AllocsPerRun(100, func() { ReadHeader(text) }); allocs > 2 && !racing {
		t.Errorf("%v allocations for a header", allocs)
	}
}

// gzipText is text as other programs make it.
func gzipText(t testing.TB, h gzip.Header, content string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Header = h
	must(t, errOf(w.Write([]byte(content))))
	must(t, w.Close())
	return base64.StdEncoding.AppendEncode(nil, b.Bytes())
}

func TestTextsOfOtherProgramsAreForeign(t *testing.T) {
	for name, text := range map[string][]byte{
		"empty":                       {},
		"a word":                      []byte("hello"),
		"JSON":                        []byte(`{"city":"Berlin","id":7,"more":"0123456789"}`),
		"base64 of a sentence":        base64.StdEncoding.AppendEncode(nil, []byte("The quick brown fox jumps over the lazy dog")),
		"the beginning of any gzip":   []byte("H4sIAAAAAAAA"),
		"gzip":                        gzipText(t, gzip.Header{OS: 255}, strings.Repeat("hello ", 100)),
		"gzip with a name":            gzipText(t, gzip.Header{Name: "tasks.json", OS: 255}, strings.Repeat("hello ", 100)),
		"gzip with a BGZF subfield":   gzipText(t, gzip.Header{Extra: []byte("BC\x02\x00\x1b\x00"), OS: 255}, strings.Repeat("hello ", 100)),
		"gzip with another QP":        gzipText(t, gzip.Header{Extra: []byte("QP\x05\x00other"), OS: 255}, strings.Repeat("hello ", 100)),
		"an envelope that was not":    []byte(strings.Repeat("\x1f\x8b\x08\x04", 100)),
		"an XML fragment of the text": []byte("<MessageText>H4sIBAAAAAAA/0YAUVBCAHFwdW1wAQ==</MessageText>"),
	} {
		proof.Is(t, proof.ErrOf(ReadHeader(text)), ErrForeign, name, "ReadHeader says")
		proof.Is(t, proof.ErrOf(Open(text, Limits{})), ErrForeign, name, "Open says")
	}
}

func TestADamagedSignatureIsNoForeignTask(t *testing.T) {
	text := seal(t, testHeader(), jsonTasks(1, 3))
	fixed := 0
	for i := range signatureTxt {
		damaged := bytes.Clone(text)
		damaged[i] ^= 1
		_, err := ReadHeader(damaged)
		proof.Is(t, err, ErrCorrupt, i, "character changed")
		if signature[i] != 0 {
			fixed++
		}
	}
	proof.Same(t, fixed, 21, "fixed characters")
	for n := range signatureTxt {
		want := ErrForeign
		if n >= 13 {
			want = ErrTruncated
		}
		proof.Is(t, proof.ErrOf(ReadHeader(text[:n])), want, "first", n, "characters")
	}
}

// resealed decodes text, lets change have the bytes, and encodes them with a
// header whose checksum is right again.
func resealed(t testing.TB, text []byte, change func(member []byte, head int) []byte) []byte {
	t.Helper()
	member, err := base64.StdEncoding.DecodeString(string(text))
	must(t, err)
	head := idAt + int(binary.LittleEndian.Uint16(member[gzipHeader:]))
	member = change(member, head)
	binary.LittleEndian.PutUint32(member[head-checkLen:], crc32.ChecksumIEEE(member[:head-checkLen]))
	return base64.StdEncoding.AppendEncode(nil, member)
}

func TestANewerVersionIsToldFromDamage(t *testing.T) {
	text := seal(t, testHeader(), jsonTasks(1, 3))
	newer := resealed(t, text, func(m []byte, head int) []byte {
		m[versionAt] = 9
		clear(m[fieldsAt : head-checkLen]) // fields that no reader here can know
		return m
	})
	h, err := ReadHeader(newer)
	if !errors.Is(err, ErrVersion) || h.Version != 9 || !strings.Contains(err.Error(), "9") {
		t.Errorf("version 9: %+v, %v", h, err)
	}
	proof.Is(t, proof.ErrOf(Open(newer, Limits{})), ErrVersion, "Open of version 9")
	proof.Is(t, proof.ErrOf(Quarantined(newer, Cause{})), ErrVersion, "Quarantined of version 9")
	member, err := base64.StdEncoding.DecodeString(string(text))
	must(t, err)
	member[versionAt] = 9
	proof.Is(t, proof.ErrOf(ReadHeader(base64.StdEncoding.AppendEncode(nil, member))), ErrCorrupt,
		"a version byte that changed on the way")
	zero := resealed(t, text, func(m []byte, _ int) []byte { m[versionAt] = 0; return m })
	proof.Is(t, proof.ErrOf(ReadHeader(zero)), ErrCorrupt, "version 0")
}

func TestHeadersThatNobodyWroteAreRefused(t *testing.T) {
	h := testHeader()
	h.Version, h.Tasks, h.RawLen = NotNowSince, MakeNSet(0, 1), 100
	h.Cause = &Cause{Reason: "r", Detail: "d", Instance: "i", Attempts: 1}
	good := h.appendFields(nil)
	causeAt := len(good) - len(h.Cause.append(nil)) - 1
	for name, tc := range map[string]struct {
		fields []byte
		want   error
	}{
		"no fields":               {nil, ErrCorrupt},
		"more than the fields":    {append(bytes.Clone(good), 0, 0, 0, 0), ErrCorrupt},
		"fill that is not zero":   {append(bytes.Clone(good), 1), ErrCorrupt},
		"workload not UTF-8":      {append([]byte{1, 0xff}, good[7:]...), ErrCorrupt},
		"workload too long":       {append(append([]byte{0x80, 2}, make([]byte, 256)...), good[7:]...), ErrCorrupt},
		"cause neither nor":       {append(bytes.Clone(good[:causeAt]), 2), ErrCorrupt},
		"cause cut":               {good[:causeAt+3], ErrCorrupt},
		"time beyond year 9999":   {binary.AppendVarint(bytes.Clone(good[:len(good)-1]), maxMillis+1), ErrCorrupt},
		"time not in short form":  {append(bytes.Clone(good[:len(good)-1]), 0x80, 0), ErrCorrupt},
		"more than deflate can":   {func() []byte { h := h; h.RawLen = 1 << 40; return h.appendFields(nil) }(), ErrBomb},
		"more tasks than records": {func() []byte { h := h; h.RawLen = 5; return h.appendFields(nil) }(), ErrCorrupt},
		"no task":                 {func() []byte { h := h; h.Tasks = NSet{}; return h.appendFields(nil) }(), ErrCorrupt},
	} {
		proof.Is(t, proof.ErrOf(ReadHeader(framed(tc.fields, make([]byte, 100), 100))), tc.want, name)
	}
	proof.Is(t, proof.ErrOf(ReadHeader(framed(good, make([]byte, 100), 100))), nil,
		"the header that they are made")
	proof.Is(t, proof.ErrOf(ReadHeader(framed(good, nil, maxText+1))), ErrCorrupt,
		"packed length beyond a message")
	long := append(framed(good, nil, 0), make([]byte, maxText)...)
	proof.Is(t, proof.ErrOf(ReadHeader(long)), ErrCorrupt, "text beyond a message")
	lengths := resealed(t, framed(good, nil, 100), func(m []byte, _ int) []byte {
		binary.LittleEndian.PutUint16(m[idAt+2:], 7)
		return m
	})
	proof.Is(t, proof.ErrOf(ReadHeader(lengths)), ErrCorrupt, "subfield shorter than the extra field")
	proof.Is(t, proof.ErrOf(ReadHeader(framed(good, nil, 100)[:60])), ErrTruncated, "header cut")
	broken := framed(good, nil, 100)
	broken[40] = '!'
	proof.Is(t, proof.ErrOf(ReadHeader(broken)), ErrCorrupt, "header not base64")
}

// framed is the text of an envelope with these fields behind a right frame and
// before packed, which is declared to be of the given size.
func framed(fields, packed []byte, declared int) []byte {
	b := append([]byte(frameStart), NotNowSince)
	b = binary.LittleEndian.AppendUint32(b, uint32(declared))
	b = append(b, fields...)
	for len(b) < headSize(len(fields))-checkLen {
		b = append(b, 0)
	}
	size := len(b) + checkLen
	binary.LittleEndian.PutUint16(b[gzipHeader:], uint16(size-idAt))
	binary.LittleEndian.PutUint16(b[idAt+2:], uint16(size-idAt-4))
	b = binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
	return base64.StdEncoding.AppendEncode(base64.StdEncoding.AppendEncode(nil, b), packed)
}
