package codec

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/queuepump/queuepump/internal/proof"
)

// Whichever tasks are traced, each is read with its context and the text keeps its limit.
func TestTraceContextsComeBackWithTheirTasks(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		limit := 400 + r.IntN(8000)
		b := NewBuilder(limit)
		b.Reset(testHeader())
		var taken []Task
		traced := 0
		for n := uint64(0); ; n += 1 + r.Uint64N(2) {
			task := Task{N: n, Key: bytesOf(r, 1, r.IntN(20)), Body: bytesOf(r, r.IntN(3), r.IntN(200))}
			if r.IntN(4) == 0 {
				task.Trace = bytesOf(r, 0, 1+r.IntN(100))
			}
			fits, err := b.Add(task)
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if !fits {
				break
			}
			if task.Trace != nil {
				traced++
			}
			taken = append(taken, task)
		}
		text, h, err := b.Seal(nil)
		if err != nil || len(text) > limit {
			t.Fatalf("seed %d: %d characters of %d, %v", seed, len(text), limit, err)
		}
		proof.Same(t, h.Version, map[bool]uint8{true: 3, false: 2}[traced > 0],
			"seed", seed, "version", traced, "traced")
		e := open(t, text)
		sameTasks(t, e.Tasks, taken)
		e.Release()
	}
}

// Without a traced task an envelope is what it was before there were any, byte for byte; and where
// no reader may meet the newer version, contexts are left out.
func TestAnEnvelopeWithoutContextsIsOfTheVersionBefore(t *testing.T) {
	tasks := jsonTasks(3, 500)
	h := testHeader()
	h.Version = 2
	before := seal(t, h, tasks)
	h.Version = 0
	if got := seal(t, h, tasks); !bytes.Equal(got, before) {
		t.Error("it is another text")
	}
	h.Version = 2
	for i := range tasks {
		tasks[i].Trace = []byte("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	}
	if got := seal(t, h, tasks); !bytes.Equal(got, before) {
		t.Error("contexts are written where no reader may meet them")
	}
}

func TestAContextThatIsTooLongIsRefused(t *testing.T) {
	b := NewBuilder(0)
	b.Reset(testHeader())
	if fits, err := b.Add(Task{Trace: make([]byte, maxTrace+1)}); fits || err == nil {
		t.Errorf("%v %v", fits, err)
	}
	if fits, err := b.Add(Task{Trace: make([]byte, maxTrace)}); !fits || err != nil {
		t.Errorf("afterwards: %v %v", fits, err)
	}
}

// A builder that is full without a context refuses a record with one, so that the caller can leave
// the context out. A task that is not traced loses no room to contexts.
func TestTheLargestTaskGoesBeforeItsContext(t *testing.T) {
	largest := Task{Body: make([]byte, maxRaw-6)} // three lengths: one byte each but the last
	if recordSize(&largest) != maxRaw {
		t.Fatalf("a record of %d bytes", recordSize(&largest))
	}
	b := NewBuilder(0)
	b.Reset(testHeader())
	traced := largest
	traced.Trace = []byte("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	if fits, err := b.Add(traced); fits || !errors.Is(err, ErrTaskTooLarge) {
		t.Errorf("with its context: %v %v", fits, err)
	}
	if fits, err := b.Add(largest); !fits || err != nil {
		t.Errorf("without: %v %v", fits, err)
	}
}

func TestADamagedSectionOfContextsIsCorrupt(t *testing.T) {
	records := []byte{0, 0, 0, 0, 0, 0}
	for name, section := range map[string][]byte{
		"none":                    {},
		"of no task":              {2, 1, 'x'},
		"of the task before":      {1, 1, 'x', 0, 1, 'y'},
		"far beyond":              {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 1, 'x'},
		"not in short form":       {0x80, 0, 1, 'x'},
		"of no length":            {0, 0},
		"longer than there is":    {0, 9, 'x'},
		"longer than one may be":  append([]byte{0, 0x81, 4}, make([]byte, 513)...),
		"a place without context": {0},
	} {
		raw := append(bytes.Clone(records), section...)
		h := testHeader()
		h.Version, h.Tasks, h.RawLen, h.Checksum = 3, MakeNSet(0, 1), uint64(len(raw)), xxhash.Sum64(raw)
		body := packed(t, raw)
		proof.Is(t, proof.ErrOf(Open(framed(h.appendFields(nil), body, len(body)), Limits{})), ErrCorrupt, name)
	}
}

// A section costs each traced task its place, the length and the context. The other tasks cost
// nothing.
func TestWhatContextsCost(t *testing.T) {
	tasks := jsonTasks(4, 100)
	without := open(t, seal(t, testHeader(), tasks))
	for i := 0; i < len(tasks); i += 10 {
		tasks[i].Trace = fmt.Appendf(nil, "%055d", i)
	}
	with := open(t, seal(t, testHeader(), tasks))
	proof.Same(t, with.Header.RawLen-without.Header.RawLen, 10*(55+2), "bytes more")
}
