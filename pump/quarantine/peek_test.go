package quarantine_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/quarantine"
	"github.com/queuepump/queuepump/shardmap"
)

// peeked is a line for each queue with something in it, and one for each message.
func peeked(t *testing.T, w *testworld.World, f quarantine.PeekFilter) (lines []string, sum quarantine.PeekedSum) {
	t.Helper()
	sum, err := quarantine.Peek(t.Context(), w.Operator(), f, func(q *quarantine.PeekedQueue) bool {
		if q.Messages > 0 || q.Dark != "" {
			lines = append(
				lines,
				fmt.Sprintf("%s/%s %d seen %d unseen %d", q.Account, q.Queue, q.Messages, q.Seen, q.Unseen),
			)
		}
		for _, m := range q.Shown {
			what := "foreign " + string(m.Text)
			if !m.Foreign {
				var bodies []string
				for _, task := range m.Contents {
					bodies = append(bodies, string(task.Key)+"="+string(task.Body))
				}
				what = fmt.Sprintf(
					"%d: %d of %d %s",
					*m.Segment,
					m.Matching,
					m.Tasks,
					strings.Join(bodies, " "),
				)
			}
			if m.Problem != "" {
				what += " (" + strings.SplitN(m.Problem, ":", 3)[0] + ")"
			}
			lines = append(lines, what)
		}
		return true
	})
	proof.Must(t, err)
	return lines, sum
}

func TestPeekShowsWhatWaitsAndTakesNothing(t *testing.T) {
	testworld.In(t, workload.Spec{}, 2, 2, nil, func(t *testing.T, w *testworld.World) {
		w.PutText("accounta", "work-01", w.Envelope(3, 2))
		w.PutText("accountb", "work-00", w.Text(5, func(h *codec.Header) { h.Run = w.NewRun() }, 7))
		foreign := []byte("{\"from\":\"elsewhere\"}")
		w.PutText("accountb", "work-00", foreign)
		text := w.Envelope(9, 1)
		w.PutText("accountb", "work-01", text[:len(text)-20])

		lines, sum := peeked(t, w, quarantine.PeekFilter{})
		want := []string{
			"accounta/work-01 1 seen 1 unseen 0", "3: 2 of 2 key=3/0 key=3/1",
			"accountb/work-00 2 seen 2 unseen 0", "5: 1 of 1 key=5/7", "foreign " + string(foreign),
			"accountb/work-01 1 seen 1 unseen 0", "9: 1 of 1  (codec)",
		}
		if !slices.Equal(lines, want) {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
		}
		proof.Same(t, sum, (quarantine.PeekedSum{Queues: 4, Messages: 4, Seen: 4, Matching: 4}))
		for operation, most := range map[string]int{"GetMessages": 0, "DeleteMessage": 0, "UpdateMessage": 0, "PeekMessages": 3, "GetQueueMetadata": 4} {
			if n := w.Requests(operation); n > most {
				t.Errorf("%d %s", n, operation)
			}
		}
		proof.Same(t, w.Visible("accountb", "work-00"), 2, "are visible")
		none := func(name string, f quarantine.PeekFilter, want ...string) {
			t.Helper()
			lines, _ := peeked(t, w, f)
			lines = slices.DeleteFunc(lines, func(s string) bool { return strings.Contains(s, " seen ") })
			proof.Alike(t, lines, want, name)
		}
		none("a key", quarantine.PeekFilter{Key: []byte("key")}, want[1], want[3])
		none("a key of none", quarantine.PeekFilter{Key: []byte("other")})
		none("a segment", quarantine.PeekFilter{Segment: new(uint32(5))}, want[3])
		none("a run", quarantine.PeekFilter{Run: w.Run}, want[1], want[6])
		none("foreign", quarantine.PeekFilter{Foreign: true}, want[4], want[6])
		none("a queue", quarantine.PeekFilter{Queue: "accounta/work-01"}, want[1])
		proof.Says(t, proof.ErrOf(quarantine.Peek(t.Context(), w.Operator(), quarantine.PeekFilter{Queue: "accounta/work-07"}, nil)), "no queue")
	})
}

