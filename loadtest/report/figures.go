package report

import "math"

// charts are all that is to be seen of a result.
func (r *Result) charts() []*chart {
	return []*chart{
		r.rates(), r.units(), r.latencies(), r.curveChart(), r.use(), r.refusals(), r.memory(),
	}
}

// figures are those of charts that have a value.
func figures(charts ...*chart) (out []figure) {
	for _, c := range charts {
		if c == nil {
			continue
		}
		if f, ok := c.figure(); ok {
			out = append(out, f)
		}
	}
	return out
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
func (r *Result) steps(name string, value func(*Phase) *float64) curve {
	c := curve{name: name, dashed: true}
	for i := range r.Phases {
		p := &r.Phases[i]
		v := value(p)
		c.xs = append(c.xs, p.From, p.To)
		c.ys = append(c.ys, v, v)
	}
	return c
}

func (r *Result) rates() *chart {
	s := &r.Series
	return &chart{
		title: "Throughput", x: "seconds", y: "tasks/s", events: r.Events,
		text: "Tasks that the distributor took and tasks whose handling began. " +
			"Dashed: what was due by the schedule, bursts spread over their phase; " +
			"nothing where as many were offered as were taken.",
		curves: []curve{
			{name: "handled", xs: s.ends(), ys: known(s.Handled)},
			{name: "sent", xs: s.ends(), ys: known(s.Sent)},
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
		title: "Against the limits", x: "seconds", y: "units/s", events: r.Events,
		text: "What was asked of the queues of all accounts together: " +
			"a put, a delete and a renewal are a unit each, " +
			"a get is one for each message or, if the test was told so, one. " +
			"Dashed: what the accounts that are in use give.",
		curves: []curve{{name: "spent", xs: s.ends(), ys: known(total)}},
	}
	if r.Capacity() > 0 {
		c.curves = append(c.curves, r.steps("limit", func(p *Phase) *float64 {
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
		title: "Time until a task's handling began", x: "seconds", y: "",
		times: true, events: r.Events,
		text: "From schedule: since the task was due, " +
			"so that it includes the time in which no distributor took it; " +
			"nothing where as many were offered as were taken. " +
			"From send: since the distributor took it. " +
			"Of each interval, the time within which half or 99 % of its tasks began.",
		curves: []curve{
			{name: "p50 from schedule", xs: s.ends(), ys: s.ScheduleP50},
			{name: "p99 from schedule", xs: s.ends(), ys: s.ScheduleP99},
			{name: "p50 from send", xs: s.ends(), ys: s.SendP50, dashed: true},
			{name: "p99 from send", xs: s.ends(), ys: s.SendP99, dashed: true},
		},
	}
}

func (r *Result) curveChart() *chart {
	if r.Curve == nil {
		return nil
	}
	var value, limit curve
	value.name, value.points = "measured", true
	limit.name, limit.dashed = "limit: "+r.Curve.Limit, true
	for i := range r.Curve.Points {
		p := &r.Curve.Points[i]
		value.xs, value.ys = append(value.xs, p.X), append(value.ys, &p.Value)
		limit.xs, limit.ys = append(limit.xs, p.X), append(limit.ys, p.Limit)
	}
	return &chart{
		title: "By " + r.Curve.Of, x: r.Curve.Of, y: r.Curve.Unit,
		curves: []curve{value, limit},
		text:   "What was handled, by how much there was. Dashed: " + r.Curve.Limit + ".",
	}
}

// ownLines is how many accounts have a line of their own: more cannot be told apart.
const ownLines = 8

func (r *Result) use() *chart {
	s := &r.Series
	c := &chart{
		title: "Use of each account", x: "seconds", y: "% of its limit", events: r.Events,
		text: "What was spent of what each account gives.",
	}
	limits := map[string]float64{}
	for _, a := range r.Accounts {
		limits[a.Name] = a.Limit
	}
	lines := make([]curve, 0, len(s.AccountUnits))
	for _, l := range s.AccountUnits {
		limit := limits[l.Name]
		if limit <= 0 {
			return nil
		}
		u := curve{name: l.Name, xs: s.ends()}
		for _, v := range l.Values {
			u.ys = append(u.ys, new(100*v/limit))
		}
		lines = append(lines, u)
	}
	if len(lines) <= ownLines {
		c.curves = lines
		return c
	}
	c.text += " There are too many for a line each: the busiest, the mean, and the least " +
		"busy one of each interval."
	named := func(name string) curve { return curve{name: name, xs: s.ends()} }
	busy, mean, idle := named("busiest"), named("mean"), named("least busy")
	for i := range s.Sent {
		lo, hi, sum := math.Inf(1), math.Inf(-1), 0.0
		for _, l := range lines {
			lo, hi, sum = min(lo, *l.ys[i]), max(hi, *l.ys[i]), sum+*l.ys[i]
		}
		busy.ys, idle.ys = append(busy.ys, &hi), append(idle.ys, &lo)
		mean.ys = append(mean.ys, new(sum/float64(len(lines))))
	}
	c.curves = []curve{busy, mean, idle}
	return c
}

func (r *Result) refusals() *chart {
	s := &r.Series
	return &chart{
		title: "Refused and failed requests", x: "seconds", y: "requests/s",
		events: r.Events,
		text: "Throttled: the account said that it is too busy. " +
			"Failed: anything else, such as a broken connection. Both are tried again.",
		curves: []curve{
			{name: "throttled", xs: s.ends(), ys: known(s.Throttled)},
			{name: "failed", xs: s.ends(), ys: known(s.Failed)},
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
		title: "Memory", x: "seconds", y: "MiB", events: r.Events, text: text,
		curves: []curve{{name: "heap", xs: s.ends(), ys: known(mib)}},
	}
}
