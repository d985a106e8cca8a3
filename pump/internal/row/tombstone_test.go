package row

import (
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/storage"
)

// must ends a test with an error.
var must = proof.Must

func TestATombstoneNamesTheSameTasksOfTheNextGenerationWithoutBodies(t *testing.T) {
	b := codec.NewBuilder(storage.MaxText)
	b.Reset(codec.Header{Workload: "demo", Run: pump.RunID{1, 2, 3}, Segment: 7, Attempt: 5, Generation: 2, MapVersion: 9})
	for n := range uint64(3000) {
		if fits, err := b.Add(codec.Task{N: 10 * n, Key: []byte("k"), ID: []byte("id"), Body: []byte("body")}); !fits || err != nil {
			t.Fatalf("task %d: %v, %v", n, fits, err)
		}
	}
	text, _, err := b.Seal(nil)
	must(t, err)
	text, err = codec.Quarantined(text, codec.Cause{Reason: codec.ReasonAttempts, Attempts: 6})
	must(t, err)
	poison, err := codec.ReadHeader(text)
	must(t, err)
	if IsTombstone(&poison) {
		t.Error("a poison copy is taken for a tombstone")
	}
	stone, err := NewTombstone(poison, "operator", time.Now())
	must(t, err)
	env, err := codec.Open(stone, codec.Limits{})
	must(t, err)
	h := env.Header
	if !IsTombstone(&h) || h.Run != poison.Run || h.Segment != 7 || h.Workload != "demo" || h.Generation != 3 || h.Attempt != 0 || !h.Tasks.Equal(poison.Tasks) {
		t.Errorf("the tombstone's header: %+v, cause %+v", h, h.Cause)
	}
	for _, task := range env.Tasks {
		if len(task.Body)+len(task.ID)+len(task.Key) > 0 {
			t.Fatalf("task %d has contents: %+v", task.N, task)
		}
	}
	if again, err := codec.Restamped(stone, 0, h.Generation, codec.NotNow{}); err != nil {
		t.Fatal(err)
	} else if bare, _ := codec.ReadHeader(again); IsTombstone(&bare) {
		t.Error("a tombstone without its cause is still taken for one")
	}
}

// A header comes from outside and may name more tasks than any message holds.
func TestATombstoneOfMoreTasksThanFitIsAnError(t *testing.T) {
	h := codec.Header{Version: codec.Version, Workload: "demo", Run: pump.RunID{1}}
	h.Tasks.AddRange(0, 1<<40)
	if _, err := NewTombstone(h, "operator", time.Now()); err == nil || strings.Contains(err.Error(), "%!") {
		t.Errorf("got %v", err)
	}
}
