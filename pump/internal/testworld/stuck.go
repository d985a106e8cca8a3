package testworld

import (
	"slices"
	"time"

	"github.com/queuepump/queuepump/pump"
)

// Stuck names the loops of a process that are not seen to go round within their time while so long
// passes, as a service manager's watchdog does.
func Stuck(p interface{ Loops() []pump.LoopState }, during time.Duration) (names []string) {
	type seen struct {
		rounds uint64
		at     time.Time
	}
	last := map[string]seen{}
	for end := time.Now().Add(during); time.Now().Before(end); time.Sleep(time.Second) {
		for _, l := range p.Loops() {
			s := last[l.Name]
			if s.at.IsZero() || s.rounds != l.Rounds || l.Most == 0 {
				last[l.Name] = seen{l.Rounds, time.Now()}
			} else if time.Since(s.at) > l.Most && !slices.Contains(names, l.Name) {
				names = append(names, l.Name)
			}
		}
	}
	return names
}
