package workload

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/storage"
)

// Maker makes a workload's row in one account only, even if processes mean different accounts.
// Looking everywhere first is not enough: two that look at the same time both find nothing. So each
// account has a row for makers of the workload, its anchor, and a maker goes through these steps:
//
//  1. look: no account has the workload (Absent);
//  2. note the version of the anchor in the own account;
//  3. in each other account change the anchor, and look into that account after it (Announce,
//     Absent);
//  4. insert the workload's row and change the own anchor, in one transaction on the
//     condition that this anchor is still as noted.
//
// Of two makers in different accounts one at most succeeds. Suppose both do: then neither's anchor
// was changed from its step 2 to its step 4. The other's step 3 did not come after that step 4, for
// it would have found the workload. So each one's step 3 came before the other's step 2, and each
// one's step 2 before its own step 3: a circle. A maker that dies leaves anchors, which are not
// locks.
type Maker struct {
	// Account names the account that the table is in, as others know it.
	Account string
	// Known is an error for an account that cannot be looked into here. A process that finds such an
	// account named in an anchor makes nothing, because the workload may be there.
	Known func(account string) error
	// Absent is nil if no other account has the workload. With announce it changes the
	// anchor of each before it looks there.
	Absent func(ctx context.Context, announce bool) error
}

// makeRow makes the workload's row, which was missing. It is ErrLost if the row or the own anchor
// was changed meanwhile.
func (s Spec) makeRow(ctx context.Context, r row.Row[Row]) (row.Version[Row], error) {
	var anchor row.Version[anchorRow]
	if m := s.Maker; m != nil {
		err := m.Absent(ctx, false)
		if err == nil {
			anchor, err = m.ownAnchor(ctx, anchorRowOf(r.Table, s.Name))
		}
		if err == nil {
			err = m.Absent(ctx, true)
		}
		if err != nil {
			return row.Version[Row]{}, err
		}
	}
	// To place the segments on a thousand queues takes a second, so only a process that finds no row
	// does it.
	first, err := s.first(row.DrawOf(r.Table))
	if err != nil {
		return row.Version[Row]{}, err
	}
	if s.Maker == nil {
		return r.TryWrite(ctx, row.Version[Row]{}, first)
	}
	return s.makeGuarded(ctx, r, first, anchor)
}

// makeGuarded inserts the row on the condition that the own anchor is as it was noted.
func (s Spec) makeGuarded(
	ctx context.Context, r row.Row[Row], first Row, noted row.Version[anchorRow],
) (row.Version[Row], error) {
	draw, anchors := row.DrawOf(r.Table), anchorRowOf(r.Table, s.Name)
	nonce := draw.Nonce(r.Object())
	writes := []storage.Write{
		r.Prepare(row.Version[Row]{}, first, nonce),
		anchors.Prepare(noted, anchorRow{s.Maker.Account}, nonce),
	}
	made := row.Version[Row]{Value: first, Sent: time.Now()}
	var doubt error // an attempt may have landed, or may land yet
	for attempt := 1; ; attempt++ {
		etags, err := transactWithin(ctx, r, writes)
		if err == nil {
			made.ETag, made.Received = etags[0], time.Now()
			return made, nil
		}
		switch code := storage.CodeOf(err); {
		case storage.Ambiguous(err):
			doubt = err
		case doubt != nil || code == storage.Canceled && ctx.Err() == nil:
		case code == storage.Precondition || code == storage.Exists || code == storage.Gone:
			return row.Version[Row]{}, row.ErrLost
		default:
			return row.Version[Row]{}, err
		}
		if doubt != nil {
			// The anchor first: if it has changed and then the row is not there, it never will be.
			now, err := anchors.MustRead(ctx)
			var there row.Version[Row]
			var found string
			if err == nil {
				there, found, err = r.ReadBack(ctx)
			}
			switch {
			case err != nil:
				return row.Version[Row]{}, r.Unknown(ctx, doubt, err)
			case found == nonce:
				made.ETag, made.Modified, made.Received = there.ETag, there.Modified, there.Received
				return made, nil
			case !there.Absent() || now.ETag != noted.ETag:
				return row.Version[Row]{}, row.ErrLost
			}
		}
		draw.Pause(ctx, r.Object(), attempt, r.LongestPause(), err)
		if ctx.Err() != nil {
			if doubt != nil {
				return row.Version[Row]{}, r.Unknown(ctx, doubt, nil)
			}
			return row.Version[Row]{}, err
		}
	}
}

