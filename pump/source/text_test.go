package source

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/internal/testkit"
)

// sourceRow is a record, or a bad one, as tests compare it.
type sourceRow struct {
	Key, ID, Body string
	Bad           string // where
}

// readAll reads a source from a cursor on and keeps the cursor after each record.
func readAll(t interface {
	Helper()
	Fatalf(string, ...any)
}, s Source, cursor []byte,
) (rows []sourceRow, cursors [][]byte) {
	t.Helper()
	r, err := s.Open(context.Background(), cursor)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	defer r.Close()
	for {
		rec, err := r.Next(context.Background())
		if bad, ok := errors.AsType[*BadInput](err); ok {
			rows = append(rows, sourceRow{Bad: filepath.Base(bad.Where)})
		} else if err == io.EOF {
			return rows, cursors
		} else if err != nil {
			t.Fatalf("next: %v", err)
		} else {
			rows = append(rows, sourceRow{Key: string(rec.Key), ID: rec.ID, Body: string(rec.Body)})
		}
		cursors = append(cursors, r.AppendCursor(nil))
	}
}

func TestTextSourceCutsRecords(t *testing.T) {
	long := `{"k":"` + strings.Repeat("x", 100) + `"}`
	for _, c := range []struct {
		name   string
		source TextSource
		text   string
		want   []sourceRow
	}{
		{"a JSON line's body is the line as it stands", TextSource{Key: "k"}, "{\"k\":\"a\", \"v\": 1}\n", []sourceRow{{Key: "a", Body: `{"k":"a", "v": 1}`}}},
		{"the last line needs no end", TextSource{Key: "k"}, "{\"k\":\"a\"}", []sourceRow{{Key: "a", Body: `{"k":"a"}`}}},
		{"a carriage return belongs to the end of the line", TextSource{Key: "k"}, "{\"k\":\"a\"}\r\n{\"k\":\"b\"}\r\n", []sourceRow{{Key: "a", Body: `{"k":"a"}`}, {Key: "b", Body: `{"k":"b"}`}}},
		{"blank lines and a byte order mark are no tasks", TextSource{Key: "k"}, "\xef\xbb\xbf\n \t\n{\"k\":\"a\"}\n\n", []sourceRow{{Key: "a", Body: `{"k":"a"}`}}},
		{"a nested field", TextSource{Key: "a.b"}, `{"b":"no","a":{"b":"yes"}}`, []sourceRow{{Key: "yes", Body: `{"b":"no","a":{"b":"yes"}}`}}},
		{"a field with a dot in its name", TextSource{Key: `a\.b`}, `{"a":{"b":"no"},"a.b":"yes"}`, []sourceRow{{Key: "yes", Body: `{"a":{"b":"no"},"a.b":"yes"}`}}},
		{"numbers and booleans are keys as they are written", TextSource{Key: "k"}, "{\"k\":1.0}\n{\"k\":true}", []sourceRow{{Key: "1.0", Body: `{"k":1.0}`}, {Key: "true", Body: `{"k":true}`}}},
		{"escapes are decoded, in names too", TextSource{Key: "k"}, `{"\u006b":"a\u00e9\ud83d\ude00\n\""}`, []sourceRow{{Key: "aé😀\n\"", Body: `{"\u006b":"a\u00e9\ud83d\ude00\n\""}`}}},
		{"of a name that comes twice the last counts", TextSource{Key: "k"}, `{"k":1,"k":2}`, []sourceRow{{Key: "2", Body: `{"k":1,"k":2}`}}},
		{"without a key the line is the key", TextSource{}, "{\"k\":1}\n[2]", []sourceRow{{Key: `{"k":1}`, Body: `{"k":1}`}, {Key: "[2]", Body: "[2]"}}},
		{"a line without the id is a bad one", TextSource{Key: "k", ID: "o.id"}, "{\"k\":1,\"o\":{\"id\":\"x\"}}\n{\"k\":1}", []sourceRow{{Key: "1", ID: "x", Body: `{"k":1,"o":{"id":"x"}}`}, {Bad: "in:2"}}},
		{"tabs in CSV, written as in the hint", TextSource{Format: FormatCSV, Separator: `\t`, Key: "b"}, "a\tb\n1\t2\n", []sourceRow{{Key: "2", Body: `{"a":"1","b":"2"}`}}},
		{"semicolons in CSV", TextSource{Format: FormatCSV, Separator: ";", Key: "name"}, "order;name;amount\n1;\"Meyer; Söhne\";3,50\n", []sourceRow{{Key: "Meyer; Söhne", Body: `{"order":"1","name":"Meyer; Söhne","amount":"3,50"}`}}},
		{
			"bad lines are named and passed",
			TextSource{Key: "k"},
			"{\"k\":1}\nnonsense\n{\"x\":1}\n\n{\"k\":null}\n{\"k\":[]}\n7\n{\"k\":2} x\n{\"k\":3}",
			[]sourceRow{{Key: "1", Body: `{"k":1}`}, {Bad: "in:2"}, {Bad: "in:3"}, {Bad: "in:5"}, {Bad: "in:6"}, {Bad: "in:7"}, {Bad: "in:8"}, {Key: "3", Body: `{"k":3}`}},
		},
		{"a line of exactly the longest length", TextSource{Key: "k", MaxLine: len(long)}, long + "\r\n" + long, []sourceRow{{Key: strings.Repeat("x", 100), Body: long}, {Key: strings.Repeat("x", 100), Body: long}}},
		{"a longer line is bad and passed", TextSource{Key: "k", MaxLine: len(long) - 1}, "{\"k\":1}\n" + long + "\n{\"k\":2}\n" + long, []sourceRow{{Key: "1", Body: `{"k":1}`}, {Bad: "in:2"}, {Key: "2", Body: `{"k":2}`}, {Bad: "in:4"}}},
		{"plain lines", TextSource{Format: FormatLines}, "a b\n\nc", []sourceRow{{Key: "a b", Body: "a b"}, {Key: "c", Body: "c"}}},
		{"a CSV row becomes a JSON object", TextSource{Format: FormatCSV, Key: "city", ID: "id"}, "id,city,\"the \"\"note\"\"\"\n1,Bern,\n2,\"a,b\",\"x\r\ny\"\n", []sourceRow{
			{Key: "Bern", ID: "1", Body: `{"id":"1","city":"Bern","the \"note\"":""}`},
			{Key: "a,b", ID: "2", Body: `{"id":"2","city":"a,b","the \"note\"":"x\ny"}`},
		}},
		{"without a key the whole row is it", TextSource{Format: FormatCSV}, "a\n1\n\n2", []sourceRow{{Key: `{"a":"1"}`, Body: `{"a":"1"}`}, {Key: `{"a":"2"}`, Body: `{"a":"2"}`}}},
		{
			"a bad CSV row costs its line, an open quote too",
			TextSource{Format: FormatCSV, Key: "a"},
			"a,b\n1,2\n1\n1,2,3\nx\"y,2\n\"x\"y,2\n\"open,2\n3,4\n",
			[]sourceRow{{Key: "1", Body: `{"a":"1","b":"2"}`}, {Bad: "in:3"}, {Bad: "in:4"}, {Bad: "in:5"}, {Bad: "in:6"}, {Bad: "in:7"}, {Key: "3", Body: `{"a":"3","b":"4"}`}},
		},
		{
			"lines inside quotes are counted",
			TextSource{Format: FormatCSV, Key: "a"},
			"a,b\n\"1\n\n2\",x\nbad\n3,y",
			[]sourceRow{{Key: "1\n\n2", Body: `{"a":"1\n\n2","b":"x"}`}, {Bad: "in:5"}, {Key: "3", Body: `{"a":"3","b":"y"}`}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			for how, pack := range map[string]func(string) string{"plain": func(s string) string { return s }, "gzip": testkit.Gzipped, "zstd": testkit.Zstded} {
				s := c.source
				s.Paths = []string{testkit.Write(t, "in", pack(c.text))}
				got, _ := readAll(t, &s, nil)
				proof.Same(t, cmp.Diff(c.want, got), "", how, "-want +got)")
			}
		})
	}
}

