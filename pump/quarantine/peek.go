package quarantine

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/jsonline"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/failure"
	"github.com/queuepump/queuepump/pump/internal/queues"
	"github.com/queuepump/queuepump/pump/internal/setup"
	"github.com/queuepump/queuepump/pump/internal/workload"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/shardmap"
)

// PeekFilter says which messages, and which of their tasks, are meant: those that match every field
// that is set. The zero filter means all.
type PeekFilter struct {
	Key     []byte // nil: any
	Segment *uint32
	Run     pump.RunID
	// Foreign means only texts that no distributor made, or that cannot be unpacked.
	Foreign bool
	// Queue means only this one, as account/queue.
	Queue string
}

// PeekedQueue is what was seen of one queue.
type PeekedQueue struct {
	Account string `json:"account"`
	Queue   string `json:"queue"`
	// Messages is the service's count, hidden ones included; it is approximate. A message that
	// came between the count and the look is counted as seen.
	Messages int64 `json:"messages"`
	Seen     int   `json:"seen"`
	// Unseen are the others: behind the first 32, or hidden.
	Unseen int64 `json:"unseen"`
	// Dark is why the queue could not be looked at.
	Dark string `json:"dark"`
	// Shown are those of the seen messages that the filter means, as the service orders them.
	Shown []*Peeked `json:"shown"`
}

// Peeked is a message that waits, as far as it can be read. Everything in it comes from outside:
// it is not fit to be printed as it is.
type Peeked struct {
	ID       string    `json:"id"`
	Put      time.Time `json:"put"` // by the service's clock
	Dequeued int64     `json:"dequeued"`
	Bytes    int       `json:"bytes"` // of its text
	// Foreign: no distributor made it. Then only Segment and Contents of the fields below are known.
	Foreign    bool    `json:"foreign"`
	Run        string  `json:"run,omitempty"` // empty too where an owner has packed a foreign text
	Segment    *uint32 `json:"segment,omitempty"`
	Attempt    uint32  `json:"attempt"`
	Generation uint32  `json:"generation"`
	MapVersion uint64  `json:"mapVersion"`
	Format     uint8   `json:"format"`
	// Tasks is how many there are, Matching how many of them the filter means.
	Tasks    int `json:"tasks"`
	Matching int `json:"matching"`
	// Problem is why it cannot be unpacked; empty if it can.
	Problem string `json:"problem,omitempty"`

	// Contents are the tasks that the filter chooses. A foreign text has one: what a processor with
	// this configuration would make of it.
	Contents []PeekedTask `json:"-"`
	// Text is the message as it is.
	Text []byte `json:"-"`
}

// PeekedTask is a task of a message.
type PeekedTask struct {
	N    uint64
	Key  []byte
	ID   string
	Body []byte
}

// PeekedSum is what all queues came to.
type PeekedSum struct {
	Queues, Dark   int
	Messages       int64
	Seen, Matching int
	Unseen         int64
}

const (
	// timeout is how long a request may take, once it is paid for.
	timeout = 5 * time.Second
	// ahead is how many queues are looked at before they are visited: a full one takes 2 MiB.
	ahead = 2 * queues.AtOnce
)

// Peek looks at all queues of the workload's map, with one request for the count and, if a queue
// has messages, one for those. It calls visit for each queue in the order of their names, until
// visit returns false. A queue that does not answer is dark, and the account's others are not
// asked. The error says what keeps all from being read: pump.ErrNoWorkload without a workload.
func Peek(
	ctx context.Context,
	cfg pump.Config,
	f PeekFilter,
	visit func(*PeekedQueue) (more bool),
) (PeekedSum, error) {
	o, err := setup.Open(ctx, cfg)
	if err != nil && !errors.Is(err, workload.ErrDeleting) {
		return PeekedSum{}, err
	}
	shards := slices.Clone(o.Workload.Map.Shards)
	slices.SortFunc(shards, func(a, b shardmap.Shard) int {
		return cmp.Or(strings.Compare(a.Account, b.Account), strings.Compare(a.Queue, b.Queue))
	})
	if f.Queue != "" {
		shards = slices.DeleteFunc(shards,
			func(s shardmap.Shard) bool { return s.Account+"/"+s.Queue != f.Queue })
		if len(shards) == 0 {
			return PeekedSum{}, pump.Invalid("queue", "no queue of the workload is "+f.Queue,
				"write it as ACCOUNT/QUEUE, as distributor status --json has them")
		}
	}
	texts := jsonline.NewForeign(o.Cfg.ForeignEncoding, o.Workload.ForeignKey)
	r := reader{o: o, filter: f, texts: texts, dark: map[string]string{}}
	var sum PeekedSum
	for part := range slices.Chunk(shards, ahead) {
		for _, q := range r.look(ctx, part) {
			sum.add(q)
			if !visit(q) {
				return sum, nil
			}
		}
		if ctx.Err() != nil {
			return sum, context.Cause(ctx)
		}
	}
	return sum, nil
}

