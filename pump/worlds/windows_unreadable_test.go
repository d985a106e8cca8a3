package worlds

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"testing"
	"time"

	"github.com/queuepump/queuepump/codec"
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
			testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
				bad := c.damage(t, w.Envelope(3, 50))
				id := w.PutText("accounta", "work-00", bytes.Clone(bad))
				w.Put("accounta", "work-00", 3, 5)
				h := &testworld.Seen{}
				s := testworld.Ran(w, processor.New, "p", h, processor.Options{UntilIdle: 2 * time.Minute})
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
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
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
		s := testworld.Ran(w, processor.New, "p", h, processor.Options{UntilIdle: 2 * time.Minute})
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

// putCRC writes the checksum that ends an envelope's header.
func putCRC(head []byte) {
	n := len(head) - 4
	binary.LittleEndian.PutUint32(head[n:], crc32.ChecksumIEEE(head[:n]))
}
