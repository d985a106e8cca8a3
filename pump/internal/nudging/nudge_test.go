package nudging

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/testkit"
	"github.com/queuepump/queuepump/pump/nudge"
)

func TestP82ANudgeReachesTheProcessThatItIsFor(t *testing.T) {
	// A busy machine may take longer than nudgeTimeout. A late hint is sent again, to
	// another server, so that nothing arrives twice.
	send := func(n pump.Nudge) (got []pump.Nudge, err error) {
		for range 60 {
			var l testkit.List
			srv := httptest.NewServer(nudge.Handler(&l, "p1"))
			n.Address, n.Here = srv.Listener.Addr().String(), true
			err = NewClient().send(t.Context(), n)
			srv.Close()
			got = l.Take()
			if late, is := errors.AsType[net.Error](err); !is || !late.Timeout() {
				break
			}
		}
		return got, err
	}
	for _, n := range []pump.Nudge{
		{Instance: "p1", Queue: "accounta/work-00"},
		{Instance: "p1", Gate: "hounds"},
		{Instance: "p1", Traffic: true},
		{Instance: "p1"},
	} {
		l, err := send(n)
		proof.Must(t, err)
		proof.Alike(t, l, []pump.Nudge{n}, "sent", n)
	}
	// Another process has the address now.
	l, err := send(pump.Nudge{Instance: "p2"})
	proof.Says(t, err, "421", "a nudge for another process")
	proof.Same(t, len(l), 0, "a nudge for another process was taken", l)
}

func TestHostileNudgesAreRefused(t *testing.T) {
	var got testkit.List
	h := nudge.Handler(&got, "p1")
	for _, c := range []struct {
		name, method, target string
		want                 int
	}{
		{"get", "GET", "/nudge?instance=p1", 405},
		{"head", "HEAD", "/nudge?instance=p1", 405},
		{"no instance", "POST", "/nudge", 400},
		{"empty instance", "POST", "/nudge?instance=", 400},
		{"another", "POST", "/nudge?instance=p11", 421},
		{"long", "POST", "/nudge?instance=" + strings.Repeat("p", 2000), 400},
		{"long but right", "POST", "/nudge?instance=p1&queue=" + strings.Repeat("a", 900) + "/b", 400},
		{"no percent", "POST", "/nudge?instance=p1&queue=%zz", 400},
		{"semicolon", "POST", "/nudge?instance=p1;queue=a/b", 400},
		{"queue without account", "POST", "/nudge?instance=p1&queue=work-00", 400},
		{"path", "POST", "/nudge?instance=p1&queue=" + url.QueryEscape("a/../b"), 400},
		{"newline", "POST", "/nudge?instance=p1&queue=" + url.QueryEscape("a/b\n"), 400},
		{"control characters", "POST", "/nudge?instance=p1&gate=" + url.QueryEscape("\x1b[31m"), 400},
		{"many values", "POST", "/nudge?instance=p1" + strings.Repeat("&gate=g", 20), 400},
		{"two things", "POST", "/nudge?instance=p1&gate=g&queue=a/b", 400},
		{"two instances", "POST", "/nudge?instance=p1&instance=p1&gate=g", 400},
		{"traffic and a queue", "POST", "/nudge?instance=p1&traffic=1&queue=a/b", 400},
		{"traffic of another kind", "POST", "/nudge?instance=p1&traffic=yes", 400},
		{"right", "POST", "/nudge?instance=p1&queue=a/b", 204},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(c.method, c.target, strings.NewReader(strings.Repeat("x", 1<<20))))
		proof.Same(t, w.Code, c.want, c.name)
	}
	if l := got.Take(); len(l) != 1 || l[0].Queue != "a/b" {
		t.Errorf("taken: %+v", l)
	}
}

func TestAFloodOfNudgesIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got testkit.List
		h := nudge.Handler(&got, "p1")
		codes := map[int]int{}
		for range 10 {
			for range 1000 {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequest("POST", "/nudge?instance=p1", nil))
				codes[w.Code]++
			}
			time.Sleep(time.Second)
		}
		if taken := len(got.Take()); taken < nudge.TakenBurst || taken > nudge.TakenBurst+10*nudge.Taken ||
			codes[204] != taken ||
			codes[429] != 10_000-taken {
			t.Errorf("%d taken, answers %v", taken, codes)
		}
	})
}

func TestANudgeGoesOnlyWhereAnAdminPortCanBe(t *testing.T) {
	for _, address := range []string{
		"", "host", "host:", ":80", "host:0", "host:65536", "host:http", "a b:80", "user@host:80", "host:80/path", "host:80?x", "[::1", "-x:80",
		"http://host:80", "host\n:80", "ho\x00st:80", "host:+80", strings.Repeat("a", 300) + ":80",
	} {
		proof.Same(t, CheckAddress(address) == nil, false, address, "is an address")
	}
	for _, address := range []string{"host:80", "10.0.0.1:8080", "[2001:db8::1]:1", "a.b-c.example:65535", "localhost:1"} {
		proof.Is(t, CheckAddress(address), nil, address)
	}
	for _, c := range []struct {
		ip              string
		here, elsewhere bool
	}{
		{"10.1.2.3", true, true},
		{"2001:db8::1", true, true},
		{"127.0.0.1", true, false},
		{"127.8.8.8", true, false},
		{"::1", true, false},
		{"::ffff:127.0.0.1", true, false},
		{"0.0.0.0", false, false},
		{"::", false, false},
		{"169.254.169.254", false, false}, // the metadata service
		{"::ffff:169.254.169.254", false, false},
		{"fe80::1", false, false},
		{"224.0.0.1", false, false},
		{"ff02::1", false, false},
		{"255.255.255.255", false, false},
	} {
		at := netip.AddrPortFrom(netip.MustParseAddr(c.ip), 80).String()
		if here, elsewhere := mayDial(at, true) == nil, mayDial(at, false) == nil; here != c.here ||
			elsewhere != c.elsewhere {
			t.Errorf("%s: from here %v, from elsewhere %v; want %v, %v", c.ip, here, elsewhere, c.here, c.elsewhere)
		}
	}
}

func TestANudgeDoesNotReachALoopbackPortOnAnotherMachinesWord(t *testing.T) {
	var asked atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer srv.Close()
	_, port, err := net.SplitHostPort(srv.Listener.Addr().String())
	proof.Must(t, err)
	for _, host := range []string{"127.0.0.1", "localhost", "0.0.0.0"} { // a name is judged by what it resolves to
		if err := NewClient().send(t.Context(), pump.Nudge{Address: net.JoinHostPort(host, port), Instance: "p1"}); err == nil {
			t.Errorf("%s was reached", host)
		}
	}
	proof.Same(t, asked.Load(), 0, "requests were made")
}

func TestANudgesAnswerLeadsNowhereAndCostsNoMemory(t *testing.T) {
	var led atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { led.Add(1) }))
	defer other.Close()
	var wrote atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("instance") == "redirect" {
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
			return
		}
		for range 1 << 16 { // 4 GiB
			n, err := w.Write(make([]byte, 64<<10))
			wrote.Add(int64(n))
			if err != nil {
				return
			}
		}
	}))
	t.Setenv("HTTP_PROXY", other.URL)
	defer srv.Close()
	for _, instance := range []string{"redirect", "endless"} {
		err := NewClient().send(t.Context(), pump.Nudge{Address: srv.Listener.Addr().String(), Here: true, Instance: instance})
		if err == nil {
			t.Errorf("%s: no error", instance)
		}
	}
	proof.Same(t, led.Load(), 0, "a redirect or a proxy was followed")
	if wrote.Load() > 64<<20 {
		t.Errorf("%d bytes of an answer were taken", wrote.Load())
	}
}

