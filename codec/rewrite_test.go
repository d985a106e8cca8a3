package codec

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/queuepump/queuepump/internal/proof"
)

func testCause() Cause {
	return Cause{
		Reason: "handler-failed", Detail: "exit status 3: no such city: Übermorgen", Instance: "host-7/4711", Attempts: 5,
		First: time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC), Last: time.Date(2026, 7, 1, 12, 30, 0, 0, time.UTC),
	}
}

func TestAQuarantinedEnvelopeHasItsCauseAndEverythingElseAsBefore(t *testing.T) {
	tasks := jsonTasks(1, 300)
	text := seal(t, testHeader(), tasks)
	before, err := ReadHeader(text)
	must(t, err)
	cause := testCause()
	quarantined, err := Quarantined(text, cause)
	must(t, err)
	e := open(t, quarantined)
	defer e.Release()
	want := before
	want.Cause = &cause
	proof.Same(t, cmp.Diff(want, e.Header), "")
	sameTasks(t, e.Tasks, tasks)

	// A second cause takes the place of the first, and a redrive takes it away.
	other, err := Quarantined(quarantined, Cause{Reason: "killed"})
	must(t, err)
	if h, err := ReadHeader(other); err != nil || *h.Cause != (Cause{Reason: "killed"}) {
		t.Errorf("second cause %+v, %v", h.Cause, err)
	}
	back, err := Restamped(other, before.Attempt, before.Generation, NotNow{})
	if err != nil || !bytes.Equal(back, text) {
		t.Errorf("without the cause the text is another one, %v", err)
	}
}

func TestAnyCauseFitsAFullEnvelope(t *testing.T) {
	b := NewBuilder(0)
	h := testHeader()
	h.Workload = strings.Repeat("w", maxWorkload)
	b.Reset(h)
	fill(t, b, jsonTasks(1, 3000))
	text, _, err := b.Seal(nil)
	must(t, err)
	rapid.Check(t, func(t *rapid.T) {
		c := Cause{
			Reason:   rapid.String().Draw(t, "reason") + strings.Repeat("é", rapid.IntRange(0, 100).Draw(t, "r")),
			Detail:   rapid.String().Draw(t, "detail") + strings.Repeat("日本", rapid.IntRange(0, 5000).Draw(t, "d")),
			Instance: rapid.String().Draw(t, "instance") + strings.Repeat("ø", rapid.IntRange(0, 100).Draw(t, "i")) + rapid.SampledFrom([]string{"", "\xff"}).Draw(t, "broken"),
			Attempts: rapid.Uint32().Draw(t, "attempts"),
			First:    drawTime(t, "first"),
			Last:     drawTime(t, "last"),
		}
		q, err := Quarantined(text, c)
		if err != nil || len(q) > maxText {
			t.Fatalf("%d characters, %v", len(q), err)
		}
		h, err := ReadHeader(q)
		must(t, err)
		for _, s := range []struct{ got, was string }{{h.Cause.Reason, c.Reason}, {h.Cause.Detail, c.Detail}, {h.Cause.Instance, c.Instance}} {
			was := strings.ToValidUTF8(s.was, "\uFFFD")
			if !utf8.ValidString(s.got) || !strings.HasPrefix(was, s.got) {
				t.Fatalf("%q became %q", s.was, s.got)
			}
		}
		// The detail gets what room there is.
		if h.Cause.Detail != c.Detail && len(h.Cause.Detail) < maxDetail-3 && len(q) < maxText-12 {
			t.Fatalf("detail cut to %d bytes in %d characters", len(h.Cause.Detail), len(q))
		}
	})
}

func TestACauseWithoutHeadroomIsCutOrRefused(t *testing.T) {
	fits, refused := 0, 0
	for headroom := range 200 {
		b := NewBuilder(maxText - headroom)
		b.Reset(testHeader())
		r := rand.New(rand.NewPCG(uint64(headroom), 0))
		for n := uint64(0); ; n++ {
			ok, err := b.Add(Task{N: n, Body: bytesOf(r, 0, 20)})
			must(t, err)
			if !ok {
				break
			}
		}
		text, _, err := b.Seal(nil)
		must(t, err)
		q, err := Quarantined(text, testCause())
		switch {
		case err == nil && len(q) <= maxText:
			fits++
			open(t, q).Release()
		case errors.Is(err, ErrTooLarge):
			refused++
			// Nor would it have fitted without the detail.
			c := testCause()
			c.Detail = ""
			proof.Is(t, proof.ErrOf(Quarantined(text, c)), ErrTooLarge,
				"headroom", headroom, "refused, but without a detail")
			if _, err := Restamped(text, math.MaxUint32, math.MaxUint32, NotNow{}); len(text) > maxText-4 && !errors.Is(err, ErrTooLarge) {
				t.Errorf("headroom %d: restamped to %v", headroom, err)
			}
		default:
			t.Errorf("headroom %d: %d characters, %v", headroom, len(q), err)
		}
	}
	if fits == 0 || refused == 0 {
		t.Errorf("%d fit, %d did not", fits, refused)
	}
}

