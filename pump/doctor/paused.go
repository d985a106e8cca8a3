package doctor

import (
	"time"

	"github.com/queuepump/queuepump/pump/status"
)

// paused tells of what an operator has paused.
func (c *checkup) paused(s *status.Status) {
	if s.PausedSince != nil {
		c.find(CheckPaused, Warning, "", c.command("distributor workload resume"),
			"the workload is paused since %s by %s: processors start nothing",
			s.PausedSince.Format(time.DateTime), s.PausedBy)
	}
	for i := range s.PausedParts {
		p := &s.PausedParts[i]
		c.find(CheckPaused, Warning, "", c.command("distributor workload resume %s", p.Flag()),
			"%s is paused since %s by %s: its messages are put back every few minutes, which costs requests",
			p.What(), p.Since.Format(time.DateTime), p.By)
	}
}
