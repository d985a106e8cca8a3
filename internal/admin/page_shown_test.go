package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/doctor"
	"github.com/queuepump/queuepump/pump/source"
	"github.com/queuepump/queuepump/pump/status"
)

const rightToken = "0123456789-the-token"

// newSim is accounts with a workload in which so many tasks wait.
func newSim(t *testing.T, tasks int) (*azsim.Sim, pump.Config) {
	t.Helper()
	return newSimOf(t, tasks, 2)
}

func newSimOf(t *testing.T, tasks, queues int) (*azsim.Sim, pump.Config) {
	t.Helper()
	sim, cfg := world(t, "accounta", "accountb")
	cfg.Workload, cfg.Segments = "demo", 128
	cfg.Accounts[0].Queues, cfg.Accounts[1].Queues = queues, queues
	var lines strings.Builder
	for i := range tasks {
		fmt.Fprintf(&lines, "{\"city\":\"c%d\"}\n", i)
	}
	file := filepath.Join(t.TempDir(), "tasks.jsonl")
	must(t, os.WriteFile(file, []byte(lines.String()), 0o600))
	d, err := distributor.New(cfg, source.JSONLines(file, "city"), distributor.Options{})
	must(t, err)
	must(t, proof.ErrOf(d.Run(t.Context())))
	return sim, cfg
}

// poisoned puts texts into the quarantine of the first account.
func poisoned(t *testing.T, cfg pump.Config, texts ...string) {
	t.Helper()
	q := cfg.Accounts[0].Storage.Queue("demo-poison")
	must(t, q.Create(t.Context()))
	for _, text := range texts {
		must(t, proof.ErrOf(q.Put(t.Context(), []byte(text), 0)))
	}
}

// opened is a page whose token stands in a file, if it has one.
func opened(t *testing.T, cfg pump.Config, token string) *Page {
	t.Helper()
	o := PageOptions{Config: cfg, doctor: doctor.Options{
		Host: "here", Resolve: func(context.Context, string) (doctor.Resolved, error) { return doctor.Resolved{}, nil },
		Get: func(context.Context, string, string, bool) ([]byte, error) { return nil, nil },
	}}
	if token != "" {
		o.TokenFile = filepath.Join(t.TempDir(), "token")
		must(t, os.WriteFile(o.TokenFile, []byte(token+"\n"), 0o600))
	}
	p, err := NewPage(o)
	must(t, err)
	t.Cleanup(p.Close)
	return p
}

func pageAsked(sim *azsim.Sim) int64 { return sim.Stats().Count("", "") }

func TestNothingIsReadWhileNoOneWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, cfg := newSim(t, 10)
		p := opened(t, cfg, "")
		before := pageAsked(sim)
		time.Sleep(time.Hour)
		proof.Same(t, pageAsked(sim)-before, 0, "requests before anyone watches")
		var leaves []func()
		for range 10 {
			leave, ok := p.join()
			if !ok {
				t.Fatal("there is no room")
			}
			leaves = append(leaves, leave)
		}
		time.Sleep(time.Minute)
		n := pageAsked(sim) - before
		if n == 0 || n > 62*status.WatchRate+200 { // and the doctor's, who looks once
			t.Errorf("%d requests in a minute for ten who watch", n)
		}
		for _, leave := range leaves {
			leave()
			leave() // a second time says nothing
		}
		time.Sleep(linger + time.Second)
		before = pageAsked(sim)
		time.Sleep(time.Hour)
		proof.Same(t, pageAsked(sim)-before, 0, "requests after all have left")
		leave, _ := p.join()
		time.Sleep(5 * time.Second)
		if pageAsked(sim) == before {
			t.Error("nothing is read for one who comes back")
		}
		leave()
	})
}

func TestThereIsRoomForSoMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, cfg := newSim(t, 1)
		p := opened(t, cfg, "")
		for i := range maxWatchers {
			if _, ok := p.join(); !ok {
				t.Fatalf("no room for %d", i)
			}
		}
		if _, ok := p.join(); ok {
			t.Error("one more has room")
		}
		p.Close()
		if _, ok := p.join(); ok {
			t.Error("a page that is closed has room")
		}
	})
}

// stream is the end of a stream at which one watches.
type stream struct {
	*httptest.ResponseRecorder
	mu  sync.Mutex
	all bytes.Buffer
}

func (s *stream) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all.Write(p)
}

// text is all that has come.
func (s *stream) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all.String()
}

