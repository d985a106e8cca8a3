package report

import "math"

// charts are all that is to be seen of a result.
func (r *Result) charts() []*chart {
	return []*chart{
		r.rates(), r.units(), r.latencies(), r.curveChart(), r.use(), r.refusals(), r.memory(),
	}
}

// moments are when something was done.
func (r *Result) moments() (at []float64) {
	for _, e := range r.Events {
		at = append(at, e.At)
	}
	return at
}

// ends are the ends of the intervals, in seconds.
func (s *Series) ends() []float64 {
	xs := make([]float64, len(s.Sent))
	for i := range xs {
		xs[i] = float64(i+1) * s.Interval
	}
	return xs
}

func known(values []float64) []*float64 {
	ys := make([]*float64, len(values))
	for i := range values {
		ys[i] = &values[i]
	}
	return ys
}

// steps gives a value of each phase as a line with steps.
func (r *Result) steps(name string, value func(*Phase) *float64) trace {
	c := trace{Name: name, Dashed: true}
	for i := range r.Phases {
		p := &r.Phases[i]
		v := value(p)
		c.X = append(c.X, p.From, p.To)
		c.Y = append(c.Y, v, v)
	}
	return c
}

func (r *Result) rates() *chart {
	s := &r.Series
	return &chart{
		Title: "Throughput", X: "seconds", Y: "tasks/s", Events: r.moments(),
		Text: "Tasks that the distributor took and tasks whose handling began. " +
			"Dashed: what was due by the schedule, bursts spread over their phase; " +
			"nothing where as many were offered as were taken.",
		Lines: []trace{
			{Name: "handled", X: s.ends(), Y: known(s.Handled)},
			{Name: "sent", X: s.ends(), Y: known(s.Sent)},
			r.steps("due", func(p *Phase) *float64 { return p.Offered }),
		},
	}
}

func (r *Result) units() *chart {
	s := &r.Series
	total := make([]float64, len(s.Sent))
	for _, l := range s.AccountUnits {
		for i, v := range l.Values {
			total[i] += v
		}
	}
	c := &chart{
		Title: "Against the limits", X: "seconds", Y: "units/s", Events: r.moments(),
		Text: "What was asked of the queues of all accounts together: " +
			"a put, a delete and a renewal are a unit each, " +
			"a get is one for each message or, if the test was told so, one. " +
			"Dashed: what the accounts that are in use give.",
		Lines: []trace{{Name: "spent", X: s.ends(), Y: known(total)}},
	}
	if r.Capacity() > 0 {
		c.Lines = append(c.Lines, r.steps("limit", func(p *Phase) *float64 {
			var sum float64
			for _, a := range r.Accounts[:min(p.Accounts, len(r.Accounts))] {
				sum += a.Limit
			}
			return &sum
		}))
	}
	return c
}

func (r *Result) latencies() *chart {
	s := &r.Series
	return &chart{
		Title: "Time until a task's handling began", X: "seconds", Y: "",
		Times: true, Events: r.moments(),
		Text: "From schedule: since the task was due, " +
			"so that it includes the time in which no distributor took it; " +
			"nothing where as many were offered as were taken. " +
			"From send: since the distributor took it. " +
			"Of each interval, the time within which half or 99 % of its tasks began.",
		Lines: []trace{
			{Name: "p50 from schedule", X: s.ends(), Y: s.ScheduleP50},
			{Name: "p99 from schedule", X: s.ends(), Y: s.ScheduleP99},
			{Name: "p50 from send", X: s.ends(), Y: s.SendP50, Dashed: true},
			{Name: "p99 from send", X: s.ends(), Y: s.SendP99, Dashed: true},
		},
	}
}

func (r *Result) curveChart() *chart {
	if r.Curve == nil {
		return nil
	}
	var value, limit trace
	value.Name, value.Points = "measured", true
	limit.Name, limit.Dashed = "limit: "+r.Curve.Limit, true
	for i := range r.Curve.Points {
		p := &r.Curve.Points[i]
		value.X, value.Y = append(value.X, p.X), append(value.Y, &p.Value)
		limit.X, limit.Y = append(limit.X, p.X), append(limit.Y, p.Limit)
	}
	return &chart{
		Title: "By " + r.Curve.Of, X: r.Curve.Of, Y: r.Curve.Unit,
		Lines: []trace{value, limit},
		Text:  "What was handled, by how much there was. Dashed: " + r.Curve.Limit + ".",
	}
}

// ownLines is how many accounts have a line of their own: more cannot be told apart.
const ownLines = 8

func (r *Result) use() *chart {
	s := &r.Series
	c := &chart{
		Title: "Use of each account", X: "seconds", Y: "% of its limit", Events: r.moments(),
		Text: "What was spent of what each account gives.",
	}
	limits := map[string]float64{}
	for _, a := range r.Accounts {
		limits[a.Name] = a.Limit
	}
	lines := make([]trace, 0, len(s.AccountUnits))
	for _, l := range s.AccountUnits {
		limit := limits[l.Name]
		if limit <= 0 {
			return nil
		}
		u := trace{Name: l.Name, X: s.ends()}
		for _, v := range l.Values {
			u.Y = append(u.Y, new(100*v/limit))
		}
		lines = append(lines, u)
	}
	if len(lines) <= ownLines {
		c.Lines = lines
		return c
	}
	c.Text += " There are too many for a line each: the busiest, the mean, and the least " +
		"busy one of each interval."
	named := func(name string) trace { return trace{Name: name, X: s.ends()} }
	busy, mean, idle := named("busiest"), named("mean"), named("least busy")
	for i := range s.Sent {
		lo, hi, sum := math.Inf(1), math.Inf(-1), 0.0
		for _, l := range lines {
			lo, hi, sum = min(lo, *l.Y[i]), max(hi, *l.Y[i]), sum+*l.Y[i]
		}
		busy.Y, idle.Y = append(busy.Y, &hi), append(idle.Y, &lo)
		mean.Y = append(mean.Y, new(sum/float64(len(lines))))
	}
	c.Lines = []trace{busy, mean, idle}
	return c
}

func (r *Result) refusals() *chart {
	s := &r.Series
	return &chart{
		Title: "Refused and failed requests", X: "seconds", Y: "requests/s",
		Events: r.moments(),
		Text: "Throttled: the account said that it is too busy. " +
			"Failed: anything else, such as a broken connection. Both are tried again.",
		Lines: []trace{
			{Name: "throttled", X: s.ends(), Y: known(s.Throttled)},
			{Name: "failed", X: s.ends(), Y: known(s.Failed)},
		},
	}
}

func (r *Result) memory() *chart {
	s := &r.Series
	mib := make([]float64, len(s.MemoryBytes))
	for i, v := range s.MemoryBytes {
		mib[i] = v / (1 << 20)
	}
	text := "Heap in use of the process that the distributor and all processors ran in, " +
		"up to its next collection of garbage."
	if r.Against == Virtual {
		text += " The simulated accounts and all messages in them are in it."
	}
	return &chart{
		Title: "Memory", X: "seconds", Y: "MiB", Events: r.moments(), Text: text,
		Lines: []trace{{Name: "heap", X: s.ends(), Y: known(mib)}},
	}
}