func TestADamagedEnvelopeIsQuarantinedAsItIs(t *testing.T) {
	text := seal(t, testHeader(), jsonTasks(1, 100))
	head := bytes.Index(text, text[signatureTxt:]) // anywhere behind the signature
	for name, damaged := range map[string][]byte{
		"truncated": text[:len(text)-101],
		"corrupt":   append(bytes.Clone(text[:len(text)-101]), bytes.Repeat([]byte{'%'}, 101)...),
	} {
		q, err := Quarantined(damaged, testCause())
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if h, err := ReadHeader(q); err != nil || h.Cause.Reason != testCause().Reason {
			t.Errorf("%s: %+v, %v", name, h, err)
		}
		if tail := damaged[len(damaged)-500:]; !bytes.HasSuffix(q, tail) {
			t.Errorf("%s: what stands behind the header changed", name)
		}
	}
	noHeader := bytes.Clone(text)
	noHeader[head+20] ^= 1
	proof.Is(t, proof.ErrOf(Quarantined(noHeader, testCause())), ErrCorrupt, "header damaged")
	proof.Is(t, proof.ErrOf(Quarantined([]byte("hello"), testCause())), ErrForeign, "foreign")
	proof.Is(t, proof.ErrOf(Restamped([]byte("hello"), 1, 1, NotNow{})), ErrForeign, "foreign")
}

func TestRestampingChangesAttemptAndGenerationOnly(t *testing.T) {
	tasks := jsonTasks(1, 300)
	text := seal(t, testHeader(), tasks)
	for _, n := range []uint32{0, 1, 127, 128, math.MaxUint32} {
		again, err := Restamped(text, n, n/2, NotNow{})
		must(t, err)
		e := open(t, again)
		want, err := ReadHeader(text)
		must(t, err)
		want.Attempt, want.Generation = n, n/2
		proof.Same(t, cmp.Diff(want, e.Header), "")
		sameTasks(t, e.Tasks, tasks)
		e.Release()
	}
}

// What is known of "not now" goes with the tasks: into a text that is written over and into parts.
func TestWhatIsKnownOfNotNowStaysInTheHeader(t *testing.T) {
	told := NotNow{First: time.Date(2026, 7, 1, 12, 0, 0, 5e6, time.UTC), Deliveries: 300, Here: 7}
	for name, tasks := range map[string][]Task{"plain": jsonTasks(1, 300), "traced": tracedTasks()} {
		text := seal(t, testHeader(), tasks)
		again, err := Restamped(text, 1, 2, told)
		must(t, err)
		e := open(t, again)
		if e.Header.NotNow != told || e.Header.Version != NotNowSince || e.Header.Attempt != 1 {
			t.Errorf("%s: written over it says %+v", name, e.Header)
		}
		sameTasks(t, e.Tasks, tasks)
		h := e.Header
		part := open(t, seal(t, h, tasks[:2]))
		proof.Same(t, part.Header.NotNow, told, name)
		proof.Same(t, part.Header.Version, NotNowSince, name)
		sameTasks(t, part.Tasks, tasks[:2])
		h.Version = NotNowSince - 1
		if old := open(t, seal(t, h, tasks)); old.Header.NotNow != (NotNow{}) || old.Header.Version >= NotNowSince {
			t.Errorf("%s: as an older version it says %+v", name, old.Header)
		}
		if back, err := Restamped(again, 1, 2, NotNow{}); err != nil || bytes.Equal(back, again) {
			t.Errorf("%s: without it the text is the same, %v", name, err)
		} else if _, err = Open(back, Limits{}); err != nil {
			t.Errorf("%s: without it the text is damaged: %v", name, err)
		}
	}
}