// parts are the newest parts that have come.
func (s *stream) parts(t *testing.T) map[string]json.RawMessage {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	parts := map[string]json.RawMessage{}
	for event := range strings.SplitSeq(s.all.String(), "\n\n") {
		name, data, ok := strings.Cut(event, "\ndata: ")
		if !ok {
			continue
		}
		if !json.Valid([]byte(data)) || strings.Contains(data, "\n") {
			t.Errorf("no event: %s", event)
		}
		parts[strings.TrimPrefix(name, "event: ")] = json.RawMessage(data)
	}
	return parts
}

// watch watches a page until the context of the request ends.
func watch(ctx context.Context, p *Page) (*stream, func()) {
	ctx, cancel := context.WithCancel(ctx)
	s := &stream{ResponseRecorder: httptest.NewRecorder()}
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.ServeHTTP(s, httptest.NewRequestWithContext(ctx, http.MethodGet, "/page/events", nil))
	}()
	return s, func() { cancel(); <-done }
}

// shown is the newest of a part that has come.
func shown[T any](t *testing.T, s *stream, part string) (v T) {
	t.Helper()
	must(t, json.Unmarshal(s.parts(t)[part], &v))
	return v
}

// watched is watch until the test is over.
func watched(t *testing.T, p *Page) *stream {
	s, leave := watch(t.Context(), p)
	t.Cleanup(leave)
	return s
}

func TestTheStreamShowsWhatTheStatusSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, cfg := newSim(t, 500)
		poisoned(t, cfg, "a", "b")
		p := opened(t, cfg, "")
		s, leave := watch(t.Context(), p)
		time.Sleep(10 * time.Second)
		parts := s.parts(t)
		for _, name := range append(order, partPast) {
			if _, ok := parts[name]; !ok {
				t.Errorf("there is no part %s", name)
			}
		}
		want, err := status.Read(t.Context(), cfg, status.Options{})
		must(t, err)
		h, found := shown[head](t, s, partHead), shown[quarantined](t, s, partQuarantine)
		if h.Version == "" || h.Version != version() {
			t.Errorf("the version is %q", h.Version)
		}
		qs := shown[[]struct {
			Account, Queue              string
			Messages, Visible, InFlight int64
		}](t, s, partQueues)
		if h.Headline.Tone != Bad || !strings.HasPrefix(h.Headline.Text, "Nothing is done: no processor is live") {
			t.Errorf("%+v", h.Headline)
		}
		if h.Segments != want.Segments || h.Totals.Queues != 4 || *h.Totals.Quarantined != 2 || h.Totals.Looked != 4 {
			t.Errorf("%+v", h)
		}
		var sum int64
		for i, q := range qs {
			of := want.Accounts[i/2].ByQueue[i%2]
			if q.Messages != of.Messages || q.Visible != of.Visible || q.Queue != of.Queue {
				t.Errorf("%+v, want %+v", q, of)
			}
			sum += q.Messages
		}
		if sum == 0 || h.Totals.Messages != sum {
			t.Errorf("%d messages, %d in all", sum, h.Totals.Messages)
		}
		if found.Messages != 2 || found.Shown != 2 || len(found.Groups) != 1 || found.Groups[0].Messages != 2 {
			t.Errorf("%+v", found)
		}
		leave()
		for _, secret := range []string{"AccountKey", "sig=", sim.Key("accounta"), sim.Key("accountb")} {
			if strings.Contains(s.all.String(), secret) {
				t.Errorf("the stream has the secret %s", secret)
			}
		}
	})
}

func TestADarkControlAccountIsSaidAndLeavesWhatWasKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, cfg := newSim(t, 5)
		p := opened(t, cfg, "")
		s := watched(t, p)
		time.Sleep(10 * time.Second)
		sim.Blackout("accounta", true)
		time.Sleep(time.Minute)
		if h := shown[head](t, s, partHead); !h.Old || h.Headline.Tone != Bad || h.Segments != 128 {
			t.Errorf("%+v", h)
		}
		// While nothing changes the script hears that the stream lives.
		if n := strings.Count(s.text(), "event: "+partAlive+"\ndata: "); n < 3 {
			t.Errorf("%d signs of life in a minute", n)
		}
	})
}

