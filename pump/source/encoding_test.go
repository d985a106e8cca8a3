package source

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf16"

	"github.com/google/go-cmp/cmp"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/internal/testkit"
)

// wide is a text in UTF-16.
func wide(order binary.AppendByteOrder, text string) string {
	var b []byte
	for _, unit := range utf16.Encode([]rune(text)) {
		b = order.AppendUint16(b, unit)
	}
	return string(b)
}

// firstProblem is the first error of a text, of a bad record or of the whole.
func firstProblem(t *testing.T, s TextSource, text string) string {
	t.Helper()
	s.Paths = []string{testkit.Write(t, "in", text)}
	r, err := s.Open(t.Context(), nil)
	if err != nil {
		return err.Error()
	}
	defer r.Close()
	for err == nil {
		_, err = r.Next(t.Context())
	}
	if err == io.EOF {
		return ""
	}
	if _, bad := errors.AsType[*BadInput](err); !bad && !OfSource(err) {
		t.Errorf("%v counts as trouble of the machine", err)
	}
	return strings.TrimPrefix(err.Error(), s.Paths[0])
}

const (
	zurich       = "order,name\n1,Z\xfcrich\n2,Z\xf6rich\n3,Zurich\n" // in Windows-1252
	zurichInUTF8 = "order,name\n1,Zürich\n2,Zörich\n3,Zurich\n"
)

