package main

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/simserver"
	"github.com/queuepump/queuepump/pump/storage/azure"
)

func inQuarantine(ids ...identity) *quarantine {
	q := &quarantine{keys: map[identity]string{}}
	for _, id := range ids {
		q.keys[id] = ""
	}
	return q
}

// poisoned is the text of a quarantined message with tasks 3 and 4 of segment 7.
func poisoned(t *testing.T, run codec.RunID) []byte {
	t.Helper()
	b := codec.NewBuilder(0)
	b.Reset(codec.Header{Workload: "demo", Run: run, Segment: 7})
	for i, key := range []string{"three", "four"} {
		if ok, err := b.Add(codec.Task{N: uint64(3 + i), Key: []byte(key), Body: []byte("x")}); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	text, _, err := b.Seal(nil)
	if err == nil {
		text, err = codec.Quarantined(text, codec.Cause{Reason: "attempts"})
	}
	must(t, err)
	return text
}

func TestThePoisonQueuesSayWhichTasksAreInQuarantine(t *testing.T) {
	f := simserver.Accounts{Count: 2, Queues: 1, Limits: "none", Workload: "demo", Seed: 1}
	s, err := f.Serve("127.0.0.1")
	must(t, err)
	defer s.Close()
	q, err := newQuarantine(s, "demo")
	must(t, err)
	if err := q.read(t.Context()); err != nil {
		t.Fatal("without queues: ", err)
	}
	// The second account has more messages than one get brings; a message came
	// twice, one lost its end and one is not ours.
	account, err := azure.Open(azure.Options{ConnectionString: s.ConnectionString("simulated2")})
	must(t, err)
	queue := account.Queue("demo-poison")
	must(t, queue.Create(t.Context()))
	runs := make([]codec.RunID, 34)
	want := map[identity]string{}
	for i := range runs {
		runs[i] = codec.RunID{byte(i + 1)}
		want[identity{runs[i].String(), 7, 3}], want[identity{runs[i].String(), 7, 4}] = "three", "four"
	}
	texts := [][]byte{poisoned(t, runs[0]), []byte("hello")}
	for _, run := range runs {
		texts = append(texts, poisoned(t, run))
	}
	for _, text := range texts {
		must(t, proof.ErrOf(queue.Put(t.Context(), text, 0)))
	}
	for range 2 { // what was read is not read again
		must(t, q.read(t.Context()))
		if d := cmp.Diff(want, q.keys); d != "" || q.unreadable != 1 {
			t.Errorf("%d unreadable, %s", q.unreadable, d)
		}
	}
}

func TestADamagedMessageStillSaysWhichTasksItCarries(t *testing.T) {
	run := codec.RunID{1}
	text := poisoned(t, run)
	h, err := codec.ReadHeader(text)
	must(t, err)
	text[len(text)-6] ^= 1 // in the checksum or the size behind the records
	if _, err := codec.Open(text, codec.Limits{}); !errors.Is(err, codec.ErrCorrupt) {
		t.Fatal(err)
	}
	q := inQuarantine()
	q.add(text)
	proof.Same(t, cmp.Diff(map[identity]string{{h.Run.String(), 7, 3}: "", {h.Run.String(), 7, 4}: ""}, q.keys), "")
}

// TestLostIsCountedByIdentity: a task that is in quarantine twice, or both
// there and done, does not make up for one that is nowhere.
func TestLostIsCountedByIdentity(t *testing.T) {
	id := func(n uint64) identity { return identity{"r", 1, n} }
	for _, tt := range []struct {
		name              string
		seen              map[identity]int
		quarantined       []identity
		unreadable        int
		lost, given, twin int64
	}{
		{"all done", map[identity]int{id(0): 1, id(1): 1, id(2): 1}, nil, 0, 0, 0, 0},
		{"done and in quarantine", map[identity]int{id(0): 1, id(1): 1}, []identity{id(1)}, 0, 1, 0, 0},
		{"done twice", map[identity]int{id(0): 2, id(1): 1}, nil, 0, 1, 0, 1},
		{"in quarantine", map[identity]int{id(0): 1}, []identity{id(1), id(2)}, 0, 0, 2, 0},
		{"of another run", map[identity]int{id(0): 1, {"s", 1, 1}: 1}, []identity{{"s", 1, 2}}, 0, 2, 1, 0},
		{"unreadable", map[identity]int{id(0): 1, id(1): 1}, nil, 1, 1, 1, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tr := &trial{
				flags: &demoFlags{input: "x"}, results: newResults(), quarantine: inQuarantine(tt.quarantined...),
				summary: distributorSummary{Run: "r", Tasks: 3}, summaries: []processorSummary{{Quarantined: 3}},
			}
			tr.quarantine.unreadable = tt.unreadable
			maps.Copy(tr.results.seen, tt.seen)
			tr.results.duplicates = int(tt.twin)
			r, err := tr.report()
			must(t, err)
			proof.Alike(t, []int64{r.Lost, r.Quarantined, r.Duplicates}, []int64{tt.lost, tt.given, tt.twin}, "lost, quarantined, duplicates")
			proof.Same(t, r.verdict() != nil, tt.lost+tt.given > 0, "a failure", r.verdict())
		})
	}
}

// TestAFileInQuarantineIsNotLost: it has no result, but it is accounted for.
func TestAFileInQuarantineIsNotLost(t *testing.T) {
	lost, mismatched, err := newResults().compare([]string{"/a", "/b"}, map[string]bool{"/b": true})
	if lost != 1 || mismatched != 0 || err != nil {
		t.Errorf("%d lost, %d mismatched, %v", lost, mismatched, err)
	}
}

// TestAFailedTrialLeavesNoReportOfAnEarlierOne but its own, which says that it failed.
func TestAFailedTrialLeavesNoReportOfAnEarlierOne(t *testing.T) {
	out := t.TempDir()
	path := filepath.Join(out, "run.json")
	must(t, os.WriteFile(path, []byte(`{"tasks":1,"lost":0}`), 0o600))
	cmd := demoCommand()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs([]string{"--files", out, "--out", out, "--distributor", filepath.Join(out, "missing")})
	failed := cmd.ExecuteContext(t.Context())
	if failed == nil {
		t.Fatal("no error")
	}
	text, err := os.ReadFile(path)
	must(t, err)
	var got map[string]any
	must(t, json.Unmarshal(text, &got))
	if got["unfinished"] != true || got["error"] != failed.Error() || got["lost"] != nil {
		t.Errorf("got %s", text)
	}
}

func TestATrialThatStalledFails(t *testing.T) {
	tr := &trial{
		flags: &demoFlags{input: "x"}, results: newResults(), quarantine: inQuarantine(),
		summary: distributorSummary{Run: "r"}, unfinished: errStalled,
	}
	r, err := tr.report()
	must(t, err)
	if !r.Unfinished || r.Error != errStalled.Error() || r.verdict() == nil {
		t.Errorf("got %+v", r)
	}
}
