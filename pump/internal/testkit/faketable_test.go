package testkit

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/storage"
)

// The table in memory answers as a driver does, and does what a test has made of a request.
func TestTheTableInMemoryAnswersAsADriverDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer()
		c := s.Client("a")
		write := func(mode storage.Mode, row string, etag storage.ETag, value any) (storage.ETag, error) {
			return c.Write(t.Context(), storage.Write{Mode: mode, Entity: storage.Entity{
				Partition: "p", Row: row, ETag: etag, Properties: map[string]any{"V": value},
			}})
		}
		first, err := write(storage.Insert, "r", "", "one")
		proof.Must(t, err)
		for want, f := range map[storage.Code]func() (storage.ETag, error){
			storage.Exists:       func() (storage.ETag, error) { return write(storage.Insert, "r", "", "two") },
			storage.Gone:         func() (storage.ETag, error) { return write(storage.Replace, "s", first, "two") },
			storage.Precondition: func() (storage.ETag, error) { return write(storage.Merge, "r", "W/0", "two") },
			storage.Invalid:      func() (storage.ETag, error) { return write(storage.Upsert, "r", "", 2) },
			storage.TooLarge: func() (storage.ETag, error) {
				return write(storage.Upsert, "r", "", make([]byte, storage.MaxProperty+1))
			},
		} {
			if _, err := f(); !storage.Is(err, want) {
				t.Errorf("%v, want %v", err, want)
			}
		}
		c.SetFault(FaultOn("write", "p/r", c.Writes("p/r")+1, LostAnswer))
		if _, err := write(storage.Merge, "r", first, "six"); !storage.Is(err, storage.MaybeDone) {
			t.Error(err)
		}
		if e, err := (Skewed{c, time.Hour}).Read(t.Context(), "p", "r"); err != nil || e.Properties["V"] != "six" || time.Until(e.Modified) < 59*time.Minute {
			t.Error(e, err)
		}
		_, err = c.Transact(t.Context(), []storage.Write{
			{Mode: storage.Insert, Entity: storage.Entity{Partition: "p", Row: "q"}},
			{Mode: storage.Insert, Entity: storage.Entity{Partition: "p", Row: "r"}},
		})
		var rows []string
		for e, err := range c.Query(t.Context(), storage.Query{Partition: "p", From: "a"}) {
			rows = append(rows, e.Row)
			proof.Must(t, err)
		}
		if !storage.Is(err, storage.Exists) || !slices.Equal(rows, []string{"r"}) {
			t.Errorf("%v; %q", err, rows)
		}
		c.Dies()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.Read(ctx, "p", "a key"); err == nil || CheckKeys(storage.Query{From: "a key"}) == nil {
			t.Error("a dead machine hears something, or a wrong key is taken")
		}
	})
}

// A seed is a history: what is rolled twice is the same, and another seed rolls another.
func TestChanceIsAFunctionOfTheSeed(t *testing.T) {
	rolls := func(seed uint64) (all []uint64) {
		c, draw := Chaos{Seed: seed}, SeededDraw(seed, "a")
		for i := range 20 {
			all = append(all, c.Roll(1000, "x", i), draw("op", "object"))
		}
		return all
	}
	if !slices.Equal(rolls(1), rolls(1)) || slices.Equal(rolls(1), rolls(2)) {
		t.Error(rolls(1), rolls(2))
	}
	synctest.Test(t, func(t *testing.T) {
		c := Chaos{Seed: 1, Quiet: time.Now().Add(time.Hour)}
		wrong := 0
		for i := range 400 {
			if c.Fault(Call{"a", "write", "r", i, storage.Write{}}) != (Fault{}) {
				wrong++
			}
		}
		time.Sleep(2 * time.Hour)
		if calm := c.Fault(Call{"a", "write", "r", 1, storage.Write{}}); wrong < 60 || wrong > 140 || calm != (Fault{}) {
			t.Errorf("%d of 400 requests fail, and in quiet %+v", wrong, calm)
		}
	})
	var l List
	l.Nudged(pump.Nudge{})
	if len(l.Take()) != 1 || len(l.Take()) != 0 {
		t.Error("nudges are taken twice or not at all")
	}
}

func TestInputsAreWhatTheySay(t *testing.T) {
	path := Write(t, "a.txt", Numbered(1, 3))
	Append(t, path, "more")
	text, err := os.ReadFile(path)
	if err != nil || !strings.HasPrefix(string(text), Numbered(1, 3)) || !strings.HasSuffix(string(text), "more") {
		t.Errorf("%q, %v", text, err)
	}
	if !strings.HasPrefix(Gzipped("a"), "\x1f\x8b") || !strings.HasPrefix(Zstded("a"), "\x28\xb5\x2f\xfd") {
		t.Error("a magic number is wrong")
	}
	OnSim(t, func(t *testing.T, sim *azsim.Sim) {
		proof.Must(t, OverTheWire(t, sim, "a").Drop(t.Context()))
	})
}