func TestTextSourceRefusesWhatItCannotRead(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none")
	for name, c := range map[string]struct {
		source TextSource
		want   string
	}{
		"no file":                    {TextSource{Paths: []string{none}}, "not exist"},
		"no file of a pattern":       {TextSource{Paths: []string{none + "*"}}, "not exist"},
		"a directory":                {TextSource{Paths: []string{t.TempDir()}}, "directory"},
		"nothing at all":             {TextSource{}, "nothing to read"},
		"an unknown format":          {TextSource{Format: "xml", Paths: []string{none}}, "not a format"},
		"a key of plain lines":       {TextSource{Format: FormatLines, Key: "k", Paths: []string{none}}, "no fields"},
		"files and a command":        {TextSource{Paths: []string{none}, Command: []string{"true"}}, "use one of them"},
		"standard input and files":   {TextSource{Paths: []string{"-", none}}, "use one of them"},
		"a missing column":           {TextSource{Format: FormatCSV, Key: "k", Paths: []string{testkit.Write(t, "a", "x,y\n1,2")}}, `no column "k", only ["x" "y"]`},
		"semicolons":                 {TextSource{Format: FormatCSV, Paths: []string{testkit.Write(t, "a", "order;name\n1;\"Meyer; Söhne\"\n")}}, `--csv-separator`},
		"a note for spreadsheets":    {TextSource{Format: FormatCSV, Separator: ";", Paths: []string{testkit.Write(t, "a", "sep=;\nx;y\n1;2")}}, `remove it, and say`},
		"a separator of words":       {TextSource{Format: FormatCSV, Separator: ", ", Paths: []string{none}}, `", " is not one character`},
		"a separator of lines":       {TextSource{Separator: ";", Paths: []string{none}}, "one character"},
		"a column twice":             {TextSource{Format: FormatCSV, Key: "x", Paths: []string{testkit.Write(t, "a", "x,x\n1,2")}}, "twice"},
		"an empty CSV file":          {TextSource{Format: FormatCSV, Paths: []string{testkit.Write(t, "a", "")}}, "header"},
		"a gzip file that is cut":    {TextSource{Paths: []string{testkit.Write(t, "a", testkit.Gzipped("{}\n{}\n")[:20])}}, "unexpected EOF"},
		"a zstd file that is broken": {TextSource{Paths: []string{testkit.Write(t, "a", testkit.Zstded(strings.Repeat("{}\n", 99))[:12]+"xxx")}}, "a:"},
		"a program that fails":       {TextSource{Format: FormatLines, Command: []string{"sh", "-c", "echo a; exit 3"}}, "exit status 3"},
		"a program that is not":      {TextSource{Format: FormatLines, Command: []string{none}}, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := c.source.Open(t.Context(), nil)
			for err == nil {
				_, err = r.Next(t.Context())
			}
			if err == io.EOF || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
			if r != nil {
				r.Close()
			}
		})
	}
}

