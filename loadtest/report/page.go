package report

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"time"

	"github.com/queuepump/queuepump/internal/admin"
	"github.com/queuepump/queuepump/internal/cli"
)

//go:embed page.html
var pageText string

//go:embed plots.js
var plots string

// script draws the plots. The page may run no other script.
var (
	styles = template.CSS(admin.Tokens + admin.PlotStyle) //nolint:gosec // ours

	script = template.JS("/*\n" + admin.PlotLicence + "*/\n" + //nolint:gosec // ours
		admin.Plot + plots)
)

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"plain":  plain,
	"styles": func() template.CSS { return styles },
	"script": func() template.JS { return script },
	"policy": policy,
	"judged": func(cell string) string {
		if cell == "better" || cell == "worse" {
			return cell
		}
		return ""
	},
}).Parse(pageText))

// policy lets the page fetch nothing and run only its own script, even if a name in it holds code.
func policy() string {
	sum := sha256.Sum256([]byte(script))
	return "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-" +
		base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// pageData is what the page shows.
type pageData struct {
	Title    string
	Intro    string
	Settings []Setting
	Trouble  []string
	Sentence string
	Sections []pageSection
	Figures  []*chart
	Events   []string
	Legend   []explained
	Machine  string
}

// pageSection is a table with a heading.
type pageSection struct {
	Title string
	Table table
	Class string // of the table's style; "prose" has sentences in it
}

// HTML writes the result as one page. The page refers to nothing outside itself and runs only the
// script that draws its plots. Every name in it is escaped.
func (r *Result) HTML(w io.Writer) error {
	d := pageData{
		Title: "Load test: " + r.Scenario, Settings: r.Settings, Trouble: r.Trouble,
		Sentence: r.account(), Figures: drawn(r.charts()...), Legend: legend, Machine: r.machine(),
		Intro: fmt.Sprintf(
			"On %s, %s, %s of load.", against(r.Against), r.Started.Format(time.RFC3339),
			duration(r.Seconds),
		),
	}
	for _, e := range r.Events {
		d.Events = append(d.Events, fmt.Sprintf("%s: %s", moment(e.At), e.Text))
	}
	d.Sections = []pageSection{
		{"What was found", r.findingRows(), "prose"},
		{"Phases", r.phaseRows(), ""},
		{"Time until a task's handling began", r.latencyRows(), ""},
	}
	if len(r.Groups) > 0 {
		d.Sections = append(d.Sections, pageSection{"Groups of tasks", r.groupRows(), ""})
	}
	if r.Curve != nil {
		d.Sections = append(d.Sections, pageSection{"By " + r.Curve.Of, r.Curve.rows(), ""})
	}
	d.Sections = append(d.Sections, pageSection{"Accounts", r.accountRows(), ""})
	return page.Execute(w, d)
}

func (r *Result) machine() string {
	m := r.Machine
	return fmt.Sprintf("The load came from a machine with %s, %s, %s, queuepump %s; the "+
		"most heap in use was %s MiB.",
		cli.Plural(int64(m.CPUs), "CPU"), m.OS, m.Go, m.Version, number(m.PeakBytes/(1<<20)))
}
