package bench

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/queuepump/queuepump/pump"
)

func TestMain(m *testing.M) {
	PlayRole()
	os.Exit(m.Run())
}

// Each way takes all tasks there and back (the client fails if it does not), and is
// measured: with the CPU of the client and the requests and connections that the simulator saw.
func TestEveryWayBringsAllTasksBackAndIsMeasured(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the binaries and starts processes")
	}
	dir := t.TempDir()
	if err := BuildBinaries(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	for _, r := range compared(20_000, 20_000, 300) {
		if r.Over == InProcess {
			r.Tasks = 400_000 // or a profile of 100 looks a second might miss the simulator
		}
		m, err := Measure(t.Context(), dir, r)
		if err != nil {
			t.Error(err)
			continue
		}
		t.Log(m)
		if m.Way != r.Way || m.Over != r.Over || m.Tasks != int64(r.Tasks) || m.Put.CPUSeconds <= 0 ||
			m.Take.CPUSeconds <= 0 {
			t.Errorf("%+v gave %+v", r, m)
		}
		if m.Put.PeakBytes < 1<<20 || m.Take.PeakBytes < 1<<20 || m.Put.Seconds <= 0 || m.Take.Seconds <= 0 {
			t.Errorf("%s: memory or time is not known: %+v", r.name(), m)
		}
		single := r.Way == Rival || r.Way == PackOne
		if single && (m.Requests["DeleteMessage"] != m.Tasks || m.Messages != m.Tasks) {
			t.Errorf("%s: %d messages for %d tasks, requests %v", r.name(), m.Messages, m.Tasks, m.Requests)
		}
		if r.Way != Floor && m.Requests["PutMessage"] != m.Messages || m.Messages < 1 || m.Messages > m.Tasks {
			t.Errorf("%s: %d messages, requests %v", r.name(), m.Messages, m.Requests)
		}
		if r.Over == OverTCP && m.Connections < 1 {
			t.Errorf("%s: %d connections", r.name(), m.Connections)
		}
		if r.Over == InProcess && m.Put.SimulatorSeconds+m.Take.SimulatorSeconds <= 0 {
			t.Errorf("the profile found nothing of the simulator: %+v", m)
		}
	}
}

// The operating system says on which core a command ran, and Go how many it had.
func TestAChildHasACoreOfItsOwn(t *testing.T) {
	c := ownCores()
	if !c.pinned {
		t.Skip("there is one core, or no taskset")
	}
	if c.client == c.server {
		t.Fatalf("both are on core %d", c.client)
	}
	for _, core := range []int{c.client, c.server} {
		out, err := c.command(context.Background(), core, "cat", "/proc/self/status").Output()
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(out)) {
			list, ok := strings.CutPrefix(line, "Cpus_allowed_list:")
			if ok && !slices.Equal(coreList(strings.TrimSpace(list)), []int{core}) {
				t.Errorf("on core %d the list is %s", core, list)
			}
		}
	}
	if env := c.command(context.Background(), 0, "cat").Env; !slices.Contains(env, "GOMAXPROCS=1") {
		t.Error("GOMAXPROCS is not 1")
	}
}

func TestListsOfCoresAreRead(t *testing.T) {
	for text, want := range map[string][]int{
		"0-1": {0, 1}, "3": {3}, "0,2-4,9": {0, 2, 3, 4, 9}, "": nil, "all": nil, "1-x": nil,
	} {
		if got := coreList(text); !slices.Equal(got, want) {
			t.Errorf("%q gave %v, want %v", text, got, want)
		}
	}
}

// A package without benchmarks would be left out of the results without a word.
func TestEveryPartHasABenchmark(t *testing.T) {
	for _, pkg := range stagePackages {
		files, err := filepath.Glob(filepath.Join("..", pkg, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		found := slices.ContainsFunc(files, func(file string) bool {
			text, err := os.ReadFile(file)
			return err == nil && strings.Contains(string(text), "\nfunc Benchmark")
		})
		if !found {
			t.Errorf("%s has no benchmark", pkg)
		}
	}
}

// The handlers of both notice that a body is not what was put.
func TestABodyThatIsNotTheLineIsNoticed(t *testing.T) {
	input := filepath.Join(t.TempDir(), "tasks.jsonl")
	if err := os.WriteFile(input, []byte("one\ntwo\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for body, says := range map[string]bool{"two": false, "tow": true} {
		var r reading
		for _, b := range []string{"one", body} {
			if err := r.Handle(t.Context(), &pump.Task{Body: []byte(b)}); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.check(job{Input: input}, Measurement{Tasks: 2}); (err != nil) != says {
			t.Errorf("%s: %v", body, err)
		}
	}
	var r reading
	if err := r.check(job{Input: input}, Measurement{Tasks: 2}); err == nil {
		t.Error("two tasks that never came are not missed")
	}
	if checksum([]string{"one", "two"}) != checksum([]string{"two", "one"}) ||
		checksum([]string{"one"}) == checksum([]string{"eno"}) {
		t.Error("the rival's sum depends on the order of lines, or not on their bytes")
	}
}
