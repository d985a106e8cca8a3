package processtest

import (
	"strings"
	"testing"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
)

// controlLostBlock begins the commands of the runbook for a control account that is gone for good.
const controlLostBlock = "# simulated1 was the control account"

// TestTheRunbookOfAControlAccountThatIsGoneForGood types it as it stands: the workload is made again
// in another account, all is sent again, and what lay in the other accounts is told of and can go.
func TestTheRunbookOfAControlAccountThatIsGoneForGood(t *testing.T) {
	t.Parallel()
	docs, worker := documents(t)
	d := newDesk(t, worker)
	w := newNamedWorld(t, azsim.Config{Limits: azsim.NoLimits()}, "simulated", 3, 2)
	appendText(t, writeConfig(t, d.dir, 2, w.connections()...), "delivery: once\n")
	d.send()
	before := d.run
	w.sim.Blackout("simulated1", true)
	appendText(t, writeConfig(t, d.dir, 2, w.connections()[1:]...), "delivery: once\ncontrol: simulated2\n")
	// Nothing begins over the other accounts as if the old workload had never been.
	p := d.start("distributor", "run", "--input", "tasks.jsonl", "--key", "city")
	if status := p.wait(); status != 2 || !strings.Contains(p.log.String(), "gone for good") {
		t.Errorf("status %d without the runbook", status)
	}
	d.typesRunbook(docs, controlLostBlock)
	out := d.path("done.jsonl")
	d.start("processor", "run", "--out", out, "--until-idle", "2s").succeeds()
	done := map[string]int{}
	for _, h := range readDone(t, out) {
		if strings.HasPrefix(h.Run, before) {
			t.Fatalf("a task of the lost run was done: %+v", h)
		}
		done[h.identity()]++
	}
	proof.Same(t, len(done), 1000, "tasks are done")
	list := d.start("distributor", "quarantine", "list")
	list.succeeds()
	has(t, list.out.String(), before, "quarantine does not tell of the lost run")
}
