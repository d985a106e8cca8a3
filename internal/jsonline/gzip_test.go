package jsonline

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
)

// zipped is a gzip file.
func zipped(text string, name string) string {
	var b bytes.Buffer
	w, _ := gzip.NewWriterLevel(&b, gzip.BestCompression)
	w.Name = name
	_, _ = w.Write([]byte(text))
	_ = w.Close()
	return b.String()
}

func TestBase64OfGzipOfJSONIsUnpackedByAuto(t *testing.T) {
	const order = `{"city":"Oslo","n":1}`
	file := zipped(order, "")
	large := `{"city":"Oslo","x":"` + strings.Repeat("y", MaxUnpacked-len(`{"city":"Oslo","x":""}`)) + `"}`
	lying := []byte(zipped(large+" ", ""))
	binary.LittleEndian.PutUint32(lying[len(lying)-4:], 20)
	for name, c := range map[string]struct{ text, body, key string }{
		"JSON":                    {encoded(file), order, "Oslo"},
		"with a name":             {encoded(zipped(order, "order.json")), order, "Oslo"},
		"with a mark":             {encoded(zipped("\ufeff"+order, "")), order, "Oslo"},
		"as large as it may be":   {encoded(zipped(large, "")), large, "Oslo"},
		"larger":                  {encoded(zipped(large+" ", "")), "", ""},
		"larger than it says":     {encoded(string(lying)), "", ""},
		"not JSON":                {encoded(zipped("hello", "")), "", ""},
		"nothing":                 {encoded(zipped("", "")), "", ""},
		"cut off":                 {encoded(file[:len(file)-9]), "", ""},
		"with a changed checksum": {encoded(file[:len(file)-6] + "\x00" + file[len(file)-5:]), "", ""},
		"with something behind":   {encoded(file + "x"), "", ""},
		"two members":             {encoded(file + file), "", ""},
		"without base64":          {file, "", ""},
	} {
		want := c.body
		if want == "" {
			want = c.text // it goes to the handler as it is, as everything that cannot be decoded does
		}
		proof.AtMost(t, 3*MaxUnpacked, func() {
			for encoding, body := range map[string]string{ForeignAuto: want, Text: c.text} {
				key, got := NewForeign(encoding, "city").Read([]byte(c.text))
				if string(got) != body || string(key) != c.key {
					t.Errorf("%s, %s: key %q and %d bytes", name, encoding, key, len(got))
				}
			}
		})
	}
}

// What gzip writes elsewhere is never an envelope, and no envelope is unpacked as JSON.
func TestGzipOfJSONAndEnvelopesAreToldApart(t *testing.T) {
	for _, name := range []string{"", "QP", "qpump"} {
		for n := range 200 {
			text := encoded(zipped(`{"n":"`+strings.Repeat("x", n)+`"}`, name))
			if _, err := codec.ReadHeader([]byte(text)); !errors.Is(err, codec.ErrForeign) {
				t.Fatalf("%q: %v", text, err)
			}
		}
	}
	b := codec.NewBuilder(0)
	b.Reset(codec.Header{Workload: "work"})
	_, err := b.Add(codec.Task{Body: []byte(`{"city":"Oslo"}`)})
	proof.Must(t, err)
	text, _, err := b.Seal(nil)
	proof.Must(t, err)
	if _, body := NewForeign(ForeignAuto, "").Read(text); string(body) != string(text) {
		t.Errorf("an envelope became %q", body)
	}
}
