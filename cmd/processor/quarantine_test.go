package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

func TestTheEndSaysWhatWasQuarantinedWhereAndWhy(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	var q quarantined
	q.warn(log, "demo", []string{"a failure that was no task's last"})
	if out.Len() > 0 {
		t.Errorf("nothing was quarantined: %s", out.String())
	}
	q.add("beta", "attempts", 1200)
	q.add("alpha", "rejected", 1)
	q.add("alpha", "attempts", 34)
	q.warn(log, "demo", []string{"no such city", "busy"})
	want := `level=WARN msg="tasks are in quarantine; to see, redrive or drop them: distributor quarantine" tasks=1235 queues="alpha/demo-poison beta/demo-poison" reasons="attempts 1,234, rejected 1" first_failures="no such city | busy"` + "\n"
	if _, line, _ := strings.Cut(out.String(), " "); line != want {
		t.Errorf("got %s, want %s", line, want)
	}
}
