package report_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/report"
)

// must ends a test with an error.
var must = proof.Must

func TestThePageNeedsNothingFromElsewhereAndEscapesNames(t *testing.T) {
	c, err := report.Compare([]*report.Result{report.Sample(report.Hostile, 1)}, []*report.Result{report.Sample(report.Hostile, 2)})
	must(t, err)
	for name, write := range map[string]func(io.Writer) error{"result": report.Sample(report.Hostile, 1).HTML, "comparison": c.HTML} {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if n := alone(t, name, b.Bytes()); n < 3 {
			t.Errorf("%s: %d plots", name, n)
		}
	}
}

// loads are the elements and attributes that make a page fetch something or run a script.
var (
	loads = regexp.MustCompile(
		`^(link|img|iframe|object|embed|base|audio|video|source|image|use|foreignobject|form|a)$`,
	)
	fetches = regexp.MustCompile(`^(src|srcset|href|xlink:href|data|action|background|poster|on.*)$`)
	outside = regexp.MustCompile(`(?i)url\(|@import|https?:|//[a-z]`)
)

// alone checks that a page refers to nothing, runs the script that its policy names and no other,
// and that what the plots are of can be read. It gives the number of plots.
func alone(t *testing.T, name string, page []byte) (plots int) {
	t.Helper()
	z := html.NewTokenizer(bytes.NewReader(page))
	var in html.Token
	policy, scripts := "", 0
	for {
		switch z.Next() {
		case html.ErrorToken:
			if !errors.Is(z.Err(), io.EOF) {
				t.Fatal(z.Err())
			}
			if scripts != 1 || !strings.HasPrefix(policy, "default-src 'none'; ") {
				t.Errorf("%s: %d scripts under the policy %q", name, scripts, policy)
			}
			return plots
		case html.StartTagToken, html.SelfClosingTagToken:
			in = z.Token()
			if loads.MatchString(in.Data) {
				t.Errorf("%s: has the element %s", name, in)
			}
			for _, a := range in.Attr {
				if fetches.MatchString(a.Key) || a.Key == "style" && outside.MatchString(a.Val) {
					t.Errorf("%s: %s has the attribute %s=%q", name, in.Data, a.Key, a.Val)
				}
				if a.Key == "content" && strings.Contains(a.Val, "-src") {
					policy = a.Val
				}
			}
		case html.TextToken:
			switch text := z.Raw(); {
			case in.Data == "style" && outside.Match(text):
				t.Errorf("%s: the style fetches something", name)
			case in.Data == "script" && len(in.Attr) > 0:
				plots++
				var p struct{ Lines []struct{ X, Y []*float64 } }
				if err := json.Unmarshal(text, &p); err != nil || len(p.Lines) == 0 || len(p.Lines[0].X) != len(p.Lines[0].Y) {
					t.Errorf("%s: a plot is of %s: %v", name, text, err)
				}
			case in.Data == "script":
				scripts++
				sum := sha256.Sum256(text)
				if want := "script-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"; !strings.HasSuffix(policy, want) {
					t.Errorf("%s: the policy %q lets another script run than %s", name, policy, want)
				}
				for _, want := range []string{"Permission is hereby granted", "new uPlot("} {
					if !bytes.Contains(text, []byte(want)) {
						t.Errorf("%s: its script has no %q", name, want)
					}
				}
			}
		case html.EndTagToken:
			in = html.Token{}
		}
	}
}

// A dark page has dark plots: the script has no colour, and each that it asks the styles for is
// there in light and in dark.
func TestPlotsFollowThePageIntoTheDark(t *testing.T) {
	var b bytes.Buffer
	must(t, report.Sample(report.Hostile, 1).HTML(&b))
	text := b.String()
	proof.Same(t, regexp.MustCompile(`#[0-9a-f]{3}|rgb|white|black`).FindString(report.Plots), "",
		"the script has the fixed colour")
	used := map[string]bool{}
	for _, name := range regexp.MustCompile(`"(--[a-z-]+)"`).FindAllStringSubmatch(report.Plots, -1) {
		used[name[1]] = true
	}
	for _, place := range regexp.MustCompile(`"Colour":(\d)`).FindAllStringSubmatch(text, -1) {
		used["--line-"+place[1]] = true
		if !strings.Contains(text, `style="stroke: var(--line-`+place[1]+`)"`) {
			t.Errorf("the key has no line %s", place[1])
		}
	}
	if len(used) < 7 {
		t.Errorf("only %v are used", used)
	}
	for name := range used {
		if !strings.Contains(text, name+": light-dark(") {
			t.Errorf("the page's style has no %s of both", name)
		}
	}
}

func TestAResultOfNothingCanBeShown(t *testing.T) {
	for _, r := range []*report.Result{
		{Format: report.Format, Scenario: "soak"},
		{Format: report.Format, Scenario: "soak", Curve: &report.Curve{}, Series: report.Series{Interval: 1, Sent: []float64{0}, Handled: []float64{0}, Put: []float64{0}, Taken: []float64{0}, Throttled: []float64{0}, Failed: []float64{0}, ScheduleP50: []*float64{nil}, ScheduleP99: []*float64{nil}, SendP50: []*float64{nil}, SendP99: []*float64{nil}, MemoryBytes: []float64{0}}},
	} {
		proof.Is(t, errors.Join(r.Text(io.Discard), r.HTML(io.Discard)), nil)
		c, err := report.Compare([]*report.Result{r}, []*report.Result{r})
		must(t, err)
		proof.Is(t, errors.Join(c.Text(io.Discard), c.HTML(io.Discard)), nil)
	}
}
