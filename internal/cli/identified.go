package cli

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
)

// identities are the attributes that each line of the log should have: among many processes of
// several workloads a line without them says nothing. They are known once the process has logged
// them.
var identities = []string{"workload", "instance"}

// identified is a handler that adds the known identities to lines that lack them.
type identified struct {
	slog.Handler
	known   *[2]atomic.Pointer[slog.Value] // as in identities; of the process
	has     [2]bool                        // this handler's lines have them
	grouped bool
}

func newIdentified(h slog.Handler) slog.Handler {
	return &identified{Handler: h, known: new([2]atomic.Pointer[slog.Value])}
}

// Handle writes a line; see [slog.Handler].
func (h *identified) Handle(ctx context.Context, r slog.Record) error {
	if h.grouped {
		return h.Handler.Handle(ctx, r)
	}
	has := h.has
	r.Attrs(func(a slog.Attr) bool {
		h.learn(a, &has)
		return true
	})
	r = r.Clone()
	for i, name := range identities {
		if v := h.known[i].Load(); v != nil && !has[i] {
			r.AddAttrs(slog.Attr{Key: name, Value: *v})
		}
	}
	return h.Handler.Handle(ctx, r)
}

func (h *identified) learn(a slog.Attr, has *[2]bool) {
	if i := slices.Index(identities, a.Key); i >= 0 {
		has[i] = true
	}
}

// WithAttrs adds attributes to the lines; see [slog.Handler].
func (h *identified) WithAttrs(attrs []slog.Attr) slog.Handler {
	with := *h
	with.Handler = h.Handler.WithAttrs(attrs)
	for _, a := range attrs {
		h.learn(a, &with.has)
		// An attribute of all lines of a part is true of the process. An attribute of
		// a single line is not: it may be of another instance.
		if i := slices.Index(identities, a.Key); i >= 0 && !h.grouped {
			h.known[i].CompareAndSwap(nil, &a.Value)
		}
	}
	return &with
}

// WithGroup puts attributes into a group; see [slog.Handler].
func (h *identified) WithGroup(name string) slog.Handler {
	with := *h
	with.Handler, with.grouped = h.Handler.WithGroup(name), true
	return &with
}
