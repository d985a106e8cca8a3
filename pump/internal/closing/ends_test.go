package closing

import (
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/workload"
)

func TestWhatTheEndOfARunWaitsFor(t *testing.T) {
	now := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	const q = "queue a/q, which p reads"
	for _, c := range []struct {
		what          string
		behind, since time.Duration // of the queues, and the last sign
		quiet         time.Duration
		waits         string
		notBefore     time.Duration
		text          string
	}{
		{
			"just now, and all is read", HorizonSlack, 10 * time.Second, time.Hour, "quiet", time.Hour - 10*time.Second,
			"it is broken, and ends by itself when nothing of it has been met for 1h0m0s: 10s by now",
		},
		{
			"half the time", HorizonSlack, 30 * time.Minute, time.Hour, "quiet", 30 * time.Minute,
			"it is broken, and ends by itself when nothing of it has been met for 1h0m0s: 30m0s by now",
		},
		{
			"behind the sign", 2 * time.Hour, 30 * time.Minute, time.Hour, "reading", time.Hour,
			"it is broken, and ends by itself when the queues are read beyond the last sign of it, 30m0s ago, and then nothing of it has been met for 1h0m0s; " +
				"held back by " + q + " (messages may wait there for 2h0m0s)",
		},
		{
			"read beyond the sign, not half of the time", 40 * time.Minute, time.Hour, time.Hour, "reading", 30 * time.Minute,
			"it is broken, and ends by itself when the queues are read beyond the last sign of it, 1h0m0s ago, and then nothing of it has been met for 1h0m0s; " +
				"held back by " + q + " (messages may wait there for 40m0s)",
		},
		{
			"under pressure", HorizonSlack, time.Minute, 5 * time.Minute, "quiet", 4 * time.Minute,
			"it is broken, and ends by itself when nothing of it has been met for 5m0s: 1m0s by now",
		},
		{
			"hidden", HorizonSlack, -time.Hour, time.Hour, "quiet", 2 * time.Hour,
			"it is broken, and ends by itself when nothing of it has been met for 1h0m0s after a task of it that is hidden for 1h0m0s comes back",
		},
		{
			"not known", -1, time.Minute, time.Hour, "reading", time.Hour,
			"it is broken, and ends by itself when the queues are read beyond the last sign of it, 1m0s ago, and then nothing of it has been met for 1h0m0s; held back by " + q,
		},
	} {
		e := EndsView{now: now, Read: Horizon{At: now.Add(-c.behind), By: q}, quiet: c.quiet}
		if c.behind < 0 {
			e.Read.At = time.Time{}
		}
		got := e.Of(Unended{pump.RunID{1}, workload.RunBroken, now.Add(-c.since), ModeClient})
		if got.WaitsFor != c.waits || !got.NotBefore.Equal(now.Add(c.notBefore)) || got.Text != c.text {
			t.Errorf("%s: it waits for %s, not before %v from now; %s", c.what, got.WaitsFor, got.NotBefore.Sub(now), got.Text)
		}
	}
	e := EndsView{now: now, Read: Horizon{At: now, By: q}, quiet: time.Hour}
	if got := e.Of(Unended{pump.RunID{1}, workload.RunEnded, now, ModeClient}).Text; !strings.HasPrefix(got, "it has ended, and the ledger forgets it when nothing") {
		t.Errorf("of an ended run: %s", got)
	}
	e.keep = 24 * time.Hour // as long as keys of posts may be kept
	got := e.Of(Unended{pump.RunID{1}, workload.RunAbandoned, now, ModePosts}).NotBefore
	proof.Same(t, got.Equal(now.Add(e.keep)), true, "a run of posts ends at", got)
}
