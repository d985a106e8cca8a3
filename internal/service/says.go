package service

import (
	"fmt"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/processor"
)

// speed is how many tasks a second there were since the last status.
type speed struct {
	tasks int64
	at    time.Time
	text  string
}

// of gives the speed, given the count now. It changes no faster than a status does.
func (s *speed) of(tasks int64, now time.Time) string {
	past := now.Sub(s.at)
	if past < statusEvery && s.text != "" {
		return s.text
	}
	s.text = "0 tasks/s"
	if !s.at.IsZero() {
		s.text = humanize.Comma(int64(float64(tasks-s.tasks)/past.Seconds())) + " tasks/s"
	}
	s.tasks, s.at = tasks, now
	return s.text
}

// mostReasons is how many reasons a status names.
const mostReasons = 2

// amiss adds what is not as it should be.
func amiss(text string, reasons []string) string {
	for i, r := range reasons {
		if i == mostReasons {
			return fmt.Sprintf("%s, and %d more", text, len(reasons)-i)
		}
		text += ", " + r
	}
	return text
}

// Processor looks at a processor. The function that it gives is for one goroutine.
func Processor(p *processor.Processor) func() Look {
	var tasks speed
	return func() Look {
		s := p.State()
		l := Look{Loops: p.Loops(), Draining: s.Phase == "draining"}
		l.Started = s.NoWorkload || s.Phase == "waiting" || s.Phase == "working"
		l.Says = processorSays(&s, &tasks)
		return l
	}
}

func processorSays(s *processor.State, tasks *speed) string {
	switch s.Phase {
	case "working":
		text := tasks.of(s.Done.Handled, time.Now())
		if s.PausedSince != nil { // without a task, but not a fault
			text = "paused by " + s.PausedBy
			if s.Messages > 0 {
				text += fmt.Sprintf(", %d messages in hand", s.Messages)
			}
		}
		if s.Cluster.Segments == 0 {
			text += ", all segments"
		} else {
			text += fmt.Sprintf(", %d segments", s.Cluster.Held)
		}
		return amiss(text, s.Reasons)
	case "draining":
		return fmt.Sprintf("stops, %d messages in hand", s.Messages)
	}
	return strings.Join(s.Reasons, ", ")
}

// Distributor looks at a distributor. The function that it gives is for one goroutine.
func Distributor(d *distributor.Distributor) func() Look { return Sending(d.State, d.Loops) }

// Sending looks at what sends, by its state and its loops.
func Sending(state func() distributor.State, loops func() []pump.LoopState) func() Look {
	var tasks speed
	return func() Look {
		s := state()
		l := Look{Loops: loops(), Draining: s.Phase == "draining"}
		l.Started = s.Phase == "standby" || s.Phase == "distributing"
		switch s.Phase {
		case "standby":
			l.Says = amiss("stands by", s.Reasons)
		case "distributing":
			l.Says = tasks.of(s.Done.Tasks, time.Now())
			if s.Of > 0 {
				l.Says += fmt.Sprintf(", %d %% of the source", 100*s.Read/s.Of)
			}
			if s.Trouble != "" {
				l.Says += ", " + s.Trouble
			}
			l.Says = amiss(l.Says, s.Reasons)
		default:
			l.Says = strings.Join(s.Reasons, ", ")
		}
		return l
	}
}
