package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/queuepump/queuepump/pump/storage"
)

// Maker is what makes a workload's row in one account only, where processes may mean
// different accounts. Looking everywhere and making it then is not enough: two that look at the
// same time both find nothing. So each account has a row for those who would make the workload,
// its anchor, and a maker goes through these steps:
//
//  1. look: no account has the workload (Absent);
//  2. note the version of the anchor in the own account;
//  3. in each other account change the anchor, and look into that account after it (Announce, Absent);
//  4. insert the workload's row and change the own anchor, in one transaction on the
//     condition that this anchor is still as noted.
//
// Of two makers in different accounts one at most succeeds. Let both: then neither's anchor was
// changed from its step 2 to its step 4. The other's step 3 did not come after that step 4, for it would have
// found the workload. So each one's step 3 came before the other's step 2, and each one's step 2
// before its own step 3: a circle. A maker that dies leaves anchors, which are no locks.
type Maker struct {
	// Account names the account that the table is in, as others know it.
	Account string
	// Known is an error for an account that cannot be looked into here. Whoever finds such a one
	// named in an anchor makes nothing, because the workload may be there.
	Known func(account string) error
	// Absent is nil if no other account has the workload. With announce it changes the
	// anchor of each before it looks there.
	Absent func(ctx context.Context, announce bool) error
}

// makeRow makes the workload's row, which was not there. It is errLost if the row or the
// own anchor was changed meanwhile.
func (s WorkloadSpec) makeRow(ctx context.Context, r row[workloadRow]) (version[workloadRow], error) {
	var anchor version[anchorRow]
	if m := s.Maker; m != nil {
		err := m.Absent(ctx, false)
		if err == nil {
			anchor, err = m.ownAnchor(ctx, anchorRowOf(r.table, s.Name))
		}
		if err == nil {
			err = m.Absent(ctx, true)
		}
		if err != nil {
			return version[workloadRow]{}, err
		}
	}
	// To place the segments on a thousand queues takes a second, so only who finds no row does it.
	first, err := s.first(drawOf(r.table))
	if err != nil {
		return version[workloadRow]{}, err
	}
	if s.Maker == nil {
		return r.tryWrite(ctx, version[workloadRow]{}, first)
	}
	return s.makeGuarded(ctx, r, first, anchor)
}

// makeGuarded inserts the row on the condition that the own anchor is as it was noted.
func (s WorkloadSpec) makeGuarded(ctx context.Context, r row[workloadRow], first workloadRow, noted version[anchorRow]) (version[workloadRow], error) {
	draw, anchors := drawOf(r.table), anchorRowOf(r.table, s.Name)
	nonce := draw.nonce(r.object())
	writes := []storage.Write{
		r.prepare(version[workloadRow]{}, first, nonce),
		anchors.prepare(noted, anchorRow{s.Maker.Account}, nonce),
	}
	made := version[workloadRow]{value: first, sent: time.Now()}
	var doubt error // an attempt may have landed, or may land yet
	for attempt := 1; ; attempt++ {
		etags, err := transactWithin(ctx, r, writes)
		if err == nil {
			made.etag, made.received = etags[0], time.Now()
			return made, nil
		}
		switch code := storage.CodeOf(err); {
		case storage.Ambiguous(err):
			doubt = err
		case doubt != nil || code == storage.Canceled && ctx.Err() == nil:
		case code == storage.Precondition || code == storage.Exists || code == storage.Gone:
			return version[workloadRow]{}, errLost
		default:
			return version[workloadRow]{}, err
		}
		if doubt != nil {
			// The anchor first: if it has changed and then the row is not there, it never will be.
			now, err := anchors.mustRead(ctx)
			var there version[workloadRow]
			var found string
			if err == nil {
				there, found, err = r.readBack(ctx)
			}
			switch {
			case err != nil:
				return version[workloadRow]{}, r.unknown(ctx, doubt, err)
			case found == nonce:
				made.etag, made.modified, made.received = there.etag, there.modified, there.received
				return made, nil
			case !there.absent() || now.etag != noted.etag:
				return version[workloadRow]{}, errLost
			}
		}
		draw.pause(ctx, r.object(), attempt, r.longestPause(), err)
		if ctx.Err() != nil {
			if doubt != nil {
				return version[workloadRow]{}, r.unknown(ctx, doubt, nil)
			}
			return version[workloadRow]{}, err
		}
	}
}

