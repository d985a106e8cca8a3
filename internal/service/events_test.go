package service

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/proof"
)

// metadata stands in for Azure's service on the machine.
type metadata struct {
	*httptest.Server
	mu      sync.Mutex
	events  []map[string]any
	started []string // events that were acknowledged
	asked   int
}

func newMetadata(t *testing.T) *metadata {
	m := &metadata{}
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.mu.Lock()
		defer m.mu.Unlock()
		switch {
		case r.Header.Get("Metadata") != "true":
			http.Error(w, "no", http.StatusBadRequest)
		case r.URL.Path == "/metadata/instance/compute/name":
			fmt.Fprint(w, "vm1")
		case r.URL.Path != "/metadata/scheduledevents" || r.URL.Query().Get("api-version") == "":
			http.NotFound(w, r)
		case r.Method == http.MethodPost:
			var body struct {
				StartRequests []struct{ EventId string }
			}
			text, _ := io.ReadAll(r.Body)
			proof.Is(t, json.Unmarshal(text, &body), nil)
			for _, s := range body.StartRequests {
				m.started = append(m.started, s.EventId)
			}
		default:
			m.asked++
			_ = json.NewEncoder(w).Encode(map[string]any{"DocumentIncarnation": m.asked, "Events": m.events})
		}
	}))
	t.Cleanup(m.Close)
	return m
}

func (m *metadata) announce(id, kind string, machines ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.events = append(m.events, map[string]any{
		"EventId": id, "EventType": kind, "EventStatus": "Scheduled", "ResourceType": "VirtualMachine", "Resources": machines,
		"NotBefore": "Mon, 19 Sep 2026 18:29:47 GMT",
	})
}

// asks waits until the events were asked for some times more.
func (m *metadata) asks(times int) {
	m.mu.Lock()
	last := m.asked + times
	m.mu.Unlock()
	for {
		m.mu.Lock()
		now := m.asked
		m.mu.Unlock()
		if now >= last {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func TestOnlyAnEventThatEndsThisMachineAloneEndsTheProcess(t *testing.T) {
	m := newMetadata(t)
	var log proof.Buffer
	e := NewEvents(m.URL, slog.New(slog.NewTextHandler(&log, nil)))
	e.every, e.settle = time.Millisecond, 0
	ended := make(chan struct{})
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		e.Watch(t.Context(), func() { close(ended) })
	}()
	m.asks(3)
	m.announce("freeze", "Freeze", "vm1")
	m.announce("other", "Terminate", "vm2")
	m.announce("both", "Redeploy", "vm1", "vm2")
	m.announce("none", "Preempt")
	m.asks(3)
	select {
	case <-ended:
		t.Fatalf("the process ended: %s", log.String())
	default:
	}
	m.announce("mine", "Preempt", "vm1")
	<-ended
	<-returned
	if len(m.started) > 0 {
		t.Errorf("%q were acknowledged before the process had ended", m.started)
	}
	e.Done()
	if len(m.started) != 1 || m.started[0] != "mine" {
		t.Errorf("%q were acknowledged", m.started)
	}
	proof.Has(t, log.String(), "event=Preempt", "the log")
}

func TestAMachineWithoutEventsEndsNothing(t *testing.T) {
	var none *Events
	none.Watch(t.Context(), func() { t.Error("it ends") })
	none.Done()
	if NewEvents("", nil) != nil {
		t.Error("events of nowhere")
	}
	var log proof.Buffer
	m := httptest.NewServer(http.NotFoundHandler())
	defer m.Close()
	e := NewEvents(m.URL, slog.New(slog.NewTextHandler(&log, nil)))
	e.every = time.Millisecond
	done := make(chan struct{})
	go func() {
		defer close(done)
		e.Watch(t.Context(), func() { t.Error("it ends") })
	}()
	for log.String() == "" {
		time.Sleep(time.Millisecond)
	}
	if text := log.String(); !strings.Contains(text, "404") || strings.Count(text, "\n") != 1 {
		t.Errorf("the log says %s", text)
	}
}
