package capacity

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/source"
)

// records is a source of what is made for each number below n; nil makes a bad line.
func made(n int, make func(i int) *source.Record) source.Source {
	return source.FromSeq(func(yield func(source.Record, error) bool) {
		for i := range n {
			r := make(i)
			if r == nil {
				if !yield(source.Record{}, &source.BadInput{Where: fmt.Sprint(i), Err: errors.New("not a task")}) {
					return
				}
				continue
			}
			if !yield(*r, nil) {
				return
			}
		}
	})
}

func TestASampleIsPackedAsADistributorPacks(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	task := func(i int) *source.Record { return &source.Record{Key: fmt.Append(nil, i), Body: jsonTask(random)} }
	s, err := Measure(t.Context(), made(100_000, task), 0, 0)
	must(t, err)
	t.Logf("%+v", s)
	if s.Tasks != 100_000 || !s.Whole || s.Keys != 100_000 || s.Hottest != 0 || s.BadLines != 0 || s.Messages < 20 {
		t.Errorf("%+v", s)
	}
	// Full means that nothing more fits.
	if text := s.PerFull * s.Text; text < 0.97*fullText || text > fullText {
		t.Errorf("a full message has %.0f characters", text)
	}
	// A tenth of a message says about as much.
	few, err := Measure(t.Context(), made(300, task), 0, 0)
	must(t, err)
	t.Logf("of few: %+v", few)
	if off := few.PerFull/s.PerFull - 1; few.Messages != 0 || math.Abs(off) > 0.25 {
		t.Errorf("300 tasks say that %.0f fill a message, 100,000 say %.0f", few.PerFull, s.PerFull)
	}
}

func TestASampleCountsKeysAndLeavesOutWhatCannotBeATask(t *testing.T) {
	s, err := Measure(t.Context(), made(10_000, func(i int) *source.Record {
		switch {
		case i%100 == 7:
			return nil
		case i%4 == 0:
			return &source.Record{Key: []byte("often\x1b[31m"), Body: []byte("body")}
		default:
			return &source.Record{Key: fmt.Append(nil, i), Body: []byte("body")}
		}
	}), 0, 0)
	must(t, err)
	if s.Tasks != 9_900 || s.BadLines != 100 || math.Abs(s.Hottest-0.2525) > 0.001 || strings.Contains(s.HottestKey, "\x1b") {
		t.Errorf("%+v", s)
	}
	if s, err = Measure(t.Context(), made(10_000, func(i int) *source.Record {
		return &source.Record{Key: fmt.Append(nil, i%5), Body: []byte("body")}
	}), 1000, 0); err != nil || s.Tasks != 1000 || s.Whole || s.Keys != 5 || s.segments(256) > 5 {
		t.Errorf("%+v, %v", s, err)
	}
	for name, src := range map[string]source.Source{
		"nothing":        made(0, nil),
		"only bad lines": made(10, func(int) *source.Record { return nil }),
	} {
		proof.Is(t, proof.ErrOf(Measure(t.Context(), src, 0, 0)), ErrEmptySample, name)
	}
	broken := errors.New("broken")
	proof.Is(t, proof.ErrOf(Measure(t.Context(), source.FromSeq(func(yield func(source.Record, error) bool) { yield(source.Record{}, broken) }), 0, 0)), broken, "a broken source")
}

func TestPackAndWhatDoesNotFitBoundASample(t *testing.T) {
	random := rand.New(rand.NewPCG(2, 2))
	s, err := Measure(t.Context(), made(1000, func(i int) *source.Record {
		if i == 500 {
			return &source.Record{Key: []byte("large"), Body: noise(60 << 10)(random)}
		}
		return &source.Record{Key: fmt.Append(nil, i), Body: jsonTask(random)}
	}), 0, 7)
	must(t, err)
	if s.PerFull != 7 || s.BadLines != 1 || s.Large != 1 || s.Messages < 140 {
		t.Errorf("%+v", s)
	}
	whole, err := Measure(t.Context(), made(200, func(i int) *source.Record {
		return &source.Record{Key: fmt.Append(nil, i), Body: noise(40 << 10)(random)}
	}), 0, 0)
	if err != nil || whole.PerFull != 1 || whole.Ratio > 0.76 || whole.Ratio < 0.7 {
		t.Errorf("%+v, %v", whole, err)
	}
}
