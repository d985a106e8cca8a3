package azsim

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
)

// Pages cited here: learn.microsoft.com/azure/storage/queues/scalability-targets,
// .../tables/scalability-targets.

// hammer has workers repeat f for a virtual time, each waiting a millisecond
// after a refusal, and counts what was let through.
func hammer(t *testing.T, workers int, d time.Duration, f func(worker, i int) int) (admitted, refused int) {
	t.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	end := time.Now().Add(d)
	for w := range workers {
		wg.Go(func() {
			time.Sleep(time.Duration(w) * time.Nanosecond)
			for i := 0; time.Now().Before(end); i++ {
				status := f(w, i)
				mu.Lock()
				if status < 300 {
					admitted++
				} else {
					refused++
				}
				mu.Unlock()
				time.Sleep(time.Millisecond)
			}
		})
	}
	wg.Wait()
	return admitted, refused
}

// near fails unless got is the rate times the seconds, plus at most the burst.
func near(t *testing.T, what string, got int, rate float64, d time.Duration) {
	t.Helper()
	want := rate * d.Seconds()
	if float64(got) < want*0.99 || float64(got) > want+rate*0.1+1 {
		t.Errorf("%s: %d in %v, want %.0f", what, got, d, want)
	}
}

// queues/scalability-targets: "Target throughput for a single queue (1-KiB
// messages): Up to 2,000 messages per second".
func TestOneQueueTakes2000MessagesASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := newRaw(t, Config{Limits: PublishedLimits()})
		w.create("queue")
		const d = 3 * time.Second
		puts, refused := hammer(t, 4, d, func(int, int) int {
			return w.do("POST", "/queue/messages", text("x")).status
		})
		near(t, "puts", puts, 2000, d)
		if got := s.Stats().Throttled; got != int64(refused) || refused == 0 {
			t.Errorf("%d refused, %d counted", refused, got)
		}
	})
}

// queues/scalability-targets: "Maximum request rate per storage account: 20,000
// messages per second".
func TestAllQueuesOfAnAccountTake20000MessagesASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := newRaw(t, Config{Limits: PublishedLimits()})
		const queues, d = 24, 200 * time.Millisecond
		for i := range queues {
			w.create(fmt.Sprintf("queue-%d", i))
		}
		time.Sleep(time.Second)
		var over atomic.Bool
		puts, _ := hammer(t, 2*queues, d, func(worker, _ int) int {
			a := w.do("POST", fmt.Sprintf("/queue-%d/messages", worker%queues), text("x"))
			if strings.Contains(a.body, "Operations per second is over the account limit.") {
				over.Store(true)
			}
			return a.status
		})
		near(t, "puts", puts, 20000, d)
		if !over.Load() {
			t.Error("no client was told that the account is over its limit")
		}
	})
}

// tables/scalability-targets: "Target throughput for a single table partition:
// up to 2,000 entities per second"; an account: 20,000 transactions a second.
func TestOneTablePartitionTakes2000EntitiesASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTableBench(t, TableOptions{})
		b.sim = New(Config{Accounts: []Account{{Name: "acct"}}})
		post := func(path, body string) int { return b.do("POST", path, body).status }
		if st := post("/Tables", `{"TableName":"t12"}`); st != 201 {
			t.Fatalf("create table: %d", st)
		}
		const d = 2 * time.Second
		n, refused := hammer(t, 4, d, func(worker, i int) int {
			return post("/t12", fmt.Sprintf(`{"PartitionKey":"p","RowKey":"%d-%d"}`, worker, i))
		})
		near(t, "inserts", n, 2000, d)
		if refused == 0 {
			t.Error("nothing was refused")
		}
		proof.Same(t, post("/t12", `{"PartitionKey":"other","RowKey":"r"}`), 201,
			"another partition is refused too")
	})
}

// AZURE.md A2, open question: does a get of 32 cost 1 or 32?
func TestAGetOf32CostsWhatGetCostSays(t *testing.T) {
	for cost, rate := range map[int]float64{32: 2000.0 / 32, 1: 2000} {
		synctest.Test(t, func(t *testing.T) {
			w, _ := newRaw(t, Config{Limits: Limits{Queue: 2000, GetCost: cost}})
			w.create("queue")
			for range 32 {
				for w.do("POST", "/queue/messages", text("x")).status != 201 {
					time.Sleep(time.Millisecond)
				}
			}
			time.Sleep(time.Second)
			const d = 2 * time.Second
			gets, _ := hammer(t, 3, d, func(int, int) int {
				return w.do("GET", "/queue/messages?numofmessages=32&peekonly=true", "").status
			})
			near(t, fmt.Sprintf("gets at a cost of %d", cost), gets, rate, d)
		})
	}
}

// common-rest-api-error-codes: ServerBusy 503; scalability pages: "or 500 (Operation Timeout)".
func TestThrottlingIsServerBusyAndMayCarryRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refusal := func(l Limits) seen {
			w, _ := newRaw(t, Config{Limits: l})
			w.create("queue")
			for {
				if a := w.do("POST", "/queue/messages", text("x")); a.status != 201 {
					return a
				}
			}
		}
		a := refusal(Limits{Queue: 1})
		if a.status != 503 || a.code != "ServerBusy" || !strings.Contains(a.body, "The server is currently unable to receive requests. Please retry your request.") {
			t.Errorf("%d %s %s", a.status, a.code, a.body)
		}
		if _, ok := a.header["Retry-After"]; ok {
			t.Error("a Retry-After that was not asked for")
		}
		a = refusal(Limits{Queue: 1, RetryAfter: 1500 * time.Millisecond})
		proof.Same(t, a.header.Get("Retry-After"), "2", "Retry-After")
		a = refusal(Limits{Queue: 1, TimedOut: 1})
		proof.Same(t, a.status, 500)
		proof.Same(t, a.code, "OperationTimedOut")
	})
}

