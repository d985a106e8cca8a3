package scenario

import (
	"context"
	"errors"
	"time"

	"github.com/queuepump/queuepump/pump/storage"
)

// clean removes the test's queues and its tables, once. No other program can have anything in them:
// the name was made for this test.
func (t *test) clean(ctx context.Context) { t.cleaned.Do(func() { t.remove(ctx) }) }

func (t *test) remove(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	for i, m := range t.meters {
		a, err := t.world.Open("cleaner", i)
		if err == nil {
			err = t.cleanAccount(ctx, a, m)
		}
		if err != nil {
			t.note("the queues named %s-* and the table %s of account %s are left over: %v", t.workload,
				t.table, m.name, err)
		}
	}
}

func (t *test) cleanAccount(ctx context.Context, a storage.Account, m *meter) error {
	names, err := a.Queues(ctx, t.workload+"-")
	if err != nil {
		return err
	}
	var failed error
	for _, name := range names {
		if err := a.Queue(name).Drop(ctx); err != nil && !storage.Is(err, storage.Missing) {
			failed = errors.Join(failed, err)
		}
	}
	// Each account has the table, for the workload's anchor at least. Only the control account must
	// let it be written.
	control := t.world.Config.Control
	isControl := control == m.name || control == "" && m == t.meters[0]
	err = a.Table(t.table).Drop(ctx)
	if err != nil && !storage.Is(err, storage.Missing) &&
		(isControl || !storage.Is(err, storage.Auth)) {
		failed = errors.Join(failed, err)
	}
	return failed
}
