package processtest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/configfile"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/accounts"
)

// lostBlock begins the commands of the runbook for an account that is gone for good.
const lostBlock = "# simulated4 was deleted"

// TestTheRunbookOfAnAccountThatIsGoneForGoodIsTyped types it as it stands. The account is deleted
// with tasks in it, and the ten minutes pass by the service's clock, which is put on.
func TestTheRunbookOfAnAccountThatIsGoneForGoodIsTyped(t *testing.T) {
	t.Parallel()
	docs, worker := documents(t)
	d := newDesk(t, worker)
	w := newNamedWorld(t, azsim.Config{Limits: azsim.NoLimits()}, "simulated", 4, 2)
	config := writeConfig(t, d.dir, 2, w.connections()...)
	appendText(t, config, "delivery: once\n")
	d.send()
	w.sim.Blackout("simulated4", true)
	p := d.start("processor", "run", "--discard", "--admin", "127.0.0.1:0")
	address := p.admin()

	ctx, cancel := context.WithCancel(t.Context())
	passed := make(chan bool, 1)
	go func() { passed <- pass(ctx, w.sim, config) }()
	d.typesRunbook(docs, lostBlock)
	cancel()
	if !<-passed {
		t.Fatal("the account was never seen to drain")
	}
	p.until("it is ready", func() bool { status, _ := ask(t, address, "/readyz"); return status == 200 })
	// It is still in the file. Everything works, and says nothing of it but that it is not used.
	d.send()
	for _, args := range [][]string{{"status"}, {"quarantine", "redrive"}, {"doctor"}} {
		c := d.start("distributor", args...)
		c.succeeds()
		said := c.log.String() + c.out.String()
		if strings.Contains(said, "simulated4") != (args[0] != "quarantine") || strings.Contains(said, "not answer") {
			t.Errorf("%s says\n%s", args, said)
		}
	}
	d.start("processor", "run", "--discard", "--until-idle", "1s").succeeds()
	file, err := configfile.Load(config)
	must(t, err)
	uses, err := accounts.List(t.Context(), file.Config)
	must(t, err)
	for _, u := range uses {
		if u.Name == "simulated4" && u.State != accounts.Unused {
			t.Errorf("%s is %s", u.Name, u.State)
		}
	}
}

// pass lets the time pass that an account must drain, when it drains.
func pass(ctx context.Context, sim *azsim.Sim, config string) bool {
	for ; ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
		file, err := configfile.Load(config)
		if err != nil {
			return false
		}
		uses, _ := accounts.List(ctx, file.Config)
		for _, u := range uses {
			if u.Name == "simulated4" && u.State == accounts.Draining {
				// By less than what the doctor takes for a broken clock: the command waits for the rest.
				sim.SetClockOffset(accounts.LostAfter - 5*time.Second)
				return true
			}
		}
	}
	return false
}
