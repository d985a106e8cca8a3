package workloads

import (
	"context"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/queuepump/queuepump/pump/accounts"
	"github.com/queuepump/queuepump/pump/internal/failure"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/internal/workload"
)

// lost reports whether the options say that an account is gone for good.
func (d *workloadDeletion) lost(name string) bool { return slices.Contains(d.opts.Lost, name) }

// checkLost refuses to take an account as gone that is there, or may be there again.
func (d *workloadDeletion) checkLost(ctx context.Context) error {
	for _, name := range d.opts.Lost {
		if d.Queues.Account(name) == nil || name == d.Cfg.Control {
			return d.refuse("account "+name+" cannot be given up: it is the control account, or there is "+
				"no credential for it here", "name another account of the configuration with --lost")
		}
		problem, _, err := d.NotGone(ctx, name, accounts.LostAfter)
		if err == nil && problem != "" {
			err = d.refuse("account "+name+": "+problem, "wait, or leave it out of --lost")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// removeAnchors removes the anchors in other accounts; the own one went with the rows.
func (d *workloadDeletion) removeAnchors(ctx context.Context) error {
	_, err := d.anchors(ctx, false)
	return err
}

// anchors removes the anchors of all accounts, or only looks which have one.
func (d *workloadDeletion) anchors(ctx context.Context, look bool) (accounts []string, err error) {
	var mu sync.Mutex
	var g errgroup.Group
	g.SetLimit(queues.AtOnce)
	for _, a := range d.Cfg.Accounts {
		g.Go(func() error {
			if d.lost(a.Name) {
				return nil
			}
			there, err := workload.RemoveAnchor(ctx, setup.TableIn(&d.Cfg, a), d.Cfg.Workload, look)
			mu.Lock()
			defer mu.Unlock()
			if there {
				accounts = append(accounts, a.Name)
			}
			if err != nil && !failure.Ends(failure.Help, err, failure.Command) {
				return nil // its credential may not make one
			}
			return err
		})
	}
	err = g.Wait()
	slices.Sort(accounts)
	return accounts, err
}

// leftovers removes anchors that belong to no workload: a maker left them that died, and whose
// accounts are partly other ones. Such anchors would keep this configuration from making the
// workload.
func (d *workloadDeletion) leftovers(ctx context.Context, absent error) (*Deletion, error) {
	err := setup.Elsewhere(ctx, &d.Cfg, nil)
	if err != nil {
		return nil, err
	}
	found, err := d.anchors(ctx, d.opts.DryRun)
	switch {
	case err != nil:
		return nil, err
	case len(found) == 0:
		return nil, d.Advise(ctx, absent)
	}
	return &Deletion{
		Workload: d.Cfg.Workload, Control: d.Cfg.Control, Deleted: !d.opts.DryRun,
		Rows:   map[string]int{"anchors": len(found)},
		Queues: []Queue{}, Foreign: []string{}, Kept: []string{}, Members: []string{},
		Unfinished: []string{}, Leftovers: found, Lost: append([]string{}, d.opts.Lost...),
	}, nil
}
