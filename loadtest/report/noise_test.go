package report

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/queuepump/queuepump/internal/proof"
)

// runsOf are results of a test that was repeated: so many tasks a second, more or less.
func runsOf(n int, rate, spread float64, r *rand.Rand) (list []*Result) {
	for range n {
		one := sample("soak", 1)
		one.Phases[1].Handled = rate + spread*r.NormFloat64()
		list = append(list, one)
	}
	return list
}

func handledOf(t *testing.T, before, after []*Result) Change {
	t.Helper()
	c, err := Compare(before, after)
	must(t, err)
	for _, l := range c.Lines {
		if l.Name == "dark: handled" {
			return l
		}
	}
	t.Fatal("the figure is missing")
	return Change{}
}

// Of a thousand pairs of sides that are alike, about one in twenty may be judged to differ. Sides
// that are three times their spread apart nearly always are.
func TestNoiseIsToldFromWhatIsNot(t *testing.T) {
	const seed = 7
	r := rand.New(rand.NewPCG(seed, 0))
	wrong, missed := 0, 0
	for range 1000 {
		if l := handledOf(t, runsOf(6, 1000, 20, r), runsOf(6, 1000, 20, r)); l.Better != 0 {
			wrong++
		}
		if l := handledOf(t, runsOf(6, 1000, 20, r), runsOf(6, 940, 20, r)); l.Better != -1 {
			missed++
		}
	}
	if wrong > 65 || missed > 50 {
		t.Errorf("of 1,000 alike %d were judged to differ, of 1,000 different %d were not (seed %d)", wrong, missed, seed)
	}
}

func TestPartsOfARunAreSamplesWhereRunsAreTooFew(t *testing.T) {
	side := func(rate, p99 float64) []*Result {
		r := sample("soak", 1)
		r.Phases[1].From, r.Phases[1].To = 10, 70
		r.Phases[1].Handled = rate
		r.Series = Series{Interval: 1}
		for i := range 70 {
			wave := float64(i%10) - 4.5 // what neighbours have in common evens out over a part
			r.Series.Handled = append(r.Series.Handled, rate+wave+float64(i%7))
			r.Series.ScheduleP99 = append(r.Series.ScheduleP99, new(p99))
		}
		return []*Result{r}
	}
	l := handledOf(t, side(1000, 1), side(1100, 1))
	if l.Better != 1 || l.Noise.Of != "parts" || l.Noise.Before.Samples != 12 || l.Noise.P >= significance {
		t.Errorf("%+v %+v", l, l.Noise)
	}
	// How one run went on is no verdict on two, so it is not shown as one.
	for text, of := range map[string][2][]*Result{
		"better by parts": {side(1000, 1), side(1100, 1)}, "worse by parts": {side(1100, 1), side(1000, 1)},
	} {
		c, err := Compare(of[0], of[1])
		must(t, err)
		var b bytes.Buffer
		if err := c.HTML(&b); err != nil || !strings.Contains(b.String(), "<td>"+text+"</td>") ||
			strings.Contains(b.String(), `class="worse"`) || strings.Contains(b.String(), `class="better"`) {
			t.Errorf("%v: the page does not say %q without a colour", err, text)
		}
	}
	if l := handledOf(t, side(1000, 1), side(1000, 1)); l.Better != 0 || l.judged() != "within noise" {
		t.Errorf("%+v %+v", l, l.Noise)
	}
	c, err := Compare(side(1000, 1), side(1000, 1))
	must(t, err)
	var b bytes.Buffer
	if err := c.Text(&b); err != nil || !strings.Contains(b.String(), "repeat both 4 times") {
		t.Errorf("%v:\n%s", err, b.String())
	}
}

func TestPartsOfAPhase(t *testing.T) {
	values := make([]float64, 100)
	for i := range values {
		values[i] = float64(i)
	}
	for _, c := range []struct {
		interval, from, to float64
		parts              int
		first              float64
	}{
		{1, 0, 100, 11, 4},    // nine seconds each: the first is the mean of 0 to 8
		{1, 10, 35, 5, 12},    // five seconds at least
		{1, 10, 13, 0, 0},     // too short for one
		{1, 98, 300, 0, 0},    // it ended before
		{10, 0, 1000, 11, 4},  // long intervals
		{0.5, 0, 50, 10, 4.5}, // ten intervals of half a second
		{0, 0, 100, 0, 0},     // damaged
		{1, 50, 40, 0, 0},     // backwards
		{1, 0.5, 20.5, 3, 3},  // between intervals
	} {
		got := parts(known(values), c.interval, c.from, c.to)
		if len(got) != c.parts || len(got) > 0 && got[0] != c.first {
			t.Errorf("%+v: %d parts, %v", c, len(got), got)
		}
	}
}

