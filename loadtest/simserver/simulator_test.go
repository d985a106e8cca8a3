package simserver

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
)

// must ends a test with an error.
var must = proof.Must

// newSimulator makes one of the accounts "one" and "two", and closes it with the test.
func newSimulator(t *testing.T, faults ...string) *Simulator {
	t.Helper()
	accounts := []azsim.Account{{Name: "one"}, {Name: "two"}}
	s, err := New(azsim.Config{Accounts: accounts, Limits: azsim.NoLimits(), Seed: 1}, parsed(t, faults...)...)
	must(t, err)
	t.Cleanup(s.Close)
	return s
}

func parsed(t *testing.T, texts ...string) (faults []Fault) {
	t.Helper()
	for _, text := range texts {
		f, err := ParseFault(text)
		must(t, err)
		faults = append(faults, f)
	}
	return faults
}

// queueOf is the queue "work" of an account, which is there, to a client that never tries again.
func queueOf(t *testing.T, s *Simulator, account string) *azqueue.QueueClient {
	t.Helper()
	open := func(tr policy.Transporter) *azqueue.QueueClient {
		service, err := azqueue.NewServiceClientFromConnectionString(s.ConnectionString(account),
			&azqueue.ClientOptions{ClientOptions: azcore.ClientOptions{
				Transport: tr, Retry: policy.RetryOptions{MaxRetries: -1},
			}})
		must(t, err)
		return service.NewQueueClient("work")
	}
	must(t, proof.ErrOf(open(s.Transport().Spared()).Create(context.Background(), nil)))
	return open(s.Transport())
}

// works reports whether a put is answered within a second, which is one of virtual time: on a real
// clock a busy machine may take longer, and a test asks answered.
func works(q *azqueue.QueueClient) bool { return within(time.Second, q) }

// answered reports whether a put is answered on a real clock, where time only bounds a hang.
func answered(q *azqueue.QueueClient) bool { return within(5*time.Minute, q) }

func within(d time.Duration, q *azqueue.QueueClient) bool {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	_, err := q.EnqueueMessage(ctx, "x", nil)
	return err == nil
}

func TestAnAccountIsDarkWhenTheScheduleSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulator(t, "dark account=two from=30s for=20s repeat=2m")
		one, two := queueOf(t, s, "one"), queueOf(t, s, "two")
		began := time.Now()
		for _, c := range []struct {
			after time.Duration
			works bool
		}{
			{0, true},
			{29999 * time.Millisecond, true},
			{30 * time.Second, false},
			{49 * time.Second, false},
			{50 * time.Second, true},
			{149 * time.Second, true},
			{150 * time.Second, false},
			{170 * time.Second, true},
		} {
			time.Sleep(time.Until(began.Add(c.after)))
			synctest.Wait() // the timers of this instant
			proof.Same(t, works(two), c.works, c.after, "after the account works")
			if !works(one) {
				t.Errorf("after %v the other account is dark", c.after)
			}
		}
	})
}

func TestFaultsOfOneAccountThatOverlapAddUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulator(t, "dark account=two from=10s for=20s", "silent from=20s for=20s")
		one, two := queueOf(t, s, "one"), queueOf(t, s, "two")
		began := time.Now()
		for _, c := range []struct {
			after    time.Duration
			one, two bool
		}{
			{5 * time.Second, true, true},
			{15 * time.Second, true, false},
			{25 * time.Second, false, false},
			{35 * time.Second, false, false},
			{45 * time.Second, true, true},
		} {
			time.Sleep(time.Until(began.Add(c.after)))
			proof.Same(t, works(one), c.one, c.after, "after account one works")
			proof.Same(t, works(two), c.two, "after", c.after, "account two works")
		}
	})
}

func TestAFaultByRateIsInForceForItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulator(t, "error rate=0.25 op=PutMessage from=10s for=10s")
		one := queueOf(t, s, "one")
		failures := func() (n int) {
			for range 400 {
				if !works(one) {
					n++
				}
			}
			return n
		}
		if n := failures(); n > 0 {
			t.Errorf("%d failures before its time", n)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		n := failures()
		if n < 60 || n > 140 {
			t.Errorf("%d of 400 failed, want about 100", n)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n := failures(); n > 0 {
			t.Errorf("%d failures after its time", n)
		}
		counts := s.counts()
		if got := counts.Faults[0]; got.Active || got.Hits != int64(n) {
			t.Errorf("the fault is counted as %+v, want %d hits", got, n)
		}
		proof.Same(t, counts.Happened["error"], int64(n), n, "errors are counted")
	})
}

func TestFaultsThatAreReplacedComeNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulator(t, "dark from=10s for=10s repeat=30s", "error")
		one := queueOf(t, s, "one")
		if works(one) {
			t.Error("the error does not happen")
		}
		must(t, s.SetFaults(parsed(t, "error op=GetMessages")...))
		for range 20 {
			if !works(one) {
				t.Fatal("a fault that was replaced happens")
			}
			time.Sleep(7 * time.Second)
		}
		proof.Says(t, s.SetFaults(parsed(t, "dark", "error account=three")...), "three")
		if got := s.CurrentFaults(); len(got) != 1 || got[0].Operations[0] != "GetMessages" || !works(one) {
			t.Errorf("after a refusal %v are in force", got)
		}
		s.Close()
		proof.Says(t, s.SetFaults(make([]Fault, maxFaults+1)...), "too many", "too many faults")
	})
}

