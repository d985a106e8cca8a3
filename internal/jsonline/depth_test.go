package jsonline

import (
	"strings"
	"testing"
)

// A task is not nested so deeply that parsers of handlers, which recurse, end their processes.
func TestATaskIsNotNestedDeeply(t *testing.T) {
	for depth, well := range map[int]bool{512: true, 513: false, 9000: false} {
		text := []byte(strings.Repeat("[", depth) + strings.Repeat("]", depth))
		if _, _, _, err := NewTask("", "").Read(text); (err == nil) != well || !Valid(text) {
			t.Errorf("%d deep: %v", depth, err)
		}
	}
}
