package trial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/waits"
	"github.com/queuepump/queuepump/pump/processor/internal/leases"
	"github.com/queuepump/queuepump/pump/processor/internal/message"
	"github.com/queuepump/queuepump/pump/storage"
)

// markAgain is how long a message is put back if its attempt could not be written down. Without
// that its task is not started, so the message waits until the attempt can be written.
const markAgain = 10 * time.Second

// writeAttempt writes the attempt at a single task down before it begins. It goes into the
// message's header, which takes one request; the header in hand keeps the number from before, so
// that the attempt is counted once, with any end. A foreign text becomes an envelope by this, if it
// fits; otherwise a row of the control table counts its attempts. After a lost answer the mark may
// be there without an attempt: that costs a suspect one of its tries.
func (t *Trials) writeAttempt(d *message.Delivery, alone bool) error {
	text, ok := t.attemptText(d, alone)
	if !ok {
		return t.countAttempt(d, alone)
	}
	receipt, err := t.Keeper.Take(t.Wire, d)
	if err != nil {
		return err
	}
	var sent time.Time
	length := t.Keeper.Length(d)
	err = d.Queue.Do(t.Wire, queues.ClassRenew, 1, queues.OpReplace, d.ID,
		func(ctx context.Context) (err error) {
			sent = time.Now()
			receipt, err = d.Queue.Queue.Replace(ctx, receipt, text, length)
			return err
		})
	if err != nil {
		t.Keeper.GiveBack(d, storage.Ambiguous(err))
		return err
	}
	t.Keeper.Renewed(d, receipt, sent)
	// a foreign one goes on like any that was rewritten
	d.Text, d.Foreign, d.Written = text, "", message.WrittenInText
	return nil
}

// attemptText is the message with one attempt more, and one trial more if it is alone.
func (t *Trials) attemptText(d *message.Delivery, alone bool) (text []byte, ok bool) {
	trials := d.AloneTrials()
	if alone {
		trials++
	}
	if d.Foreign == "" {
		return t.stamped(d, d.Text, d.Header.Attempt+1, trials)
	}
	if text, ok = d.Wrap(d.Header.Attempt + 1); !ok {
		return nil, false
	}
	return t.stamped(d, text, d.Header.Attempt+1, trials)
}

// stamped is a text with these attempts and trials in its header.
func (t *Trials) stamped(
	d *message.Delivery, text []byte, attempts uint32, trials int,
) (_ []byte, ok bool) {
	text, err := codec.Restamped(text, attempts, d.Header.Generation, d.Header.NotNow)
	if err == nil && trials > 0 {
		text, err = codec.Quarantined(text, codec.Cause{
			Reason: message.ReasonOnTrial, Instance: t.Cfg.Instance, Attempts: uint32(trials),
		})
	}
	return text, err == nil
}

// UntriedText is the text with which a marked message is put back when its task was not tried:
// release, drain and fencing do not count as attempts (P4.2).
func (t *Trials) UntriedText(d *message.Delivery) (text []byte, ok bool) {
	return t.stamped(d, d.Text, d.Header.Attempt, d.AloneTrials())
}

// attemptsKey is the key of the row that counts the attempts at a message without room for them.
func (t *Trials) attemptsKey(d *message.Delivery) (partition, row string) {
	return t.Cfg.Workload + ".attempts", message.RowKey(d.Queue.Account.Name, d.Queue.Name, d.ID)
}

// readAttempts adds the attempts and "not now" that a row has for a message without room for them.
func (t *Trials) readAttempts(d *message.Delivery) error {
	if _, ok := t.attemptText(d, true); ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(t.Wire, waits.RequestTimeout)
	defer cancel()
	partition, row := t.attemptsKey(d)
	e, err := t.Queues.Control.Read(ctx, partition, row)
	switch {
	case storage.Is(err, storage.Gone):
		return nil
	case err != nil:
		return err
	}
	n, ok := e.Properties["Attempts"].(int64)
	if !ok || n < 0 || n > 1<<31 {
		return fmt.Errorf("row %s of partition %s is damaged: Attempts is %v", row, partition,
			e.Properties["Attempts"])
	}
	alone, _ := e.Properties["Alone"].(int64)
	d.Header.Attempt, d.Counted = max(d.Header.Attempt, uint32(n)), true
	d.Alone = uint32(min(max(alone, 0), n))
	told, _ := e.Properties["NotNow"].(int64)
	if first, ok := e.Properties["NotNowSince"].(time.Time); ok && told > 0 {
		count := uint32(min(told, math.MaxUint32))
		d.Header.NotNow = codec.NotNow{First: first, Deliveries: count, Here: count}
	}
	return nil
}

// countAttempt writes the attempt into the message's row. Only the process with the lease writes
// it. A process that has lost the lease without knowing writes a number that was true.
func (t *Trials) countAttempt(d *message.Delivery, alone bool) error {
	if !t.Keeper.Trusted(d) {
		return leases.ErrEnded
	}
	trials := d.AloneTrials()
	if alone {
		trials++
	}
	if err := t.writeAttemptRow(d, d.Header.Attempt+1, trials); err != nil {
		return err
	}
	d.Written, d.Counted = message.WrittenInRow, true
	return nil
}

func (t *Trials) writeAttemptRow(d *message.Delivery, n uint32, alone int) error {
	ctx, cancel := context.WithTimeout(t.Wire, waits.RequestTimeout)
	defer cancel()
	partition, row := t.attemptsKey(d)
	properties := map[string]any{
		"Attempts": int64(n), "Alone": int64(alone), "Instance": t.Cfg.Instance, "Queue": d.Queue.Name,
		"Account": d.Queue.Account.Name, "Message": d.ID,
	}
	if told := cmp.Or(d.Told, d.Header.NotNow); told.Deliveries > 0 {
		properties["NotNow"], properties["NotNowSince"] = int64(told.Deliveries), told.First
	}
	_, err := t.Queues.Control.Write(ctx, storage.Write{Mode: storage.Upsert, Entity: storage.Entity{
		Partition: partition, Row: row, Properties: properties,
	}})
	return err
}

// CloseAttempts brings a message's row up to date when the message is settled: it goes with the
// message, and a task that was not tried gets its attempt back. A failure leaves a row that is not
// read any more, or one attempt too many.
func (t *Trials) CloseAttempts(d *message.Delivery) {
	if !d.Counted && d.Told == (codec.NotNow{}) {
		return
	}
	var err error
	switch final := d.Plan.Final; {
	case final == message.StepDelete:
		ctx, cancel := context.WithTimeout(t.Wire, waits.RequestTimeout)
		defer cancel()
		partition, row := t.attemptsKey(d)
		_, err = t.Queues.Control.Write(ctx, storage.Write{
			Mode: storage.Remove, Entity: storage.Entity{Partition: partition, Row: row},
		})
	case d.Written == message.WrittenInRow && d.Untried, d.Told != (codec.NotNow{}):
		err = t.writeAttemptRow(d, d.Header.Attempt, d.AloneTrials())
	}
	if err != nil && !storage.Is(err, storage.Gone) && !errors.Is(err, context.Canceled) {
		t.Log.Debug("the row that counts a message's attempts was not brought up to date",
			append(d.Attrs(), "error", err)...)
	}
}
