package worlds

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/processor"
)

// edited changes the bytes of an envelope's gzip file.
func edited(t *testing.T, text []byte, edit func(b []byte) []byte) []byte {
	t.Helper()
	b, err := base64.StdEncoding.DecodeString(string(text))
	must(t, err)
	return []byte(base64.StdEncoding.EncodeToString(edit(b)))
}

func TestWhatCannotBeReadIsQuarantinedWithItsCause(t *testing.T) {
	for _, c := range []struct {
		name, reason string
		damage       func(t *testing.T, text []byte) []byte
	}{
		{"truncated", codec.ReasonTruncated, func(_ *testing.T, text []byte) []byte { return text[:len(text)-40] }},
		{"cut in its header", codec.ReasonTruncated, func(_ *testing.T, text []byte) []byte { return text[:60] }},
		{"a flipped bit in the tasks", codec.ReasonCorrupt, func(t *testing.T, text []byte) []byte {
			return edited(t, text, func(b []byte) []byte { b[len(b)-30] ^= 4; return b })
		}},
		{"a flipped bit in its header", codec.ReasonCorrupt, func(t *testing.T, text []byte) []byte {
			return edited(t, text, func(b []byte) []byte { b[40] ^= 4; return b })
		}},
		{"no base64 in the middle", codec.ReasonCorrupt, func(_ *testing.T, text []byte) []byte {
			text[len(text)-21] = '!'
			return text
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
				bad := c.damage(t, w.Envelope(3, 50))
				id := w.PutText("accounta", "work-00", bytes.Clone(bad))
				w.Put("accounta", "work-00", 3, 5)
				h := &testworld.Seen{}
				s := w.drain(h, processor.Options{})
				h.Expect(t, 15, 15)
				if s.Quarantined == 0 || w.Left() != 0 || s.Failed != 0 {
					t.Errorf("%d left, %+v", w.Left(), s)
				}
				texts := w.Poisoned("accounta")
				if len(texts) != 1 {
					t.Fatalf("%d messages in quarantine", len(texts))
				}
				windowHit(t, len(texts))
				if head, err := codec.ReadHeader(texts[0]); err == nil {
					if head.Cause == nil || head.Cause.Reason != c.reason || head.Cause.Detail == "" || head.Cause.Attempts != 0 {
						t.Errorf("cause %+v", head.Cause)
					}
					return
				}
				// No header that could hold a cause: the text is as it was, and the
				// cause stands in a row.
				if !bytes.Equal(texts[0], bad) {
					t.Errorf("the text was changed: %q", texts[0])
				}
				table := w.Cfg.Accounts[0].Storage.Table(row.TableName)
				row, err := table.Read(t.Context(), "work.quarantine", "accounta.work-00."+id)
				must(t, err)
				if row.Properties["Reason"] != c.reason || row.Properties["Instance"] != "p" {
					t.Errorf("row %v", row.Properties)
				}
			})
		})
	}
}

func TestABombIsQuarantinedAndNotUnpacked(t *testing.T) {
	inWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
		tasks := make([]codec.Task, 30) // 3 MB of one letter
		for n := range tasks {
			tasks[n] = codec.Task{N: uint64(n), Body: bytes.Repeat([]byte("a"), 100_000)}
		}
		large := w.Sealed(codec.Header{Workload: "work", Run: w.Run, Segment: 1}, tasks...)
		// A valid header that declares one small task, and that body behind it.
		packed, err := base64.StdEncoding.DecodeString(string(large))
		must(t, err)
		body := packed[headLen(packed):]
		bomb := edited(t, w.Envelope(1, 1), func(b []byte) []byte {
			head := b[:headLen(b)]
			binary.LittleEndian.PutUint32(head[22:], uint32(len(body)))
			putCRC(head)
			return append(head, body...)
		})
		w.PutText("accounta", "work-00", bomb)
		h := &testworld.Seen{}
		s := w.drain(h, processor.Options{})
		if _, cause := w.Cause("accounta"); cause.Reason != codec.ReasonBomb {
			t.Errorf("cause %+v", cause)
		}
		if h.Tasks() != 0 || s.Quarantined != 1 || w.Left() != 0 {
			t.Errorf("%d tasks handled, %d left, %+v", h.Tasks(), w.Left(), s)
		}
		windowHit(t, len(w.Poisoned("accounta")))
	})
}

// headLen is the size of the header of an envelope's gzip file.
func headLen(b []byte) int { return 12 + int(b[10]) + int(b[11])<<8 }

