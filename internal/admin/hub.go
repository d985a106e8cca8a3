package admin

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"maps"
	"sync"
)

// hub holds the newest frame of each part for all viewers. A slow viewer skips frames and does not
// delay others. For any number of viewers each part is kept once.
type hub struct {
	log *slog.Logger

	mu      sync.Mutex // guards what follows
	version uint64
	pasts   int // how often the past changed after it was sent to viewers
	frames  map[string]frame
	changed chan struct{} // closed when a frame changes
}

// frame is an event as it is sent, and when it changed last.
type frame struct {
	version uint64
	text    []byte
}

// order is the order in which parts are sent: what is seen first comes first.
var order = []string{
	partHead, partAct, partAccounts, partPoint, partOwners, partProcesses, partRuns, partQueues,
	partQuarantine, partMoney, partGates, partKeys, partDoctor,
}

// put makes v the newest of its part, if it differs from the last one.
func (h *hub) put(part string, v any) {
	text, err := event(part, v)
	if err != nil { // a number that JSON does not know
		h.log.Warn("a part of the page cannot be written down", "part", part, "error", err)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if bytes.Equal(h.frames[part].text, text) {
		return
	}
	h.version++
	h.frames[part] = frame{h.version, text}
	close(h.changed)
	h.changed = make(chan struct{})
}

// clear forgets all frames but the one of the action.
func (h *hub) clear() {
	h.mu.Lock()
	defer h.mu.Unlock()
	maps.DeleteFunc(h.frames, func(part string, _ frame) bool { return part != partAct })
}

// otherPast has the past sent again to all viewers.
func (h *hub) otherPast() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pasts++
	close(h.changed)
	h.changed = make(chan struct{})
}

// seen is how far a viewer has seen.
type seen struct {
	version uint64
	pasts   int
}

// since gives the frames that are newer than those seen, how far they go, and the channel that is
// closed when newer ones come.
func (h *hub) since(was seen) (texts [][]byte, now seen, changed <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, part := range order {
		if f, known := h.frames[part]; known && f.version > was.version {
			texts = append(texts, f.text)
		}
	}
	return texts, seen{h.version, h.pasts}, h.changed
}

// event is a server-sent event. JSON has no line ends.
func event(part string, v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	out := make([]byte, 0, len(part)+len(text)+16)
	out = append(append(out, "event: "...), part...)
	out = append(append(out, "\ndata: "...), text...)
	return append(out, "\n\n"...), nil
}
