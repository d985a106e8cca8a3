package jsonline

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/queuepump/queuepump/internal/proof"
)

// FuzzFields: what is valid is what encoding/json says, and so are the fields.
func FuzzFields(f *testing.F) {
	for _, s := range []string{`{"k":"a"}`, `{"a":{"k":1e5}}`, `{"k":"\ud83d\ude00\u00e9\n"}`, `{"k":{},"k":[1,2,null,true,-0.5E+3]}`, `{"a":{"k":1},"a":{}}`, `["k"]`, `{"k":nul}`, "{\"k\":\"\x80\"}", `{"k":"\ud800\u0041"}`, `{"k" : 12, "a":{"b":[],"k":"x"}, "k":12}`, `{"a":1,"a":{"k":"y"}, "k\u0061":0,"k":10`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		top, nested := NewField("k"), NewField("a.k")
		s := NewScanner(top, nested)
		err := s.Scan([]byte(line))
		if valid := json.Valid([]byte(line)); valid != (err == nil) {
			t.Fatalf("%q: %v, but encoding/json says %v", line, err, valid)
		}
		// Whatever was read before, and whatever follows in the buffer, it is read the same.
		for _, before := range []string{line, line[:len(line)/2], strings.ReplaceAll(line, "k", "j"), `{"k":1,"a":{"k":2},"long name":3}`} {
			again := NewScanner(NewField("k"), NewField("a.k"))
			_ = again.Scan([]byte(before + strings.Repeat(" ", 16))[:len(before)])
			againErr := again.Scan([]byte(line + `"k":1,"a":{"k":2}}`)[:len(line)])
			if fmt.Sprint(againErr) != fmt.Sprint(err) {
				t.Fatalf("%q: %v, but after %q %v", line, err, before, againErr)
			}
			for i, f := range again.fields {
				if first := s.fields[i]; err == nil &&
					(string(f.value) != string(first.value) || (f.value == nil) != (first.value == nil) || f.value != nil && f.plain != first.plain) {
					t.Fatalf("%q: %s is %q, but after %q %q", line, f.Name, first.value, before, f.value)
				}
			}
		}
		if err != nil || !strings.Contains(line, "k") || strings.ToValidUTF8(line, "") != line {
			return
		}
		d := json.NewDecoder(strings.NewReader(line))
		d.UseNumber()
		var v any
		proof.Must(t, d.Decode(&v))
		object, _ := v.(map[string]any)
		sameField(t, top, object["k"])
		inner, _ := object["a"].(map[string]any)
		sameField(t, nested, inner["k"])
	})
}

func sameField(t *testing.T, f *Field, want any) {
	t.Helper()
	got, _, err := f.Text(nil)
	switch want := want.(type) {
	case nil, map[string]any, []any:
		if err == nil {
			t.Fatalf("%s is %q, want none: %v", f.Name, got, want)
		}
	default:
		if err != nil || string(got) != fmt.Sprint(want) {
			t.Fatalf("%s is %q, %v, want %v", f.Name, got, err, want)
		}
	}
}
