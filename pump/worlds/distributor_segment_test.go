package worlds

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/source"
	"github.com/queuepump/queuepump/shardmap"
)

func TestBadLines(t *testing.T) {
	bad := map[int]bool{3: true, 500: true, 999: true}
	t.Run("fail breaks the run and names the line", func(t *testing.T) {
		inWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
			summary, err := w.distributor("d", &testworld.ListSource{Print: "a", N: 1000, Bad: bad}, distributor.Options{}).Run(t.Context())
			if err == nil || err.Error() != "list:4: flop" {
				t.Errorf("got %v", err)
			}
			if row := w.RunRow(summary.Run); row.State != workload.RunBroken || !strings.Contains(row.Note, "list:4") {
				t.Errorf("the run's row: %+v", row)
			}
		})
	})
	t.Run("skip counts them", func(t *testing.T) {
		inWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
			s := &testworld.ListSource{Print: "a", N: 1000, Bad: bad}
			summary, err := w.distributor("d", s, distributor.Options{OnBadLine: distributor.BadLineSkip}).Run(t.Context())
			if err != nil || summary.Skipped != 3 || summary.Tasks != 997 {
				t.Errorf("%+v, %v", summary, err)
			}
			w.Collect().Expect(t, w.Segments(), summary.Run, s, 1000, 997)
			if n := w.Logged("list:501"); n != 1 {
				t.Errorf("a skipped line is logged %d times", n)
			}
		})
	})
	t.Run("quarantine keeps the line with its cause", func(t *testing.T) {
		inWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
			s := &testworld.ListSource{Print: "a", N: 1000, Bad: bad}
			summary, err := w.distributor("d", s, distributor.Options{OnBadLine: distributor.BadLineQuarantine}).Run(t.Context())
			if err != nil || summary.Quarantined != 3 || summary.Tasks != 997 {
				t.Errorf("%+v, %v", summary, err)
			}
			w.Collect().Expect(t, w.Segments(), summary.Run, s, 1000, 997)
			var got []string
			for _, text := range w.Poisoned("accounta") {
				e, err := codec.Open(text, codec.Limits{})
				must(t, err)
				c := e.Header.Cause
				if c == nil || c.Reason != codec.ReasonBadLine || !strings.Contains(c.Detail, summary.Run.String()) || !strings.Contains(c.Detail, "flop") || !e.Header.Run.IsZero() {
					t.Errorf("header %+v, cause %+v", e.Header, c)
				}
				got = append(got, string(e.Tasks[0].ID)+": "+string(e.Tasks[0].Body))
			}
			slices.Sort(got)
			if diff := cmp.Diff([]string{"list:1000: raw 999", "list:4: raw 3", "list:501: raw 500"}, got); diff != "" {
				t.Error(diff)
			}
			if row := w.RunRow(summary.Run); row.Tasks != 997 {
				t.Errorf("sealed with %d tasks: bad lines are no tasks of the run", row.Tasks)
			}
		})
	})
}

// A run that put nothing is over at once: nothing of it can be met.
func TestARunThatPutNothingEndsAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		bad  int
		over bool
	}{"the first line is bad": {0, true}, "a later line is bad": {5000, false}} {
		inOnceWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
			src := &testworld.ListSource{Print: "a", N: 6000, Bad: map[int]bool{c.bad: true}, Pace: time.Millisecond}
			s, err := w.distributor("d", src, distributor.Options{Pack: 10}).Run(t.Context())
			if err == nil {
				t.Fatalf("%s: no error", name)
			}
			row := w.RunRow(s.Run)
			if row.Over != c.over || (row.State == workload.RunEnded) != c.over || !strings.Contains(row.Note, fmt.Sprintf("list:%d", c.bad+1)) {
				t.Errorf("%s: %+v", name, row)
			}
		})
	}
}

// A task that fits no message is a bad line, and does not use up a number.
func TestATaskTooLargeForAMessageIsABadLine(t *testing.T) {
	large := testworld.Incompressible(80 << 10)
	fits := bytes.Repeat([]byte("compressible "), 40<<10) // 520 KiB
	inWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
		key := []byte("k")
		src := func(yield func(source.Record, error) bool) {
			for _, body := range [][]byte{[]byte("a"), large, fits, large, []byte("b")} {
				if !yield(source.Record{Key: key, Body: body}, nil) {
					return
				}
			}
		}
		summary, err := w.distributor("d", source.FromSeq(src), distributor.Options{OnBadLine: distributor.BadLineQuarantine}).Run(t.Context())
		if err != nil || summary.Tasks != 3 || summary.Quarantined != 2 {
			t.Fatalf("%+v, %v", summary, err)
		}
		got := w.Collect()
		segment := shardmap.Segment(key, w.Segments())
		for n, body := range []string{"a", string(fits), "b"} {
			if b := got[fmt.Sprintf("%s/%d/%d", summary.Run, segment, n)]; len(b) != 1 || b[0] != body {
				t.Errorf("task %d has %d copies", n, len(b))
			}
		}
		for _, text := range w.Poisoned("accounta") {
			e, err := codec.Open(text, codec.Limits{})
			must(t, err)
			if !bytes.HasPrefix(large, e.Tasks[0].Body) || len(e.Tasks[0].Body) < 10<<10 || !strings.Contains(e.Header.Cause.Detail, "the first") {
				t.Errorf("%d bytes kept, %q", len(e.Tasks[0].Body), e.Header.Cause.Detail)
			}
		}
	})
}
