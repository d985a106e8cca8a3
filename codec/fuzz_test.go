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
	if err != nil {
		f.Fatal(err)
	}
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

// FuzzOpen opens any text as it is, and any fields and packed bytes behind a
// frame that is right, which random texts never get past.
func FuzzOpen(f *testing.F) {
	for _, text := range seedTexts(f) {
		f.Add(text, []byte{})
		if fr, err := readFrame(text); err == nil {
			if body, err := strict.AppendDecode(nil, fr.body); err == nil {
				f.Add(fr.appendFields(nil), body)
			}
		}
	}
	f.Fuzz(func(t *testing.T, text, body []byte) {
		if len(body) > 0 {
			if len(text) > math.MaxUint16-fieldsAt-checkLen {
				return
			}
			text = framed(text, body, len(body))
		}
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
		// What can be opened is a gzip file for everybody.
		r, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, bytes.NewReader(text)))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, recordsOf(e.Tasks)) {
			t.Fatalf("compress/gzip: %d bytes, %v", len(got), err)
		}
	})
}

func FuzzReadHeader(f *testing.F) {
	for _, text := range seedTexts(f) {
		f.Add(text, true)
		if fr, err := readFrame(text); err == nil {
			f.Add(fr.appendFields(nil), false)
		}
	}
	f.Fuzz(func(t *testing.T, text []byte, whole bool) {
		if !whole {
			if len(text) > math.MaxUint16-fieldsAt-checkLen {
				return
			}
			text = framed(text, nil, 40_000) // text is the fields
		}
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
		if err != nil {
			t.Fatal(err)
		}
		got, err := ReadHeader(quarantined)
		want := fr.Header
		want.Cause = got.Cause
		if err != nil || got.Cause == nil || !cmp.Equal(want, got) {
			t.Fatalf("quarantined %+v, %v\nwas %+v", got, err, fr.Header)
		}
	})
}

// FuzzRoundTrip packs what data spells out, with a small limit and as many
// envelopes as it takes, and wants every task back once.
func FuzzRoundTrip(f *testing.F) {
	f.Add([]byte{}, uint16(0), uint32(0), "")
	f.Add([]byte("\x01\x03\x00\x20key and body"), uint16(400), uint32(7), "orders")
	f.Add(bytes.Repeat([]byte("\x02\x01\x01\x30aaaaaaaaaa"), 300), uint16(300), uint32(1<<31), "w")
	f.Add(recordsOf(jsonTasks(1, 100)), uint16(2000), uint32(3), "json")
	f.Fuzz(func(t *testing.T, data []byte, limit uint16, segment uint32, workload string) {
		tasks := spelled(data)
		b := NewBuilder(int(limit))
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
				if err != nil {
					t.Fatal(err)
				}
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
			if err != nil || limit > 0 && len(text) > int(limit) {
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
	})
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

// FuzzBuilder checks each answer of Add against sealing.
func FuzzBuilder(f *testing.F) {
	f.Add([]byte("\x01\x03\x00\x20key and body"), uint16(200))
	f.Add(bytes.Repeat([]byte("\x02\x01\x01\x30aaaaaaaaaa"), 50), uint16(300))
	f.Add(recordsOf(jsonTasks(1, 30)), uint16(1000))
	f.Add(binary.LittleEndian.AppendUint64(nil, math.MaxUint64), uint16(120))
	f.Fuzz(func(t *testing.T, data []byte, limit uint16) {
		if limit == 0 || len(data) > 16<<10 {
			return
		}
		b := NewBuilder(int(limit))
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
			if err != nil {
				t.Fatal(err)
			}
			if fits != (len(text) <= int(limit)) {
				t.Fatalf("fits: %t, but sealed it is %d characters of %d", fits, len(text), limit)
			}
		}
	})
}
