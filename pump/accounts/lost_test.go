package accounts

import (
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
)

func TestTheTextOfALossNamesWhatIsNotPutAgain(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)
	l := &Losses{
		Account: "acct02", Delivery: pump.Once, Foreign: []string{"orders"},
		Last: &LastCount{At: now.Add(-time.Minute), Messages: 1234, Quarantined: 5},
		Runs: []LostRun{
			{Run: pump.RunID{1}, State: "sealed", Unsettled: new(uint64(400))},
			{Run: pump.RunID{2}, State: "open", Kept: "a Sender's tasks are in no source"},
			{Run: pump.RunID{3}, State: "closed", Unsettled: new(uint64(0)), Quarantined: 2, Kept: "it is closed"},
		},
	}
	const want = `with account acct02 this may be lost for good:
  its messages: 1234 and 5 in quarantine, counted last at 2026-01-02 03:03 UTC
  a process counted them just now: perhaps only this machine cannot reach it
  what other programs put into orders; no command puts that again
  run 01000000000000000000000000000000 (sealed): at most 400 tasks; distributor runs repair puts them again
  run 02000000000000000000000000000000 (open): what it has sent and is not done; not put again: a Sender's tasks are in no source
  run 03000000000000000000000000000000 (closed): at most 0 tasks, and of 2 in quarantine those in it, which nothing puts again; not put again: it is closed
`
	proof.Same(t, strings.Join(l.Text(now), "\n")+"\n", want, "got …want")
	once := &Copies{Messages: 3, Delivery: pump.Once}
	if got := once.Text(); !strings.HasPrefix(got, "3 messages of before lie in it, and 0 in quarantine; what is done is recognised") {
		t.Error(got)
	}
}
