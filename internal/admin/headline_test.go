package admin

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/accounts"
	"github.com/queuepump/queuepump/pump/status"
	"github.com/queuepump/queuepump/pump/storage"
)

// calm is a workload of two accounts and two processors in which nothing is to be done.
func calm() *status.Status {
	s := &status.Status{Workload: "demo", Segments: 64}
	for _, name := range []string{"A", "B"} {
		s.Accounts = append(s.Accounts, status.Account{
			Use:   accounts.Use{Name: name, State: accounts.Active, Configured: true, Queues: 1},
			Limit: 20_000, ByQueue: []status.Queue{{Queue: "demo-00"}},
		})
	}
	for i := range 2 {
		s.Instances = append(s.Instances, status.Instance{
			Instance: fmt.Sprintf("p%d", i), Host: fmt.Sprintf("vm-%d", 7+i), Role: "processor",
			Rank: new(i), Seconds: 0.1,
		})
	}
	return s
}

// working is one in which 4,212 tasks are done in a second and others wait.
func working() *status.Status {
	s := calm()
	s.Instances[0].Rate, s.Instances[0].Busy = 4000, 0.3
	s.Instances[1].Rate, s.Instances[1].Busy = 212.4, 0.2
	s.Accounts[1].Demand = 12_200
	q := &s.Accounts[0].ByQueue[0]
	q.Messages, q.Visible, q.InFlight, q.Bounds = 900, 32, 868, true
	s.Accounts[0].Depth = q.Depth
	return s
}

// stood is one in which tasks wait and none is done.
func stood() *status.Status {
	s := working()
	for i := range s.Instances {
		s.Instances[i].Rate, s.Instances[i].Busy = 0, 0
	}
	s.Accounts[1].Demand = 0
	return s
}

// darkBy is what an account's count failed with.
func darkBy(code storage.Code, status int) string {
	return (&storage.Error{
		Op: "count", Account: "A", Object: "demo-00", Code: code, Status: status,
		Err: errors.New("the service: missing, throttled"),
	}).Error()
}

// atWork is how the headline of work under way begins.
const atWork = "4,212 tasks/s; 61 % of account B's limit; "

