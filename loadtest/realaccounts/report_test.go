package realaccounts

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/queuepump/queuepump/internal/logs"
	"github.com/queuepump/queuepump/pump"
)

// report is what a run adds to the output of its tests: what it measured, and what it used and
// removed. It holds no credential.
type report struct {
	Run        string    `json:"run"` // the prefix of all names
	Began      time.Time `json:"began"`
	Seconds    float64   `json:"seconds"`
	Machine    string    `json:"machine"`
	Same       bool      `json:"same"`   // nothing differs, nothing failed
	Failed     []string  `json:"failed"` // all that differs or was not as it must be, in a line each
	NotDecided []string  `json:"notDecided"`
	Used       int64     `json:"used"` // requests
	Most       int64     `json:"most"`
	Cost       float64   `json:"cost"`
	Queues     int64     `json:"queues"` // that were made, or may have been
	Tables     int64     `json:"tables"`
	Containers int64     `json:"containers"`
	Earlier    int       `json:"earlier"` // queues, tables and rows that earlier runs had left
	Left       []string  `json:"left"`    // what is still there, or may be
	Sections   []section `json:"sections"`

	mu      sync.Mutex // guards Failed and NotDecided while tests run
	secrets []string
}

// section is a table of the report, or a text.
type section struct {
	Title string     `json:"title"`
	Text  string     `json:"text,omitempty"`
	Head  []string   `json:"head,omitempty"`
	Rows  [][]string `json:"rows,omitempty"`
}

func (r *report) add(title, text string, head []string, rows ...[]string) {
	if text != "" || len(rows) > 0 {
		r.Sections = append(r.Sections, section{title, text, head, rows})
	}
}

// hidden takes out what looks like a secret, and the secrets themselves. No text should have any;
// that is made sure of here.
func (r *report) hidden(text string) string {
	text = logs.Cleaned(text)
	for _, secret := range r.secrets {
		text = strings.ReplaceAll(text, secret, "REDACTED")
	}
	return text
}

// write writes the report for people and for programs, and gives the path of the first.
func (r *report) write(dir string) (string, error) {
	text, err := json.MarshalIndent(r, "", "  ")
	path := filepath.Join(dir, "report.md")
	return path, errors.Join(err,
		os.WriteFile(path, []byte(r.hidden(r.markdown())), 0o644),
		os.WriteFile(filepath.Join(dir, "report.json"), []byte(r.hidden(string(text))+"\n"), 0o644))
}

// markdown is the report for people.
func (r *report) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Real accounts: run %s\n\n%s, %.0f s, %s.\n\n## Verdict\n\n", r.Run, r.Began.Format(time.RFC3339), r.Seconds, r.Machine)
	for _, line := range r.Failed {
		fmt.Fprintf(&b, "- %s\n", oneLine(line))
	}
	if r.Same {
		fmt.Fprintln(&b, "The same as the simulator in everything that was decided.")
	}
	if len(r.NotDecided) > 0 {
		fmt.Fprintf(&b, "\nNot decided: %s.\n", strings.Join(r.NotDecided, ", "))
	}
	fmt.Fprintf(&b, "\n%s\n", r.summary())
	for _, s := range r.Sections {
		fmt.Fprintf(&b, "\n## %s\n\n", s.Title)
		if s.Text != "" {
			fmt.Fprintf(&b, "%s\n\n", s.Text)
		}
		rows := s.Rows
		if s.Head != nil {
			rows = slices.Concat([][]string{s.Head, slices.Repeat([]string{"---"}, len(s.Head))}, s.Rows)
		}
		for _, cells := range rows {
			for _, cell := range cells {
				fmt.Fprintf(&b, "| %s ", oneLine(cell))
			}
			fmt.Fprintln(&b, "|")
		}
	}
	return b.String()
}

// summary says what was used and removed.
func (r *report) summary() string {
	return fmt.Sprintf("Requests: %d of at most %d, some %.4f %s (%s). Made and removed: %d queues, %d tables, %d containers; left over: %d. Left by earlier runs and removed: %d.",
		r.Used, r.Most, r.Cost, pump.Prices{}.OrPublished().Currency, pump.Prices{}.OrPublished().Source, r.Queues, r.Tables, r.Containers, len(r.Left), r.Earlier)
}

// oneLine makes a text fit for a cell.
func oneLine(s string) string {
	s = strings.NewReplacer("\n", " ", "|", "\\|").Replace(s)
	if len(s) > 400 {
		s = strings.ToValidUTF8(s[:400], "") + "..."
	}
	return s
}
