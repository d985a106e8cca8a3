package worlds

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/pump/coordination"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/gates"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/runs"
	"github.com/queuepump/queuepump/pump/source"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/pump/workloads"
)

// newerRow is a kind of row that a newer version left, and what becomes of it and of the work here.
type newerRow struct {
	kind, partition, row string // the row's key begins so; RUN is the run's
	waits                bool   // the run's tasks are not done
	goes                 bool   // it is written over or removed: docs/formats.md says when
	// ask is what meets the row, if a processor does not. Its error names the row.
	ask func(w *testworld.World) error
}

var newerRows = []newerRow{
	{kind: "workload", partition: "work", row: "workload", waits: true},
	{kind: "owners", partition: "work", row: "owner.", waits: true},
	{kind: "member", partition: "work", row: "present.newer", goes: true},
	{kind: "spill marks", partition: "work", row: "spill"},
	{kind: "run", partition: "work.runs", row: "RUN", waits: true},
	{kind: "live run", partition: "work.runs", row: "live.RUN"},
	{kind: "prunable", partition: "work.runs", row: "prunable"},
	{kind: "ledger head", partition: "work.ledger.00", row: "head.", waits: true},
	{kind: "election", partition: "work.election", row: "election", ask: func(w *testworld.World) error {
		d := testworld.Begun(w, distributor.New, "d", &testworld.ListSource{Print: "a", N: 10}, distributor.Options{Every: time.Hour})
		time.Sleep(time.Minute)
		d.Stop()
		return d.Wait()
	}},
	{kind: "key of a post", row: workload.KeyOf("order"), partition: "work.keys." + workload.KeyOf("order")[:1], ask: func(w *testworld.World) error {
		s, err := distributor.NewSender(w.Config("s", 2), distributor.SenderOptions{KeepKeys: time.Hour})
		must(w.T, err)
		_, err = s.Post(w.T.Context(), "order", source.Record{Key: []byte("k"), Body: []byte("b")})
		_, _ = s.Close(w.T.Context())
		return err
	}},
	{kind: "log", partition: "work.log", row: "1.1", ask: func(w *testworld.World) error {
		_, err := workloads.Log(w.T.Context(), w.Operator(), time.Time{})
		return err
	}},
	{kind: "index of results", partition: "work.results", row: "RUN.index", ask: func(w *testworld.World) error {
		_, err := runs.Results(w.T.Context(), w.Operator(), w.Newest(), runs.ResultsOptions{}, func([]byte) error { return nil })
		return err
	}},
	{kind: "gate", partition: "work.gates", row: "morning", ask: func(w *testworld.World) error {
		_, err := gates.Open(w.T.Context(), w.Operator(), "morning", "me")
		return err
	}},
	{kind: "id range", partition: "work.ids", row: "orders", ask: func(w *testworld.World) error {
		ids, err := coordination.NewIDRange(w.Table(), "work", "orders", 10)
		must(w.T, err)
		_, err = ids.Next(w.T.Context())
		return err
	}},
}

// TestARowOfANewerVersionIsRefusedKeptAndNamed plants a row of each kind in a format that is not
// known here. What needs the row waits, without asking again and again, and goes on when it is
// mended; all else is done. The table of rows in docs/formats.md names kinds without such a format.
func TestARowOfANewerVersionIsRefusedKeptAndNamed(t *testing.T) {
	quiet := playNewerRow(t, newerRow{})
	for _, k := range newerRows {
		t.Run(k.kind, func(t *testing.T) {
			if n := playNewerRow(t, k); n > 6*quiet {
				t.Errorf("%d requests, and %d without that row", n, quiet)
			}
		})
	}
}

// playNewerRow gives how many requests a processor made in a quarter of an hour.
func playNewerRow(t *testing.T, k newerRow) (requests int) {
	testworld.In(t, testworld.Once, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		const tasks = 100
		h := &testworld.Seen{}
		var o distributor.Options
		testworld.Ran(w, distributor.New, "d", &testworld.ListSource{Print: "over", N: tasks}, o)
		testworld.Ran(w, processor.New, "before", h, processor.Options{UntilIdle: 2 * time.Minute})
		testworld.Ran(w, distributor.New, "d", &testworld.ListSource{Print: "not over", N: tasks}, o)
		planted := plantNewer(w, k)
		before := w.Requests("")
		work := func() (told string) {
			p := testworld.Begun(w, processor.New, "p", h, processor.Options{})
			time.Sleep(15 * time.Minute)
			p.Stop()
			return fmt.Sprint(p.Wait())
		}
		told := work()
		requests = w.Requests("") - before
		if done := h.Tasks() == 2*tasks; done == k.waits {
			t.Errorf("%d of %d tasks are done", h.Tasks(), 2*tasks)
		}
		if k.ask != nil {
			told = fmt.Sprint(k.ask(w))
		}
		for _, e := range planted {
			says := fmt.Sprintf("the row is of format %d", novelFormat)
			if name := e.Partition + "/" + e.Row; !strings.Contains(told, says) && w.Logged(says) == 0 ||
				!strings.Contains(told, name) && w.Logged(name) == 0 && e.Row == planted[0].Row {
				t.Errorf("row %s is not named: %s", name, told)
			}
			now, err := w.Table().Read(t.Context(), e.Partition, e.Row)
			if kept := err == nil && now.Properties["Novel"] != nil; kept == k.goes {
				t.Errorf("row %s/%s: %v, %v", e.Partition, e.Row, now.Properties, err)
			}
			if len(e.Properties) > 0 && err == nil {
				e.ETag = now.ETag
				must(t, write(w, storage.Replace, e))
			}
		}
		if k.waits {
			work()
		}
		h.Expect(t, 2*tasks, 2*tasks)
		w.ExpectEmpty()
	})
	return requests
}

const novelFormat = 99

func write(w *testworld.World, mode storage.Mode, e storage.Entity) error {
	_, err := w.Table().Write(w.T.Context(), storage.Write{Mode: mode, Entity: e})
	return err
}

// plantNewer makes the rows that begin so rows of a newer format; if there is none, it puts one.
func plantNewer(w *testworld.World, k newerRow) (was []storage.Entity) {
	if k.kind == "" {
		return nil
	}
	begins := strings.Replace(k.row, "RUN", w.Newest().String(), 1)
	q := storage.Query{Partition: k.partition, From: begins, To: begins + "~"}
	for e, err := range w.Table().Query(w.T.Context(), q) {
		must(w.T, err)
		was = append(was, e)
	}
	mode := storage.Merge
	if len(was) == 0 {
		mode, was = storage.Insert, []storage.Entity{{Partition: k.partition, Row: begins}}
	}
	for _, e := range was {
		e.Properties = map[string]any{row.FormatProperty: int64(novelFormat), "Novel": "of a newer version"}
		must(w.T, write(w, mode, e))
	}
	return was
}
