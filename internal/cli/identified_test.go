package cli

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/queuepump/queuepump/internal/proof"
)

func TestEachLineOfTheLogSaysOfWhichProcessItIs(t *testing.T) {
	var b bytes.Buffer
	log := slog.New(newIdentified(slog.NewTextHandler(&b, nil)))
	line := func(log *slog.Logger, attrs ...any) string {
		b.Reset()
		log.Info("m", attrs...)
		_, rest, _ := strings.Cut(strings.TrimSpace(b.String()), "msg=m")
		return strings.TrimSpace(rest)
	}
	proof.Same(t, line(log, "a", 1), "a=1", "before it is known")
	proof.Same(t, line(log, "instance", "another"), "instance=another", "a line about another")
	named := log.With("workload", "demo", "instance", "vm-1")
	for _, l := range []*slog.Logger{log, named} {
		got := line(l, "a", 1)
		if strings.Count(got, "workload=demo") != 1 || strings.Count(got, "instance=vm-1") != 1 || !strings.Contains(got, "a=1") {
			t.Errorf("got %s", got)
		}
	}
	if got := line(log, "instance", "another"); !strings.Contains(got, "instance=another") || strings.Contains(got, "vm-1") {
		t.Errorf("a line about another: %s", got)
	}
}