// newer makes an envelope of a later version: its header and checksum are
// intact, its fields are of no meaning to this reader.
func newer(t *testing.T, text []byte) []byte {
	return edited(t, text, func(b []byte) []byte {
		b[21] = codec.Version + 1
		putCRC(b[:headLen(b)])
		return b
	})
}

func TestAnEnvelopeOfANewerVersionWaitsWithAnAlarmAndIsNeverQuarantined(t *testing.T) {
	proof.Only(t)
	inWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
		text := newer(t, w.Envelope(2, 5))
		if _, err := codec.ReadHeader(text); err == nil || !strings.Contains(err.Error(), "newer") {
			t.Fatalf("the test's envelope reads as %v", err)
		}
		w.PutText("accounta", "work-00", text)
		h := &testworld.Seen{}
		p := w.start(w.processor(h, processor.Options{}))
		time.Sleep(6 * time.Hour)
		s := p.End()
		if s.Quarantined != 0 || w.Left() != 1 || h.Tasks() != 0 || len(w.Poisoned("accounta")) != 0 {
			t.Errorf("%d left, %+v", w.Left(), s)
		}
		if n := s.Envelopes; n < 250 || n > 500 {
			t.Errorf("delivered %d times in 6 h, want about once a minute", n)
		}
		if w.Logged("must be upgraded") == 0 {
			t.Error("no alarm")
		}
	})
}

func TestAMessageOfAnotherWorkloadIsQuarantined(t *testing.T) {
	inWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
		w.PutText("accounta", "work-00", w.Sealed(codec.Header{Workload: "other", Run: w.Run, Segment: 1}, codec.Task{Body: []byte("x")}))
		w.drain(&testworld.Seen{}, processor.Options{})
		if _, cause := w.Cause("accounta"); cause.Reason != codec.ReasonOtherWorkload {
			t.Errorf("%+v", cause)
		}
	})
}

func TestP13ARunWithoutARowIsQuarantined(t *testing.T) {
	inWorld(t, 1, 1, nil, func(t *testing.T, w *world) {
		known := w.Run
		w.Run = codec.NewRunID()
		w.Put("accounta", "work-00", 1, 7)
		w.Run = known
		w.Put("accounta", "work-00", 1, 5)
		h := &testworld.Seen{}
		s := w.drain(h, processor.Options{})
		h.Expect(t, 5, 5)
		head, cause := w.Cause("accounta")
		if cause.Reason != codec.ReasonUnknownRun || head.Tasks.Len() != 7 || s.Quarantined != 7 {
			t.Errorf("%+v, %+v", cause, s)
		}
	})
}

func TestP13ARunRowIsReadOnceAndAgainWhenItIsOld(t *testing.T) {
	inWorld(t, 1, 2, nil, func(t *testing.T, w *world) {
		reads := func() int {
			return int(w.Sim.Stats().Count("", "GetEntity")) // the cluster is read by queries
		}
		tasks := w.Spread(20, 2)
		before := reads()
		h := &testworld.Seen{}
		p := w.start(w.processor(h, processor.Options{}))
		time.Sleep(10 * time.Second)
		h.Expect(t, tasks, tasks)
		if n := reads() - before; n != 3 { // the workload's row, whether there is a muster, and the run's row
			t.Errorf("%d reads of the table for 40 messages of one run", n)
		}
		time.Sleep(runKnownFor)
		w.Spread(1, 1)
		time.Sleep(10 * time.Second)
		// One of the run's row, and one of the clock, for the rows that may go by their age.
		if n := reads() - before; n != 5 {
			t.Errorf("%d reads of the table after %v", n, runKnownFor)
		}
		p.End()
	})
}

func TestP56ADarkControlPlaneStopsNothing(t *testing.T) {
	for _, fault := range []azsim.FaultKind{azsim.FailBefore, azsim.HangBefore} {
		t.Run(string(fault), func(t *testing.T) {
			inWorld(t, 2, 2, nil, func(t *testing.T, w *world) {
				h := &testworld.Seen{}
				p := w.start(w.processor(h, processor.Options{}))
				time.Sleep(time.Second)
				dark := w.Sim.Inject(azsim.Rule{Service: "table", Fault: fault})
				tasks := w.Spread(10, 3)
				time.Sleep(20 * time.Second)
				h.Expect(t, tasks, tasks)
				if dark.Hits() == 0 || w.Left() != 0 {
					t.Errorf("%v, %d left", dark, w.Left())
				}
				p.End()
			})
		})
	}
}

// putCRC writes the checksum that ends an envelope's header.
func putCRC(head []byte) {
	n := len(head) - 4
	binary.LittleEndian.PutUint32(head[n:], crc32.ChecksumIEEE(head[:n]))
}
