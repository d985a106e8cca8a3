package status

import (
	"strings"
	"time"

	"github.com/queuepump/queuepump/pump/internal/workload"
)

// PausedPart is a run or a key that an operator has paused by itself.
type PausedPart struct {
	Run string `json:"run"` // empty: it is a key
	Key string `json:"key"` // empty: it is a run; bytes that are not UTF-8 are replaced
	// Since is when it was paused, by the clock of the operator's machine, and By names the operator.
	Since time.Time `json:"since"`
	By    string    `json:"by"`
}

// What names it for people.
func (p *PausedPart) What() string {
	if p.Run != "" {
		return "run " + p.Run
	}
	return "key " + p.Key
}

// Flag is how a command names it, quoted for a shell.
func (p *PausedPart) Flag() string {
	if p.Run != "" {
		return "--run " + p.Run
	}
	if strings.Trim(p.Key, plainInShells) == "" {
		return "--key " + p.Key
	}
	return "--key '" + strings.ReplaceAll(p.Key, "'", `'\''`) + "'"
}

// plainInShells are characters that mean nothing to a shell.
const plainInShells = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:@"

func pausedPartsOf(w *workload.Workload) []PausedPart {
	list := make([]PausedPart, len(w.PausedParts))
	for i, p := range w.PausedParts {
		list[i] = PausedPart{Key: string(p.Key), Since: p.Since.UTC(), By: p.By}
		if !p.Run.IsZero() {
			list[i].Run = p.Run.String()
		}
	}
	return list
}
