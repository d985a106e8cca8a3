package pack

import (
	"errors"
	"math"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/source"
	"github.com/queuepump/queuepump/shardmap"
)

// Reserved is the receipt of a task whose number must stand in a row before the task is put. Such a
// task is read twice: it gets its number, and later it is packed under that number.
type Reserved interface {
	source.Receipt
	// Number is the number that the task has; false: it has none yet.
	Number() (n uint64, has bool)
	// Take gives the task its number. The caller hands the task in again.
	Take(segment uint32, n uint64)
}

// Seated is the receipt of a task whose sender may have chosen its segment.
type Seated interface {
	Seat() (segment uint32, chosen bool)
}

// Ready is the receipt of what is not a task but a message, which is put as it is.
type Ready struct{ Message *Message }

// Acknowledge does nothing: the message has receipts of its own.
func (Ready) Acknowledge(int64) {}

// Refuse does nothing: a message that is sealed is not refused.
func (Ready) Refuse(error) {}

// TooLarge is why a task fits no message of a workload, or nil. Above is from how many bytes on
// bodies go into blobs; 0: they do not.
func TooLarge(workload string, rec *source.Record, above int) error {
	if (above == 0 || len(rec.Body) <= above) &&
		len(rec.Key)+len(rec.ID)+len(rec.Body) <= SurelyFits { // inBlob says the same, at a price
		return nil
	}
	s := &Segmenter{
		Whole: codec.Header{Workload: workload, Run: pump.RunID{1}}, Trial: codec.NewBuilder(0),
		Counts: make([]uint64, shardmap.MaxSegments),
	}
	if above > 0 {
		s.Bodies = &Bodies{Above: above}
	}
	_, err := s.inBlob(shardmap.MaxSegments-1, math.MaxUint32, rec)
	if bad, ok := errors.AsType[*source.BadInput](err); ok {
		return bad.Err
	}
	return err
}

// Numbered is a task that has its number.
type Numbered struct {
	Segment uint32
	N       uint64
	Task    *source.Record
}

// Again is [Segmenter.Again] of tasks without large bodies. Those of a segment come together, in
// the order of their numbers. The messages are made as the lane would make them.
func (l *Lane) Again(head codec.Header, tasks []Numbered) (made []*Message, err error) {
	p := &Packer{
		Head: head, Most: l.packer.Most, MaxHeld: math.MaxInt, MapVersion: l.packer.MapVersion,
		Writes: l.packer.Writes, Limit: l.packer.Limit, Opened: func(int) {},
		Open: make([]*OpenEnvelope, 1), Stride: math.MaxInt,
		Emit: func(m *Message) error {
			made = append(made, m)
			return nil
		},
	}
	now := time.Now()
	for i, t := range tasks {
		if i > 0 && t.Segment != tasks[i-1].Segment {
			if err := p.sealBefore(math.MaxInt); err != nil {
				return nil, err
			}
		}
		p.receipt = t.Task.Receipt
		err := p.add(t.Segment, codec.Task{
			N: t.N, Key: t.Task.Key, ID: []byte(t.Task.ID), Body: t.Task.Body, Trace: t.Task.Trace,
		}, now)
		if err != nil {
			return nil, err
		}
	}
	return made, p.sealBefore(math.MaxInt)
}
