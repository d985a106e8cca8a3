package cli

import (
	"bytes"
	"errors"
	"log/slog"
	"testing"

	"github.com/coreos/go-systemd/v22/journal"
	"github.com/google/go-cmp/cmp"

	"github.com/queuepump/queuepump/internal/proof"
)

// entry is what the journal got.
type entry struct {
	Message  string
	Priority journal.Priority
	Fields   map[string]string
}

func record(level slog.Leveler) (*JournalHandler, *[]entry) {
	var got []entry
	h := NewJournal(level, &bytes.Buffer{})
	h.send = func(message string, p journal.Priority, fields map[string]string) error {
		got = append(got, entry{message, p, fields})
		return nil
	}
	return h, &got
}

func TestLinesHaveTheirPriorityAndTheirFields(t *testing.T) {
	h, got := record(slog.LevelDebug)
	log := slog.New(h)
	log.Debug("details")
	log.Info("a line about another", "instance", "there-2")
	named := log.With("workload", "demo", "instance", "here-1")
	log.With("run", "0a12").Info("distributing", "from", 3)
	named.Info("joined", "segments", 64, "instance", "here-1")
	named.Info("another is gone", "instance", "there-2")
	log.Warn("a queue is dark", "queue", "beta/demo-01", "error", "no\nanswer")
	log.With("workload", "other").WithGroup("of").Error("it failed", "account", "alpha")
	log.Info("account", "account", "alpha", "queue", "beta/demo-01")
	want := []entry{
		{"details", journal.PriDebug, map[string]string{}},
		{"a line about another instance=there-2", journal.PriInfo, map[string]string{"INSTANCE": "there-2"}},
		{"distributing run=0a12 from=3", journal.PriInfo, map[string]string{"WORKLOAD": "demo", "INSTANCE": "here-1", "RUN": "0a12"}},
		{"joined segments=64", journal.PriInfo, map[string]string{"WORKLOAD": "demo", "INSTANCE": "here-1"}},
		{"another is gone instance=there-2", journal.PriInfo, map[string]string{"WORKLOAD": "demo", "INSTANCE": "there-2"}},
		{
			`a queue is dark queue=beta/demo-01 error="no\nanswer"`, journal.PriWarning,
			map[string]string{"WORKLOAD": "demo", "INSTANCE": "here-1", "QUEUE": "beta/demo-01", "ACCOUNT": "beta"},
		},
		{"it failed workload=other of.account=alpha", journal.PriErr, map[string]string{"WORKLOAD": "other", "INSTANCE": "here-1"}},
		{
			"account account=alpha queue=beta/demo-01", journal.PriInfo,
			map[string]string{"WORKLOAD": "demo", "INSTANCE": "here-1", "QUEUE": "beta/demo-01", "ACCOUNT": "alpha"},
		},
	}
	proof.Same(t, cmp.Diff(want, *got), "")
	quiet, none := record(slog.LevelWarn)
	slog.New(quiet).Info("progress")
	if len(*none) > 0 {
		t.Errorf("a quiet log says %v", *none)
	}
}

// TestALineThatTheJournalDoesNotTakeIsNotLost: systemd reads the priority before the line.
func TestALineThatTheJournalDoesNotTakeIsNotLost(t *testing.T) {
	var spare bytes.Buffer
	h := NewJournal(slog.LevelInfo, &spare)
	h.send = func(string, journal.Priority, map[string]string) error { return errors.New("it restarts") }
	slog.New(h).Warn("a beat\nfailed", "n", 1)
	proof.Same(t, spare.String(), "<4>a beat failed n=1\n")
}

// TestAttributesAreKept of groups too, each under its name.
func TestAttributesAreKept(t *testing.T) {
	h, got := record(slog.LevelDebug)
	log := slog.New(h)
	log.With("a", 1).WithGroup("g").With("b", 2).Info("m", "c", slog.GroupValue(slog.Int("d", 3)))
	log.Info("m")
	if (*got)[0].Message != "m a=1 g.b=2 g.c.d=3" || (*got)[1].Message != "m" {
		t.Errorf("got %v", *got)
	}
}
