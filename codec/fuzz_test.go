package codec

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// seedTexts are messages of every kind to start from.
func seedTexts(f *testing.F) [][]byte {
	tasks := jsonTasks(1, 20)
	text := seal(f, testHeader(), tasks)
	quarantined, err := Quarantined(text, testCause())
	must(f, err)
	zeros := make([]byte, 1<<20)
	return [][]byte{
		{},
		[]byte("hello"),
		text,
		quarantined,
		text[:len(text)/2],
		golden(f, "v1.txt"),
		golden(f, "v1-chunks.txt"),
		gzipText(f, gzip.Header{OS: 255}, "of another program"),
		forged(MakeNSet(0), 1000, 0, packed(f, zeros)),
		framed([]byte("no fields"), nil, 100),
	}
}

// checkKind fails the test unless err is one of the documented ones.
func checkKind(t *testing.T, err error) {
	t.Helper()
	for _, kind := range []error{ErrForeign, ErrTruncated, ErrCorrupt, ErrVersion, ErrBomb} {
		if errors.Is(err, kind) {
			return
		}
	}
	t.Fatalf("undocumented error %v", err)
}

// What FuzzCodec checks, by the mode modulo modes. All are one target because
// go test takes a pattern that matches one target of a package, and
// `go test ./codec -fuzz .` should do.
const (
	openText byte = iota
	openFields
	headerText
	headerFields
	roundTrip
	builder
	stream
	modes
)

// FuzzCodec runs the check that mode names. Each takes of data, more, limit and
// segment what it has a use for.
func FuzzCodec(f *testing.F) {
	for _, text := range seedTexts(f) {
		f.Add(openText, text, []byte{}, uint16(0), uint32(0))
		f.Add(headerText, text, []byte{}, uint16(0), uint32(0))
		if fr, err := readFrame(text); err == nil {
			f.Add(headerFields, fr.appendFields(nil), []byte{}, uint16(0), uint32(0))
			if body, err := strict.AppendDecode(nil, fr.body); err == nil {
				f.Add(openFields, fr.appendFields(nil), body, uint16(0), uint32(0))
			}
		}
	}
	f.Add(roundTrip, []byte{}, []byte{}, uint16(0), uint32(0))
	f.Add(roundTrip, []byte("\x01\x03\x00\x20key and body"), []byte("orders"), uint16(400), uint32(7))
	f.Add(roundTrip, bytes.Repeat([]byte("\x02\x01\x01\x30aaaaaaaaaa"), 300), []byte("w"), uint16(300), uint32(1<<31))
	f.Add(roundTrip, recordsOf(jsonTasks(1, 100)), []byte("json"), uint16(2000), uint32(3))
	f.Add(builder, []byte("\x01\x03\x00\x20key and body"), []byte{}, uint16(200), uint32(0))
	f.Add(builder, bytes.Repeat([]byte("\x02\x01\x01\x30aaaaaaaaaa"), 50), []byte{}, uint16(300), uint32(0))
	f.Add(builder, recordsOf(jsonTasks(1, 30)), []byte{}, uint16(1000), uint32(0))
	f.Add(builder, binary.LittleEndian.AppendUint64(nil, math.MaxUint64), []byte{}, uint16(120), uint32(0))
	for _, s := range streams(f, recordsOf(jsonTasks(1, 4))) {
		f.Add(stream, s, []byte{}, uint16(2000), uint32(0))
	}
	f.Fuzz(func(t *testing.T, mode byte, data, more []byte, limit uint16, segment uint32) {
		switch mode % modes {
		case openText:
			checkOpen(t, data)
		case openFields:
			if text := withFrame(data, more, len(more)); text != nil {
				checkOpen(t, text)
			}
		case headerText:
			checkReadHeader(t, data)
		case headerFields:
			if text := withFrame(data, nil, 40_000); text != nil {
				checkReadHeader(t, text)
			}
		case roundTrip:
			checkRoundTrip(t, data, int(limit), segment, string(more))
		case builder:
			checkBuilder(t, data, int(limit))
		case stream:
			checkStream(t, data, int(limit))
		}
	})
}

// withFrame puts a frame that is right, which random texts never get past,
// before any fields and packed bytes. Fields that no frame can hold give nil.
func withFrame(fields, body []byte, size int) []byte {
	if len(fields) > math.MaxUint16-fieldsAt-checkLen {
		return nil
	}
	return framed(fields, body, size)
}