func TestTextSourceReadsPatternsInOrder(t *testing.T) {
	dir := t.TempDir()
	for _, n := range []string{"b.txt", "a.txt", "c.log", "x[1].log"} {
		os.WriteFile(filepath.Join(dir, n), []byte(n), 0o600)
	}
	s := &TextSource{Format: FormatLines, Paths: []string{filepath.Join(dir, "x[1].log"), filepath.Join(dir, "*.txt"), filepath.Join(dir, "c.log")}}
	got, _ := readAll(t, s, nil)
	want := []sourceRow{{Key: "x[1].log", Body: "x[1].log"}, {Key: "a.txt", Body: "a.txt"}, {Key: "b.txt", Body: "b.txt"}, {Key: "c.log", Body: "c.log"}}
	proof.Same(t, cmp.Diff(want, got), "")
}

func TestCommandOutputIsRead(t *testing.T) {
	var stderr bytes.Buffer
	s := &TextSource{Format: FormatLines, Command: []string{"sh", "-c", "echo a; echo warning >&2; echo 'b c'"}, Stderr: &stderr}
	got, _ := readAll(t, s, nil)
	proof.Same(t, cmp.Diff([]sourceRow{{Key: "a", Body: "a"}, {Key: "b c", Body: "b c"}}, got), "")
	proof.Same(t, stderr.String(), "warning\n", "stderr was")
	if f, err := s.Fingerprint(t.Context()); f != "" || err != nil {
		t.Errorf("fingerprint %q, %v: a command cannot be read again (P2.4)", f, err)
	}
}

