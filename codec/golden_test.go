package codec

import (
	"bytes"
	"encoding/base64"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// The golden files pin the format: what each version wrote once is read for ever.
// The packed part of version 1 was written by klauspost/compress at level 2, that of version 2 by a
// compressor of this package that is gone, those of versions 3 to 5 by klauspost/compress at level 1. Of
// version 1, and so of the others but for v3-chunks and v4-chunks:
//
//	v1.txt              an envelope's message text
//	v1.gz               the same as a gzip file
//	v1.dump             what it says, for people
//	v1-quarantined.txt  the same with a cause
//	v1-quarantined.dump
//	v1-chunks.txt       a full envelope of a small limit, of many chunks
//	v1-chunks.dump
//
// They are written anew with `go test -run Golden -update`, which is right only
// when a new version gets files of its own.
var update = flag.Bool("update", false, "write the golden files of the newest version")

func goldenTasks() []Task {
	return []Task{
		{N: 0, Key: []byte("Berlin"), ID: []byte("order-1"), Body: []byte(`{"city":"Berlin","cents":1250}`)},
		{N: 1, Key: []byte("Roma"), Body: []byte(`{"city":"Roma","cents":7}`)},
		{N: 2},
		{N: 7, Body: []byte{0, 1, 2, 0xfd, 0xfe, 0xff}},
		{N: 8, Key: []byte("日本"), Body: bytes.Repeat([]byte("a long run "), 40)},
		{N: 1 << 33, ID: []byte("far away"), Body: []byte("last")},
	}
}

// tracedTasks are those of goldenTasks, the second and the last but one of which are traced.
func tracedTasks() []Task {
	tasks := goldenTasks()
	tasks[1].Trace = []byte("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	tasks[4].Trace = []byte("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\nrojo=00f067aa0ba902b7")
	return tasks
}

// largeTask is a task whose body is in a blob.
func largeTask() []Task {
	task := tracedTasks()[1]
	task.Body = nil
	return []Task{task}
}

// dump is what an envelope says, for people and for comparison.
func dump(t testing.TB, text []byte) []byte {
	t.Helper()
	e := open(t, text)
	defer e.Release()
	var b bytes.Buffer
	h := e.Header
	fmt.Fprintf(&b, "version %d\nworkload %q\nrun %v\nsegment %d\ntasks %v\nattempt %d\ngeneration %d\nmap version %d\nraw length %d\nchecksum %016x\n",
		h.Version, h.Workload, h.Run, h.Segment, h.Tasks, h.Attempt, h.Generation, h.MapVersion, h.RawLen, h.Checksum)
	if h.Version >= sealedSince {
		fmt.Fprintf(&b, "sealed %v\n", h.Sealed)
	}
	if h.Version >= NotNowSince {
		fmt.Fprintf(&b, "not now since %v, deliveries %d, here %d\n", h.NotNow.First, h.NotNow.Deliveries, h.NotNow.Here)
	}
	if h.Version >= bodySince {
		fmt.Fprintf(&b, "body in account %q, size %d, checksum %016x\n", h.Body.Account, h.Body.Size, h.Body.Checksum)
	}
	if c := h.Cause; c != nil {
		fmt.Fprintf(&b, "cause reason %q detail %q instance %q attempts %d first %v last %v\n", c.Reason, c.Detail, c.Instance, c.Attempts, c.First, c.Last)
	}
	for _, task := range e.Tasks {
		fmt.Fprintf(&b, "%d key %q id %q body %q", task.N, task.Key, task.ID, task.Body)
		if task.Trace != nil {
			fmt.Fprintf(&b, " trace %q", task.Trace)
		}
		b.WriteByte('\n')
	}
	return b.Bytes()
}

func golden(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	must(t, err)
	return b
}

func TestGoldenEnvelopesAreReadForEver(t *testing.T) {
	if *update {
		writeGolden(t)
	}
	for _, name := range []string{"v1", "v1-quarantined", "v1-chunks", "v2", "v2-quarantined", "v2-chunks", "v3", "v3-quarantined", "v4", "v4-quarantined", "v5", "v5-quarantined"} {
		got, want := dump(t, golden(t, name+".txt")), golden(t, name+".dump")
		if !bytes.Equal(got, want) {
			t.Errorf("%s.txt says\n%swant\n%s", name, got, want)
		}
	}
	for _, v := range []string{"v1", "v2", "v3", "v4", "v5"} {
		if text := base64.StdEncoding.AppendEncode(nil, golden(t, v+".gz")); !bytes.Equal(text, golden(t, v+".txt")) {
			t.Errorf("%s.txt is not the base64 of %[1]s.gz", v)
		}
		e := open(t, golden(t, v+".txt"))
		want := goldenTasks()
		switch v {
		case "v3", "v4":
			want = tracedTasks()
		case "v5":
			want = largeTask()
		}
		sameTasks(t, e.Tasks, want)
		e.Release()
	}
}

// The compressed part may change with the compressor; the header may not.
func TestGoldenHeadersAreWrittenAsEver(t *testing.T) {
	for _, name := range []string{"v1.txt", "v1-quarantined.txt", "v1-chunks.txt", "v2.txt", "v2-quarantined.txt", "v2-chunks.txt", "v3.txt", "v3-quarantined.txt", "v4.txt", "v4-quarantined.txt", "v5.txt", "v5-quarantined.txt"} {
		want := golden(t, name)
		fr, err := readFrame(want)
		must(t, err)
		if got, _ := fr.text(); !bytes.Equal(got, want) {
			t.Errorf("%s: written again it is\n%s\nwant\n%s", name, got, want)
		}
	}
	for _, v := range []string{"v1", "v2", "v3", "v4", "v5"} {
		quarantined, err := Quarantined(golden(t, v+".txt"), testCause())
		if err != nil || !bytes.Equal(quarantined, golden(t, v+"-quarantined.txt")) {
			t.Errorf("%s quarantined is\n%s\n%v", v, quarantined, err)
		}
	}
}

func writeGolden(t *testing.T) {
	h := testHeader()
	h.Sealed = time.Date(2026, 11, 25, 13, 0, 0, 123e6, time.UTC)
	h.NotNow = NotNow{First: time.Date(2026, 11, 27, 5, 0, 0, 0, time.UTC), Deliveries: 12, Here: 3}
	h.Body = BodyRef{Account: "pumpdemo1", Size: 10 << 20, Checksum: 0x0123456789abcdef}
	text := seal(t, h, largeTask())
	quarantined, err := Quarantined(text, testCause())
	must(t, err)
	member, err := base64.StdEncoding.DecodeString(string(text))
	must(t, err)
	for name, content := range map[string][]byte{
		"v5.txt": text, "v5.gz": member, "v5.dump": dump(t, text),
		"v5-quarantined.txt": quarantined, "v5-quarantined.dump": dump(t, quarantined),
	} {
		must(t, os.WriteFile(filepath.Join("testdata", name), content, 0o644))
	}
}
