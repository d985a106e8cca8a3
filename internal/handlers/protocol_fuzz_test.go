package handlers

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/internal/taskline"
	"github.com/queuepump/queuepump/pump"
)

// FuzzOutcome: whatever a child prints, it is one outcome of the task with that
// number or no outcome at all, and never a long text in an error.
func FuzzOutcome(f *testing.F) {
	for _, line := range []string{
		`{"seq":1,"ok":true}`, `{"seq":1,"ok":true,"result":{"a":[1,2]}}`, `{"seq":1,"retry":"30s","error":"busy"}`, `{"seq":1,"reject":true}`, `{"seq":1,"error":"no"}`,
		`{"seq":2,"ok":true}`, `{"ok":true}`, `{"seq":1,"ok":true,"reject":true}`, `{"seq":1,"retry":"-1s"}`, `{"SEQ":1,"Ok":true,"result":null}`, `[]`, `{"seq":1,"retry":"9999999999h"}`,
		"{\"seq\":1,\"ok\":true,\"result\":\"\xff\"}",
	} {
		f.Add([]byte(line), uint64(1))
	}
	f.Fuzz(func(t *testing.T, line []byte, seq uint64) {
		var result json.RawMessage
		var task, garbage error
		proof.AtMost(t, 64*len(line)+64<<10, func() { result, task, garbage = parseOutcome(line, seq) })
		if garbage != nil {
			if result != nil || task != nil || len(garbage.Error()) > 2000 {
				t.Fatalf("%s, %v, and %d bytes of garbage", result, task, len(garbage.Error()))
			}
			return
		}
		var said struct{ Seq *uint64 }
		if err := json.Unmarshal(line, &said); err != nil || said.Seq == nil || *said.Seq != seq {
			t.Fatalf("%q was taken for the outcome of %d", line, seq)
		}
		switch {
		case task != nil && result != nil:
			t.Fatalf("%s with %v", result, task)
		case task != nil && len(task.Error()) > maxCause+len("..."):
			t.Fatalf("an error of %d bytes", len(task.Error()))
		case result != nil && !(json.Valid(result) && utf8.Valid(result)):
			t.Fatalf("result %q", result)
		}
	})
}

// FuzzTaskOnALine: whatever bytes a task is made of, what is given to a child or
// written to a file is one line of JSON that says the same, and what is put into an
// environment can stand there.
func FuzzTaskOnALine(f *testing.F) {
	f.Add([]byte("Oslo"), "id", []byte(`{"a": 1}`), "", []byte("null"))
	f.Add([]byte("\xff\x00"), "i\nd", []byte("{\n\"a\":\n1}\r\n"), "queue/id", []byte("text\x00"))
	f.Add([]byte{}, "", []byte("\xff\xfe"), "\x00", []byte{})
	f.Add([]byte{}, "", []byte{}, strings.Repeat("?", 4<<10), []byte{})
	f.Fuzz(func(t *testing.T, key []byte, id string, body []byte, foreign string, result []byte) {
		task := &pump.Task{Segment: 7, N: 1 << 60, Key: key, ID: id, Body: body, Attempt: 2, Epoch: 3, Foreign: foreign}
		for _, line := range [][]byte{appendTask(nil, task), appendRequest(t.Context(), nil, 5, 0, task), taskline.AppendResult(nil, task, taskline.AsResult(result))} {
			if bytes.IndexByte(line, '\n') != len(line)-1 {
				t.Fatalf("%q is not one line", line)
			}
			var said struct {
				Key, KeyBase64   *string
				N                uint64
				Body, BodyBase64 json.RawMessage
			}
			if err := json.Unmarshal(line, &said); err != nil || !utf8.Valid(line) {
				t.Fatalf("%q: %v", line, err)
			}
			if said.N != task.N {
				t.Fatalf("%q: n is %d", line, said.N)
			}
			got := ""
			switch {
			case said.Key != nil:
				got = *said.Key
			case said.KeyBase64 != nil:
				b, err := base64.StdEncoding.DecodeString(*said.KeyBase64)
				must(t, err)
				got = string(b)
			}
			if got != string(key) {
				t.Fatalf("%q: the key was %q", line, key)
			}
		}
		for _, pair := range taskEnv(t.Context(), task) {
			name, _, ok := strings.Cut(pair, "=")
			if !ok || !strings.HasPrefix(name, "QUEUEPUMP_TASK_") || strings.ContainsRune(pair, 0) {
				t.Fatalf("%q cannot stand in an environment", pair)
			}
		}
		h := &HTTP{}
		header := http.Header{}
		h.header(t.Context(), header, task)
		for name, values := range header {
			for _, v := range values {
				if strings.ContainsFunc(v, func(r rune) bool { return r < ' ' || r == 0x7f }) || len(v) > 8<<10 {
					t.Fatalf("header %s: %q", name, v)
				}
			}
		}
	})
}

