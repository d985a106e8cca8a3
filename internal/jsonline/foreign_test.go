package jsonline

import (
	"encoding/base64"
	"encoding/json"
	"testing"

	"pgregory.net/rapid"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/shardmap"
)

func encoded(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

func TestTheEncodingSaysWhatTheBodyIs(t *testing.T) {
	const order = `{"city":"Oslo","n":1}`
	wrapped := encoded(order)[:20] + "\r\n" + encoded(order)[20:] + "\n"
	for name, c := range map[string]struct{ text, auto, plain, base64, key string }{
		"JSON":                          {order, order, order, order, "Oslo"},
		"base64 of JSON":                {encoded(order), order, encoded(order), order, "Oslo"},
		"base64 of JSON in lines":       {wrapped, order, wrapped, order, "Oslo"},
		"base64 of JSON with a mark":    {encoded("\ufeff" + order), order, encoded("\ufeff" + order), order, "Oslo"},
		"JSON with a mark":              {"\ufeff" + order, order, "\ufeff" + order, "\ufeff" + order, "Oslo"},
		"base64 of a JSON text":         {encoded(`"hello"`), `"hello"`, encoded(`"hello"`), `"hello"`, ""},
		"base64 of a number":            {encoded("123"), "123", encoded("123"), "123", ""},
		"a word":                        {"hello", "hello", "hello", "hello", ""},
		"a word that is base64":         {"abcd", "abcd", "abcd", "\x69\xb7\x1d", ""},
		"a number that is base64":       {"1234", "1234", "1234", "\xd7\x6d\xf8", ""},
		"a JSON word that is base64":    {"true", "true", "true", "\xb6\xbb\x9e", ""},
		"base64 of a text":              {encoded("hello"), encoded("hello"), encoded("hello"), "hello", ""},
		"base64 of what is not JSON":    {"eyJ9", "eyJ9", "eyJ9", `{"}`, ""},
		"base64 without its padding":    {"e30", "e30", "e30", "e30", ""},
		"base64 of an empty object":     {"e30=", "{}", "e30=", "{}", ""},
		"base64 that no encoder writes": {"e31=", "e31=", "e31=", "e31=", ""},
		"nothing":                       {"", "", "", "", ""},
		"no text":                       {"\xff\xfe", "\xff\xfe", "\xff\xfe", "\xff\xfe", ""},
		"a text between spaces":         {" hello ", " hello ", " hello ", " hello ", ""},
		"without the field":             {`{"n":1}`, `{"n":1}`, `{"n":1}`, `{"n":1}`, ""},
		"with an empty field":           {`{"city":""}`, `{"city":""}`, `{"city":""}`, `{"city":""}`, ""},
		"with null":                     {`{"city":null}`, `{"city":null}`, `{"city":null}`, `{"city":null}`, ""},
		"with an object":                {`{"city":{}}`, `{"city":{}}`, `{"city":{}}`, `{"city":{}}`, ""},
		"with a number":                 {`{"city":17}`, `{"city":17}`, `{"city":17}`, `{"city":17}`, "17"},
		"with an escape":                {`{"city":"\u004fslo"}`, `{"city":"\u004fslo"}`, `{"city":"\u004fslo"}`, `{"city":"\u004fslo"}`, "Oslo"},
	} {
		for encoding, want := range map[string]string{ForeignAuto: c.auto, Text: c.plain, Base64: c.base64} {
			key, body := NewForeign(encoding, "city").Read([]byte(c.text))
			if string(key) != c.key || string(body) != want || (key == nil) != (c.key == "") {
				t.Errorf("%s, %s: key %q and body %q, want %q and %q", name, encoding, key, body, c.key, want)
			}
			if key, body := NewForeign(encoding, "").Read([]byte(c.text)); key != nil || string(body) != want {
				t.Errorf("%s, %s, without a key: key %q and body %q, want %q", name, encoding, key, body, want)
			}
		}
	}
}

// Whatever the encoding is, processors agree on the key, so on the segment; and what is JSON as it
// was put is never decoded but by force.
func TestTheKeyDoesNotDependOnTheEncoding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		city := rapid.String().Draw(t, "city")
		value, err := json.Marshal(map[string]any{"city": city, "n": rapid.Int().Draw(t, "n")})
		proof.Must(t, err)
		text := value
		if rapid.Bool().Draw(t, "encoded") {
			text = []byte(encoded(string(value)))
		}
		var want string
		proof.Must(t, json.Unmarshal(value, &struct{ City *string }{&want}))
		for _, encoding := range ForeignEncodings {
			key, body := NewForeign(encoding, "city").Read(text)
			if string(key) != want {
				t.Fatalf("%s: key %q, want %q", encoding, key, want)
			}
			if encoding != Text && string(body) != string(value) {
				t.Fatalf("%s: body %q, want %q", encoding, body, value)
			}
			segment := shardmap.Segment([]byte(want), 64)
			if want == "" {
				segment = shardmap.Segment(text, 64)
			}
			if got := ForeignSegment(text, key, 64); got != segment {
				t.Fatalf("%s: segment %d, want %d", encoding, got, segment)
			}
		}
	})
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"city":"Oslo"}`))
	f.Add([]byte(encoded(`{"city":"Oslo"}`)))
	f.Add([]byte("abcd"))
	f.Fuzz(func(t *testing.T, text []byte) {
		before := string(text)
		_, body := NewForeign(ForeignAuto, "city").Read(text)
		if string(text) != before {
			t.Fatal("the text was changed")
		}
		if string(body) != before && !json.Valid(body) {
			t.Fatalf("%q became %q, which is not JSON", text, body)
		}
		if json.Valid(text) && string(body) != before {
			t.Fatalf("%q is JSON and became %q", text, body)
		}
	})
}

// BenchmarkRead is what a get's goroutine does for each message of another program.
func BenchmarkRead(b *testing.B) {
	order := `{"order":123456,"city":"Oslo","euros":20.10,"lines":["a","b","c"],"note":"leave it at the door"}`
	for name, text := range map[string]string{"JSON": order, "base64": encoded(order)} {
		b.Run(name, func(b *testing.B) {
			r := NewForeign(ForeignAuto, "city")
			b.ReportAllocs()
			for b.Loop() {
				r.Read([]byte(text))
			}
		})
	}
}