// The report looks for differences in every run of a side, and says them before the figures. So it
// does with a run that is not as it was meant to be.
func TestAComparisonWarnsOfWhatItsRunsDoNotShare(t *testing.T) {
	const seed = 7
	r := rand.New(rand.NewPCG(seed, 0))
	side := func() []*Result {
		list := runsOf(4, 1000, 20, r)
		for _, one := range list {
			one.Trouble = nil
		}
		return list
	}
	compare := func(before, after []*Result) *Comparison {
		c, err := Compare(before, after)
		must(t, err)
		return c
	}
	if c := compare(side(), side()); len(c.Differing) != 0 || len(c.Warnings) != 0 {
		t.Errorf("alike: %+v %q", c.Differing, c.Warnings)
	}
	before, after := side(), side()
	before[2].Machine.CPUs, after[3].Settings[0].Value = 8, "9"
	after[1].Trouble = []string{"it was interrupted"}
	c := compare(before, after)
	want := []Differing{
		{"machine", "2 CPUs, 8 CPUs", "2 CPUs"}, {"processors", "2", "2, 9"},
	}
	proof.Same(t, cmp.Diff(want, c.Differing), "")
	var text, html bytes.Buffer
	must(t, c.Text(&text))
	must(t, c.HTML(&html))
	for _, says := range []string{
		"2 settings are not the same", "run 2 after: it was interrupted",
	} {
		proof.Has(t, text.String(), "! "+says)
		proof.Has(t, html.String(), says)
	}
	if i, j := strings.Index(text.String(), "! "), strings.Index(text.String(), "FIGURE"); i > j {
		t.Errorf("the warning comes after the figures:\n%s", text.String())
	}
}

// A file that is given twice would make noise look smaller than it is.
func TestAFileIsOneRunOfASide(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a.json", "b.json"} {
		f, err := os.Create(filepath.Join(dir, name))
		must(t, err)
		must(t, errors.Join(sample("soak", 1).Write(f), f.Close()))
	}
	a, b := filepath.Join(dir, "a.json"), filepath.Join(dir, "b.json")
	must(t, proof.ErrOf(ReadSides([]string{a + "," + b, a})))
	again := dir + "/./a.json"
	proof.Says(t, proof.ErrOf(ReadSides([]string{a + "," + again, b})), "twice",
		"the same file twice")
}

// Of four or five samples no interval reaches 95 %, and the words do not say that it does.
func TestAnIntervalSaysHowSureItIs(t *testing.T) {
	for n, want := range map[int]float64{4: 0.875, 5: 0.9375, 6: 0.95, 12: 0.95} {
		values := make([]float64, n)
		for i := range values {
			values[i] = float64(i)
		}
		noise := noiseOf("runs", values, values)
		got, words := noise.Before.Confidence, noise.words("tasks/s")
		if got < want || got > 1 || n < 6 && got != want {
			t.Errorf("%d samples: %v, want %v", n, got, want)
		}
		proof.Same(t, strings.Contains(words, "% sure"), (n < 6), n, "samples", words)
	}
}

// The chances are those of published tables, and of a normal distribution if there are many samples.
func TestAChanceIsThatOfMannAndWhitney(t *testing.T) {
	from := func(n int, first, step float64) (x []float64) {
		for i := range n {
			x = append(x, first+step*float64(i))
		}
		return x
	}
	for _, c := range []struct {
		a, b []float64
		want float64
	}{
		{from(4, 0, 1), from(4, 10, 1), 2. / 70},
		{from(6, 10, 1), from(6, 0, 1), 2. / 924},
		{from(5, 0, 2), from(5, 1, 2), 0.690476},
		{from(5, 1, 2), from(5, 0, 2), 0.690476},
		{from(5, 7, 0), from(5, 7, 0), 1},
		{[]float64{1, 2, 2, 2}, []float64{2, 2, 2, 3}, 40. / 70},
		{from(60, 7, 0), from(60, 7, 0), 1},
		{from(60, 0, 1), from(60, 0.5, 1), 0.876952},
	} {
		if got := chance(c.a, c.b); math.Abs(got-c.want) > 1e-4 {
			t.Errorf("%v and %v: %v, want %v", c.a, c.b, got, c.want)
		}
	}
}
