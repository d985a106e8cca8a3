package operate

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/queuepump/queuepump/internal/cli"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/workloads"
)

func TestAWorkloadIsDeletedByCommand(t *testing.T) {
	d := made(t) // three tasks are in its queues, so its run is not finished
	dry := d.with(d.first, "workload", "delete", "--dry-run", "--quiet")
	for _, want := range []string{"workload test (incarnation ", "rows in acct01) goes\n", "6 queues with 3 messages, 0 of them in quarantine", " rows: ", "workload 1", "not finished: ", "dry run"} {
		proof.Has(t, dry, want)
	}
	d.fails(true, "Give --yes test", "workload", "delete")
	d.fails(true, `--yes names "tset"`, "workload", "delete", "--yes", "tset")
	d.fails(false, "runs of it are not finished", "workload", "delete", "--yes", "test")
	var got workloads.Deletion
	text := d.with(d.first, "workload", "delete", "--dry-run", "--force", "--json", "--quiet")
	if err := json.Unmarshal([]byte(text), &got); err != nil || got.Workload != "test" || got.Begun || got.Deleted || len(got.Queues) != 6 || len(got.Unfinished) != 1 || got.Kept == nil {
		t.Errorf("%s, %v", text, err)
	}
}

// Who asked for less than a whole deletion is told by the exit status that it was begun.
func TestADeletionThatStopsHalfWayHasAnExitStatusOfItsOwn(t *testing.T) {
	err := halfway(&workloads.Error{Workload: "test", Problem: "p", Fix: "f", Begun: true})
	if s, ok := errors.AsType[*cli.Status](err); !ok || s.Code != 5 || !strings.HasPrefix(err.Error(), "stopped half-way") {
		t.Error(err)
	}
	if err := halfway(&workloads.Error{Workload: "test"}); errors.As(err, new(*cli.Status)) {
		t.Error(err)
	}
}
