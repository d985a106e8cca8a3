package processor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump/internal/backoff"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/quota"
	"github.com/queuepump/queuepump/pump/storage"
)

// markAgain is for how long a message is put back that could not be marked. It is not
// started without its mark, so it waits for whatever keeps that from being written.
const markAgain = 10 * time.Second

// marked says where the attempt that is under way stands written.
type marked uint8

const (
	unmarked   marked = iota
	markInText        // in the header of the message as it is in the queue
	markInRow         // in a row, because the message is a text without room for a header
)

// reasonOnTrial is the cause that a marked message carries in its queue: its Attempts are how many of
// the last attempts were trials alone in a process. It goes with whatever else becomes of the message.
const reasonOnTrial = "on-trial"

// aloneTrials is how many of the last attempts at a single task were trials alone in a process, of
// which nothing was heard. The attempts in the header say less: they may have failed under a
// larger MaxAttempts, or have been made beside others'.
func (d *delivery) aloneTrials() int {
	if c := d.header.Cause; c != nil && c.Reason == reasonOnTrial {
		return int(c.Attempts)
	}
	return int(d.alone)
}

// mark writes the attempt at a single task down before it begins. It goes into the
// message's header, which takes one request; the header in hand keeps the number from
// before, so that whatever becomes of the attempt is counted once. A foreign text
// becomes an envelope by it, if that fits; one that does not has its attempts counted in
// a row of the control table. After an answer that was lost the mark may be
// there without an attempt: that costs a suspect one of its tries.
func (r *processing) mark(d *delivery, alone bool) error {
	text, ok := r.markedText(d, alone)
	if !ok {
		return r.markRow(d, alone)
	}
	receipt, err := r.keeper.take(r.wire, d)
	if err != nil {
		return err
	}
	var sent time.Time
	length := r.keeper.length(d)
	err = d.shard.Do(r.wire, quota.ClassRenew, 1, queues.OpReplace, d.id, func(ctx context.Context) (err error) {
		sent = time.Now()
		receipt, err = d.shard.Queue.Replace(ctx, receipt, text, length)
		return err
	})
	if err != nil {
		r.keeper.giveBack(d, storage.Ambiguous(err))
		return err
	}
	r.keeper.renewed(d, receipt, sent)
	d.text, d.foreign, d.mark = text, "", markInText // a foreign one goes on like any that was rewritten
	return nil
}

// markedText is the message with one attempt more, and one trial more if it is alone.
func (r *processing) markedText(d *delivery, alone bool) (text []byte, ok bool) {
	trials := d.aloneTrials()
	if alone {
		trials++
	}
	if d.foreign == "" {
		return r.stamped(d, d.text, d.header.Attempt+1, trials)
	}
	if text, ok = wrapped(d, d.header.Attempt+1); !ok {
		return nil, false
	}
	return r.stamped(d, text, d.header.Attempt+1, trials)
}

// stamped is a text with so many attempts and trials written into its header.
func (r *processing) stamped(d *delivery, text []byte, attempts uint32, trials int) (_ []byte, ok bool) {
	text, err := codec.Restamped(text, attempts, d.header.Generation)
	if err == nil && trials > 0 {
		text, err = codec.Quarantined(text, codec.Cause{Reason: reasonOnTrial, Instance: r.cfg.Instance, Attempts: uint32(trials)})
	}
	return text, err == nil
}

// unmarkedText is the text with which a marked message is put back when its task was
// not tried: release, drain and fencing are no attempts (P4.2).
func (r *processing) unmarkedText(d *delivery) (text []byte, ok bool) {
	return r.stamped(d, d.text, d.header.Attempt, d.aloneTrials())
}

// renewed goes on keeping a message whose text was replaced, which renewed its lease.
func (k *keeper) renewed(d *delivery, receipt storage.Receipt, sent time.Time) {
	l := &d.lease
	k.mu.Lock()
	l.receipt, l.doubt, l.hidden, l.failed = receipt, false, time.Time{}, 0
	l.tries++
	l.until = sent.Add(l.length)
	l.retry = sent.Add(k.interval(l))
	k.push(d)
	k.mu.Unlock()
	<-l.own
}

// attemptsKey is the row that counts the attempts at a message without room for them.
func (r *processing) attemptsKey(d *delivery) (partition, row string) {
	return r.cfg.Workload + ".attempts", d.shard.Account.Name + "." + d.shard.Name + "." + rowSafe(d.id)
}

// readAttempts adds what is written elsewhere to the attempts of a message that has no
// room for them. It asks for suspicious messages only.
func (r *processing) readAttempts(d *delivery) error {
	if _, ok := r.markedText(d, true); ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(r.wire, backoff.RequestTimeout)
	defer cancel()
	partition, row := r.attemptsKey(d)
	e, err := r.fleet.Control.Read(ctx, partition, row)
	switch {
	case storage.Is(err, storage.Gone):
		return nil
	case err != nil:
		return err
	}
	n, ok := e.Properties["Attempts"].(int64)
	if !ok || n < 0 || n > 1<<31 {
		return fmt.Errorf("pump: row %s of partition %s is damaged: Attempts is %v", row, partition, e.Properties["Attempts"])
	}
	alone, _ := e.Properties["Alone"].(int64)
	d.header.Attempt, d.counted = max(d.header.Attempt, uint32(n)), true
	d.alone = uint32(min(max(alone, 0), n))
	return nil
}

// markRow writes the attempt into the message's row. Whoever has the lease is its
// only writer, and one who has lost it without knowing writes a number that was true.
func (r *processing) markRow(d *delivery, alone bool) error {
	if !r.keeper.trusted(d) {
		return ErrLeaseEnded
	}
	trials := d.aloneTrials()
	if alone {
		trials++
	}
	if err := r.writeAttempts(d, d.header.Attempt+1, trials); err != nil {
		return err
	}
	d.mark, d.counted = markInRow, true
	return nil
}

func (r *processing) writeAttempts(d *delivery, n uint32, alone int) error {
	ctx, cancel := context.WithTimeout(r.wire, backoff.RequestTimeout)
	defer cancel()
	partition, row := r.attemptsKey(d)
	_, err := r.fleet.Control.Write(ctx, storage.Write{Mode: storage.Upsert, Entity: storage.Entity{
		Partition: partition, Row: row,
		Properties: map[string]any{
			"Attempts": int64(n), "Alone": int64(alone), "Instance": r.cfg.Instance, "Queue": d.shard.Name, "Account": d.shard.Account.Name, "Message": d.id,
		},
	}})
	return err
}

// endAttempts brings a message's row up to date when the message is settled: it goes with
// the message, and a task that was not tried gets its attempt back. What fails leaves a row that nobody asks for any
// more, or one attempt too many.
func (r *processing) endAttempts(d *delivery) {
	if !d.counted {
		return
	}
	var err error
	switch final := d.settlement.final; {
	case final == stepDelete:
		ctx, cancel := context.WithTimeout(r.wire, backoff.RequestTimeout)
		defer cancel()
		partition, row := r.attemptsKey(d)
		_, err = r.fleet.Control.Write(ctx, storage.Write{Mode: storage.Remove, Entity: storage.Entity{Partition: partition, Row: row}})
	case d.mark == markInRow && d.untried:
		err = r.writeAttempts(d, d.header.Attempt, d.aloneTrials())
	}
	if err != nil && !storage.Is(err, storage.Gone) && !errors.Is(err, context.Canceled) {
		r.log.Debug("the row that counts a message's attempts was not brought up to date", append(d.attrs(-1), "error", err)...)
	}
}
