package bench

import (
	"math"
	"strings"
	"testing"
	"time"
)

// A short soak: what `make soak` does for ten minutes, without its judgement, for which the
// processes of a few seconds are too young.
func TestASoakHandlesAllTasksAndSeesTheMemoryOfBothBinaries(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and starts the binaries")
	}
	r, err := Soak{
		Dir:   t.TempDir(),
		For:   4 * time.Second,
		Rate:  5000,
		Every: 500 * time.Millisecond,
		Log:   func(line string) { t.Log(line) },
	}.Run(
		t.Context(),
	)
	if err != nil {
		t.Fatal(err)
	}
	if r.Tasks < 1000 || len(r.Processor) != 8 || len(r.Distributor) != 8 {
		t.Errorf("%d tasks, %d and %d looks", r.Tasks, len(r.Distributor), len(r.Processor))
	}
	for _, p := range r.processes() {
		for _, l := range p.looks {
			if l.Live < 1<<18 || l.Resident < l.Live || l.Resident > mostSoak || l.At <= 0 {
				t.Errorf("a look at the %s: %+v", p.name, l)
			}
		}
	}
}

// looks are n looks over the time 0 to 1.
func looks(n int, resident, live func(at float64) float64) (ls []MemoryLook) {
	for i := range n {
		at := float64(i) / float64(n)
		ls = append(
			ls,
			MemoryLook{At: at * 600, Resident: int64(resident(at) * (1 << 20)), Live: int64(live(at) * (1 << 20))},
		)
	}
	return ls
}

func TestMemoryThatGrowsIsNotFlat(t *testing.T) {
	steady := func(float64) float64 { return 100 }
	for name, c := range map[string]struct {
		resident, live func(float64) float64
		says           string // "" if it is flat
	}{
		"steady":                        {steady, steady, ""},
		"grows while it warms up":       {func(at float64) float64 { return 100 * min(4*at, 1) }, steady, ""},
		"up and down":                   {func(at float64) float64 { return 100 + 40*math.Sin(200*at) }, steady, ""},
		"shrinks":                       {func(at float64) float64 { return 200 - 100*at }, steady, ""},
		"resident memory leaks":         {func(at float64) float64 { return 100 + 60*at }, steady, "the resident memory of the processor grew"},
		"live heap leaks":               {steady, func(at float64) float64 { return 20 + 20*at }, "the live heap of the processor grew"},
		"leaks under the collector":     {func(at float64) float64 { return 100 + 60*at + 40*math.Sin(200*at) }, steady, "the resident memory of the processor grew"},
		"does not grow and is too much": {func(float64) float64 { return 600 }, steady, "the processor had 600 MiB resident, want at most 512"},
	} {
		r := SoakResult{Distributor: looks(120, steady, steady), Processor: looks(120, c.resident, c.live)}
		err := r.Flat()
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
		if strings.Contains(r.Section(), "Not flat") != (c.says != "") {
			t.Errorf("%s is shown as:\n%s", name, r.Section())
		}
	}
	if err := (SoakResult{Distributor: looks(3, steady, steady), Processor: looks(3, steady, steady)}).Flat(); err == nil {
		t.Error("three looks are enough to say that the memory is flat")
	}
}

func TestTheHeapIsFoundInAProfilesText(t *testing.T) {
	if n, err := heapAlloc("heap profile: 1: 2 [3: 4] @ heap/1048576\n\n# runtime.MemStats\n# Alloc = 7\n# HeapAlloc = 123456\n# HeapSys = 9\n"); n != 123456 ||
		err != nil {
		t.Errorf("%d, %v", n, err)
	}
	for _, text := range []string{"", "HeapAlloc = 5\n", "# HeapAlloc = many\n"} {
		if n, err := heapAlloc(text); err == nil {
			t.Errorf("%q says %d", text, n)
		}
	}
}