// Foreign texts are shown as a processor would read them.
func TestPeekDecodesForeignTexts(t *testing.T) {
	spec := workload.Spec{ForeignKey: "city"}
	testworld.In(t, spec, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		const order = `{"city":"Oslo","n":1}`
		text := base64.StdEncoding.EncodeToString([]byte(order))
		w.PutText("accounta", "work-00", []byte(text))
		w.PutText("accounta", "work-00", []byte("hello"))
		for key, shown := range map[string]int{"Oslo": 1, "Rome": 0} {
			var got []*quarantine.Peeked
			_, err := quarantine.Peek(t.Context(), w.Operator(), quarantine.PeekFilter{Foreign: true, Key: []byte(key)}, func(q *quarantine.PeekedQueue) bool {
				got = append(got, q.Shown...)
				return true
			})
			if err != nil || len(got) != shown {
				t.Fatalf("%s: %d messages, %v", key, len(got), err)
			}
			for _, m := range got {
				task := m.Contents[0]
				if string(task.Key) != key || string(task.Body) != order || string(m.Text) != text || *m.Segment != shardmap.Segment([]byte(key), 64) {
					t.Errorf("%+v of %+v", task, m)
				}
			}
		}
	})
}

func TestPeekSaysHowManyItCannotSee(t *testing.T) {
	testworld.In(t, workload.Spec{}, 1, 2, nil, func(t *testing.T, w *testworld.World) {
		for range 40 {
			w.PutText("accounta", "work-00", []byte("m"))
		}
		for range 3 {
			w.PutText("accounta", "work-01", []byte("n"))
		}
		proof.Must(t, proof.ErrOf(w.Queue("accounta", "work-01").Get(t.Context(), 2, time.Hour)))
		lines, sum := peeked(t, w, quarantine.PeekFilter{Key: []byte("none")})
		if want := []string{"accounta/work-00 40 seen 32 unseen 8", "accounta/work-01 3 seen 1 unseen 2"}; !slices.Equal(
			lines,
			want,
		) {
			t.Errorf("%q", lines)
		}
		if sum.Unseen != 10 || sum.Seen != 33 || sum.Matching != 0 {
			t.Errorf("%+v", sum)
		}
	})
}

// A dark account costs one deadline for each few queues, and the others are shown.
func TestPeekShowsTheOthersWhileAnAccountIsDark(t *testing.T) {
	testworld.In(t, workload.Spec{}, 2, 20, nil, func(t *testing.T, w *testworld.World) {
		w.PutText("accounta", "work-00", []byte("m"))
		w.Sim.Hang("accountb", true)
		began := time.Now()
		lines, sum := peeked(t, w, quarantine.PeekFilter{})
		if sum.Queues != 40 || sum.Dark != 20 || len(lines) != 22 || lines[1] != "foreign m" {
			t.Errorf("%+v, %q", sum, lines)
		}
		if took := time.Since(began); took > 11*time.Second {
			t.Errorf("it took %v", took)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := quarantine.Peek(ctx, w.Operator(), quarantine.PeekFilter{}, func(*quarantine.PeekedQueue) bool { return true }); err == nil {
			t.Error("it did not say that it was interrupted")
		}
	})
}

// Peeks keep to the budget: of an account that may be asked for 20 messages a second, 24 queues of
// 32 messages take some 40 s, however many are looked at together, and none is dark for that.
func TestPeekKeepsToTheBudget(t *testing.T) {
	testworld.In(t, workload.Spec{}, 1, 24, nil, func(t *testing.T, w *testworld.World) {
		for i := range 24 {
			for range 32 {
				w.PutText("accounta", fmt.Sprintf("work-%02d", i), []byte("m"))
			}
		}
		cfg := w.Operator()
		cfg.Budget.Account = 20
		began := time.Now()
		sum, err := quarantine.Peek(t.Context(), cfg, quarantine.PeekFilter{}, func(*quarantine.PeekedQueue) bool { return true })
		if err != nil || sum.Seen != 24*32 || sum.Dark != 0 {
			t.Errorf("%+v, %v", sum, err)
		}
		// The cost of the last ones is owed and not waited for.
		if took := time.Since(began); took < 24*time.Second || took > 45*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}
