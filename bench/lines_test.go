package bench

import (
	"bytes"
	"encoding/json"
	"testing"
)

func TestLinesAreJSONOfTheNamedLengthAndAlwaysTheSame(t *testing.T) {
	var a, b bytes.Buffer
	if err := WriteLines(&a, 1000, 7); err != nil {
		t.Fatal(err)
	}
	if err := WriteLines(&b, 1000, 7); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a.Bytes(), b.Bytes()) {
		t.Fatal("the same seed gave other bytes")
	}
	if mean := a.Len() / 1000; mean != LineBytes {
		t.Errorf("mean line is %d bytes, the constant says %d", mean, LineBytes)
	}
	ids := map[string]bool{}
	for line := range bytes.Lines(a.Bytes()) {
		var task struct{ ID, City string }
		if err := json.Unmarshal(line, &task); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if task.City == "" || ids[task.ID] {
			t.Fatalf("line without a city or with a known id: %s", line)
		}
		ids[task.ID] = true
	}
}
