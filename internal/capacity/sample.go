package capacity

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump/source"
	"github.com/queuepump/queuepump/shardmap"
)

// Sample is what the beginning of an input says about all of it.
type Sample struct {
	Tasks int `json:"tasks"` // read
	// Messages is how many full messages they made; 0: the rest is extrapolated from a message that is
	// not full.
	Messages int `json:"messages"`
	BadLines int `json:"badLines"` // lines that cannot be tasks, which are left out
	// Large is how many of those fit no message, and would have their bodies in blobs.
	Large   int     `json:"large"`
	Whole   bool    `json:"whole"`   // the sample is all of the input
	Body    float64 `json:"body"`    // bytes of a task's body
	PerFull float64 `json:"perFull"` // tasks in a full message
	Text    float64 `json:"text"`    // characters of text a task, as it is sent
	Ratio   float64 `json:"ratio"`   // bytes of keys, ids and bodies to one of text

	// Keys is how many different keys were seen, Hottest the share of the most frequent one if that
	// was seen often enough, and HottestKey the beginning of that key.
	Keys       int     `json:"keys"`
	Hottest    float64 `json:"hottest"`
	HottestKey string  `json:"hottestKey,omitempty"`

	// PackSeconds is the time for reading and packing a task here, OpenSeconds that for opening one.
	PackSeconds float64 `json:"packSeconds"`
	OpenSeconds float64 `json:"openSeconds"`

	held float64 // bytes that an envelope holds while it is packed, when it is full
}

const (
	// DefaultSampleTasks and sampleBytes bound a sample, whichever comes first. A full message has
	// some hundred tasks, so that is some hundred messages.
	DefaultSampleTasks = 200_000
	sampleBytes        = 64 << 20
	// fullPerSegment is the least number of full messages that each segment of a sample should give:
	// messages that are open at the end are left out.
	fullPerSegment = 8
	// hotTimes is how often a key must have been seen before its share counts.
	hotTimes = 30
	// keyShown is how much of a key is shown.
	keyShown = 64
	// maxSampleKeys bounds the memory of counting keys; later keys are not counted.
	maxSampleKeys = 1 << 20
)

// ErrEmptySample says that an input has no task to measure.
var ErrEmptySample = errors.New("the input has no task to measure")

// Measure reads up to so many tasks of a source (0: [DefaultSampleTasks]) and packs them as
// a distributor does, at most pack in a message (0: as many as fit).
func Measure(ctx context.Context, src source.Source, tasks, pack int) (Sample, error) {
	if tasks <= 0 {
		tasks = DefaultSampleTasks
	}
	began := time.Now()
	s, all, err := read(ctx, src, tasks)
	if err != nil {
		return s, err
	}
	reading := time.Since(began)
	began = time.Now()
	texts, err := s.pack(all, s.split(all), pack)
	if err != nil {
		return s, err
	}
	s.PackSeconds = (reading + time.Since(began)).Seconds() / float64(s.Tasks)
	return s, s.open(texts)
}

// records are the tasks of a sample, their bytes one after another.
type records struct {
	bytes []byte
	tasks []record
}

type record struct {
	from, key, id, body int // where it begins, and sizes
	hash                uint64
}

func (r *record) size() int { return r.key + r.id + r.body }

// surelyFits is the size up to which any task fits an empty message.
const surelyFits = 44 << 10

func (r *records) task(i int, n uint64) codec.Task {
	t := r.tasks[i]
	b := r.bytes[t.from:]
	return codec.Task{
		N: n, Key: b[:t.key], ID: b[t.key : t.key+t.id], Body: b[t.key+t.id : t.key+t.id+t.body],
	}
}