func TestWhatWasSeenBeforeIsShownOnceItIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, cfg := newSim(t, 1)
		p := opened(t, cfg, "")
		p.hours.read = func(context.Context, time.Time) ([]status.HistoryPoint, error) {
			time.Sleep(time.Second) // it takes longer than what is seen first
			since := time.Now().Add(-pastFor)
			return []status.HistoryPoint{
				{Time: since.Add(-time.Minute), Tasks: 6},
				{Time: since.Add(time.Minute), Tasks: 7},
				{Time: since.Add(2 * time.Minute), Tasks: 8},
			}, nil
		}
		s := watched(t, p)
		time.Sleep(500 * time.Millisecond)
		if parts := s.parts(t); string(parts[partHead]) == "" {
			t.Error("what is known now waits for what was before")
		}
		time.Sleep(5 * time.Second)
		if c := shown[chart](t, s, partPast); len(c.Rate) < 3 || c.Rate[0] != 7 || c.Rate[1] != 8 {
			t.Errorf("%+v", c)
		}
	})
}

// Until the rows were read it is not known how large a workload is.
func TestTheDoctorDoesNotLookUnaskedAtALargeWorkloadThatIsSlowToRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, cfg := newSimOf(t, 1, doctorMost/2+1)
		sim.SetLatency(azsim.Latency{Queue: time.Second, Table: 2 * time.Second})
		p := opened(t, cfg, "")
		s := watched(t, p)
		time.Sleep(2 * time.Minute)
		if d := shown[diagnosis](t, s, partDoctor); !d.Asks || d.Looks || d.Report != nil {
			t.Errorf("%+v", d)
		}
	})
}

func TestTheDoctorLooksAtALargeWorkloadIfAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, cfg := newSimOf(t, 1, doctorMost/2+1)
		p := opened(t, cfg, "")
		s := watched(t, p)
		time.Sleep(time.Minute)
		if d := shown[diagnosis](t, s, partDoctor); !d.Asks || d.Report != nil {
			t.Errorf("%+v", d)
		}
		elsewhere := func(r *http.Request) { r.Header.Set("Origin", "http://evil.example") }
		if got, _ := post(p, "/page/doctor", "", elsewhere); got != http.StatusForbidden {
			t.Errorf("asked from elsewhere: %d", got)
		}
		for range 3 {
			if got, _ := post(p, "/page/doctor", "", nil); got != http.StatusAccepted {
				t.Errorf("asked: %d", got)
			}
		}
		time.Sleep(time.Minute)
		first := shown[diagnosis](t, s, partDoctor)
		if first.Report == nil || first.Looks {
			t.Fatalf("%+v", first)
		}
		post(p, "/page/doctor", "", nil)
		if d := shown[diagnosis](t, s, partDoctor); !d.At.Equal(first.At) {
			t.Error("the doctor looks again at once")
		}
		time.Sleep(doctorEvery)
		post(p, "/page/doctor", "", nil)
		time.Sleep(time.Minute)
		if d := shown[diagnosis](t, s, partDoctor); !d.At.After(first.At) {
			t.Error("the doctor does not look again")
		}
	})
}

// The counts of the queues do not say everything that changes in quarantine.
func TestQuarantineIsLookedIntoAgainThoughNoCountChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, cfg := newSim(t, 1)
		poisoned(t, cfg, "a", "b")
		q := cfg.Accounts[0].Storage.Queue("demo-poison")
		held, err := q.Get(t.Context(), 32, time.Minute)
		if err != nil || len(held) != 2 {
			t.Fatal(len(held), err)
		}
		p := opened(t, cfg, "")
		s := watched(t, p)
		samples := func() (ids []string) {
			t.Helper()
			found := shown[quarantined](t, s, partQuarantine)
			if found.Messages != 2 {
				t.Fatal(found)
			}
			for _, g := range found.Groups {
				for _, m := range g.Samples {
					ids = append(ids, m.ID)
				}
			}
			return ids
		}
		time.Sleep(10 * time.Second)
		proof.Same(t, len(samples()), 0, "are shown, which another holds")
		time.Sleep(time.Minute + 2*peekEvery)
		proof.Same(t, len(samples()), 2, "are shown after another has let go of both")
		held, err = q.Get(t.Context(), 1, time.Minute)
		if err != nil || len(held) != 1 {
			t.Fatal(len(held), err)
		}
		gone := held[0].ID
		must(t, q.Delete(t.Context(), held[0].Receipt))
		poisoned(t, cfg, "c")
		time.Sleep(peekAnyway + 2*peekEvery)
		if ids := samples(); len(ids) != 2 || slices.Contains(ids, gone) {
			t.Errorf("%v are shown, of which %s has gone", ids, gone)
		}
	})
}