// outbound is a nudger whose nudges arrive in the list after a while.
func outbound(t *testing.T, takes time.Duration) (*Sender, *testkit.List) {
	list := &testkit.List{}
	s := NewSender(t.Context(), &pump.Config{
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Nudge: func(ctx context.Context, n pump.Nudge) error {
			list.Nudged(n)
			select {
			case <-time.After(takes):
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		},
	})
	t.Cleanup(s.Close)
	return s, list
}

func TestTheSameNudgeIsSentFourTimesASecondAtMostAndTheLastOneCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, got := outbound(t, time.Millisecond)
		n := pump.Nudge{Address: "h:1", Instance: "p1", Queue: "a/q"}
		s.Nudge("q", n)
		time.Sleep(2 * Spread)
		l := got.Take()
		proof.Same(t, len(l), 1, "sent at once", l)
		for range 100 { // within 700 ms
			s.Nudge("q", n)
			time.Sleep(7 * time.Millisecond)
		}
		proof.Same(t, len(got.Take()), 2, "went after 250 and 500 ms")
		time.Sleep(Every)
		proof.Same(t, len(got.Take()), 1, "after the last one")
		time.Sleep(time.Minute)
		proof.Same(t, len(got.Take()), 0, "out of nothing")
		s.mu.Lock()
		defer s.mu.Unlock()
		proof.Same(t, len(s.recent), 0, "nudges are remembered")
	})
}

func TestNudgesNeverHoldUpWhoSendsThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, got := outbound(t, time.Hour) // no process answers
		began := time.Now()
		for i := range 1000 {
			s.Nudge(fmt.Sprint(i), pump.Nudge{Address: "h:1", Instance: fmt.Sprint(i)})
		}
		proof.Same(t, time.Since(began), 0, "waited")
		time.Sleep(2 * Spread)
		proof.Same(t, len(got.Take()), AtOnce, "under way at once")
		time.Sleep(time.Minute)
		proof.Same(t, len(got.Take()), MostWaiting, "more were sent, as had room to wait")
	})
}

func TestP9TheSameNudgesAreSentInTheSameOrder(t *testing.T) {
	history := func() (instances []string) {
		synctest.Test(t, func(t *testing.T) {
			s, got := outbound(t, time.Millisecond)
			for i := range 100 {
				s.Nudge(fmt.Sprint(i), pump.Nudge{Address: "h:1", Instance: fmt.Sprint(i)})
			}
			time.Sleep(time.Second)
			for _, n := range got.Take() {
				instances = append(instances, n.Instance)
			}
		})
		return instances
	}
	first := history()
	proof.Same(t, len(first), 100, "nudges were sent")
	for range 5 {
		proof.Alike(t, history(), first, "in the order")
	}
}

// Timers of the same instant run in any order; when their nudges go must not depend on it.
func TestP9WhenANudgeGoesDoesNotDependOnWhoAsksFirst(t *testing.T) {
	times := func(order ...int) map[string]time.Duration {
		sent := map[string]time.Duration{}
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			began := time.Now()
			s := NewSender(
				t.Context(),
				&pump.Config{
					Instance: "p", Log: slog.New(slog.DiscardHandler),
					Nudge: func(_ context.Context, n pump.Nudge) error {
						mu.Lock()
						defer mu.Unlock()
						sent[n.Instance+" "+n.Queue] = time.Since(began)
						return nil
					},
				},
			)
			for _, i := range order {
				q := fmt.Sprintf("a/work-%02d", i/2)
				s.Nudge(q+fmt.Sprint(i), pump.Nudge{Address: "here:1", Instance: fmt.Sprint("p", i), Queue: q})
			}
			time.Sleep(time.Second)
			s.Close()
		})
		return sent
	}
	a, b := times(0, 1, 2, 3, 4, 5), times(5, 3, 1, 4, 2, 0)
	if !maps.Equal(a, b) || len(a) != 6 {
		t.Errorf("%v, in another order %v", a, b)
	}
}