func TestSilentInputDoesNotHoldUpTheEnd(t *testing.T) {
	silent, writer := io.Pipe()
	defer writer.Close()
	for name, s := range map[string]Source{
		"standard input":                   &TextSource{Format: FormatLines, Paths: []string{"-"}, Stdin: silent},
		"a command":                        &TextSource{Format: FormatLines, Command: []string{"sleep", "1000"}},
		"a command that closed its output": &TextSource{Format: FormatLines, Command: []string{"sh", "-c", "exec >&-; sleep 1000"}},
		"an iterator":                      FromSeq(func(yield func(Record, error) bool) { select {} }),
	} {
		t.Run(name, func(t *testing.T) {
			r, err := s.Open(t.Context(), nil)
			must(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			proof.Is(t, proof.ErrOf(r.Next(ctx)), context.DeadlineExceeded)
			must(t, r.Close())
		})
	}
}

func TestStandardInputThatTricklesGivesEachLineAtOnce(t *testing.T) {
	in, out := io.Pipe()
	s := &TextSource{Format: FormatLines, Paths: []string{"-"}, Stdin: in}
	r, err := s.Open(t.Context(), nil)
	must(t, err)
	for _, line := range []string{"a", "second"} {
		go io.WriteString(out, line+"\n")
		rec, err := r.Next(t.Context())
		if err != nil || string(rec.Body) != line {
			t.Fatalf("got %q, %v", rec.Body, err)
		}
	}
	out.Close()
	proof.Same(t, proof.ErrOf(r.Next(t.Context())), io.EOF)
}

func TestFromSeqGivesRecordsBadOnesAndErrors(t *testing.T) {
	boom := errors.New("boom")
	s := FromSeq(func(yield func(Record, error) bool) {
		_ = yield(Record{Key: []byte("a")}, nil) && yield(Record{}, &BadInput{Where: "b", Err: boom}) && yield(Record{}, boom)
	})
	r, _ := s.Open(t.Context(), nil)
	defer r.Close()
	if rec, err := r.Next(t.Context()); err != nil || string(rec.Key) != "a" {
		t.Errorf("got %v, %v", rec, err)
	}
	if _, err := r.Next(t.Context()); err == nil || err.Error() != "b: boom" {
		t.Errorf("got %v", err)
	}
	proof.Same(t, proof.ErrOf(r.Next(t.Context())), boom)
	if _, err := s.Open(t.Context(), []byte{}); err == nil {
		t.Error("an iterator was continued")
	}
}

// A run is continued at any cursor that was saved: what is read before it and
// what is read from it on are together the whole, line numbers included.
func TestReadingFromAnyCursorGivesTheRest(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		format := rapid.SampledFrom([]Format{FormatJSONLines, FormatCSV, FormatLines}).Draw(t, "format")
		line := rapid.SampledFrom([]string{`{"k":"a"}`, `{"k":"b","v":"` + strings.Repeat("y", 40) + `"}`, "", "bad", `"1,`, "1,2", `"x` + "\n" + `y",2`, strings.Repeat("z", 90)})
		s := &TextSource{Format: format, MaxLine: 80}
		for i := range rapid.IntRange(1, 3).Draw(t, "files") {
			text := strings.Join(rapid.SliceOfN(line, 0, 12).Draw(t, "lines"), rapid.SampledFrom([]string{"\n", "\r\n"}).Draw(t, "end"))
			if format == FormatCSV {
				text = "\"k\",v\n" + text
			}
			text = rapid.SampledFrom([]func(string) string{func(s string) string { return s }, testkit.Gzipped, testkit.Zstded}).Draw(t, "packed")(text)
			path := filepath.Join(dir, fmt.Sprint(i))
			must(t, os.WriteFile(path, []byte(text), 0o600))
			s.Paths = append(s.Paths, path)
		}
		rows, cursors := readAll(t, s, nil)
		for i, c := range cursors {
			rest, _ := readAll(t, s, c)
			if diff := cmp.Diff(rows[i+1:], rest, cmp.Transformer("nil", func(r []sourceRow) []sourceRow { return append([]sourceRow{}, r...) })); diff != "" {
				t.Fatalf("from the cursor behind record %d of %v (-want +got):\n%s", i, rows, diff)
			}
		}
	})
}

func TestCursorsOfOthersAreRefused(t *testing.T) {
	path := testkit.Write(t, "a", "x\ny\n")
	for _, c := range [][]byte{{}, {1}, {5, 0, 0}, {0, 0, 0, 0}, bytes.Repeat([]byte{0xff}, 30)} {
		proof.Is(t, proof.ErrOf(Lines(path).Open(t.Context(), c)), errCursor, c)
	}
	r, err := TextSource{Format: FormatLines, Paths: []string{testkit.Write(t, "b", testkit.Gzipped("x\n"))}}.open(t, []byte{0, 100, 1})
	if err == nil {
		_, err = r.Next(t.Context())
	}
	proof.Says(t, err, "shorter", "a cursor behind the end")
}

