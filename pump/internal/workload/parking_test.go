package workload

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump/internal/faketable"
	"github.com/queuepump/queuepump/pump/internal/row"
)

func TestParkingQueuesHaveNumbers(t *testing.T) {
	for queue, want := range map[string]int{
		"work-park-1": 1, "work-park-8": 8, "work-park-9": 0, "work-park-0": 0, "work-park-": 0,
		"work-00": 0, "work-park-poison": 0, "other-park-1": 0,
	} {
		if got := ParkingNumber("work", queue); got != want {
			t.Errorf("%s: %d, want %d", queue, got, want)
		}
	}
}

// inCity is a test with a workload whose row is in a fake table.
func inCity(t *testing.T, test func(t *testing.T, server *faketable.Server, w *Workload)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server := faketable.NewServer()
		w, err := Ensure(t.Context(), server.Client("me"), citySpec())
		if err != nil {
			t.Fatal(err)
		}
		test(t, server, w)
	})
}

func park(t *testing.T, w *Workload, p Parking) *Workload {
	t.Helper()
	p.Number, p.Since, p.By = w.NextParking(), time.Now(), "me"
	w, changed, err := Park(t.Context(), w.Table, w.Name, p)
	if err != nil || !changed {
		t.Fatalf("%v, %v", changed, err)
	}
	return w
}

// A mark comes with its queues and goes with them, no segment moves, and the configuration is the
// same as before.
func TestAMarkComesAndGoesWithItsQueues(t *testing.T) {
	inCity(t, func(t *testing.T, _ *faketable.Server, w *Workload) {
		before := homes(w.Map)
		run := Parking{Run: codec.NewRunID()}
		w = park(t, w, run)
		w = park(t, w, Parking{Key: []byte{0xff, 0}})
		if len(w.Map.Shards) != 8 || !slices.Equal(homes(w.Map), before) {
			t.Errorf("%+v", w.Map.Shards)
		}
		if err := citySpec().Check(w); err != nil {
			t.Error(err)
		}
		if w.Held(run.Run) == nil || w.HeldKey([]byte{0xff, 0}) == nil || w.HeldKey(nil) != nil || w.Held(codec.RunID{}) != nil {
			t.Errorf("%+v", w.Parkings)
		}
		if got := w.Parked(); !slices.Equal(got, []int{0, 0, 0, 0, 1, 1, 2, 2}) || len(w.Returning()) > 0 {
			t.Errorf("parked %v, returning %v", got, w.Returning())
		}
		run.Returning = time.Now()
		w, changed, err := Unpark(t.Context(), w.Table, w.Name, run)
		if err != nil || !changed || w.Held(run.Run) != nil || !slices.Equal(w.Returning(), []int{1}) {
			t.Fatalf("%+v, %v", w, err)
		}
		if ended, err := EndParking(t.Context(), w, 2); ended || err != nil {
			t.Errorf("a mark that holds was taken away: %v", err)
		}
		if ended, err := EndParking(t.Context(), w, 1); !ended || err != nil {
			t.Errorf("%v, %v", ended, err)
		}
		w, err = Load(t.Context(), w.Table, w.Name)
		if err != nil || len(w.Parkings) != 1 || len(w.Map.Shards) != 6 || !slices.Equal(homes(w.Map), before) {
			t.Errorf("%+v, %v", w, err)
		}
		if n := w.NextParking(); n != 1 {
			t.Errorf("the next number is %d", n)
		}
	})
}