func TestTextInAnotherEncodingIsNamed(t *testing.T) {
	const refused = ": is UTF-16; save it as UTF-8, or read it with --encoding utf-16"
	le, be := binary.LittleEndian, binary.BigEndian
	csv, as := TextSource{Format: FormatCSV}, func(label string) TextSource {
		return TextSource{Format: FormatLines, Encoding: label}
	}
	lines := as("")
	for name, c := range map[string]struct {
		source     TextSource
		text, want string
	}{
		"Windows-1252":        {csv, zurich, ":2: byte 4 of line 2, 0xfc, is not UTF-8"},
		"in a quoted line":    {csv, "a,b\n1,\"x\ny\xe9\"\n", ":2: byte 2 of line 3, 0xe9, is not UTF-8"},
		"in the header":       {csv, "Stra\xdfe\nx\n", ": the header row: byte 5 of line 1, 0xdf, is not UTF-8"},
		"a real U+FFFD":       {csv, "a\n\ufffd\n", ""},
		"JSON":                {TextSource{}, "{\"a\":\"\xfc\"}\n", ""},
		"lines":               {lines, "\xfc\n", ""},
		"lines of UTF-8":      {as("UTF-8"), "{}\na_\xfc\n", ":2: byte 3 of line 2, 0xfc, is not UTF-8"},
		"UTF-16 CSV":          {csv, wide(le, "\ufefforder,name\n1,abc\n"), refused},
		"UTF-16 lines":        {lines, wide(be, "\ufeffone\ntwo\n"), refused},
		"UTF-16, no mark":     {lines, wide(le, "one\n"), refused},
		"big-endian, no mark": {lines, wide(be, "one\n"), refused},
		"packed UTF-16":       {lines, testkit.Gzipped(wide(be, "\ufeffone\n")), refused},
		"UTF-32":              {lines, "\xff\xfe\x00\x00a\x00\x00\x00", ": is UTF-32; save it as UTF-8"},
		"UTF-16 denied":       {as("windows-1252"), wide(le, "\ufeffone\n"), refused},
		"no character":        {as("windows-1253"), "\xe1\xff\n", ":1: byte 2 of line 1 is not windows-1253"},
		"half a pair":         {as("utf-16"), "a\x00\n\x00b\x00\x00\xd8c\x00", ":2: byte 3 of line 2 is not utf-16le"},
		"half a character":    {as("utf-16"), "a\x00\n\x00b\x00c", ":2: byte 3 of line 2 is not utf-16le"},
		"half a kanji":        {as("Shift_JIS"), "\x93\xfa\x93\n", ":1: character 2 of line 1 is not shift_jis"},
	} {
		if got := firstProblem(t, c.source, c.text); !strings.HasPrefix(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	for _, label := range []string{"EBCDIC", "utf-32", "iso-2022-kr", "x-user-defined"} {
		s := TextSource{Paths: []string{"-"}, Encoding: label}
		proof.Says(t, s.Check(), "windows-1252", label)
	}
}

// What spreadsheets and shells write gives the records that it gives as UTF-8, from the beginning
// and from each cursor; a cursor into a plain file is a place in the file.
func TestTextInANamedEncodingIsReadAsItsUTF8(t *testing.T) {
	const rows = "id,name\n1,Zürich 😀\n2,\"Z\nö\"\n3,日本\n"
	le, be := binary.LittleEndian, binary.BigEndian
	for name, c := range map[string]struct{ encoding, text, same string }{
		"Windows-1252":           {"windows-1252", zurich, zurichInUTF8},
		"a name of a language":   {"Latin1", zurich, zurichInUTF8},
		"Macintosh":              {"macintosh", "a\nZ\x9frich\n", "a\nZürich\n"},
		"Cyrillic":               {"cp1251", "a\n\xcc\xee\xf1\xea\xe2\xe0\n", "a\nМосква\n"},
		"UTF-8 with a mark":      {"utf-8", "\ufeff" + rows, rows},
		"UTF-16 of Excel":        {"utf-16", wide(le, "\ufeff"+rows), rows},
		"UTF-16 of PowerShell 2": {"unicode", wide(le, "\ufeff"+strings.ReplaceAll(rows, "\n", "\r\n")), rows},
		"big-endian":             {"utf-16", wide(be, "\ufeff"+rows), rows},
		"without a mark":         {"utf-16", wide(be, rows), rows},
		"Shift JIS":              {"shift_jis", "a\n\x93\xfa\x96\x7b\n\xb1\x7c\n", "a\n日本\nｱ|\n"},
		"GBK":                    {"gb2312", "a\n\xb1\xb1\xbe\xa9\nx\n", "a\n北京\nx\n"},
	} {
		want, _ := readAll(t, CSV(testkit.Write(t, "in", c.same), ""), nil)
		texts := map[string]string{"plain": c.text, "gzip": testkit.Gzipped(c.text), "zstd": testkit.Zstded(c.text)}
		for how, text := range texts {
			s := CSV(testkit.Write(t, "in", text), "")
			s.Encoding = c.encoding
			got, cursors := readAll(t, s, nil)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s, %s (-want +got):\n%s", name, how, diff)
				continue
			}
			for i, cursor := range cursors {
				if rest, _ := readAll(t, s, cursor); !cmp.Equal(rest, want[i+1:]) && len(rest)+len(want[i+1:]) > 0 {
					t.Errorf("%s, %s: behind record %d come %+v", name, how, i, rest)
				}
			}
			at, _ := binary.Uvarint(cursors[len(cursors)-1][1:])
			if how == "plain" && !strings.Contains("shift_jis gb2312", c.encoding) && at != uint64(len(text)) {
				t.Errorf("%s: the last cursor is at %d of %d bytes", name, at, len(text))
			}
			s.Paths, s.Stdin = []string{stdin}, iotest.OneByteReader(bytes.NewReader([]byte(text)))
			if piped, _ := readAll(t, s, nil); !cmp.Equal(piped, want) {
				t.Errorf("%s, %s: a pipe gives %+v", name, how, piped)
			}
		}
	}
}

func TestOnlyANamedEncodingIsInTheFingerprint(t *testing.T) {
	path := testkit.Write(t, "in", zurich)
	print := func(label string) string {
		s := TextSource{Format: FormatCSV, Paths: []string{path}, Encoding: label}
		p, err := s.Fingerprint(t.Context())
		must(t, err)
		return p
	}
	if named := print("cp1252"); named == print("") || named != print("Windows-1252") || named == print("windows-1250") {
		t.Error("it is not the encoding")
	}
}
