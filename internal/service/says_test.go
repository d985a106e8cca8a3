package service

import (
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/processor"
)

func TestAProcessorSaysWhyItDoesNothing(t *testing.T) {
	share := pump.ClusterState{Segments: 128, Held: 64}
	reasons := []string{"account beta has not answered for 40s"}
	for want, s := range map[string]processor.State{
		"0 tasks/s, 64 segments":      {Phase: "working", Cluster: share},
		"0 tasks/s, all segments":     {Phase: "working"},
		"paused by anna, 64 segments": {Phase: "working", Cluster: share, PausedSince: &time.Time{}, PausedBy: "anna"},
		"paused by anna, 2 messages in hand, 64 segments": {
			Phase: "working", Cluster: share, PausedSince: &time.Time{}, PausedBy: "anna", Messages: 2,
		},
		"paused by anna, 64 segments, " + reasons[0]: {
			Phase: "working", Cluster: share, PausedSince: &time.Time{}, PausedBy: "anna", Reasons: reasons,
		},
		"stops, 2 messages in hand": {Phase: "draining", PausedSince: &time.Time{}, PausedBy: "anna", Messages: 2},
		"it waits at gate \"g\"":    {Phase: "waiting", Reasons: []string{`it waits at gate "g"`}},
	} {
		proof.Same(t, processorSays(&s, &speed{}), want, "it says")
	}
}