// read takes the sample into memory and counts its keys.
func read(ctx context.Context, src source.Source, tasks int) (s Sample, all *records, err error) {
	in, err := src.Open(ctx, nil)
	if err != nil {
		return s, nil, err
	}
	defer func() {
		if e := in.Close(); err == nil && e != nil && s.Whole {
			err = e // it says nothing if the reading stopped in the middle
		}
	}()
	all = &records{}
	keys := map[uint64]int{}
	hottest := -1
	for len(all.tasks) < tasks && len(all.bytes) < sampleBytes {
		r, err := in.Next(ctx)
		if _, bad := errors.AsType[*source.BadInput](err); bad {
			s.BadLines++
			continue
		}
		if errors.Is(err, io.EOF) {
			s.Whole = true
			break
		}
		if err != nil {
			return s, nil, err
		}
		t := record{
			from: len(all.bytes), key: len(r.Key), id: len(r.ID), body: len(r.Body),
			hash: xxhash.Sum64(r.Key),
		}
		all.bytes = append(append(append(all.bytes, r.Key...), r.ID...), r.Body...)
		all.tasks = append(all.tasks, t)
		s.Body += float64(t.body)
		if n, known := keys[t.hash]; known || len(keys) < maxSampleKeys {
			keys[t.hash] = n + 1
			if hottest < 0 || n+1 > keys[all.tasks[hottest].hash] {
				hottest = len(all.tasks) - 1
			}
		}
	}
	s.Tasks, s.Keys = len(all.tasks), len(keys)
	if s.Tasks == 0 {
		return s, nil, ErrEmptySample
	}
	s.Body /= float64(s.Tasks)
	if n := keys[all.tasks[hottest].hash]; n >= hotTimes {
		s.Hottest = float64(n) / float64(s.Tasks)
		key := all.task(hottest, 0).Key
		s.HottestKey = fmt.Sprintf("%.*q", keyShown, key)
	}
	return s, all, nil
}

// split says over how many segments the sample is spread: as many as give each enough full
// messages. It is a power of two, so that more segments only divide those of the sample.
func (s *Sample) split(all *records) int {
	// The text is usually a quarter of what was packed: precise enough for the number of tasks in a
	// message.
	perFull := float64(len(all.tasks)) / float64(len(all.bytes)+1) * 4 * fullText
	segments := 1
	for segments < shardmap.MaxSegments &&
		float64(len(all.tasks)) > 2*float64(segments)*fullPerSegment*perFull {
		segments *= 2
	}
	return segments
}

// sampleEnvelope is the open envelope of a segment of the sample.
type sampleEnvelope struct {
	*codec.Builder
	n uint64 // of its next task
}

// add adds a task, after it has sealed a full message.
func (e *sampleEnvelope) add(
	all *records, i int, seal func(e *sampleEnvelope, full bool) error,
) error {
	for fresh := e.Len() == 0; ; fresh = true {
		fits, err := e.Add(all.task(i, e.n))
		if err != nil {
			return err
		}
		if fits {
			e.n++
			return nil
		}
		if fresh {
			return fmt.Errorf("task %d of the sample does not fit an empty message", i)
		}
		if err := seal(e, true); err != nil {
			return err
		}
		e.Reset(codec.Header{Workload: "plan"})
	}
}

