package doctor

import (
	"time"

	"github.com/queuepump/queuepump/pump/status"
)

// handlers tells of what is wrong with the handlers of each processor, which is not the pump's.
func (c *checkup) handlers(s *status.Status) {
	for i := range s.Instances {
		p := &s.Instances[i]
		if p.Silent {
			continue
		}
		if f := p.Failing; f != nil {
			c.find(CheckHandlersFail, Error, p.Instance,
				"mend the handler; try it with: processor check --exec CMD --input FILE",
				"%d tasks have failed since %s, and no more than that were done; task %s: %s",
				f.Count, f.Since.Format(time.DateTime), f.Task, f.Error)
		}
		if f := p.Stuck; f != nil {
			severity, of := Warning, ""
			if p.AllStuck {
				severity, of = Error, ", which are all"
			}
			c.find(
				CheckHandlersStuck, severity, p.Instance,
				"end what they wait for; bound it with: processor run --exec CMD --task-timeout 5m",
				"handlers that have not returned for long: %d%s; the first began at %s and is at task %s",
				f.Count, of, f.Since.Format(time.DateTime), f.Task,
			)
		}
		if p.NotNowSince != nil {
			c.find(CheckNotNow, Warning, p.Instance,
				"raise what the endpoint allows, or ask it for less: processor run --exec CMD --max-rate N",
				"tasks were told \"not now\" %d times since %s, so fewer are started: %s",
				p.NotNow, p.NotNowSince.Format(time.DateTime), p.NotNowError)
		}
	}
}

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