// Between the look and the end an operator paused and resumed it again: the messages parked then
// were not counted.
func TestAMarkThatWasSetAgainSinceItWasJudgedStays(t *testing.T) {
	inCity(t, func(t *testing.T, _ *faketable.Server, w *Workload) {
		run := Parking{Run: codec.NewRunID()}
		w = park(t, w, run)
		run.Returning = time.Now()
		judged, _, err := Unpark(t.Context(), w.Table, w.Name, run)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		again := run
		again.Returning, again.Since, again.Number = time.Time{}, time.Now(), 5 // which it does not get
		w, _, err = Park(t.Context(), w.Table, w.Name, again)
		if err != nil || w.Parkings[0].Number != 1 {
			t.Fatalf("%+v, %v", w, err)
		}
		run.Returning = time.Now()
		if _, _, err := Unpark(t.Context(), w.Table, w.Name, run); err != nil {
			t.Fatal(err)
		}
		if ended, err := EndParking(t.Context(), judged, 1); ended || err != nil {
			t.Errorf("it was taken away: %v", err)
		}
	})
}

func TestNumbersOfMarksAreTakenOnce(t *testing.T) {
	inCity(t, func(t *testing.T, _ *faketable.Server, w *Workload) {
		first := w
		w = park(t, w, Parking{Key: []byte("a")})
		late := Parking{Number: first.NextParking(), Key: []byte("b"), Since: time.Now()}
		if _, _, err := Park(t.Context(), w.Table, w.Name, late); !errors.Is(err, ErrParkingTaken) {
			t.Errorf("%v", err)
		}
		for i := range MaxParkings - 1 {
			w = park(t, w, Parking{Key: []byte{byte(i)}})
		}
		if _, _, err := Park(t.Context(), w.Table, w.Name, late); !errors.Is(err, ErrParkings) || w.NextParking() != 0 {
			t.Errorf("%v", err)
		}
	})
}

// A queue in the map that no mark has keeps its number until it is emptied: messages of another
// mark must not come among those in it.
func TestANumberWhoseMarkWasLostIsNotTaken(t *testing.T) {
	inCity(t, func(t *testing.T, server *faketable.Server, w *Workload) {
		w = park(t, w, Parking{Key: []byte("a")})
		delete(server.Rows["city/workload"].Properties, "Parkings")
		w, err := Load(t.Context(), w.Table, w.Name)
		if err != nil || w.NextParking() != 2 || !slices.Equal(w.Returning(), []int{1}) || slices.Max(w.Parked()) != 0 {
			t.Errorf("%+v, %v", w, err)
		}
		if ended, err := EndParking(t.Context(), w, 1); !ended || err != nil {
			t.Errorf("%v, %v", ended, err)
		}
	})
}

// A map that came back as it was is put back with the marks of its queues.
func TestAMapThatIsPutBackHasItsMarks(t *testing.T) {
	inCity(t, func(t *testing.T, server *faketable.Server, w *Workload) {
		old := server.Rows["city/workload"]
		known := park(t, w, Parking{Key: []byte("a")})
		server.Rows["city/workload"] = old
		if _, err := known.Refresh(t.Context()); !errors.Is(err, ErrRolledBack) {
			t.Errorf("%v", err)
		}
		now, err := Load(t.Context(), w.Table, w.Name)
		if err != nil || now.HeldKey([]byte("a")) == nil || len(now.Map.Shards) != 6 {
			t.Errorf("%+v, %v", now, err)
		}
	})
}

func TestDamagedMarksAreAnErrorAndNotOverwritten(t *testing.T) {
	for _, value := range []any{
		int64(1), "no JSON", `[{"number":0,"key":"YQ=="}]`, `[{"number":9,"key":"YQ=="}]`, `[{"number":1}]`,
		`[{"number":1,"key":"YQ=="},{"number":1,"key":"Yg=="}]`,
		`[{"number":1,"key":"YQ==","run":"0123456789abcdef0123456789abcdef"}]`,
	} {
		inCity(t, func(t *testing.T, server *faketable.Server, w *Workload) {
			server.Rows["city/workload"].Properties["Parkings"] = value
			if _, err := Load(t.Context(), w.Table, w.Name); !errors.Is(err, row.ErrCorrupt) {
				t.Errorf("%v: %v", value, err)
			}
			if len(server.Written()) != 1 {
				t.Error("it was written")
			}
		})
	}
}