// pack packs the sample, segment by segment, and gives the sums.
func (s *Sample) pack(all *records, segments, most int) (texts [][]byte, err error) {
	envelopes := make([]sampleEnvelope, segments)
	var tasks, raw, text, held, unfinished, unfinishedText float64
	seal := func(e *sampleEnvelope, full bool) error {
		n, size := float64(e.Len()), float64(e.Held())
		out, h, err := e.Seal(nil)
		if err != nil {
			return err
		}
		if full {
			tasks, raw, text, held = tasks+n, raw+float64(h.RawLen), text+float64(len(out)), held+size
			s.Messages++
			texts = append(texts, out)
		} else {
			unfinished, unfinishedText = unfinished+n, unfinishedText+float64(len(out))
			raw += float64(h.RawLen)
			if len(texts) == 0 {
				texts = append(texts, out)
			}
		}
		return nil
	}
	trial := codec.NewBuilder(0)
	for i := range all.tasks {
		// A large one is tried against an empty message first, as a distributor does.
		if all.tasks[i].size() > surelyFits {
			trial.Reset(codec.Header{Workload: "plan"})
			if _, err := trial.Add(all.task(i, 0)); err != nil {
				s.BadLines, s.Large = s.BadLines+1, s.Large+1
				continue
			}
		}
		e := &envelopes[int(all.tasks[i].hash%uint64(segments))]
		if e.Builder == nil {
			e.Builder = codec.NewBuilder(0)
			e.Reset(codec.Header{Workload: "plan"})
		}
		if err := e.add(all, i, seal); err != nil {
			return nil, err
		}
		if most > 0 && e.Len() >= most {
			if err := seal(e, true); err != nil {
				return nil, err
			}
			e.Reset(codec.Header{Workload: "plan"})
		}
	}
	if s.Messages > 0 {
		s.PerFull, s.Text, s.Ratio, s.held = tasks/float64(s.Messages), text/tasks, raw/text,
			held/float64(s.Messages)
		return texts, nil
	}
	for i := range envelopes {
		if e := &envelopes[i]; e.Builder != nil && e.Len() > 0 {
			if err := seal(e, false); err != nil {
				return nil, err
			}
		}
	}
	if unfinished == 0 {
		return nil, ErrEmptySample
	}
	// Nothing is full, so a full message is thought to be as dense as this one.
	s.Text, s.Ratio = unfinishedText/unfinished, raw/unfinishedText
	s.PerFull = fullMessage(s.Text, raw/unfinished, most)
	s.held = fullHeld
	return texts, nil
}

// fullMessage is how many tasks fill a message, of so many characters and bytes each.
func fullMessage(text, raw float64, most int) float64 {
	n := min(fullText/text, maxRaw/max(raw, 1), maxTasks)
	if most > 0 {
		n = min(n, float64(most))
	}
	return max(n, 1)
}

const (
	fullText = 64<<10 - codec.DefaultHeadroom // characters that a message is packed up to
	maxRaw   = 4 << 20                        // bytes of records in it (codec's bounds)
	maxTasks = 1 << 15
	// fullHeld is what a nearly full open envelope holds.
	fullHeld = 60 << 10
)

// open measures how long a task takes to be unpacked.
func (s *Sample) open(texts [][]byte) error {
	began, tasks := time.Now(), 0
	for _, text := range texts {
		e, err := codec.Open(text, codec.Limits{})
		if err != nil {
			return err
		}
		tasks += len(e.Tasks)
		e.Release()
	}
	s.OpenSeconds = time.Since(began).Seconds() / float64(tasks)
	return nil
}

// segments is how many of so many segments have tasks, if few keys come again and again.
func (s *Sample) segments(of int) float64 {
	if s.Keys == 0 || s.Keys*keyRepeats > s.Tasks {
		return float64(of) // most keys of the input have not been seen yet
	}
	return max(1, -math.Expm1(-float64(s.Keys)/float64(of))*float64(of))
}

// keyRepeats is the average number of times that keys must have been seen if all were seen.
const keyRepeats = 10

// Assumed is the sample of an input that is only known by the size of its tasks and by how well
// they compress: the bytes of records to one character of text, base64 included.
func Assumed(taskBytes, ratio float64, pack int) Sample {
	raw := taskBytes + recordOverhead
	text := raw / ratio
	return Sample{
		Body: taskBytes, Text: text, Ratio: ratio, PerFull: fullMessage(text, raw, pack), held: fullHeld,
		PackSeconds: raw * packSecondsPerByte, OpenSeconds: raw * openSecondsPerByte,
	}
}

const (
	// recordOverhead is a short key and the lengths of a record's three strings.
	recordOverhead = 16
	// The time for reading, segmenting and packing a byte, and for unpacking one, without a
	// measurement: 100 MB/s and 200 MB/s, of one core of a machine like that of bench/RESULTS.md.
	packSecondsPerByte = 10e-9
	openSecondsPerByte = 5e-9
)
