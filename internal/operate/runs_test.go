package operate

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/queuepump/queuepump/internal/cli"
	"github.com/queuepump/queuepump/internal/configfile"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/gates"
	"github.com/queuepump/queuepump/pump/source"
	"github.com/queuepump/queuepump/pump/storage"
)

// C12: status shows 12 digits of a run's id; so each command takes what was read there.
func TestEveryCommandTakesTheBeginningOfARunsID(t *testing.T) {
	d := newDesk(t)
	text, err := os.ReadFile(d.three)
	must(t, err)
	must(t, os.WriteFile(d.three, append(text, "delivery: once\n"...), 0o600))
	tasks := filepath.Join(t.TempDir(), "tasks.txt")
	must(t, os.WriteFile(tasks, []byte("a\nb\nc\n"), 0o600))
	sent := d.send(d.three, &source.TextSource{Paths: []string{tasks}, Format: source.FormatLines}, "").Run.String()
	short := strings.ToUpper(sent[:5])
	proof.Has(t, d.ok("runs", "show", short), sent, "runs show")
	proof.Has(t, d.ok("runs", "repair", short, "--input", tasks, "--dry-run", "--quiet"), "run "+sent, "repair")
	proof.Has(t, d.ok("quarantine", "list", "--run", short), "nothing in quarantine matches", "quarantine")
	proof.Has(t, d.ok("runs", "end", short, "--drop"), "ended by", "runs end")
	if got := d.ok("runs", "show", short); !strings.Contains(got, "waits for") || !strings.Contains(got, "segment 0, which no processor holds") {
		t.Errorf("runs show of an ended run: %s", got)
	}
	d.fails(false, "ended", "runs", "wait", short)

	// another run whose id begins in the same way
	table, err := gates.Table(configOf(t, d.three))
	must(t, err)
	var id, twin pump.RunID
	must(t, id.UnmarshalText([]byte(sent)))
	twin = id
	twin[15]++
	row, err := table.Read(t.Context(), "test.runs", sent)
	must(t, err)
	row.Row = twin.String()
	must(t, proof.ErrOf(table.Write(t.Context(), storage.Write{Mode: storage.Insert, Entity: row})))
	for _, args := range [][]string{
		{"runs", "show", short},
		{"runs", "end", short},
		{"runs", "wait", short},
		{"runs", "repair", short, "--input", tasks},
		{"quarantine", "list", "--run", short},
		{"quarantine", "drop", "--run", short, "--yes"},
		{"quarantine", "redrive", "--run", short},
	} {
		d.fails(true, sent, args...)
		d.fails(true, twin.String(), args...)
		name := "RUN: the ids"
		if args[0] == "quarantine" {
			name = "--run: the ids"
		}
		d.fails(true, name, args...)
	}
	d.fails(true, "too short", "runs", "wait", short[:3])
	d.fails(true, "not the name of a run", "runs", "repair", "tasks.jsonl", "--input", tasks)
}

func TestRunsAreListedBesideADamagedOne(t *testing.T) {
	d := newDesk(t)
	tasks := filepath.Join(t.TempDir(), "tasks.txt")
	must(t, os.WriteFile(tasks, []byte("a\nb\nc\n"), 0o600))
	from := &source.TextSource{Paths: []string{tasks}, Format: source.FormatLines}
	damaged, sound := d.send(d.three, from, "").Run.String(), d.send(d.three, from, "").Run.String()
	table, err := gates.Table(configOf(t, d.three))
	must(t, err)
	row, err := table.Read(t.Context(), "test.runs", damaged)
	must(t, err)
	row.Properties["State"] = "?"
	must(t, proof.ErrOf(table.Write(t.Context(), storage.Write{Mode: storage.Upsert, Entity: row})))
	for _, args := range [][]string{{"runs", "list"}, {"runs", "list", "--json"}, {"runs", "list", "--state", "sealed"}} {
		got, err := d.typed(args...)
		if !strings.Contains(got, sound) || strings.Contains(got, damaged) {
			t.Errorf("%v printed %s", args, got)
		}
		proof.Says(t, err, damaged, args)
	}
	if got := d.ok("status"); !strings.Contains(got, sound[:12]) || !strings.Contains(got, damaged) {
		t.Errorf("status printed %s", got)
	}
}

func configOf(t *testing.T, path string) pump.Config {
	t.Helper()
	f, err := configfile.Load(path)
	must(t, err)
	return f.Config
}

// P7: a deadline begins with its command, also where the control account takes requests and answers
// none: by the beginning of an id, which is looked up first, and by a whole one.
func TestWaitEndsWithItsTimeoutWhileTheControlAccountIsDark(t *testing.T) {
	dark, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = dark.Close() })
	config := filepath.Join(t.TempDir(), "pump.yaml")
	text := "workload: test\ndelivery: once\naccounts:\n  - connectionString: " +
		"DefaultEndpointsProtocol=http;AccountName=dark;AccountKey=YQ==;" +
		"QueueEndpoint=http://" + dark.Addr().String() + "/dark;TableEndpoint=http://" + dark.Addr().String() + "/dark\n"
	must(t, os.WriteFile(config, []byte(text), 0o600))
	d := &desk{t: t}
	for _, id := range []string{"0123", strings.Repeat("0123", 8)} {
		out, err := d.typedWith(config, "runs", "wait", id, "--timeout", "100ms", "--quiet")
		status, ok := errors.AsType[*cli.Status](err)
		if !ok || status.Code != cli.ExitNotOver || !strings.Contains(err.Error(), "distributor runs wait "+id) {
			t.Errorf("wait %s: %v, printed %q", id, err, out)
		}
	}
}