func TestASilentAccountAnswersAgainWhenItsTimeIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulator(t, "silent account=one for=5s")
		one := queueOf(t, s, "one")
		began := time.Now()
		if works(one) || time.Since(began) != time.Second {
			t.Errorf("it is not silent for as long as the client waits: %v", time.Since(began))
		}
		time.Sleep(5 * time.Second)
		if !works(one) {
			t.Error("it is silent for ever")
		}
	})
}

func TestALatencyThatCannotBeIsRefused(t *testing.T) {
	s := newSimulator(t)
	for _, l := range []azsim.Latency{{Queue: -1}, {Spread: time.Second}, {Table: 2 * time.Hour}} {
		proof.Says(t, s.SetLatency(l), "latency: ", l)
	}
}

// Faults change while clients are at work, from many sides; the race detector watches.
func TestFaultsChangeUnderLoad(t *testing.T) {
	s := newSimulator(t)
	one := queueOf(t, s, "one")
	end := make(chan struct{})
	done := make(chan int)
	go func() {
		n := 0
		defer func() { done <- n }()
		for {
			select {
			case <-end:
				return
			default:
				answered(one)
				n++
			}
		}
	}()
	h := s.AdminHandler()
	for range 100 {
		call(t, h, "PUT", "/faults", `{"faults":[{"fault":"error","rate":0.5},{"fault":"dark","from":"1ms","for":"1ms","repeat":"2ms"}]}`, http.StatusOK)
		call(t, h, "PUT", "/limits", `"queue=1000"`, http.StatusOK)
		call(t, h, "PUT", "/latency", `{"queue":"10us"}`, http.StatusOK)
		call(t, h, "POST", "/reset", `{"account":"two"}`, http.StatusOK)
		call(t, h, "GET", "/counts", "", http.StatusOK)
	}
	close(end)
	n := <-done
	// One that the darkness met on its way is counted there, and as one that never acted.
	st := s.Stats()
	got := st.Blackouts["one"]
	for _, r := range st.Requests {
		if r.Account == "one" && r.Operation == "PutMessage" && r.Status != 0 {
			got += r.Count
		}
	}
	proof.Same(t, got, int64(n), n, "puts were sent are counted")
}

// What becomes of an account by a hand of people: it refuses, is disabled, is deleted, loses its
// queues; and what it holds when that is over.
func TestAnAccountRefusesIsDisabledIsGoneAndComesBack(t *testing.T) {
	for fault, c := range map[string]struct {
		says string // of the error while it is so
		left int    // messages after it, of one before
	}{
		"refuse account=one for=10s":                             {"AuthenticationFailed", 1},
		"refuse account=one for=10s code=AuthorizationFailure":   {"AuthorizationFailure", 1},
		"refuse for=10s client=azsdk-go-azqueue":                 {"AuthenticationFailed", 1},
		"disabled account=one for=10s":                           {"AccountIsDisabled", 1},
		"gone account=one for=10s":                               {"no such host", 1},
		"gone account=one for=10s back=empty":                    {"no such host", -1},
		"delete-queues account=one for=10s":                      {"QueueNotFound", -1},
		"delete-queues account=one for=10s object=work":          {"QueueNotFound", -1},
		"delete-queues account=one for=10s object=other":         {"", 2},
		"refuse account=one for=10s client=somebody-else":        {"", 2},
		"refuse account=one for=10s partition=work.ledger.00":    {"", 2},
		"error account=one for=10s service=table partition=work": {"", 2},
	} {
		t.Run(fault, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSimulator(t)
				one := queueOf(t, s, "one")
				put := func() error {
					_, err := one.EnqueueMessage(t.Context(), "task", nil)
					return err
				}
				must(t, put())
				must(t, s.SetFaults(parsed(t, fault)...))
				switch err := put(); {
				case c.says == "" && err != nil:
					t.Error(err)
				case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)):
					t.Errorf("it says %v, want %s", err, c.says)
				}
				if two := queueOf(t, s, "two"); !strings.HasPrefix(fault, "refuse for") && !works(two) {
					t.Error("the other account is not well")
				}
				time.Sleep(10 * time.Second)
				synctest.Wait()
				left := -1
				if p, err := one.GetProperties(t.Context(), nil); err == nil {
					left = int(*p.ApproximateMessagesCount)
				}
				proof.Same(t, left, c.left, "messages are left -1 no queue")
			})
		})
	}
}

// Of faults that overlap the greater one wins, and each ends by itself.
func TestAFaultOfAnAccountThatEndsLeavesTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulator(t, "disabled account=one for=30s", "gone account=one from=10s for=10s")
		one := queueOf(t, s, "one")
		for i, says := range []string{"AccountIsDisabled", "no such host", "AccountIsDisabled", ""} {
			_, err := one.EnqueueMessage(t.Context(), "task", nil)
			if (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
				t.Errorf("in part %d: %v, want %q", i, err, says)
			}
			time.Sleep(10 * time.Second)
			synctest.Wait()
		}
	})
}