func (s *PeekedSum) add(q *PeekedQueue) {
	s.Queues++
	if q.Dark != "" {
		s.Dark++
	}
	s.Messages += q.Messages
	s.Seen += q.Seen
	s.Unseen += q.Unseen
	s.Matching += len(q.Shown)
}

// reader is one Read.
type reader struct {
	o      *setup.Session
	filter PeekFilter
	texts  *jsonline.ForeignReader
	dark   map[string]string // accounts that do not answer, and why
}

func (r *reader) look(ctx context.Context, part []shardmap.Shard) []*PeekedQueue {
	found := make([]*PeekedQueue, len(part))
	lost := make([]error, len(part))
	_ = queues.Each(ctx, part, func(ctx context.Context, i int, s shardmap.Shard) error {
		found[i] = &PeekedQueue{Account: s.Account, Queue: s.Queue, Shown: []*Peeked{}}
		if found[i].Dark = r.dark[s.Account]; found[i].Dark == "" {
			lost[i] = r.read(ctx, found[i])
		}
		return nil
	})
	for i, err := range lost {
		if err == nil {
			continue
		}
		found[i].Dark = err.Error()
		if failure.Whole(err) {
			r.dark[part[i].Account] = queues.ErrNotAsked.Error()
		}
	}
	return found
}

func (r *reader) read(ctx context.Context, q *PeekedQueue) error {
	queue, err := r.o.Queues.Queue(q.Account, q.Queue)
	if err != nil {
		return err
	}
	if q.Messages, err = queue.Count(ctx, timeout); err != nil || q.Messages == 0 {
		return err // a count of zero is proof
	}
	seen, err := queue.Peek(ctx, timeout, storage.MaxGet)
	if err != nil {
		q.Unseen = q.Messages
		return err
	}
	q.Seen = len(seen)
	q.Messages = max(q.Messages, int64(len(seen)))
	q.Unseen = q.Messages - int64(len(seen))
	for i := range seen {
		if m := r.decode(&seen[i]); m.Matching > 0 {
			q.Shown = append(q.Shown, m)
		}
	}
	return nil
}

// decode reads a message, and says how many of its tasks the filter means.
func (r *reader) decode(s *storage.Message) *Peeked {
	f := &r.filter
	m := &Peeked{
		ID:       s.ID,
		Put:      s.Inserted.UTC(),
		Dequeued: s.Dequeued,
		Bytes:    len(s.Text),
		Text:     s.Text,
		Tasks:    1,
	}
	env, err := codec.Open(s.Text, codec.Limits{})
	if errors.Is(err, codec.ErrForeign) {
		m.Foreign = true
		key, body := r.texts.Read(s.Text)
		m.Segment = new(jsonline.ForeignSegment(s.Text, key, r.o.Workload.Map.Segments))
		if f.Run.IsZero() && (f.Key == nil || string(key) == string(f.Key)) && f.in(*m.Segment) {
			m.Matching, m.Contents = 1, []PeekedTask{{Key: key, Body: slices.Clone(body)}}
		}
		return m
	}
	h, headerErr := codec.ReadHeader(s.Text)
	if headerErr == nil {
		m.Segment, m.Tasks = &h.Segment, h.Tasks.Len()
		if !h.Run.IsZero() {
			m.Run = h.Run.String()
		}
		m.Attempt, m.Generation, m.MapVersion, m.Format = h.Attempt, h.Generation, h.MapVersion, h.Version
	}
	if err != nil {
		m.Problem = err.Error()
		if headerErr != nil && f.Run.IsZero() && f.Segment == nil && f.Key == nil ||
			headerErr == nil && f.Key == nil && f.means(&h) {
			m.Matching = m.Tasks
		}
		return m
	}
	defer env.Release()
	if f.Foreign || !f.means(&h) {
		return m
	}
	for _, t := range env.Tasks {
		key := shardmap.KeyOf(t.Key, t.Body, h.Segment, r.o.Workload.Map.Segments)
		if f.Key == nil || string(key) == string(f.Key) {
			m.Contents = append(
				m.Contents,
				PeekedTask{N: t.N, Key: slices.Clone(key), ID: string(t.ID), Body: slices.Clone(t.Body)},
			)
		}
	}
	m.Matching = len(m.Contents)
	return m
}

func (f *PeekFilter) means(h *codec.Header) bool {
	return (f.Run.IsZero() || h.Run == f.Run) && f.in(h.Segment)
}

func (f *PeekFilter) in(segment uint32) bool { return f.Segment == nil || *f.Segment == segment }
