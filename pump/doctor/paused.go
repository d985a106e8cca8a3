package doctor

import (
	"time"

	"github.com/queuepump/queuepump/pump/status"
)

// paused tells of what an operator has paused.
func (c *checkup) paused(s *status.Status) {
	if s.PausedSince != nil {
		c.find(
			CheckPaused,
			Warning,
			"",
			c.command("distributor workload resume"),
			"the workload is paused since %s by %s: processors start nothing",
			s.PausedSince.Format(time.DateTime),
			s.PausedBy,
		)
	}
	for i := range s.Parked {
		if p := &s.Parked[i]; p.Returning == nil {
			c.find(
				CheckPaused,
				Warning,
				"",
				c.command("distributor workload resume %s", p.Flag()),
				"%s is paused since %s by %s: its tasks are parked, and no run ends for being quiet",
				p.What(),
				p.Since.Format(time.DateTime),
				p.By,
			)
		}
	}
}
