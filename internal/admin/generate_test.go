package admin

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/queuepump/queuepump/internal/proof"
)

func TestTheFilesAreAsTheyWereReviewed(t *testing.T) {
	for _, kind := range GeneratedKinds() {
		f, err := Generate(kind, GenerateOptions{
			Name: "cities", Workload: "city-work", Namespace: "work", Image: "registry.example/cities:1", Version: "v1.2.3",
			Accounts: []string{"pumptwo", "pumpone"}, Prometheus: "http://prometheus:9090",
		})
		must(t, err)
		golden := filepath.Join("testdata", f.Name)
		if *update {
			must(t, os.WriteFile(golden, []byte(f.Text), 0o644))
		}
		if want, err := os.ReadFile(golden); err != nil || string(want) != f.Text {
			t.Errorf("%s differs (%v); look at it and run the test with -update", golden, err)
		}
	}
}

func TestWithoutOptionsTheFilesCanBeRead(t *testing.T) {
	for _, kind := range GeneratedKinds() {
		f, err := Generate(kind, GenerateOptions{Version: "0.0.0~20261124.abc+changes", Accounts: []string{"pumpone"}})
		must(t, err)
		switch filepath.Ext(f.Name) {
		case ".json":
			var v any
			proof.Is(t, json.Unmarshal([]byte(f.Text), &v), nil, f.Name)
		case ".yaml":
			for i, part := range strings.Split(f.Text, "\n---\n") {
				var v map[string]any
				if err := yaml.Unmarshal([]byte(part), &v); err != nil || len(v) == 0 {
					t.Errorf("%s, part %d: %v", f.Name, i, err)
				}
			}
		}
		if strings.Contains(f.Text, "[[") {
			t.Errorf("%s has a template left in it", f.Name)
		}
		proof.Has(t, f.Text, "0.0.0-20261124.abc-changes", f.Name, "with the version")
	}
}

func TestWhatWouldMeanSomethingInAFileIsRefused(t *testing.T) {
	for _, c := range []struct {
		kind, flag string
		o          GenerateOptions
	}{
		{"kubernetes", "name", GenerateOptions{Name: "a: b"}},
		{"kubernetes", "namespace", GenerateOptions{Namespace: "a\nb"}},
		{"kubernetes", "image", GenerateOptions{Image: `a"b`}},
		{"alerts", "workload", GenerateOptions{Workload: `a"}`}},
		{"keda", "prometheus", GenerateOptions{Prometheus: "http://a b"}},
		{"bicep", "account", GenerateOptions{}},
		{"bicep", "account", GenerateOptions{Accounts: []string{"Pump"}}},
		{"terraform", "account", GenerateOptions{Accounts: []string{"pumpone", "pumpone"}}},
		{"terraform", "location", GenerateOptions{Accounts: []string{"pumpone"}, Location: "west europe"}},
	} {
		_, err := Generate(c.kind, c.o)
		if e, ok := errors.AsType[*Error](err); !ok || e.Flag != c.flag {
			t.Errorf("%s %+v: %v", c.kind, c.o, err)
		}
	}
}

// Each alert leads to an entry of the runbook.
func TestEachAlertHasARunbook(t *testing.T) {
	doc, err := proof.ReadFile("../..", "../../docs/runbook.md")
	must(t, err)
	entries := doc.Runbook("Alerts")
	file, err := Generate("alerts", GenerateOptions{})
	must(t, err)
	alerts := regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(file.Text, -1)
	if n := strings.Count(file.Text, "runbook_url: "); len(alerts) == 0 || len(alerts) != n {
		t.Errorf("%d alerts, %d runbooks", len(alerts), n)
	}
	for _, a := range alerts {
		entry, ok := entries[a[1]]
		if lacks := proof.Lacks(entry); !ok || len(lacks) > 0 {
			t.Errorf("docs/runbook.md: the entry of %s lacks %q", a[1], lacks)
		}
		proof.Has(t, file.Text, "docs/runbook.md#"+strings.ToLower(a[1])+"\n", a[1], "with its entry in docs/runbook.md")
		delete(entries, a[1])
	}
	for title := range entries {
		t.Errorf("docs/runbook.md has an entry of %s, which is no alert", title)
	}
}