// headlines are how things may stand, and what the headline says of it.
var headlines = map[string]struct {
	of   func() *status.Status
	do   func(*status.Status)
	t    trend
	err  error
	want string
	tone string
}{
	"nothing to do": {
		of: calm, want: "Nothing to do: no message waits, and 2 processors are ready", tone: Good,
	},
	"nothing to do, one silent": {
		of: calm, do: func(s *status.Status) { s.Instances[0].Silent = true },
		want: "Nothing to do: no message waits, and 1 processor is ready; 1 other is silent", tone: Warn,
	},
	"a run is overdue": {
		of: calm, do: func(s *status.Status) {
			s.Distribution.Cron, s.Distribution.Next = "0 6 * * * UTC", new(s.Time.Add(-3*time.Minute))
		},
		want: "The run that was due at 23:57 UTC is not made: see the logs of the distributors", tone: Bad,
	},
	"no process": {
		of: calm, do: func(s *status.Status) { s.Instances = nil },
		want: "Nothing to do: no message waits, and no processor is live", tone: Quiet,
	},
	"no processor, work": {
		of: working, do: func(s *status.Status) { s.Instances = nil; s.Accounts[1].Demand = 0 },
		want: "Nothing is done: no processor is live; 900 messages wait", tone: Bad,
	},
	"all silent": {
		of:   calm,
		do:   func(s *status.Status) { s.Instances[0].Silent, s.Instances[1].Silent = true, true },
		want: "Nothing is done: 2 processors are silent", tone: Bad,
	},
	"only sent": {of: calm, do: func(s *status.Status) {
		s.Instances = []status.Instance{{Role: "distributor", Rate: 1234}}
	}, want: "1,234 tasks/s are sent; nothing waits", tone: Good},
	"not looked at yet": {of: working, do: func(s *status.Status) {
		s.Accounts[0].ByQueue, s.Accounts[1].ByQueue = nil, nil
	}, want: atWork + "what waits is not known yet: not every account was looked at", tone: Quiet},
	"paused": {of: working, do: func(s *status.Status) {
		s.PausedSince, s.PausedBy = new(time.Date(2026, 1, 2, 10, 4, 0, 0, time.UTC)), "ann"
		s.Instances[0].Paused = true
	}, want: "Paused since 10:04 UTC by ann; 1 processor still finishes what it began", tone: Quiet},
	"paused, at rest": {of: working, do: func(s *status.Status) {
		s.PausedSince, s.PausedBy = new(time.Date(2026, 1, 2, 10, 4, 0, 0, time.UTC)), "ann"
		s.Instances[0].Paused, s.Instances[1].Paused = true, true
	}, want: "Paused since 10:04 UTC by ann; 900 messages wait", tone: Quiet},
	"at a gate": {of: working, do: func(s *status.Status) {
		s.Instances[0].Waiting, s.Instances[1].Waiting = "morning", "morning"
	}, want: "2 processors wait at gate morning; open it with: " +
		"distributor gate open morning", tone: Quiet},
	"dark": {
		of: working, do: func(s *status.Status) { s.Accounts[0].Dark = "it does not answer" },
		want: atWork + "what holds it back: account A, which does not answer", tone: Bad,
	},
	"all dark": {
		of: working, do: func(s *status.Status) { s.Accounts[0].Dark, s.Accounts[1].Dark = "no", "no" },
		want: atWork + "what holds it back: accounts A and 1 other, which do not answer", tone: Bad,
	},
	"one is dark, one throttled": {
		of: working, do: func(s *status.Status) {
			s.Accounts[0].Dark, s.Accounts[1].Dark = darkBy(storage.Throttled, 503), darkBy(storage.MaybeDone, 0)
		},
		want: atWork + "what holds it back: account B, which does not answer", tone: Bad,
	},
	"refused": {
		of: working, do: func(s *status.Status) { s.Accounts[1].Dark = darkBy(storage.Auth, 403) },
		want: atWork + "what holds it back: account B, which refuses the credential", tone: Bad,
	},
	"a queue is gone": {
		of: working, do: func(s *status.Status) { s.Accounts[0].Dark = darkBy(storage.Missing, 404) },
		want: atWork + "what holds it back: account A, which lacks a queue or is disabled", tone: Bad,
	},
	"throttled while it was read": {
		of: working, do: func(s *status.Status) {
			s.Accounts[0].Dark, s.Accounts[1].Dark = darkBy(storage.Throttled, 503), darkBy(storage.Throttled, 503)
		},
		want: atWork + "what holds it back: accounts A and 1 other, which refuse requests as too many", tone: Warn,
	},
	"throttled": {
		of: working, t: trend{map[string]float64{"A": 12.2, "B": 3}},
		want: atWork + "what holds it back: account A, which refuses 12 requests/s as too many",
		tone: Warn,
	},
	"at a limit": {
		of: working, do: func(s *status.Status) { s.Accounts[0].Demand = 19_000 },
		want: "4,212 tasks/s; 95 % of account A's limit; what holds it back: account A's limit",
		tone: Warn,
	},
	"one silent": {
		of: working, do: func(s *status.Status) { s.Instances[1].Silent = true },
		want: "4,000 tasks/s; 61 % of account B's limit; what holds it back: " +
			"1 silent processor, whose segments go to others within two leases", tone: Warn,
	},
	"no owner": {
		of: working, do: func(s *status.Status) { s.Unowned = []uint32{1, 2, 3} },
		want: atWork + "what holds it back: 3 segments without an owner", tone: Warn,
	},
	"full ledger": {
		of: working, do: func(s *status.Status) { s.Ledger = &pump.LedgerStatus{Segment: 5, Used: 1} },
		want: atWork + "what holds it back: the ledger of segment 5, which is full until runs end",
		tone: Warn,
	},
	"handlers on one machine": {
		of: working, do: func(s *status.Status) { s.Instances[0].Busy = 0.98 },
		want: atWork + "what holds it back: handlers on vm-7", tone: Good,
	},
	"handlers on all": {
		of: working, do: func(s *status.Status) { s.Instances[0].Busy, s.Instances[1].Busy = 0.98, 0.8 },
		want: atWork + "what holds it back: handlers: all 2 processors are busy", tone: Good,
	},
	"handlers on some": {of: working, do: func(s *status.Status) {
		s.Instances[0].Busy, s.Instances[1].Busy = 0.8, 0.9
		s.Instances = append(s.Instances, status.Instance{Role: "processor", Host: "vm-9", Busy: 0.1})
	}, want: atWork + "what holds it back: handlers on vm-8 and 1 other machine", tone: Good},
	"none of them": {
		of: working,
		want: atWork + "what holds it back: neither accounts nor handlers (25 % busy): " +
			"a rate that is set, or tasks that wait for their turn", tone: Good,
	},
	"the cap holds back": {of: working, do: func(s *status.Status) {
		s.Instances[0].Busy = 0.98
		s.Money = status.Money{Prices: pump.Prices{}.OrPublished(), CapPerDay: new(2.0), Slowed: 2, HoldBack: 2}
	}, want: atWork + "what holds it back: the day's cap of 2.00 USD", tone: Warn},
	"the cap holds one back": {of: working, do: func(s *status.Status) {
		s.Money = status.Money{Prices: pump.Prices{}.OrPublished(), CapPerDay: new(0.0143), Slowed: 2, HoldBack: 1}
	}, want: atWork + "what holds it back: the day's cap of 0.0143 USD: " +
		"gets are held back by 1 of 2 processors", tone: Warn},
	"a cap of others": {of: working, do: func(s *status.Status) {
		s.Money = status.Money{Slowed: 2, HoldBack: 2}
	}, want: atWork + "what holds it back: the day's cap", tone: Warn},
	"the cap slows, and nothing else does": {of: working, do: func(s *status.Status) {
		s.Money = status.Money{Prices: pump.Prices{}.OrPublished(), CapPerDay: new(2.0), Slowed: 1}
	}, want: atWork + "what holds it back: the day's cap of 2.00 USD: " +
		"empty queues are polled more slowly", tone: Warn},
	"the cap slows, and handlers are busy": {of: working, do: func(s *status.Status) {
		s.Instances[0].Busy = 0.98
		s.Money = status.Money{Prices: pump.Prices{}.OrPublished(), CapPerDay: new(2.0), Slowed: 1}
	}, want: atWork + "what holds it back: handlers on vm-7", tone: Good},
	"a cap, and nothing waits": {of: working, do: func(s *status.Status) {
		q := &s.Accounts[0].ByQueue[0]
		q.Bounds, q.Oldest = false, new(0.4)
		s.Money = status.Money{Prices: pump.Prices{}.OrPublished(), CapPerDay: new(2.0), Slowed: 2, HoldBack: 2}
	}, want: atWork + "nothing waits", tone: Good},
	"an account is at its limit, beside a cap": {of: working, do: func(s *status.Status) {
		s.Accounts[0].Demand = 19_000
		s.Money = status.Money{Prices: pump.Prices{}.OrPublished(), CapPerDay: new(2.0), Slowed: 2, HoldBack: 2}
	}, want: "4,212 tasks/s; 95 % of account A's limit; " +
		"what holds it back: account A's limit", tone: Warn},
	"just begun": {of: working, do: func(s *status.Status) {
		s.Instances[0].Busy, s.Instances[1].Busy, s.Instances[0].Rate, s.Instances[1].Rate = 0, 0, 0, 0
		s.Accounts[1].Demand = 0
		s.Instances[0].Begun, s.Instances[1].Begun = true, true
	}, want: "0 tasks/s; what holds it back: the processors have just begun", tone: Quiet},
	"nothing is done": {
		of: stood, want: "0 tasks/s; what holds it back: handlers; none has ended a task lately",
		tone: Warn,
	},
	"nothing is done, and handlers are not busy": {
		of: stood, do: func(s *status.Status) { s.Instances[0].Busy = 0.01 },
		want: "0 tasks/s; what holds it back: neither accounts nor handlers (1 % busy): " +
			"a rate that is set, or tasks that wait for their turn", tone: Warn,
	},
	"all handlers fail": {of: stood, do: func(s *status.Status) {
		s.Instances[0].Failing = &status.Ill{Count: 5, Error: "no", Task: "r/2/3"}
		s.Instances[1].Failing = &status.Ill{Count: 7, Error: "tax service: 503", Task: "o-17 (r/1/2)"}
	}, want: "0 tasks/s; what holds it back: handlers fail: tax service: 503 (task o-17 (r/1/2))", tone: Bad},
	"handlers of one fail": {of: working, do: func(s *status.Status) {
		s.Instances[1].Failing = &status.Ill{Count: 7, Error: "no", Task: "r/1/2"}
	}, want: atWork + "what holds it back: handlers of 1 of 2 processors fail: no (task r/1/2)", tone: Warn},
	"all handlers hang, and all messages are in hand": {of: stood, do: func(s *status.Status) {
		s.Accounts[0].ByQueue[0].Bounds = false
		for i := range s.Instances {
			at := time.Date(2026, 1, 2, 10, 4+i, 0, 0, time.UTC)
			s.Instances[i].Stuck, s.Instances[i].AllStuck = &status.Ill{Count: 8, Since: at, Task: fmt.Sprint("r/", i)}, true
		}
	}, want: "0 tasks/s; what holds it back: handlers have not returned since 10:04 UTC (task r/0)", tone: Bad},
	"a handler of many hangs": {of: working, do: func(s *status.Status) {
		s.Instances[1].Stuck = &status.Ill{Count: 1}
	}, want: atWork + "what holds it back: neither accounts nor handlers (25 % busy): a rate that is set, " +
		"or tasks that wait for their turn", tone: Good},
	"a row says that all hang, and not which": {of: working, do: func(s *status.Status) {
		s.Instances[1].AllStuck = true
	}, want: atWork + "what holds it back: neither accounts nor handlers (25 % busy): a rate that is set, " +
		"or tasks that wait for their turn", tone: Good},
	"told not now": {of: stood, do: func(s *status.Status) {
		s.Instances[1].NotNow, s.Instances[1].NotNowError = 40, "HTTP 429 Too Many Requests"
		s.Instances[1].NotNowSince = new(time.Date(2026, 1, 2, 10, 4, 0, 0, time.UTC))
	}, want: `0 tasks/s; what holds it back: handlers of 1 of 2 processors are told "not now" ` +
		"since 10:04 UTC: HTTP 429 Too Many Requests", tone: Bad},
	"keeps up": {of: working, do: func(s *status.Status) {
		q := &s.Accounts[0].ByQueue[0]
		q.Bounds, q.Oldest = false, new(0.4)
	}, want: atWork + "nothing waits", tone: Good},
	"a few wait long": {of: working, do: func(s *status.Status) {
		q := &s.Accounts[0].ByQueue[0]
		q.Bounds, q.Oldest = false, new(40.0)
		s.Instances[0].Busy = 1
	}, want: atWork + "what holds it back: handlers on vm-7", tone: Good},
	"only tasks over the limits of keys wait": {of: working, do: func(s *status.Status) {
		q := &s.Accounts[0].ByQueue[0]
		q.Bounds, q.Oldest = false, new(0.4)
		s.Instances[0].KeysOver = pump.KeysOver{Keys: 2, Tasks: 1300}
	}, want: atWork + "what holds it back: the limits by key: 1,300 tasks wait", tone: Good},
	"a run is paused": {of: calm, do: func(s *status.Status) {
		s.PausedParts = []status.PausedPart{{Run: "3f2a0123456789ab"}}
	}, want: "Nothing to do: no message waits, and 2 processors are ready; " +
		"run 3f2a… is paused", tone: Good},
	"a key is paused": {of: working, do: func(s *status.Status) {
		s.Instances[0].Busy, s.PausedParts = 0.98, []status.PausedPart{{Key: "Oslo"}}
	}, want: atWork + "what holds it back: handlers on vm-7; key Oslo is paused", tone: Good},
	"a long key is paused": {of: working, do: func(s *status.Status) {
		s.Instances[0].Busy, s.PausedParts = 0.98, []status.PausedPart{{Key: strings.Repeat("ö", 30)}}
	}, want: atWork + "what holds it back: handlers on vm-7; key " +
		strings.Repeat("ö", 20) + "… is paused", tone: Good},
	"some are paused": {of: working, do: func(s *status.Status) {
		s.Instances[0].Busy, s.PausedParts = 0.98, []status.PausedPart{{Key: "Oslo"}, {Run: "3f2a"}, {Run: "4f2a"}}
	}, want: atWork + "what holds it back: handlers on vm-7; 3 runs and keys are paused", tone: Good},
	"no workload": {
		of: calm, err: fmt.Errorf("wrapped: %w", pump.ErrNoWorkload),
		want: "There is no such workload yet: the first distributor run makes it", tone: Quiet,
	},
	"dark control account": {
		of: working, err: errors.New("account A does not answer\nadvice"),
		do:   func(s *status.Status) { s.Time = time.Date(2026, 1, 2, 10, 4, 5, 0, time.UTC) },
		want: "The workload cannot be read: account A does not answer; what is shown is as of 10:04:05 UTC", tone: Bad,
	},
	"not read yet": {
		of:   func() *status.Status { return nil },
		want: "The workload cannot be read: it was not read yet", tone: Bad,
	},
}

func TestTheHeadlineSaysHowThingsStandAndWhatLimitsThem(t *testing.T) {
	for name, tt := range headlines {
		s := tt.of()
		if tt.do != nil {
			tt.do(s)
		}
		if h := headlineOf(s, tt.t, tt.err); h.Text != tt.want || h.Tone != tt.tone {
			t.Errorf("%s:\ngot  %s (%s)\nwant %s (%s)", name, h.Text, h.Tone, tt.want, tt.tone)
		}
	}
}

// Whatever else is so: where work is visible and none is done, the headline is not green.
func TestNothingIsGreenThatStands(t *testing.T) {
	for name, c := range headlines {
		if c.of == nil {
			continue
		}
		s := c.of()
		if c.do != nil {
			c.do(s)
		}
		if s == nil {
			continue
		}
		if n := count(s); c.err == nil && n.waiting && n.live > 0 && n.rate < pageStands && n.sending == 0 {
			if h := headlineOf(s, c.t, nil); h.Tone == Good {
				t.Errorf("%s: %+v", name, h)
			}
		}
	}
}
