package main

import (
	"os"
	"strings"
	"testing"
)

// The trial takes root and minutes; that its plant still fits is seen at once.
func TestThePlantFitsThePoller(t *testing.T) {
	text, err := os.ReadFile("../../../" + poller)
	if err != nil {
		t.Fatal(err)
	}
	spoilt, err := spoil(string(text))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(spoilt, plant+before) || !strings.Contains(spoilt, "\t\"os\"\n") {
		t.Errorf("the poller is not spoilt:\n%s", spoilt)
	}
	if _, err := spoil(strings.ReplaceAll(string(text), before, "")); err == nil {
		t.Error("a poller without the place is taken")
	}
}
