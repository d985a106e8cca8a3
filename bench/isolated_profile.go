package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/google/pprof/profile"
)

// partLabel marks, in a CPU profile, what the simulator does in the process that is measured.
const (
	partLabel     = "part"
	partSimulator = "simulator"
)

var simulatorLabels = pprof.Labels(partLabel, partSimulator)

// isolatedSimulator is a transport that does its work under the simulator's label.
type isolatedSimulator struct{ inner policy.Transporter }

func (s isolatedSimulator) Do(req *http.Request) (resp *http.Response, err error) {
	pprof.Do(req.Context(), simulatorLabels, func(context.Context) { resp, err = s.inner.Do(req) })
	return resp, err
}

// phase does a part of the job and says what it took. Where the simulator is in the
// process, its share of the CPU is found by its label in a profile and left out. The garbage
// collector's own goroutines have no label: what it does on the simulator's account stays in
// the figure.
func (j job) phase(name string, do func() error) (Usage, error) {
	isolates := j.Over == InProcess
	if !isolates && j.Profiles == "" {
		return metered(do)
	}
	var recorded bytes.Buffer
	u, err := metered(func() error {
		if err := pprof.StartCPUProfile(&recorded); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
		return do()
	})
	if err == nil && j.Profiles != "" {
		file := fmt.Sprintf("%s %s %s.pprof", j.Way, j.Over, name)
		file = strings.NewReplacer(" ", "-", ",", "").Replace(file)
		err = os.WriteFile(filepath.Join(j.Profiles, file), recorded.Bytes(), 0o644)
	}
	if err != nil || !isolates {
		return u, err
	}
	share, err := labelledShare(&recorded, partLabel, partSimulator)
	u.SimulatorSeconds = share * u.CPUSeconds
	u.CPUSeconds -= u.SimulatorSeconds
	return u, err
}

var errNoSamples = errors.New(
	"the CPU profile has no samples: the work was too short to be measured this way",
)

// labelledShare is the part of a profile's CPU time, 0 to 1, that was spent under a label.
func labelledShare(recorded *bytes.Buffer, key, value string) (float64, error) {
	p, err := profile.Parse(recorded)
	if err != nil {
		return 0, err
	}
	cpu := slices.IndexFunc(p.SampleType, func(t *profile.ValueType) bool { return t.Type == "cpu" })
	var all, labelled int64
	for _, s := range p.Sample {
		if cpu < 0 {
			break
		}
		all += s.Value[cpu]
		if slices.Contains(s.Label[key], value) {
			labelled += s.Value[cpu]
		}
	}
	if all == 0 {
		return 0, errNoSamples
	}
	return float64(labelled) / float64(all), nil
}
