package workloads

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/backoff"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/internal/workload"
)

// Part is a run or a key of a workload: one of the two is set.
type Part struct {
	Run string // an id, or what it begins with
	Key []byte
}

// ParkChange is what a pause or a resume of a run or a key came to.
type ParkChange struct {
	Workload string `json:"workload"`
	Run      string `json:"run"` // empty: it is a key
	Key      string `json:"key"` // empty: it is a run; bytes that are no UTF-8 are replaced
	Paused   bool   `json:"paused"`
	Changed  bool   `json:"changed"` // it was not so before
	// Since and By are of the pause that stands, by the clock of the machine at which it was
	// ordered; null and empty if none does.
	Since *time.Time `json:"since"`
	By    string     `json:"by"`
	// Processors is how many live processors there are, Nudged how many of them took the hint to
	// look at once; the others look by themselves.
	Processors int `json:"processors"`
	Nudged     int `json:"nudged"`
}

// PausePart has processors start nothing more of a run or a key. Its tasks go into parking queues,
// out of the way of the rest, and come back when it is resumed, without an attempt. A run or key
// that is paused already stays so, as of then. The error is an [*Error] if a live process is of a
// version that does not know it, if the run is done with, or if no more can be paused; then nothing
// has changed. Up to [workload.MaxParkings] runs and keys can be paused.
func PausePart(ctx context.Context, cfg pump.Config, part Part, by string) (ParkChange, error) {
	o, mark, err := openPart(ctx, cfg, part)
	if err != nil {
		return ParkChange{}, err
	}
	if err := o.canPark(ctx, &mark); err != nil {
		return ParkChange{}, err
	}
	mark.Since, mark.By = time.Now(), by
	for {
		if mark.Number = o.Workload.NextParking(); mark.Number > 0 {
			if err := o.makeParking(ctx, mark.Number); err != nil {
				return ParkChange{}, err
			}
		}
		w, changed, err := workload.Park(ctx, o.Queues.Control, o.Workload.Name, mark)
		switch {
		case err == nil:
			return o.parkChange(ctx, w, &mark, changed), nil
		case errors.Is(err, workload.ErrParkings):
			return ParkChange{}, &Error{
				Workload: o.Workload.Name, Err: err,
				Problem: fmt.Sprintf("%d runs and keys are paused, or come home, and no more can be",
					workload.MaxParkings),
				Fix: "resume one of them (distributor status lists them; one that comes home stays until all " +
					"accounts answer that nothing of it is left), or pause the whole workload: " +
					"distributor workload pause",
			}
		case !errors.Is(err, workload.ErrParkingTaken):
			return ParkChange{}, err
		}
		if err := o.Reload(ctx); err != nil {
			return ParkChange{}, err
		}
	}
}

// ResumePart lets what was parked of a run or a key come home to its queues, where it waits behind
// what is there.
func ResumePart(ctx context.Context, cfg pump.Config, part Part) (ParkChange, error) {
	o, mark, err := openPart(ctx, cfg, part)
	if err != nil {
		return ParkChange{}, err
	}
	mark.Returning = time.Now()
	w, changed, err := workload.Unpark(ctx, o.Queues.Control, o.Workload.Name, mark)
	if err != nil {
		return ParkChange{}, err
	}
	return o.parkChange(ctx, w, &mark, changed), nil
}

// parts is a workload parts of which are paused or resumed.
type parts struct{ *setup.Session }

func openPart(ctx context.Context, cfg pump.Config, part Part) (*parts, workload.Parking, error) {
	mark := workload.Parking{Key: part.Key}
	if part.Run == "" && (len(part.Key) == 0 || len(part.Key) > workload.MaxParkedKey) {
		return nil, mark, pump.Invalid("key", fmt.Sprintf("it has %d bytes", len(part.Key)),
			fmt.Sprintf("give a key of 1 to %d", workload.MaxParkedKey))
	}
	s, err := setup.Open(ctx, cfg)
	if err != nil {
		return nil, mark, err
	}
	o := &parts{s}
	if part.Run != "" {
		mark.Run, err = o.FindRun(ctx, part.Run)
	}
	return o, mark, err
}

// canPark refuses what cannot be paused.
func (o *parts) canPark(ctx context.Context, mark *workload.Parking) error {
	refuse := func(problem, fix string) error {
		return &Error{Workload: o.Workload.Name, Problem: problem, Fix: fix}
	}
	if !mark.Run.IsZero() {
		run, err := o.Runs().Get(ctx, mark.Run)
		switch {
		case err != nil:
			return err
		case run.State == workload.RunClosed, run.State == workload.RunEnded:
			return refuse(fmt.Sprintf("%s is %s: nothing of it is started any more", mark, run.State),
				"see it with: distributor runs show "+mark.Run.String())
		}
	}
	return nil
}

// parkingPatience is how long a pause waits for accounts that do not answer.
const parkingPatience = 10 * time.Second

// makeParking makes the parking queue of a number in each account, before the map names them. The
// log tells of a queue that cannot be made: a processor that needs it makes it, and the account
// may be in trouble.
func (o *parts) makeParking(ctx context.Context, number int) error {
	limited, cancel := context.WithTimeout(ctx, parkingPatience)
	defer cancel()
	g := new(errgroup.Group)
	g.SetLimit(queues.AtOnce)
	made := map[string]bool{}
	for _, s := range o.Workload.Map.Shards {
		if made[s.Account] {
			continue
		}
		made[s.Account] = true
		q, err := o.Queues.Queue(s.Account, workload.ParkingQueue(o.Workload.Name, number))
		if err != nil {
			return errors.Join(err, g.Wait())
		}
		g.Go(func() error {
			err := queues.Create(limited, q, backoff.Jitter(o.Cfg.Instance), o.Cfg.Log)
			if err != nil && ctx.Err() == nil {
				o.Cfg.Log.Warn("a parking queue could not be made yet; a processor that needs it makes it",
					"queue", q.String(), "error", err)
			}
			return ctx.Err()
		})
	}
	return g.Wait()
}

// parkChange says what stands, and tells the processors.
func (o *parts) parkChange(
	ctx context.Context, w *workload.Workload, mark *workload.Parking, changed bool,
) ParkChange {
	c := ParkChange{Workload: w.Name, Key: string(mark.Key), Changed: changed}
	if !mark.Run.IsZero() {
		c.Run = mark.Run.String()
	}
	for _, p := range w.Parkings {
		if p.Same(mark) && p.Holds() {
			c.Paused, c.Since, c.By = true, new(p.Since.UTC()), p.By
		}
	}
	if view := viewOf(ctx, o.Session); view != nil {
		c.Processors, c.Nudged = len(processorsOf(view)), tell(ctx, o.Session, view)
	}
	return c
}
