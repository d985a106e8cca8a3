package workloads

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/internal/workload"
)

// Part is a run or a key of a workload: one of the two is set.
type Part struct {
	Run string // an id, or what it begins with
	Key []byte
}

// PartChange is what a pause or a resume of a run or a key came to.
type PartChange struct {
	Workload string `json:"workload"`
	Run      string `json:"run"` // empty: it is a key
	Key      string `json:"key"` // empty: it is a run; bytes that are not UTF-8 are replaced
	Paused   bool   `json:"paused"`
	Changed  bool   `json:"changed"` // it was not so before
	// Since and By belong to the present pause, by the clock of the machine that ordered it; null and
	// empty without a pause.
	Since *time.Time `json:"since"`
	By    string     `json:"by"`
	// Processors is how many live processors there are, -1 if that could not be read, Nudged how
	// many of them took the hint to look at once; the others look by themselves.
	Processors int `json:"processors"`
	Nudged     int `json:"nudged"`
}

// PausePart has processors start nothing more of a run or a key. Its tasks go back for a while when
// they are met, without an attempt and out of the way of the rest, again and again until it is
// resumed. A run or key that is paused already stays so, since then. The error is an [*Error] if
// the run is over, or if no more can be paused; then nothing has changed. Up to 16 runs and keys
// can be paused.
func PausePart(ctx context.Context, cfg pump.Config, part Part, by string) (PartChange, error) {
	return setPart(ctx, cfg, part, workload.PausedPart{Since: time.Now(), By: by})
}

// ResumePart lets a run or a key go on. Its tasks that were put back come within about half of the
// time of the pause, and within five minutes.
func ResumePart(ctx context.Context, cfg pump.Config, part Part) (PartChange, error) {
	return setPart(ctx, cfg, part, workload.PausedPart{})
}

func setPart(
	ctx context.Context, cfg pump.Config, part Part, mark workload.PausedPart,
) (c PartChange, err error) {
	if part.Run == "" && (len(part.Key) == 0 || len(part.Key) > workload.MaxPausedKey) {
		return c, pump.Invalid("key", fmt.Sprintf("it has %d bytes", len(part.Key)),
			fmt.Sprintf("give a key of 1 to %d", workload.MaxPausedKey))
	}
	s, err := setup.Open(ctx, cfg)
	if err != nil {
		return c, err
	}
	if mark.Key = part.Key; part.Run != "" {
		if mark.Run, err = s.FindRun(ctx, part.Run); err != nil {
			return c, err
		}
		c.Run = mark.Run.String()
	}
	if c.Run != "" && !mark.Since.IsZero() {
		run, err := s.Runs().Get(ctx, mark.Run)
		switch {
		case err != nil:
			return c, err
		case run.State == workload.RunClosed, run.State == workload.RunEnded:
			return c, &Error{
				Workload: s.Workload.Name,
				Problem:  fmt.Sprintf("run %s is %s: nothing of it is started any more", c.Run, run.State),
				Fix:      "see it with: distributor runs show " + c.Run,
			}
		}
	}
	var w *workload.Workload
	var changed bool
	log, by, what := s.LoggedAnyway, mark.By, "pause"
	if mark.Since.IsZero() {
		log, by, what = s.Logged, setup.Operator(), "resume"
	}
	err = log(ctx, by, what+" "+mark.String(), func() error {
		w, changed, err = workload.SetPausedPart(ctx, s.Queues.Control, s.Workload.Name, mark)
		return err
	})
	if errors.Is(err, workload.ErrPausedParts) {
		err = &Error{
			Workload: s.Workload.Name, Err: err,
			Problem: fmt.Sprintf("%d runs and keys are paused, and no more can be", workload.MaxPausedParts),
			Fix: "resume one of them (distributor status lists them), or pause the whole workload: " +
				"distributor workload pause",
		}
	}
	if err != nil {
		return c, err
	}
	c.Workload, c.Key, c.Changed, c.Processors = w.Name, string(mark.Key), changed, -1
	if p := w.PausedParts.Find(mark); p != nil {
		c.Paused, c.Since, c.By = true, new(p.Since.UTC()), p.By
	}
	if view := viewOf(ctx, s); view != nil {
		c.Processors, c.Nudged = len(processorsOf(view)), tell(ctx, s, view)
	}
	return c, nil
}