// checkOpen: what Open takes is what the header says and what gzip reads, and
// what it refuses it refuses with a documented error.
func checkOpen(t *testing.T, text []byte) {
	limits := Limits{MaxRaw: 1 << 20, MaxTasks: 5000}
	e, err := Open(text, limits)
	if err != nil {
		checkKind(t, err)
		return
	}
	defer e.Release()
	if h, err := ReadHeader(text); err != nil || !cmp.Equal(h, e.Header) {
		t.Fatalf("ReadHeader %+v, %v\nOpen %+v", h, err, e.Header)
	}
	if e.Header.RawLen > 1<<20 || len(e.Tasks) > 5000 || len(e.Tasks) != e.Header.Tasks.Len() {
		t.Fatalf("%d bytes, %d tasks, n-set %v", e.Header.RawLen, len(e.Tasks), e.Header.Tasks)
	}
	if raw := recordsOf(e.Tasks); uint64(len(raw)) != e.Header.RawLen {
		t.Fatalf("records of %d bytes, header says %d", len(raw), e.Header.RawLen)
	}
	i := 0
	for n := range e.Header.Tasks.All() {
		if e.Tasks[i].N != n {
			t.Fatalf("task %d is n = %d, want %d", i, e.Tasks[i].N, n)
		}
		i++
	}
	// An envelope that can be opened is a gzip file for every reader.
	r, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, bytes.NewReader(text)))
	must(t, err)
	if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, recordsOf(e.Tasks)) {
		t.Fatalf("compress/gzip: %d bytes, %v", len(got), err)
	}
}

// checkReadHeader: a header that can be read is written as it was, and its
// message can be quarantined.
func checkReadHeader(t *testing.T, text []byte) {
	fr, err := readFrame(text)
	if err != nil {
		checkKind(t, err)
		return
	}
	// A header has only one form, so writing it gives the same text again.
	if again, _ := fr.text(); !bytes.Equal(again, text) {
		t.Fatalf("%+v is written as\n%q, was\n%q", fr.Header, again, text)
	}
	quarantined, err := Quarantined(text, testCause())
	if errors.Is(err, ErrTooLarge) {
		return
	}
	must(t, err)
	got, err := ReadHeader(quarantined)
	want := fr.Header
	want.Cause = got.Cause
	if err != nil || got.Cause == nil || !cmp.Equal(want, got) {
		t.Fatalf("quarantined %+v, %v\nwas %+v", got, err, fr.Header)
	}
}

// checkRoundTrip packs what data spells out, with a small limit and as many
// envelopes as it takes, and wants every task back once.
func checkRoundTrip(t *testing.T, data []byte, limit int, segment uint32, workload string) {
	tasks := spelled(data)
	b := NewBuilder(limit)
	b.Reset(Header{Workload: workload, Segment: segment})
	if b.err != nil {
		return
	}
	for len(tasks) > 0 {
		b.Reset(Header{Workload: workload, Segment: segment})
		n := 0
		for n < len(tasks) {
			fits, err := b.Add(tasks[n])
			if errors.Is(err, ErrTaskTooLarge) && n == 0 {
				tasks = tasks[1:]
				continue
			}
			must(t, err)
			if !fits {
				break
			}
			n++
		}
		if n == 0 {
			if len(tasks) > 0 {
				t.Fatal("an empty envelope refused a task without an error")
			}
			return
		}
		text, _, err := b.Seal(nil)
		if err != nil || limit > 0 && len(text) > limit {
			t.Fatalf("%d characters, the limit is %d; %v", len(text), limit, err)
		}
		e := open(t, text)
		sameTasks(t, e.Tasks, tasks[:n])
		if e.Header.Workload != workload || e.Header.Segment != segment {
			t.Fatalf("header %+v", e.Header)
		}
		e.Release()
		tasks = tasks[n:]
	}
}

// spelled makes tasks of any bytes: four say how far the next n is away and how
// long key, id and body are; those follow. Odd bodies are repeated, so that
// some are far larger than the input.
func spelled(data []byte) (tasks []Task) {
	next := uint64(0)
	take := func(n int) []byte {
		n = min(n, len(data))
		b := data[:n]
		data = data[n:]
		return b
	}
	for len(data) >= 4 {
		op := take(4)
		task := Task{N: next + uint64(op[0]&^1)*uint64(op[0]), Key: take(int(op[1])), ID: take(int(op[2])), Body: take(int(op[3]))}
		if op[3]%2 == 1 {
			task.Body = bytes.Repeat(task.Body, 1+int(op[0]))
		}
		next = task.N + 1
		tasks = append(tasks, task)
	}
	return tasks
}

// checkBuilder checks each answer of Add against sealing.
func checkBuilder(t *testing.T, data []byte, limit int) {
	if limit == 0 || len(data) > 16<<10 {
		return
	}
	b := NewBuilder(limit)
	b.Reset(testHeader())
	for _, task := range spelled(data) {
		tasks, raw := b.Len(), b.rawLen
		fits, err := b.Add(task)
		if err != nil && !errors.Is(err, ErrTaskTooLarge) {
			t.Fatal(err)
		}
		trial := clone(b)
		if !fits {
			if b.Len() != tasks || b.rawLen != raw {
				t.Fatal("a refused task was counted")
			}
			trial.limit = math.MaxInt32
			if ok, err := trial.Add(task); !ok || err != nil {
				t.Fatalf("trial: %t, %v", ok, err)
			}
		}
		text, _, err := trial.Seal(nil)
		must(t, err)
		if fits != (len(text) <= limit) {
			t.Fatalf("fits: %t, but sealed it is %d characters of %d", fits, len(text), limit)
		}
	}
}
