package report_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/queuepump/queuepump/loadtest/report"
	"github.com/queuepump/queuepump/loadtest/report/drawing"
)

func TestThePageNeedsNothingFromElsewhereAndEscapesNames(t *testing.T) {
	c, err := report.Compare([]*report.Result{report.Sample(report.Hostile, 1)}, []*report.Result{report.Sample(report.Hostile, 2)})
	if err != nil {
		t.Fatal(err)
	}
	for name, write := range map[string]func(io.Writer, report.Draw) error{"result": report.Sample(report.Hostile, 1).HTML, "comparison": c.HTML} {
		var b bytes.Buffer
		if err := write(&b, drawing.Element); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		alone(t, name, b.Bytes())
		if n := strings.Count(b.String(), "<svg"); n < 3 {
			t.Errorf("%s: %d plots", name, n)
		}
	}
}

// loads are the elements and attributes by which a page fetches something or runs a script.
var (
	loads = regexp.MustCompile(
		`^(script|link|img|iframe|object|embed|base|audio|video|source|image|use|foreignobject|form|a)$`,
	)
	fetches = regexp.MustCompile(`^(src|srcset|href|xlink:href|data|action|background|poster|on.*)$`)
	outside = regexp.MustCompile(`(?i)url\(|@import|https?:|//[a-z]`)
)

// alone checks that a page refers to nothing, and that its plots are whole.
func alone(t *testing.T, name string, page []byte) {
	t.Helper()
	z := html.NewTokenizer(bytes.NewReader(page))
	in := ""
	for {
		switch z.Next() {
		case html.ErrorToken:
			if !errors.Is(z.Err(), io.EOF) {
				t.Fatal(z.Err())
			}
			for _, svg := range regexp.MustCompile(`(?s)<svg.*?</svg>`).FindAll(page, -1) {
				if err := xml.Unmarshal(svg, new(any)); err != nil {
					t.Errorf("%s: a plot is no XML: %v", name, err)
				}
			}
			return
		case html.StartTagToken, html.SelfClosingTagToken:
			tag := z.Token()
			in = tag.Data
			if loads.MatchString(tag.Data) {
				t.Errorf("%s: has the element %s", name, tag)
			}
			for _, a := range tag.Attr {
				if fetches.MatchString(a.Key) || a.Key == "style" && outside.MatchString(a.Val) {
					t.Errorf("%s: %s has the attribute %s=%q", name, tag.Data, a.Key, a.Val)
				}
			}
		case html.TextToken:
			if in == "style" && outside.Match(z.Text()) {
				t.Errorf("%s: the style fetches something", name)
			}
		case html.EndTagToken:
			in = ""
		}
	}
}

// A dark page has dark plots. None of their colours is fixed: each is a property that the page's
// style has in light and in dark.
func TestPlotsFollowThePageIntoTheDark(t *testing.T) {
	var b bytes.Buffer
	if err := report.Sample(report.Hostile, 1).HTML(&b, drawing.Element); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	used := map[string]bool{}
	for _, svg := range regexp.MustCompile(`(?s)<svg.*?</svg>`).FindAllString(text, -1) {
		colour := regexp.MustCompile(`(?:fill|stroke)(?::|=")\s*(?:#|rgb|white|black)[^;"]*`)
		if fixed := colour.FindString(svg); fixed != "" {
			t.Errorf("a plot has the fixed colour %q", fixed)
		}
		for _, name := range regexp.MustCompile(`var\((--[a-z0-9-]+)\)`).FindAllStringSubmatch(svg, -1) {
			used[name[1]] = true
		}
		for _, class := range regexp.MustCompile(`class="(line\d)"`).FindAllStringSubmatch(svg, -1) {
			if !strings.Contains(text, "."+class[1]+" { stroke: var(--line-") {
				t.Errorf("the style has no %s", class[1])
			}
		}
	}
	if len(used) < 5 {
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
		if err := errors.Join(r.Text(io.Discard), r.HTML(io.Discard, drawing.Element)); err != nil {
			t.Error(err)
		}
		c, err := report.Compare([]*report.Result{r}, []*report.Result{r})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(c.Text(io.Discard), c.HTML(io.Discard, drawing.Element)); err != nil {
			t.Error(err)
		}
	}
}