func transactWithin(ctx context.Context, r row[workloadRow], writes []storage.Write) ([]storage.ETag, error) {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	return r.table.Transact(ctx, writes)
}

// stepAside waits before another attempt to make the workload, after so many that were lost. Makers
// in different accounts could stop each other for ever; so the one whose account comes
// first by name hardly waits, and the others longer each time.
func (m *Maker) stepAside(ctx context.Context, r row[anchorRow], lost int) error {
	now, err := r.mustRead(ctx)
	if err != nil {
		return err
	}
	most := 200 * time.Millisecond << min(lost, 6)
	wait := time.Duration(0)
	if !now.absent() && now.value.account < m.Account {
		wait = most
	}
	wait += drawOf(r.table).spread("step aside", r.object(), most)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// ownAnchor gives the anchor of the account in which the workload shall be.
func (m *Maker) ownAnchor(ctx context.Context, r row[anchorRow]) (version[anchorRow], error) {
	for {
		v, err := r.mustReadOrCreate(ctx)
		if err != nil {
			return v, err
		}
		if !v.absent() {
			return v, m.Known(v.value.account)
		}
		if v, err = r.tryWrite(ctx, v, anchorRow{m.Account}); !errors.Is(err, errLost) {
			return v, err
		}
	}
}

// Announce changes the workload's anchor in the table of another account than the maker's. A
// table that may not be written and has no anchor is as good: whoever would make the workload in that
// account has not begun.
func (m *Maker) Announce(ctx context.Context, t storage.Table, workload string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r := anchorRowOf(t, workload)
	for lost := false; ; lost = true {
		v, err := r.mustReadOrCreate(ctx)
		absent := v.absent()
		if err == nil && !absent {
			err = m.Known(v.value.account)
			if err == nil && lost && v.value.account == m.Account {
				return nil // changed since this began, by another process that makes it in the same account
			}
		}
		if err == nil {
			_, err = r.tryWrite(ctx, v, anchorRow{m.Account})
		}
		switch {
		case errors.Is(err, errLost):
			continue
		case absent && storage.Is(err, storage.Auth):
			return nil
		case err != nil:
			return fmt.Errorf("the anchor of workload %q: %w", workload, err)
		}
		return nil
	}
}

// PlaceAnchor changes the anchor in an account that a workload was given after it was made, so that it
// says the same there as elsewhere: the workload is in the account of this name. An anchor that names
// another account stays.
func PlaceAnchor(ctx context.Context, t storage.Table, workload, account string) error {
	r := anchorRowOf(t, workload)
	for {
		v, err := r.mustReadOrCreate(ctx)
		if err == nil && (v.absent() || v.value.account == account) {
			_, err = r.tryWrite(ctx, v, anchorRow{account})
		}
		if !errors.Is(err, errLost) {
			return err
		}
	}
}

// NoteAnchor reads the anchor in an account that a workload will use no more, and gives what removes it if it
// is still as it was read: not after [PlaceAnchor]. An anchor that names another account than the one
// that the workload is in stays. That there is none is no error.
func NoteAnchor(ctx context.Context, t storage.Table, workload, account string) (remove func(context.Context) error, err error) {
	r := anchorRowOf(t, workload)
	v, err := r.mustRead(ctx)
	if storage.Is(err, storage.Missing) || err == nil && v.value.account != account {
		return func(context.Context) error { return nil }, nil
	}
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		if err := r.tryRemove(ctx, v); !errors.Is(err, errLost) {
			return err
		}
		return nil
	}, nil
}

const anchorKey = "anchor"

// anchorRow names the account of the maker that wrote it last.
type anchorRow struct{ account string }

// Its key comes before those that a View reads.
func anchorRowOf(t storage.Table, workload string) row[anchorRow] {
	return row[anchorRow]{
		table: t, partition: workload, key: anchorKey, timeout: requestTimeout,
		encode: func(a anchorRow) map[string]any { return map[string]any{"Account": a.account} },
		decode: func(f *fields) anchorRow { return anchorRow{f.text("Account")} },
	}
}
