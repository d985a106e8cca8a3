// This file writes the log where systemd's journal keeps it: each line with its priority, and with
// fields to find it by. The journal knows the time by itself.

package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"strings"
	"sync"

	"github.com/coreos/go-systemd/v22/journal"
)

// Listens reports whether there is a journal on this machine.
func Listens() bool { return journal.Enabled() }

// IsStderr reports whether standard error goes to a listening journal.
func IsStderr() bool {
	is, err := journal.StderrIsJournalStream()
	return err == nil && is && Listens()
}

// fields are the attributes that are fields of the journal too.
var fields = map[string]string{
	"run": "RUN", "account": "ACCOUNT", "instance": "INSTANCE", "workload": "WORKLOAD",
	"queue": "QUEUE",
}

// identityFields are the fields of identities. They name the process, so the text of its lines need
// not.
var identityFields = map[string]bool{fields[identities[0]]: true, fields[identities[1]]: true}

// JournalHandler is a [slog.Handler] that writes to the journal. Many goroutines may use it.
type JournalHandler struct {
	*shared
	text   slog.Handler      // of the attributes, into shared.line
	fields map[string]string // of attributes that each line has
	groups int
}

// shared is what a handler and all handlers made from it share.
type shared struct {
	send  func(message string, priority journal.Priority, fields map[string]string) error
	spare io.Writer

	mu   sync.Mutex // guards what follows
	line bytes.Buffer
	own  map[string]string // identities of this process
}

// NewJournal makes a handler of lines of a level and above. Lines that the journal does not take go
// to spare, where systemd reads them.
func NewJournal(level slog.Leveler, spare io.Writer) *JournalHandler {
	s := &shared{send: journal.Send, spare: spare, own: map[string]string{}}
	return &JournalHandler{
		shared: s,
		text:   slog.NewTextHandler(&s.line, &slog.HandlerOptions{Level: level, ReplaceAttr: rest}),
	}
}

// rest leaves out all but attributes: the message is written as it is.
func rest(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey ||
		a.Key == slog.MessageKey) {
		return slog.Attr{}
	}
	return a
}

// Enabled is [slog.Handler]'s.
func (h *JournalHandler) Enabled(ctx context.Context, l slog.Level) bool {
	return h.text.Enabled(ctx, l)
}

// WithAttrs is [slog.Handler]'s. Attributes of all lines of a part of the process are true of the
// process: the first identities are its own.
func (h *JournalHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	next := *h
	next.fields = maps.Clone(h.fields)
	h.mu.Lock()
	defer h.mu.Unlock()
	var shown []slog.Attr
	for _, a := range attrs {
		next.fields = h.field(next.fields, a)
		if name, value := fields[a.Key],
			a.Value.Resolve().String(); identityFields[name] && h.groups == 0 && h.own[name] == "" {
			h.own[name] = value
		}
		if !h.isOwn(a) {
			shown = append(shown, a)
		}
	}
	next.text = h.text.WithAttrs(shown)
	return &next
}

// isOwn reports whether all lines of the process have the attribute. The lock is held.
func (h *JournalHandler) isOwn(a slog.Attr) bool {
	name := fields[a.Key]
	return identityFields[name] && h.groups == 0 && h.own[name] == a.Value.Resolve().String()
}

// WithGroup is [slog.Handler]'s. The attributes of a group do not become fields.
func (h *JournalHandler) WithGroup(name string) slog.Handler {
	next := *h
	next.text = h.text.WithGroup(name)
	next.groups++
	return &next
}

// field adds an attribute to fields if it is one of them.
func (h *JournalHandler) field(to map[string]string, a slog.Attr) map[string]string {
	name, is := fields[a.Key]
	if !is || h.groups > 0 {
		return to
	}
	if to == nil {
		to = map[string]string{}
	}
	value := a.Value.Resolve().String()
	to[name] = value
	if account, _, both := strings.Cut(value, "/"); name == "QUEUE" && both && to["ACCOUNT"] == "" {
		to["ACCOUNT"] = account
	}
	return to
}

// Handle is [slog.Handler]'s.
func (h *JournalHandler) Handle(ctx context.Context, r slog.Record) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	of := maps.Clone(h.fields)
	shown := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		if of = h.field(of, a); !h.isOwn(a) {
			shown.AddAttrs(a)
		}
		return true
	})
	h.line.Reset()
	if err := h.text.Handle(ctx, shown); err != nil {
		return err
	}
	all := maps.Clone(h.own)
	maps.Copy(all, of)
	message := strings.TrimSpace(r.Message + " " + strings.TrimSpace(h.line.String()))
	priority := priorityOf(r.Level)
	if err := h.send(message, priority, all); err != nil {
		_, err = fmt.Fprintf(h.spare, "<%d>%s\n", priority, strings.ReplaceAll(message, "\n", " "))
		return err
	}
	return nil
}

func priorityOf(l slog.Level) journal.Priority {
	switch {
	case l >= slog.LevelError:
		return journal.PriErr
	case l >= slog.LevelWarn:
		return journal.PriWarning
	case l >= slog.LevelInfo:
		return journal.PriInfo
	}
	return journal.PriDebug
}
