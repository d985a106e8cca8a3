package workloads

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/cluster"
	"github.com/queuepump/queuepump/pump/internal/nudging"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/internal/workload"
)

// PauseChange is what a pause or a resume of a workload came to.
type PauseChange struct {
	Workload string `json:"workload"`
	Paused   bool   `json:"paused"`
	// Changed: the state was another before.
	Changed bool `json:"changed"`
	// Since and By belong to the present pause, by the clock of the machine that ordered it; null and
	// empty without a pause.
	Since *time.Time `json:"since"`
	By    string     `json:"by"`
	// Processors is how many live processors there are, -1 if that could not be read, Nudged how many
	// of them took the hint to look at once; the others look by themselves. Working names the
	// processors that may still work: their last beat does not say yet that they start nothing and
	// have no handler at work. It is never null, and empty after a resume.
	Processors int      `json:"processors"`
	Nudged     int      `json:"nudged"`
	Working    []string `json:"working"`

	marked time.Time // by the server's clock, like beats; zero: no processor could be read yet
}

// PauseOptions say what a pause waits for.
type PauseOptions struct {
	// Wait: until every live processor says that it starts nothing and that no handler is at work.
	Wait bool
	// Seen, if set, is called after each look of the wait with what is known.
	Seen func(PauseChange)
}

// pauseLook is the time between two looks at the processors that still work.
const pauseLook = time.Second

// Pause has processors start nothing more of the workload: tasks that are begun are finished, the
// others go back without an attempt. A processor does so when it is told, or at its next look:
// within two beats in clusters of up to 32 members. If the workload is paused already, that
// pause stays, with its Since and By.
func Pause(ctx context.Context, cfg pump.Config, by string, o PauseOptions) (PauseChange, error) {
	c, s, err := setPause(ctx, cfg, workload.Pause{Since: time.Now(), By: by}, by)
	for n := uint64(0); err == nil && o.Wait && (len(c.Working) > 0 || c.marked.IsZero()); n++ {
		if o.Seen != nil {
			o.Seen(c)
		}
		if !waits.Wait(ctx, waits.Jitter(s.Cfg.Instance).Around(pauseLook, "pause", c.Workload, n)) {
			return c, context.Cause(ctx)
		}
		err = c.look(ctx, s)
		if err == nil && !c.Paused {
			err = fmt.Errorf("workload %q: it was resumed meanwhile", c.Workload)
		}
	}
	return c, err
}

// Resume lets processors go on with a workload that was paused.
func Resume(ctx context.Context, cfg pump.Config) (PauseChange, error) {
	c, _, err := setPause(ctx, cfg, workload.Pause{}, setup.Operator())
	return c, err
}

func setPause(
	ctx context.Context, cfg pump.Config, p workload.Pause, by string,
) (PauseChange, *setup.Session, error) {
	s, err := setup.Open(ctx, cfg)
	if err != nil {
		return PauseChange{}, nil, err
	}
	var w *workload.Workload
	var changed bool
	log, what := s.Logged, "resume"
	if p.Is() {
		log, what = s.LoggedAnyway, "pause"
	}
	err = log(ctx, by, what, func() error {
		w, changed, err = workload.SetPause(ctx, s.Queues.Control, s.Workload.Name, p)
		return err
	})
	if err != nil {
		return PauseChange{}, nil, err
	}
	c := PauseChange{Workload: w.Name, Changed: changed, Processors: -1, Working: []string{}}
	c.stands(w.Paused)
	if view := viewOf(ctx, s); view != nil {
		c.of(view)
		c.Nudged = tell(ctx, s, view)
	}
	return c, s, nil
}

// viewOf reads which processes take part in the workload. It is nil if that failed: the processes
// look by themselves, since the row is the truth.
func viewOf(ctx context.Context, s *setup.Session) *cluster.View {
	view, err := cluster.LoadView(ctx, s.Queues.Control, s.Workload.Name)
	if err != nil {
		s.Cfg.Log.Warn("who processes the workload could not be read; they look by themselves",
			"error", err)
		return nil
	}
	return view
}

// tell nudges all processors to look at the workload's row, and says how many took it.
func tell(ctx context.Context, s *setup.Session, view *cluster.View) (nudged int) {
	var nudges []pump.Nudge
	for _, m := range processorsOf(view) {
		nudges = append(nudges, nudging.To(m, pump.Nudge{}))
	}
	return nudging.Send(ctx, &s.Cfg.Config, nudges)
}

// look updates what is known.
func (c *PauseChange) look(ctx context.Context, s *setup.Session) error {
	view, err := cluster.LoadView(ctx, s.Queues.Control, c.Workload)
	if err != nil {
		return s.Advise(ctx, err)
	}
	c.stands(view.Workload.Paused)
	c.of(view)
	return nil
}

func (c *PauseChange) stands(p workload.Pause) {
	c.Paused, c.By, c.Since = p.Is(), p.By, nil
	if p.Is() {
		c.Since = new(p.Since.UTC())
	}
}

func (c *PauseChange) of(v *cluster.View) {
	all := processorsOf(v)
	c.Processors, c.Working = len(all), []string{}
	if c.marked.IsZero() {
		c.marked = v.Workload.Changed
	}
	for _, m := range all {
		// An older beat is of an earlier pause: what it says may have begun since.
		if c.Paused && (!m.Paused || !m.Beat.After(c.marked)) {
			c.Working = append(c.Working, m.Instance)
		}
	}
}

// processorsOf are the processors that are not silent, by the newest beat that is there.
func processorsOf(v *cluster.View) (live []*cluster.Member) {
	stamp := v.Stamp()
	for i := range v.Members {
		if m := &v.Members[i]; m.Role == cluster.RoleProcessor && !m.Silent(stamp) && m.Waiting == "" {
			live = append(live, m)
		}
	}
	return slices.Clip(live)
}
