package processor

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump/processor/internal/message"
)

func TestLatencyBelievesNoClockAgainstTheService(t *testing.T) {
	sent := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	const age = 5 * time.Second // of whole seconds: in truth 4 s to 6 s
	for _, c := range []struct {
		name   string
		sealed time.Time
		want   time.Duration // how long before sent
		exact  bool
	}{
		{"right", sent.Add(-4400 * time.Millisecond), 4400 * time.Millisecond, true},
		{"waited for its put", sent.Add(-time.Minute), time.Minute, true},
		{"ahead by a minute", sent.Add(time.Minute), 4 * time.Second, true},
		{"not known", time.Time{}, age, false},
	} {
		d := &message.Delivery{Header: codec.Header{Sealed: c.sealed}}
		if at, exact := d.Readiness(sent, age); sent.Sub(at) != c.want || exact != c.exact {
			t.Errorf("%s: %v before, exact %v, want %v and %v", c.name, sent.Sub(at), exact, c.want, c.exact)
		}
	}
}

func TestLatencyOfLateForgetsWhatIsTwoMinutesOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l latencies
		for minute := range 5 {
			l.add(minute, 10, time.Duration(minute+1)*time.Second, time.Now())
			lately, all := l.lately(), l.total()
			if all.Tasks != int64(minute+1)*10 || lately.Tasks > 20 || lately.Tasks < 10 || lately.Max < float64(minute+1) {
				t.Errorf("minute %d: of late %+v, in all %+v", minute, lately, all)
			}
			time.Sleep(time.Minute)
		}
		l.add(1, 1, 30*24*time.Hour, time.Now())
		l.add(1, 1, -time.Hour, time.Now())
		if all := l.total(); all.Tasks != 52 || all.Max < latencyMost.Seconds() || all.Max > 1.01*latencyMost.Seconds() {
			t.Errorf("with a month and less than nothing: %+v", all)
		}
	})
}
