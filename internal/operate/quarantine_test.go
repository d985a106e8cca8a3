package operate

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/quarantine"
	"github.com/queuepump/queuepump/pump/source"
)

// spoilt is a desk whose quarantine holds three bad lines.
func spoilt(t *testing.T) *desk {
	d := newDesk(t)
	tasks := filepath.Join(t.TempDir(), "tasks.jsonl")
	must(t, os.WriteFile(tasks, []byte("{\"city\":\"Oslo\"}\nno json \x1b[31m\n{\"town\":1}\n[]\n"), 0o600))
	d.send(d.three, source.JSONLines(tasks, "city"), distributor.BadLineQuarantine)
	return d
}

func TestQuarantineIsShownAndDropped(t *testing.T) {
	d := spoilt(t)
	if list := d.with(d.three, "quarantine", "list"); !strings.Contains(list, "MESSAGES") || !strings.Contains(list, "1 stuck") || !strings.Contains(list, "3 messages with 3 tasks: bad-line 3\n") {
		t.Errorf("by cause and text:\n%s", list)
	}
	list := d.with(d.three, "quarantine", "list", "--each")
	if !strings.Contains(list, "CAUSE") || strings.Count(list, "bad-line ") < 3 || !strings.Contains(list, "3 messages with 3 tasks: bad-line 3\n") || !strings.Contains(list, "stuck") {
		t.Errorf("list:\n%s", list)
	}
	var first struct{ ID, Account, Reason, Problem string }
	lines := strings.Split(strings.TrimSpace(d.with(d.three, "quarantine", "list", "--json")), "\n")
	if err := json.Unmarshal([]byte(lines[0]), &first); err != nil || len(lines) != 3 || first.Reason != "bad-line" || first.Problem == "" {
		t.Fatalf("%v: %s", err, lines)
	}
	show := d.with(d.three, "quarantine", "show")
	if strings.Contains(show, "\x1b") || !strings.Contains(show, `"no json \x1b[31m"`) || !strings.Contains(show, "cannot be redriven") {
		t.Errorf("show:\n%q", show)
	}
	if body := d.with(d.three, "quarantine", "show", "--body", first.ID); len(body) == 0 || strings.HasSuffix(body, "\n") {
		t.Errorf("body: %q", body)
	}
	proof.Has(t, d.with(d.three, "quarantine", "list", "--cause", "attempts"), "nothing in quarantine matches", "another cause")
	proof.Has(t, d.with(d.three, "quarantine", "drop", "--dry-run"), "3 messages with 3 tasks would be dropped", "dry run")
	proof.Has(t, d.with(d.three, "quarantine", "drop", "--id", first.ID, "--yes"), "1 message with 1 task dropped: bad-line 1", "drop")
	proof.Has(t, d.with(d.three, "quarantine", "list"), "2 messages with 2 tasks", "afterwards")
}

func TestWhatIsInQuarantineIsListedByCauseAndText(t *testing.T) {
	g, now := groups{}, time.Date(2026, 3, 9, 12, 0, 0, 0, time.UTC)
	for i, detail := range []string{"customer 4711: card declined", "no route", "customer 12: card declined", "no route"} {
		m := &quarantine.Message{Reason: "rejected", Detail: detail, Put: now.Add(time.Duration(i) * time.Minute), Matching: i + 1}
		if i == 3 {
			m.Reason, m.Problem = "attempts", "its run is over"
		}
		g.add(m)
	}
	table := g.table(func(t time.Time) string { return t.Format(time.TimeOnly) })
	var got []string
	for _, row := range table.Rows {
		got = append(got, strings.Join(row, "|"))
	}
	want := "rejected|2|4|12:02:00||||customer 4711: card declined\nattempts|1|4|12:03:00|||1 stuck|no route\nrejected|1|2|12:01:00||||no route"
	proof.Same(t, strings.Join(got, "\n"), want)
	ids := names{}
	for _, id := range []string{"o-2", "", "o-1", "o-3", "o-1"} {
		ids.add([]byte(id))
	}
	proof.Same(t, ids.text(2), "o-1 o-2 +1", "ids")
}

func TestQuarantineRefusesWhatItDoesNotUnderstand(t *testing.T) {
	d := spoilt(t)
	d.fails(true, "standard input is not a terminal", "quarantine", "drop")
	d.fails(false, "3 messages could not be redriven", "quarantine", "redrive")
	d.fails(true, "--rate", "quarantine", "redrive", "--rate", "0")
	d.fails(true, "is not a time", "quarantine", "list", "--since", "yesterday")
	d.fails(true, `nothing is in quarantine for "atempts"; the causes are rejected, attempts,`, "quarantine", "list", "--cause", "atempts")
	d.fails(true, `--run: "12" is too short`, "quarantine", "list", "--run", "12")
	d.fails(true, `--run: "a run" is not the name of a run, nor its id`, "quarantine", "list", "--run", "a run")
	d.fails(true, "--limit", "quarantine", "list", "--limit", "-1")
	d.fails(true, "only one of", "quarantine", "show", "--body", "--json")
	d.fails(false, "no message in quarantine has that id", "quarantine", "show", "nobody")
}

func TestTimesAreReadAsPeopleWriteThem(t *testing.T) {
	zone := time.FixedZone("there", 2*3600)
	now := time.Date(2026, 3, 9, 12, 0, 0, 0, zone)
	for text, want := range map[string]time.Time{
		"":                     {},
		"90m":                  now.Add(-90 * time.Minute),
		"3d":                   now.AddDate(0, 0, -3),
		"2026-03-08":           time.Date(2026, 3, 8, 0, 0, 0, 0, zone),
		"2026-03-08 07:30":     time.Date(2026, 3, 8, 7, 30, 0, 0, zone),
		"2026-03-08 07:30:15":  time.Date(2026, 3, 8, 7, 30, 15, 0, zone),
		"2026-03-08T07:30:15Z": time.Date(2026, 3, 8, 7, 30, 15, 0, time.UTC),
	} {
		if got, err := when("since", text, now); err != nil || !got.Equal(want) {
			t.Errorf("%q is %v (%v), want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"-2h", "now", "d", "-1d", "2026-13-01"} {
		proof.Says(t, proof.ErrOf(when("since", text, now)), "since", text)
	}
}
