package capacity

import (
	"errors"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump"
)

// By hand: 3,000 messages a second that count 3 each need 9,000 of an account's 20,000 and 9,000 of
// its queues' 2,000; 30 of 256 handlers at 10 ms.
func TestAPlanByHand(t *testing.T) {
	p, err := Make(Input{
		Rate: 3000, HandlerSeconds: 0.01, Sample: Assumed(100, 4, 1), Pack: 1, GetPerMsg: true, Latency: 10 * time.Millisecond,
		Accounts: 1, Queues: 10, Hours: 24, Machine: Machine{CPUs: 4, Mbits: 1000, PerHour: 1}, Prices: pump.Prices{Queue: 1, Table: 10},
	})
	must(t, err)
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got/want-1) > 0.02 {
			t.Errorf("%s is %v, want %v", what, got, want)
		}
	}
	for _, l := range p.Limits {
		switch l.Name {
		case "accounts":
			near("of an account", l.Used, 3000*3/20_000.0)
			near("an account's", l.Tasks, 20_000/3.0)
		case "queues": // 320 of 512 segments would be even; the fullest has 52
			near("of the fullest queue", l.Used, 3000*3/2000.0*52/512)
		case "handlers":
			near("of the handlers", l.Used, 3000*0.01/256)
		}
	}
	if p.Segments != 512 || p.Processors != 1 || p.Distributors != 1 || p.VMs != 2 || p.Packing.Tasks != 1 ||
		p.Packing.By != "pack" {
		t.Errorf("%+v", p)
	}
	near("puts", p.Requests.Put, 3000)
	near("requests to tables", p.Requests.Table, 2*0.4+0.2+1.0/15)
	near("of VMs", p.Money.VMs, 48)
	near("of queues", p.Money.Queues, (3000*2+p.Requests.Get)*86400/1e4)
	near("of tables", p.Money.Tables, 86400*(1+1.0/15)/1e4*10)
	near("in all", p.Money.Total, p.Money.VMs+p.Money.Queues+p.Money.Tables)
	near("for a million", p.Money.PerMillion, p.Money.Total/3000/86400*1e6)
	near("a day", p.Requests.PerDay, (3000*2+p.Requests.Get+1)*86400)
}

func TestAQueuesGetsAreBetweenFullAndIdle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := math.Exp(rapid.Float64Range(-12, 10).Draw(t, "log rate"))
		latency := time.Duration(rapid.IntRange(1, 200).Draw(t, "ms")) * time.Millisecond
		queues := rapid.IntRange(1, 1000).Draw(t, "queues")
		readers := rapid.SampledFrom([]int{1, 1, 2, 6, 100}).Draw(t, "readers")
		all, empty := gets(rate, latency, queues, readers)
		if !(all >= 1.0/maxGet && empty >= 0 && empty <= all) {
			t.Fatalf("%v gets a message, of them %v empty", all, empty)
		}
		if perSecond := all * rate; perSecond > 1.01*max(1/latency.Seconds(), rate/maxGet) {
			t.Fatalf("%v gets a second one after the other, of %v each", perSecond, latency)
		}
	})
}