// FuzzAnswerOfAnEndpoint: whatever status and headers an endpoint answers with, the
// task fails, is rejected or comes back after a time that is none in the past.
func FuzzAnswerOfAnEndpoint(f *testing.F) {
	f.Add(503, "120", []byte("busy"))
	f.Add(429, "Wed, 21 Oct 2015 07:28:00 GMT", []byte("<html>"))
	f.Add(422, "", []byte("\xff"))
	f.Fuzz(func(t *testing.T, status int, after string, body []byte) {
		h := http.Header{"Retry-After": {after}, "Date": {"Wed, 21 Oct 2015 07:27:00 GMT"}}
		err := outcomeOf(&http.Response{StatusCode: status, Status: "status", Header: h}, body)
		if (err == nil) != (status >= 200 && status <= 299) {
			t.Fatalf("status %d: %v", status, err)
		}
		if err != nil && len(err.Error()) > 400 {
			t.Fatalf("an error of %d bytes", len(err.Error()))
		}
		if d := retryAfter(h); d < 0 {
			t.Fatalf("after %v", d)
		}
		if r := taskline.AsResult(body); r != nil && !json.Valid(r) {
			t.Fatalf("result %q", r)
		}
	})
}

// FuzzLineOfAChild: lines are cut as they were printed, up to the longest that is taken.
func FuzzLineOfAChild(f *testing.F) {
	f.Add([]byte("one\ntwo\r\n\nlast"), uint16(3))
	f.Fuzz(func(t *testing.T, text []byte, size uint16) {
		r := bufio.NewReaderSize(bytes.NewReader(text), int(size))
		rest := text
		for {
			line, err := readLine(r, nil)
			want, after, found := bytes.Cut(rest, []byte("\n"))
			if !found {
				if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Fatalf("%q: %v", line, err)
				}
				return
			}
			if err != nil || !bytes.Equal(line, want) {
				t.Fatalf("%q, %v, want %q", line, err, want)
			}
			rest = after
		}
	})
}

// FuzzRepair: of a file that is written on nothing is lost but an end that a crash tore
// off, and whatever is refused stays as it is.
func FuzzRepair(f *testing.F) {
	for _, text := range []string{"", "{\"run\":\"0a\"}\n", "{\"run\":\"0a\"}\n{\"run\":\"0", "{\"run\":\"0a\"}", "a file\nof somebody's", "{\"ru\x00\x00", "\x00"} {
		f.Add([]byte(text))
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text []byte) {
		path := filepath.Join(dir, "out.jsonl")
		must(t, os.WriteFile(path, text, 0o600))
		file, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND, 0)
		must(t, err)
		defer file.Close()
		size, refused := mend(file)
		now, err := os.ReadFile(path)
		must(t, err)
		whole := text[:bytes.LastIndexByte(text, '\n')+1]
		switch {
		case refused != nil && !bytes.Equal(now, text):
			t.Fatalf("%q was refused (%v) and is now %q", text, refused, now)
		case refused != nil:
		case size != int64(len(now)) || !bytes.HasPrefix(now, whole) || len(now) > 0 && now[len(now)-1] != '\n':
			t.Fatalf("%q is now %q, of %d bytes", text, now, size)
		case len(now) < len(text) && !isTorn(bytes.TrimRight(text[len(whole):], "\x00")):
			t.Fatalf("%q was cut to %q", text, now)
		}
	})
}
