package scenario

import (
	"runtime/metrics"
	"time"

	"github.com/queuepump/queuepump/loadtest/report"
)

// series is what happened in each interval and phase. It belongs to the goroutine
// that conducts the test.
type series struct {
	record *recorder
	meters []*meter
	out    report.Series
	peaks  []float64 // of each account, in units a second
	top    float64   // the most memory

	tickAt, phaseAt     time.Duration
	tickMark, phaseMark mark
	beginning           mark
}

// mark is what everything had counted at one moment.
type mark struct {
	sent, handled int64
	accounts      []counts
}

func newSeries(r *recorder, meters []*meter, interval time.Duration) *series {
	s := &series{record: r, meters: meters, peaks: make([]float64, len(meters))}
	s.out.Interval = interval.Seconds()
	for _, m := range meters {
		s.out.AccountUnits = append(s.out.AccountUnits, report.Line{Name: m.name})
	}
	m := s.mark()
	s.tickMark, s.phaseMark, s.beginning = m, m, m
	return s
}

func (s *series) mark() mark {
	m := mark{sent: s.record.sent.Load()}
	s.record.mu.Lock()
	m.handled = s.record.handled
	s.record.mu.Unlock()
	for _, a := range s.meters {
		m.accounts = append(m.accounts, a.read())
	}
	return m
}

// since is what all accounts counted from one mark to another.
func (m mark) since(before mark) (sum counts) {
	for i := range m.accounts {
		sum = sum.plus(m.accounts[i].minus(before.accounts[i]))
	}
	return sum
}

// tick ends an interval.
func (s *series) tick(now time.Duration) {
	seconds := max((now - s.tickAt).Seconds(), 1e-6)
	m := s.mark()
	all := m.since(s.tickMark)
	per := func(n int64) float64 { return float64(n) / seconds }
	o := &s.out
	o.Sent = append(o.Sent, per(m.sent-s.tickMark.sent))
	o.Handled = append(o.Handled, per(m.handled-s.tickMark.handled))
	o.Put = append(o.Put, per(all.puts))
	o.Taken = append(o.Taken, per(all.taken))
	o.Throttled = append(o.Throttled, per(all.throttled))
	o.Failed = append(o.Failed, per(all.failed))
	for i := range s.meters {
		units := per(m.accounts[i].minus(s.tickMark.accounts[i]).units)
		o.AccountUnits[i].Values = append(o.AccountUnits[i].Values, units)
		s.peaks[i] = max(s.peaks[i], units)
	}
	heap := memory()
	o.MemoryBytes = append(o.MemoryBytes, heap)
	s.top = max(s.top, heap)
	s.record.mu.Lock()
	schedule, send := latency(s.record.interval.schedule), latency(s.record.interval.send)
	s.record.interval.reset()
	s.record.mu.Unlock()
	o.ScheduleP50 = append(o.ScheduleP50, schedule.P50)
	o.ScheduleP99 = append(o.ScheduleP99, schedule.P99)
	o.SendP50 = append(o.SendP50, send.P50)
	o.SendP99 = append(o.SendP99, send.P99)
	s.tickAt, s.tickMark = now, m
}

// finish ends a phase.
func (s *series) finish(ph *phase, now time.Duration) report.Phase {
	seconds := max((now - s.phaseAt).Seconds(), 1e-6)
	m := s.mark()
	all := m.since(s.phaseMark)
	per := func(n int64) float64 { return float64(n) / seconds }
	out := report.Phase{
		Name: ph.name, From: s.phaseAt.Seconds(), To: now.Seconds(), Processors: ph.processors,
		Accounts: ph.accounts, Sent: per(m.sent - s.phaseMark.sent),
		Handled: per(m.handled - s.phaseMark.handled), Put: per(all.puts), Taken: per(all.taken),
		Requests: all.requests, Throttled: all.throttled, Failed: all.failed,
	}
	if ph.rate != asTaken {
		out.Offered = new(ph.rate + float64(ph.burst)/seconds)
	}
	if limit := limitOf(s.meters[:ph.accounts]); limit > 0 {
		out.Use = per(all.units) / limit
	}
	r := s.record
	r.mu.Lock()
	out.FromSchedule, out.FromSend = latency(r.phase.schedule), latency(r.phase.send)
	r.phase.reset()
	r.mu.Unlock()
	s.phaseAt, s.phaseMark = now, m
	return out
}

// limitOf is what accounts give together, in units a second; 0: not known.
func limitOf(meters []*meter) (sum float64) {
	for _, m := range meters {
		if m.limit <= 0 {
			return 0
		}
		sum += m.limit
	}
	return sum
}

// memory is the heap in use.
func memory() float64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return float64(sample[0].Value.Uint64())
}