// Whatever is asked for: a plan that says that it fits leaves the headroom everywhere, more is
// never cheaper than less, and no number in it is none.
func TestAPlanThatFitsLeavesItsHeadroomEverywhere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := Input{
			Rate:           math.Exp(rapid.Float64Range(-2, 14).Draw(t, "log rate")),
			HandlerSeconds: rapid.SampledFrom([]float64{0, 1e-4, 0.01, 1, 60}).Draw(t, "handler"),
			Concurrency:    rapid.SampledFrom([]int{0, 1, 16, 1000}).Draw(t, "concurrency"),
			Pack:           rapid.SampledFrom([]int{0, 1, 50}).Draw(t, "pack"),
			SealAge:        rapid.SampledFrom([]time.Duration{0, -1, 10 * time.Second}).Draw(t, "age"),
			Headroom:       rapid.Float64Range(0, 0.5).Draw(t, "headroom"),
			GetPerMsg: rapid.Bool().
				Draw(t, "get costs"),
			Once: rapid.Bool().Draw(t, "once"), Elected: rapid.Bool().Draw(t, "elected"),
			Hours: rapid.Float64Range(0.1, 24).Draw(t, "hours"),
		}
		in.Sample = Assumed(rapid.Float64Range(0, 40_000).Draw(t, "bytes"),
			rapid.Float64Range(0.75, 20).Draw(t, "ratio"), in.Pack)
		in.Sample.Hottest = rapid.SampledFrom([]float64{0, 0, 0.01, 0.5}).Draw(t, "hottest")
		p, err := Make(in)
		must(t, err)
		fits := true
		for i, l := range p.Limits {
			fits = fits && l.Used <= (1-in.Headroom)*(1+1e-6)
			if !(l.Tasks > 0) || !(l.Used > 0) || i > 0 && l.Tasks < p.Limits[i-1].Tasks {
				t.Fatalf("limit %+v", l)
			}
			// It is full where it says.
			if over := in.Rate > l.Tasks*(1+1e-6); over != (l.Used > 1+1e-6) && math.Abs(l.Used-1) > 1e-3 {
				t.Fatalf("%s is used by %v at %v, and full at %v", l.Name, l.Used, in.Rate, l.Tasks)
			}
		}
		if fits != p.Fits || p.Most != p.Limits[0].Tasks || p.Bottleneck != p.Limits[0].Name {
			t.Fatalf("fits %v, %+v", p.Fits, p.Limits)
		}
		for name, v := range map[string]float64{"money": p.Money.Total, "requests": p.Requests.PerDay, "packing": p.Packing.Tasks - 0.999, "connections": float64(p.Connections)} {
			if !(v > 0) || math.IsInf(v, 0) {
				t.Fatalf("%s: %v", name, v)
			}
		}
	})
}

func TestWhatIsOutOfRangeIsNamed(t *testing.T) {
	good := Input{Rate: 1, HandlerSeconds: 1, Sample: Assumed(100, 4, 0)}
	for field, change := range map[string]func(in *Input){
		"rate":                func(in *Input) { in.Rate = math.NaN() },
		"handler-seconds":     func(in *Input) { in.HandlerSeconds = -1 },
		"handler-cpu-seconds": func(in *Input) { in.HandlerCPU = 2 },
		"segments":            func(in *Input) { in.Segments = 100 },
		"queues":              func(in *Input) { in.Queues = 101 },
		"headroom":            func(in *Input) { in.Headroom = 1 },
		"vm-cpus":             func(in *Input) { in.Machine = Machine{CPUs: 0, Mbits: 1} },
		"task-bytes":          func(in *Input) { in.Sample = Sample{} },
	} {
		in := good
		change(&in)
		_, err := Make(in)
		if ce, ok := errors.AsType[*pump.ConfigError](err); !ok || ce.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}

func TestPackingIsLimitedByWhatIsNamed(t *testing.T) {
	in, err := Input{Rate: 1000, HandlerSeconds: 0.01, Sample: Assumed(130, 4, 0), SealAge: -1}.Defaults()
	must(t, err)
	full := in.Sample.PerFull
	for by, c := range map[string]struct {
		change   func(in *Input)
		segments int
		want     float64
	}{
		"size":     {func(*Input) {}, 256, full},
		"pack":     {func(in *Input) { in.Pack = 10 }, 256, 10},
		"seal-age": {func(in *Input) { in.SealAge = 2 * time.Second }, 250, 1 + 8},
		"handling": {func(in *Input) { in.HandlerSeconds, in.Concurrency = 0.3, 2 }, 256, 33},
		"memory":   {func(in *Input) { in.MaxOpen = 64 * fullHeld / 4 }, 64, full / 2},
	} {
		in := in
		c.change(&in)
		if p := in.packing(in.Rate, c.segments); p.By != by || math.Abs(p.Tasks/c.want-1) > 1e-9 {
			t.Errorf("%s: %+v, want %v", by, p, c.want)
		}
	}
}

func TestNumbersHaveThreeDigits(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 1: "1", 0.0341: "0.0341", 4.906: "4.91", 611.7: "612", 999.6: "1,000", 1234: "1,230", 1484321: "1,480,000", -1234: "-1,230", 0.000123456: "0.000123",
	} {
		proof.Same(t, Short(v), want, v)
	}
}