func transactWithin(
	ctx context.Context, r row.Row[Row], writes []storage.Write,
) ([]storage.ETag, error) {
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	return r.Table.Transact(ctx, writes)
}

// stepAside waits before another attempt to make the workload, after so many lost attempts. Makers
// in different accounts could stop each other for ever, so the maker in the first account by name
// hardly waits, and the others wait longer each time.
func (m *Maker) stepAside(ctx context.Context, r row.Row[anchorRow], lost int) error {
	now, err := r.MustRead(ctx)
	if err != nil {
		return err
	}
	most := 200 * time.Millisecond << min(lost, 6)
	wait := time.Duration(0)
	if !now.Absent() && now.Value.account < m.Account {
		wait = most
	}
	wait += row.DrawOf(r.Table).Spread("step aside", r.Object(), most)
	waits.Sleep(ctx, wait, nil)
	return context.Cause(ctx)
}

// ownAnchor gives the anchor of the account that is to have the workload.
func (m *Maker) ownAnchor(
	ctx context.Context, r row.Row[anchorRow],
) (row.Version[anchorRow], error) {
	for {
		v, err := r.MustReadOrCreate(ctx)
		if err != nil {
			return v, err
		}
		if !v.Absent() {
			return v, m.Known(v.Value.account)
		}
		if v, err = r.TryWrite(ctx, v, anchorRow{m.Account}); !errors.Is(err, row.ErrLost) {
			return v, err
		}
	}
}

// Announce changes the workload's anchor in the table of another account than the maker's. A table
// that may not be written and has no anchor is as good: no process has begun to make the workload
// in that account.
func (m *Maker) Announce(ctx context.Context, t storage.Table, workload string) error {
	ctx, cancel := context.WithTimeout(ctx, row.Patience)
	defer cancel()
	r := anchorRowOf(t, workload)
	for lost := false; ; lost = true {
		v, err := r.MustReadOrCreate(ctx)
		absent := v.Absent()
		if err == nil && !absent {
			err = m.Known(v.Value.account)
			if err == nil && lost && v.Value.account == m.Account {
				return nil // changed since this began, by another process that makes it in the same account
			}
		}
		if err == nil {
			_, err = r.TryWrite(ctx, v, anchorRow{m.Account})
		}
		switch {
		case errors.Is(err, row.ErrLost):
			continue
		case absent && storage.Is(err, storage.Auth):
			return nil
		case err != nil:
			return fmt.Errorf("the anchor of workload %q: %w", workload, err)
		}
		return nil
	}
}

// PlaceAnchor changes the anchor in an account that was added to a workload, so that it says the
// same as elsewhere: the workload is in the account of this name. An anchor that names another
// account stays.
func PlaceAnchor(ctx context.Context, t storage.Table, workload, account string) error {
	r := anchorRowOf(t, workload)
	for {
		v, err := r.MustReadOrCreate(ctx)
		if err == nil && (v.Absent() || v.Value.account == account) {
			_, err = r.TryWrite(ctx, v, anchorRow{account})
		}
		if !errors.Is(err, row.ErrLost) {
			return err
		}
	}
}

// NoteAnchor reads the anchor in an account that a workload will no longer use, and gives what
// removes it if it is still as it was read: not after [PlaceAnchor]. An anchor that names another
// account than the workload's stays. A missing anchor is not an error.
func NoteAnchor(
	ctx context.Context, t storage.Table, workload, account string,
) (remove func(context.Context) error, err error) {
	r := anchorRowOf(t, workload)
	v, err := r.MustRead(ctx)
	if row.NoTable(err) || err == nil && v.Value.account != account {
		return func(context.Context) error { return nil }, nil
	}
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		if err := r.TryRemove(ctx, v); !errors.Is(err, row.ErrLost) {
			return err
		}
		return nil
	}, nil
}

const anchorKey = "anchor"

// anchorRow names the account of the maker that wrote it last.
type anchorRow struct{ account string }

// anchorRowOf is the row with that. Its key comes before those that a View reads.
func anchorRowOf(t storage.Table, workload string) row.Row[anchorRow] {
	return row.Row[anchorRow]{
		Table: t, Partition: workload, Key: anchorKey, Timeout: row.RequestTimeout,
		Encode: func(a anchorRow) map[string]any { return map[string]any{"Account": a.account} },
		Decode: func(f *row.Fields) anchorRow { return anchorRow{f.Text("Account")} },
	}
}