// A refusal by the account costs the queue nothing.
func TestARefusedRequestCostsNothing(t *testing.T) {
	now := int64(time.Hour)
	queue, account := newBucket(10, time.Second), newBucket(1, time.Second)
	for range 100 {
		if queue.take(now, 1) && !account.take(now, 1) {
			queue.owe(-1)
		}
	}
	n := 0
	for queue.take(now, 1) {
		n++
	}
	proof.Same(t, n, 9, "left of 10 after one request went through")
}

// Names of partitions come from outside: an account keeps a bounded number.
func TestPartitionBucketsAreBounded(t *testing.T) {
	var bs buckets
	for i := range 3 * maxPartitions {
		now := int64(i) * int64(time.Second)
		bs.partition(fmt.Sprint(i), 1000, time.Second, now).take(now, 1)
	}
	if n := len(bs.partitions); n > maxPartitions {
		t.Errorf("%d buckets", n)
	}
}

func TestALimitsFileIsReadAndItsErrorsNameTheField(t *testing.T) {
	l, err := ParseLimits([]byte(`{"queue": 500, "tableAccount": "none", "getCost": 1, "burst": "2s", "retryAfter": "1s", "timedOut": 0.5}`))
	want := Limits{
		Queue: 500, QueueAccount: 20000, TablePartition: 2000, TableAccount: Unlimited, Blob: 500,
		GetCost: 1, QueryCost: 1, Burst: 2 * time.Second, RetryAfter: time.Second, TimedOut: 0.5,
	}
	must(t, err)
	proof.Same(t, l, want)
	b, err := json.Marshal(l)
	must(t, err)
	if again, err := ParseLimits(b); err != nil || again != l {
		t.Errorf("written and read again: %+v, %v", again, err)
	}
	if l, err := ParseLimits([]byte(`{}`)); err != nil || l != PublishedLimits() {
		t.Errorf("empty: %+v, %v", l, err)
	}
	for file, part := range map[string]string{
		`{"queue": 0}`:           `field "queue"`,
		`{"queue": -1}`:          `field "queue"`,
		`{"queue": "fast"}`:      `field "queue"`,
		`{"getCost": 7}`:         `field "getCost": want 1 or 32`,
		`{"queryCost": "x"}`:     `field "queryCost"`,
		`{"burst": 5}`:           `field "burst"`,
		`{"burst": "0s"}`:        `field "burst"`,
		`{"retryAfter": "-1s"}`:  `field "retryAfter"`,
		`{"timedOut": 1.5}`:      `field "timedOut"`,
		`{"queues": 5}`:          `unknown field "queues"`,
		`[]`:                     `not a JSON object`,
		`{"queue": 5`:            `not a JSON object`,
		`{"burst": "1000000h"}`:  `field "burst"`,
		`{"queueAccount": null}`: `field "queueAccount"`,
	} {
		proof.Says(t, proof.ErrOf(ParseLimits([]byte(file))), part, file)
	}
}

func TestAConfigurationThatCannotWorkPanicsAtOnce(t *testing.T) {
	for name, c := range map[string]Config{
		"twice": {Accounts: []Account{{Name: "abc"}, {Name: "abc"}}},
		"name":  {Accounts: []Account{{Name: "No Name"}}},
		"short": {Accounts: []Account{{Name: "ab"}}},
		"key":   {Accounts: []Account{{Name: "abc", Key: "***"}}},
		"cost":  {Limits: Limits{GetCost: 5}},
		"rate":  {Limits: Limits{Queue: Rate(math.NaN())}},
		"burst": {Limits: Limits{Burst: -1}},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			New(c)
		}()
	}
}

var _ http.RoundTripper = (*Transport)(nil)

func TestLimitsChangeWhileItRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := newRaw(t, Config{Limits: NoLimits()})
		w.create("queue")
		put := func(int, int) int { return w.do("POST", "/queue/messages", text("x")).status }
		if _, refused := hammer(t, 4, 200*time.Millisecond, put); refused > 0 {
			t.Fatalf("%d refused without limits", refused)
		}
		must(t, s.SetLimits(Limits{Queue: 100, RetryAfter: time.Second}))
		const d = 3 * time.Second
		puts, refused := hammer(t, 4, d, put)
		near(t, "puts", puts, 100, d)
		if refused == 0 {
			t.Error("nothing was refused")
		}
		proof.Says(t, s.SetLimits(Limits{Queue: Rate(math.NaN())}), "a rate is NaN")
		var after string
		for range 20 { // the burst is 10
			after = max(after, w.do("POST", "/queue/messages", text("x")).header.Get("Retry-After"))
		}
		proof.Same(t, after, "1", "the limits in force are gone")
		must(t, s.SetLimits(NoLimits()))
		w.want(201, "", "POST", "/queue/messages", text("x"))
	})
}
