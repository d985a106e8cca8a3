package bench

import (
	"errors"
	"fmt"
	"strings"

	"github.com/dustin/go-humanize"
)

// Memory is flat if it is no more in the last half of the time than in the half before, but for
// what it varies by: messages in hand, and pages that the garbage collector has not given back.
// The first quarter of the time, in which pools fill and the pump finds its pace, is left out.
const (
	mostGrowth = 0.05
	slack      = 4 << 20
	mostSoak   = 512 << 20 // resident, of either process
)

// halves are the medians of f over the two halves of what follows the first quarter of the looks.
func halves(looks []MemoryLook, f func(MemoryLook) int64) (before, after float64) {
	looks = looks[len(looks)/4:]
	var values []float64
	for _, l := range looks {
		values = append(values, float64(f(l)))
	}
	return median(values[:len(values)/2]), median(values[len(values)/2:])
}

func resident(l MemoryLook) int64 { return l.Resident }
func live(l MemoryLook) int64     { return l.Live }

// Flat is an error if the memory of either process grew, or was too much.
func (r SoakResult) Flat() error {
	var errs []error
	for _, p := range r.processes() {
		if len(p.looks) < 8 {
			errs = append(
				errs,
				fmt.Errorf("the memory of the %s was looked at %d times, which says nothing", p.name,
					len(p.looks)),
			)
			continue
		}
		for what, f := range map[string]func(MemoryLook) int64{
			"resident memory": resident, "live heap": live,
		} {
			if before, after := halves(p.looks, f); after > before*(1+mostGrowth)+slack {
				errs = append(
					errs,
					fmt.Errorf(
						"the %s of the %s grew from %.1f to %.1f MiB", what, p.name, before/(1<<20),
						after/(1<<20),
					),
				)
			}
		}
		if m := most(p.looks); m > mostSoak {
			errs = append(errs, fmt.Errorf("the %s had %d MiB resident, want at most %d", p.name, m>>20,
				mostSoak>>20))
		}
	}
	return errors.Join(errs...)
}

type soaked struct {
	name  string
	looks []MemoryLook
}

func (r SoakResult) processes() []soaked {
	return []soaked{{"distributor", r.Distributor}, {"processor", r.Processor}}
}

func most(looks []MemoryLook) (m int64) {
	for _, l := range looks {
		m = max(m, l.Resident)
	}
	return m
}

// Between these lines of RESULTS.md stands the newest soak.
const (
	soakBegins = "<!-- make soak -->"
	soakEnds   = "<!-- end of make soak -->"
)

// Section is the part of RESULTS.md that shows the soak.
func (r SoakResult) Section() string {
	var b strings.Builder
	delivery := r.Delivery
	if delivery == "" {
		delivery = "at-least-once"
	}
	fmt.Fprintf(
		&b,
		"`make soak`, commit %s, %s, %s, %d cores, %s: %s tasks at %s a second through both "+
			"binaries, %s, in %.0f s. Medians over the two halves of the time after "+
			"its first quarter, in MiB; \"live\" is the heap after a garbage collection.\n\n",
		r.revision(),
		r.Began.Format("2006-01-02"),
		r.CPU,
		r.Cores,
		r.Go,
		humanize.Comma(r.Tasks),
		humanize.Comma(int64(r.Rate)),
		delivery,
		r.Seconds,
	)
	b.WriteString("| process | resident | then | most | live | then |\n|---|---|---|---|---|---|\n")
	for _, p := range r.processes() {
		before, after := halves(p.looks, resident)
		liveBefore, liveAfter := halves(p.looks, live)
		fmt.Fprintf(
			&b, "| %s | %.1f | %.1f | %d | %.1f | %.1f |\n", p.name, before/(1<<20), after/(1<<20),
			most(p.looks)>>20, liveBefore/(1<<20), liveAfter/(1<<20),
		)
	}
	if err := r.Flat(); err != nil {
		fmt.Fprintf(&b, "\n**Not flat**: %s.\n", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return b.String()
}

// ReplaceSection puts the soak into RESULTS.md. An error says what the file lacks.
func (r SoakResult) ReplaceSection(doc string) (string, error) {
	return replaceBetween(doc, soakBegins, soakEnds, r.Section())
}
