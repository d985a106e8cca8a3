package workload

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/testkit"
	"github.com/queuepump/queuepump/shardmap"
)

// inCity is a test with a workload whose row is in a fake table.
func inCity(t *testing.T, test func(t *testing.T, server *testkit.Server, w *Workload)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server := testkit.NewServer()
		w, err := Ensure(t.Context(), server.Client("me"), citySpec())
		must(t, err)
		test(t, server, w)
	})
}

// Marks come and go, the map stays, and of so many there are no more.
func TestMarksComeAndGo(t *testing.T) {
	inCity(t, func(t *testing.T, _ *testkit.Server, w *Workload) {
		run, key := PausedPart{Run: codec.NewRunID()}, PausedPart{Key: []byte{0xff, 0}}
		for _, p := range []PausedPart{run, key} {
			p.Since, p.By = time.Now(), "me"
			if _, changed, err := SetPausedPart(t.Context(), w.Table, w.Name, p); !changed || err != nil {
				t.Fatal(err)
			}
		}
		key.Since = time.Now()
		is, changed, err := SetPausedPart(t.Context(), w.Table, w.Name, key)
		l := is.PausedParts
		if changed || err != nil || is.Map.Version != w.Map.Version || len(l) != 2 || l[1].By != "me" ||
			l.Run(run.Run) == nil || l.Key(key.Key) == nil || l.Key(nil) != nil || l.Run(codec.RunID{}) != nil {
			t.Errorf("%+v, %v", l, err)
		}
		for segment := range uint32(is.Map.Segments) {
			has := segment == shardmap.Segment(key.Key, is.Map.Segments)
			proof.Same(t, l.HasKeyOf(segment, is.Map.Segments), has, "segment", segment)
		}
		if is, changed, err = SetPausedPart(t.Context(), w.Table, w.Name, run); !changed || err != nil || is.PausedParts.Run(run.Run) != nil {
			t.Errorf("%+v, %v", is.PausedParts, err)
		}
		if _, changed, err = SetPausedPart(t.Context(), w.Table, w.Name, run); changed || err != nil {
			t.Error(err)
		}
		for i := range MaxPausedParts - 1 {
			if _, _, err := SetPausedPart(t.Context(), w.Table, w.Name, PausedPart{Key: []byte{byte(i)}, Since: key.Since}); err != nil {
				t.Fatal(err)
			}
		}
		run.Since = key.Since
		if _, _, err := SetPausedPart(t.Context(), w.Table, w.Name, run); !errors.Is(err, ErrPausedParts) {
			t.Error(err)
		}
	})
}

func TestDamagedMarksAreAnErrorAndNotOverwritten(t *testing.T) {
	for _, value := range []any{
		int64(1), "no JSON", `[{}]`, `[{"key":"YQ=="},{"key":"YQ=="}]`,
		`[{"key":"YQ==","run":"0123456789abcdef0123456789abcdef"}]`,
	} {
		inCity(t, func(t *testing.T, server *testkit.Server, w *Workload) {
			server.Rows["city/workload"].Properties["PausedParts"] = value
			proof.Is(t, proof.ErrOf(Load(t.Context(), w.Table, w.Name)), row.ErrCorrupt, value)
			proof.Same(t, len(server.Written()), 1, "it was written")
		})
	}
}
