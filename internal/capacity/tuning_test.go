package capacity

import (
	"fmt"
	"math"
	"testing"
	"time"
)

// The formulas as docs/tuning.md gives them, with its letters. If one of them fails, the page is to
// be mended with the code.
func TestTheFormulasOfTheTuningPageAreThoseOfThePlan(t *testing.T) {
	for _, in := range []Input{
		{Rate: 50_000, HandlerSeconds: 0.02, Sample: Assumed(200, 4, 0)}, // the page's example
		{Rate: 50_000, HandlerSeconds: 0.02, Sample: Assumed(200, 4, 0), Once: true},
		{Rate: 50_000, HandlerSeconds: 0.02, Sample: Assumed(200, 4, 0), SealAge: 10 * time.Second},
		{Rate: 3000, HandlerSeconds: 0.05, HandlerCPU: 0.001, Sample: Assumed(900, 2, 1), Pack: 1},
		{Rate: 200, HandlerSeconds: 30, Sample: Assumed(900, 5, 0), Segments: 64, Queues: 8, Elected: true},
		{Rate: 2000, HandlerSeconds: 0.5, Sample: Assumed(90, 5, 0), Accounts: 3, Queues: 7, Headroom: 0.4},
		{Rate: 20_000, HandlerSeconds: 0.001, Sample: Assumed(4000, 3, 0), Hours: 10},
		{Rate: 5000, HandlerSeconds: 0.02, Sample: Assumed(200, 4, 0), Results: 2000, StoredPrice: 0.02},
	} {
		in.GetPerMsg = true
		if in.Headroom == 0 {
			in.Headroom = 0.2
		}
		t.Run(fmt.Sprintf("%v tasks a second of %v s", in.Rate, in.HandlerSeconds), func(t *testing.T) {
			p, err := Make(in)
			must(t, err)
			in, _ = in.Defaults()
			pageFormulas(t, &in, p)
		})
	}
}

func pageFormulas(t *testing.T, in *Input, p *Plan) {
	t.Helper()
	same := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-9*math.Max(1, math.Abs(want)) {
			t.Errorf("%s: the plan has %v, docs/tuning.md %v", what, got, want)
		}
	}
	R, h, C, f := in.Rate, in.HandlerSeconds, float64(in.Concurrency), in.Headroom
	A, Q, S := float64(p.Accounts), float64(p.Queues), float64(p.Segments)
	X, D := float64(p.Processors), float64(p.Distributors)
	k, M := p.Packing.Tasks, p.Packing.Messages
	g := p.Requests.Get / M

	size := min(64_512/p.Sample.Text, 4<<20/(p.Sample.Text*p.Sample.Ratio), 32_768)
	pack := math.Inf(1)
	if in.Pack > 0 {
		pack = float64(in.Pack)
	}
	handling := max(1, math.Floor(5*C/h))
	age := 1 + R/S*in.SealAge.Seconds()
	same("tasks in a message", k, min(max(1, size), pack, handling, age))
	same("messages", M, R/k)
	same("characters", p.Packing.Bytes, 150+k*p.Sample.Text)

	used := map[string]float64{}
	for _, l := range p.Limits {
		used[l.Name] = l.Used
	}
	c := p.Packing.Counts
	same("of the accounts", used["accounts"], M*c/(20_000*A))
	same("of the queues", used["queues"], M*c/2_000*math.Ceil(S/Q)/S)
	if c < 3 || c > 3+g {
		t.Errorf("a message counts %v, with %v gets", c, g)
	}

	cpu := in.HandlerCPU + p.Sample.OpenSeconds + 1e-6 + 150e-6*(g+1)/k
	bytes := (p.Packing.Bytes + 1200*(g+1)) / k
	b := max(h/C, cpu/in.Machine.CPUs, bytes/(in.Machine.Mbits*1e6/8))
	part := func(x float64) float64 {
		if x <= Q {
			return math.Ceil(Q/x) / Q
		}
		return math.Ceil(S/x) / S
	}
	if R*b*part(X) > (1-f)*(1+1e-6) {
		t.Errorf("%v processors have %v to do", X, R*b*part(X))
	}
	// Gets are counted before there are processors, so the last digits of its CPU differ.
	if X > 1 && R*b*part(X-1) < (1-f)*(1-1e-3) {
		t.Errorf("%v processors would do: %v", X-1, R*b*part(X-1))
	}
	same("distributors", D, math.Ceil(R*(p.Sample.PackSeconds+150e-6/k)/(in.Machine.CPUs*(1-f))))

	same("puts", p.Requests.Put, M)
	same("deletes", p.Requests.Delete, M)
	renew := 0.0
	if held := 1 + math.Ceil(k/C)*h; held > 80 {
		renew = M * (1 + math.Floor((held-80)/100))
	}
	same("renewals", p.Requests.Renew, renew)
	tables := (X+D)*2/5 + X/5 + D/15
	if in.Elected {
		tables += 1.2
	}
	if in.Once {
		m := M / (20 * X * min(math.Ceil(S/64), math.Ceil(S/X)))
		tables += X/15 + (1+math.Ceil(S/64))/15 + M/(m+math.Exp(-m))
	}
	same("requests to tables", p.Requests.Table, tables)
	busy := in.Hours * 3600
	day := (2*M+M*g+renew)*busy + min(10, Q/5)*(86_400-busy)
	same("queues a day", p.Money.Queues, day/1e4*0.004)
	stored := R * busy * in.Results / in.ResultsRatio * (in.Retention.Hours() + 1) / 24
	same("stored", p.StoredResults, stored)
	same("stored, a day", p.Money.Stored, stored/1e9*in.StoredPrice*12/365)
	same("machines a day", p.Money.VMs, (X+D)*24*in.Machine.PerHour)
}
