package realaccounts

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/pump/storage"
)

// blobCases are what the pump keeps in blobs. Each is tried by the real binaries.
var blobCases = []struct {
	name string
	try  func(*site)
}{
	{"results", (*site).results},
}

func (tr *trial) blobs(t *testing.T) {
	tried := 0
	t.Cleanup(func() { tr.some(t, tried) })
	for _, c := range blobCases {
		t.Run(c.name, func(t *testing.T) {
			tried++
			c.try(tr.openSite(t, partBlobs, "once"))
		})
	}
}

// results has two processors keep what an endpoint answers, and reads it by `distributor results`:
// each task has one result.
func (s *site) results() {
	answering := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"answer":%q}`, strings.Repeat("kept", 50))
	}))
	s.t.Cleanup(answering.Close)
	lease := []string{"--beat", "1s", "--lease", "5s", "--quiet"}
	for i := range 2 {
		s.start(fmt.Sprintf("processor %d", i+1), "processor",
			append([]string{"run", "--http", answering.URL, "--results", "--concurrency", "64"}, lease...)...)
	}
	s.must(s.t, s.wait(s.start("distributor", "distributor",
		append([]string{"run", "--name", "kept", "--input", s.input, "--key", "id", "--pack", pack}, lease...)...)))
	s.must(s.t, s.wait(s.start("distributor runs wait", "distributor", "runs", "wait", "kept", "--stuck-after", stall.String(), "--quiet")))
	p := s.start("distributor results", "distributor", "results", "kept", "--quiet")
	s.must(s.t, s.wait(p))
	have, twice := map[string]bool{}, 0
	for line := range strings.Lines(p.out.String()) {
		var l struct {
			Key    string
			Result struct{ Answer string }
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil || l.Result.Answer == "" {
			s.fail(s.t, "a result is not whole: %.200s, %v", line, err)
		}
		if have[l.Key] {
			twice++
		}
		have[l.Key] = true
	}
	_, objects, _ := s.budget.sum(func(c counted) bool { return c.part == partBlobs && c.operation == "PutBlob" })
	text := fmt.Sprintf("%d tasks with --results: %d results are missing, %d are there twice; %d puts of blobs.",
		s.tasks, s.tasks-len(have), twice, objects)
	s.report.add("Results in blobs", text, nil)
	s.t.Log(text)
	if len(have) != s.tasks || twice > 0 {
		s.fail(s.t, "%s", text)
	}
}

// refused is for how long the last account refuses every request.
const refused = 15 * time.Second

// refusals deletes a queue that holds nothing, so that its name is taken for a while, and spoils the
// credential of the last account's requests while the pump runs. Each task must be counted exactly
// once in the end.
func (tr *trial) refusals(t *testing.T) {
	s := tr.openSite(t, partRefusals, "once")
	lease := []string{"--beat", "1s", "--lease", "5s", "--quiet"}
	first, last := tr.targets[0], tr.targets[len(tr.targets)-1]
	a, err := tr.open(first, partRefusals)
	tr.must(t, err)
	p := s.start("processor", "processor", append([]string{"run", "--count-by", "city", "--visibility", "8s"}, lease...)...)
	counts, before, want := map[string]int{}, 0, tr.perCity()
	total := func() (n int) { counts, n = s.counts(counts); return n }
	// One task of each city makes the workload and its queues, and is counted.
	var few strings.Builder
	for _, city := range cities {
		fmt.Fprintf(&few, "{\"id\":\"first\",\"city\":%q}\n", city)
		want[city]++
	}
	input := filepath.Join(tr.out, "few.jsonl")
	tr.must(t, os.WriteFile(input, []byte(few.String()), 0o644))
	tr.must(t, s.wait(s.start("distributor", "distributor", append([]string{"run", "--once", "--input", input}, lease...)...)))
	s.await(len(cities), 2*time.Second, total, p)
	names, err := a.Queues(tr.ctx, tr.prefix+"r-")
	tr.must(t, err)
	queue := a.Queue(names[0])
	tr.must(t, queue.Drop(tr.ctx))
	d := s.start("distributor", "distributor", append([]string{
		"run", "--every", "1h", "--input", s.input, "--key", "id", "--pack", pack, "--max-rate", fmt.Sprint(max(float64(tr.tasks)/12, 20)),
	}, lease...)...)
	s.await(tr.tasks/4, 2*time.Second, func() int { before = total(); return before }, p, d)
	last.spoiled.Store(true)
	said, err := tr.denials(last)
	err = errors.Join(err, wait(tr.ctx, refused))
	last.spoiled.Store(false)
	tr.must(t, err)
	healed := time.Now()
	s.await(tr.tasks+len(cities), 2*time.Second, total, p, d)
	after := time.Since(healed)
	tr.must(t, wait(tr.ctx, 10*time.Second)) // what comes in twice, comes late
	total()
	answered := func(account string, statuses ...int) int64 {
		queues, others, _ := tr.budget.sum(func(c counted) bool {
			return c.part == partRefusals && c.account == account && (c.status == statuses[0] || c.status == statuses[1])
		})
		return queues + others
	}
	denied, gone := answered(last.name, http.StatusUnauthorized, http.StatusForbidden), answered(first.name, http.StatusNotFound, http.StatusConflict)
	text := fmt.Sprintf("Delivery once, %d tasks. An empty queue of account %s was deleted: %d requests to the account were answered 404 or 409. "+
		"When %d were counted, account %s was sent a wrong credential for %.0f s: %d requests were answered 401 or 403 (%s). In the end %v are counted, %s, %.0f s later.",
		tr.tasks, first.name, gone, before, last.name, refused.Seconds(), denied, said, counts, exactly[maps.Equal(counts, want)], after.Seconds())
	tr.report.add("Refusals", text, nil)
	t.Log(text)
	if _, err := queue.Peek(tr.ctx, 1); err != nil && !storage.Ambiguous(err) {
		tr.fail(t, "the queue that was deleted is not there again: %v", err)
	}
	if !maps.Equal(counts, want) || denied == 0 || gone == 0 {
		tr.fail(t, "%s", text)
	}
}

// denials is what each service of an account answers to a credential that is wrong. The driver must
// know it for that.
func (tr *trial) denials(t *target) (string, error) {
	a, err := tr.open(t, partRefusals)
	if err != nil {
		return "", err
	}
	var said []string
	for _, q := range []question{
		{path: "/", query: url.Values{"comp": {"list"}}},
		{service: "table", path: "/Tables"},
		{service: "blob", path: "/", query: url.Values{"comp": {"list"}}},
	} {
		if q.service == "blob" && t.blobs == "" {
			continue
		}
		re, err := ask(tr.ctx, a, q)
		if err != nil {
			return "", err
		}
		said = append(said, re.answer())
	}
	if _, err := a.Queues(tr.ctx, mark); !storage.Is(err, storage.Auth) {
		return "", fmt.Errorf("the driver takes a wrong credential for another failure: %w", err)
	}
	return strings.Join(said, ", "), nil
}
