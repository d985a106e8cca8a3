package accounts

import (
	"context"
	"fmt"

	"github.com/queuepump/queuepump/pump/internal/failure"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
)

// Each account of a workload has an anchor: anchors keep a workload from being made in two accounts
// (P6.7). An anchor comes and goes with its account.

// placeAnchor makes the anchor of an account that was added say where the workload is. Nothing
// depends on it but the refusal of a second workload of the name, so a failure is only said.
func (o *accountsOf) placeAnchor(ctx context.Context, name string) {
	t := o.anchorTable(name)
	if t == nil {
		return
	}
	err := waits.Within(ctx, func(ctx context.Context) error {
		return workload.PlaceAnchor(ctx, t, o.Cfg.Workload, o.Cfg.Control)
	})
	if err != nil && failure.Ends(failure.Help, err, failure.Command) {
		o.Cfg.Log.Warn("the account is added, but its anchor could not be written, so a second "+
			"workload of the name is not refused there", "account", name, "error", err)
	}
}

// anchorTable is the table of an account. It is nil for the control account, whose anchor stays,
// and for an account that is not in the configuration.
func (o *accountsOf) anchorTable(name string) storage.Table {
	for _, a := range o.Cfg.Accounts {
		if a.Name == name && name != o.Cfg.Control {
			return setup.TableIn(&o.Cfg, a)
		}
	}
	return nil
}

// noteAnchor finds the anchor of an account that is to be removed. remove removes the anchor, the
// last step of a removal; its error says how to finish.
func (o *accountsOf) noteAnchor(
	ctx context.Context, name string,
) (remove func(context.Context) error) {
	drop, err := func(context.Context) error { return nil }, error(nil)
	if t := o.anchorTable(name); t != nil {
		drop, err = waits.Get(ctx, func(ctx context.Context) (func(context.Context) error, error) {
			return workload.NoteAnchor(ctx, t, o.Cfg.Workload, o.Cfg.Control)
		})
	}
	return func(ctx context.Context) error {
		if err == nil {
			err = waits.Within(ctx, drop)
		}
		if err == nil || !failure.Ends(failure.Help, err, failure.Command) { // unwritable as well
			return nil
		}
		return fmt.Errorf("account %s is out of the workload, but its anchor may be left in its table, "+
			"and keeps others from making a workload %q there; before the account leaves the "+
			"configuration run again: distributor accounts remove %[1]s: %[3]w",
			name, o.Cfg.Workload, err)
	}
}
