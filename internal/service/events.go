package service

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/queuepump/queuepump/internal/logs"
)

const (
	// eventsEvery is how often events are asked for: a machine that is preempted has 30 s.
	eventsEvery = 2 * time.Second
	// eventsTimeout: the first answer takes up to two minutes, while Azure begins to watch.
	eventsTimeout = 2 * time.Minute
	// EventGrace is how long running tasks may go on when the machine ends. After settledAfter all
	// processes of the machine have given up what they own: they hear of the event within eventsEvery,
	// and put back what is left after the grace. An acknowledged event comes at once, for all of them.
	EventGrace   = 5 * time.Second
	settledAfter = 10 * time.Second
	acknowledge  = 5 * time.Second // for that request
	mostEvents   = 1 << 20         // bytes
)

// drainsOn are the kinds of events after which this machine's memory is gone. A Freeze is not one:
// it is over after some seconds.
var drainsOn = []string{"Preempt", "Terminate", "Redeploy", "Reboot"}

// Events are what Azure announces to this machine.
type Events struct {
	base   string
	log    *slog.Logger
	client *http.Client
	every  time.Duration
	settle time.Duration
	silent logs.Limited

	name string
	due  string    // the event that this process ends for
	seen time.Time // when
}

// NewEvents makes events that are asked for at an address. Without an address the Events are nil,
// and do nothing.
func NewEvents(address string, log *slog.Logger) *Events {
	if address == "" {
		return nil
	}
	// The address is on this machine: no proxy can reach it.
	return &Events{
		base: strings.TrimSuffix(address, "/"), log: log, every: eventsEvery, settle: settledAfter,
		silent: logs.Limited{Every: logs.PerTask},
		client: &http.Client{Transport: &http.Transport{}, Timeout: eventsTimeout},
	}
}

// event is an event in Azure's document.
type event struct {
	ID        string   `json:"EventId"`
	Type      string   `json:"EventType"`
	Status    string   `json:"EventStatus"`
	Resources []string `json:"Resources"`
	NotBefore string   `json:"NotBefore"`
}

// Watch calls ends when this machine is about to end, and returns then or when ctx ends.
func (e *Events) Watch(ctx context.Context, ends func()) {
	if e == nil {
		return
	}
	tick := time.NewTicker(e.every)
	defer tick.Stop()
	for {
		found, err := e.look(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			e.silent.Say(e.log.Warn, "the machine's scheduled events cannot be read", "error", err)
		case found != nil:
			e.due, e.seen = found.ID, time.Now()
			e.log.Warn("this machine is about to end; stopping", "event", found.Type, "not before",
				found.NotBefore)
			ends()
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// look gives an event that ends this machine, if there is one.
func (e *Events) look(ctx context.Context) (*event, error) {
	if e.name == "" {
		text, err := e.ask(ctx, http.MethodGet,
			"/metadata/instance/compute/name?api-version=2021-02-01&format=text", nil)
		if err != nil {
			return nil, err
		}
		if e.name = strings.TrimSpace(string(text)); e.name == "" {
			return nil, fmt.Errorf("the machine has no name")
		}
	}
	text, err := e.ask(ctx, http.MethodGet, eventsPath, nil)
	if err != nil {
		return nil, err
	}
	var document struct{ Events []event }
	if err := json.Unmarshal(text, &document); err != nil {
		return nil, fmt.Errorf("the answer cannot be read: %w", err)
	}
	for _, found := range document.Events {
		// An event that names other machines too concerns their operators as well: acknowledging it would
		// start it for all.
		if slices.Equal(found.Resources, []string{e.name}) && slices.Contains(drainsOn, found.Type) {
			return &found, nil
		}
	}
	return nil, nil
}

const eventsPath = "/metadata/scheduledevents?api-version=2020-07-01"

// Done acknowledges the event that Watch has reported, if any, after Watch has returned: this
// process owns nothing any more, and some seconds later no other process of this machine does.
func (e *Events) Done() {
	if e == nil || e.due == "" {
		return
	}
	time.Sleep(time.Until(e.seen.Add(e.settle)))
	ctx, cancel := context.WithTimeout(context.Background(), acknowledge)
	defer cancel()
	body, err := json.Marshal(map[string]any{"StartRequests": []map[string]string{{"EventId": e.due}}})
	if err == nil {
		_, err = e.ask(ctx, http.MethodPost, eventsPath, body)
	}
	if err != nil {
		e.log.Warn("the machine's event could not be acknowledged; it comes when it is due", "error", err)
		return
	}
	e.log.Info("the machine's event is acknowledged")
}

func (e *Events) ask(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, e.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Metadata", "true")
	answer, err := e.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, mostEvents))
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers %s", e.base, answer.Status)
	}
	return text, err
}
