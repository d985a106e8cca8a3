package codec

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/queuepump/queuepump/internal/proof"
)

func TestARunIDReadsBackFromItsText(t *testing.T) {
	id := NewRunID()
	if id.IsZero() || id == NewRunID() {
		t.Fatal("a new run id is not random")
	}
	for _, s := range []string{id.String(), strings.ToUpper(id.String())} {
		if got, err := ParseRunID(s); err != nil || got != id {
			t.Errorf("ParseRunID(%q) = %v, %v; want %v", s, got, err, id)
		}
	}
	asJSON, err := json.Marshal(map[RunID]RunID{id: id})
	must(t, err)
	proof.Same(t, string(asJSON), `{"`+id.String()+`":"`+id.String()+`"}`, "as JSON", asJSON)
	var back map[RunID]RunID
	if err := json.Unmarshal(asJSON, &back); err != nil || back[id] != id {
		t.Errorf("from JSON %v, %v", back, err)
	}
}

func TestWhatIsNoRunIDIsRefusedAndChangesNothing(t *testing.T) {
	id := NewRunID()
	for _, s := range []string{"", "00", strings.Repeat("0", 31), strings.Repeat("0", 33), strings.Repeat("x", 32), strings.Repeat("0", 31) + "-"} {
		got := id
		if err := got.UnmarshalText([]byte(s)); err == nil || got != id {
			t.Errorf("UnmarshalText(%q): %v, id changed: %t", s, err, got != id)
		}
	}
	if !(RunID{}).IsZero() {
		t.Error("the zero id is not zero")
	}
}