func (s TextSource) open(t *testing.T, cursor []byte) (Reader, error) {
	return s.Open(t.Context(), cursor)
}

func TestFingerprintChangesWithWhatIsRead(t *testing.T) {
	path := testkit.Write(t, "a", "{\"k\":1}\n")
	s := JSONLines(path, "k")
	print := func(s Source) string {
		t.Helper()
		f, err := s.Fingerprint(t.Context())
		if err != nil || f == "" || len(f) > 1<<10 {
			t.Fatalf("fingerprint %q, %v", f, err)
		}
		return f
	}
	first := print(s)
	proof.Same(t, print(JSONLines(path, "k")), first, "the same input has another fingerprint")
	for name, o := range map[string]Source{
		"key":    JSONLines(path, "x"),
		"format": Lines(path),
		"id":     &TextSource{Paths: []string{path}, Key: "k", ID: "i"},
		"line":   &TextSource{Paths: []string{path}, Key: "k", MaxLine: 99},
		"files":  &TextSource{Paths: []string{path, path}, Key: "k"},
	} {
		if print(o) == first {
			t.Errorf("another %s has the same fingerprint", name)
		}
	}
	st, _ := os.Stat(path)
	os.WriteFile(path, []byte("{\"k\":2}\n"), 0o600)
	os.Chtimes(path, st.ModTime(), st.ModTime())
	if print(s) == first {
		t.Error("another head of the file has the same fingerprint")
	}
	os.WriteFile(path, []byte("{\"k\":1}\n"), 0o600)
	os.Chtimes(path, st.ModTime(), st.ModTime())
	proof.Same(t, print(s), first, "the same size, time and head have another fingerprint")
	os.Chtimes(path, st.ModTime(), st.ModTime().Add(time.Nanosecond))
	if print(s) == first {
		t.Error("another time of change has the same fingerprint")
	}
}

// TestABadHeaderIsNoBadLine: left out as one, it was read again and again, for ever.
func TestABadHeaderIsNoBadLine(t *testing.T) {
	for _, header := range []string{"a\"b\n1\n", "\"open\n1\n", strings.Repeat("x", 300) + "\n1\n"} {
		s := &TextSource{Format: FormatCSV, Paths: []string{testkit.Write(t, "a", header)}, MaxLine: 200}
		r, err := s.Open(t.Context(), nil)
		must(t, err)
		_, err = r.Next(t.Context())
		if _, bad := errors.AsType[*BadInput](err); err == nil || bad || !strings.Contains(err.Error(), "header") {
			t.Errorf("%.20q: %v", header, err)
		}
		r.Close()
	}
}

// What the reader takes as a row, encoding/csv takes as the same row.
func FuzzCSVRow(f *testing.F) {
	for _, s := range []string{"a,b\n", "\"a\"\"b\",c\r\n", ",\n", "\"x\r\ny\",\"\"", "a\"b\n", "\"open"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(strings.ReplaceAll(text, "\r\n", "\n"), "\r") {
			return // a lone carriage return: encoding/csv drops some of them
		}
		c := newLineReader(strings.NewReader(text), defaultMaxLine)
		rows := csvRows{comma: ','}
		theirs := csv.NewReader(strings.NewReader(text))
		theirs.FieldsPerRecord = -1
		for {
			err := rows.row(c)
			want, theirErr := theirs.Read()
			if err == io.EOF || theirErr != nil {
				proof.Same(t, err == nil, theirErr == nil, text, err, "but encoding/csv says", theirErr)
				return
			}
			if err != nil {
				t.Fatalf("%q: %v, but encoding/csv reads %q", text, err, want)
			}
			var got []string
			for _, f := range rows.fields {
				got = append(got, string(rows.text[f.from:f.to]))
			}
			if !cmp.Equal(want, got) {
				t.Fatalf("%q: got %q, encoding/csv %q", text, got, want)
			}
		}
	})
}

func BenchmarkJSONLines(b *testing.B) {
	line := `{"city":"Bern","id":12345678,"note":"a line of about one hundred and thirty bytes, like the ones people have","x":[1,2,3]}` + "\n"
	text := strings.Repeat(line, 1<<14)
	f := newJSONLines("city", "")
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		c := newLineReader(strings.NewReader(text), defaultMaxLine)
		for {
			if err := f.next(c, new(Record)); err != nil {
				break
			}
		}
	}
}
