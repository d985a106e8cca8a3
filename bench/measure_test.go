package bench

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	PlayRole()
	os.Exit(m.Run())
}

// Each way takes all tasks there and back (the client fails if it does not), and is
// measured: with the CPU of the client and the requests and connections that the simulator saw.
func TestEveryWayBringsAllTasksBackAndIsMeasured(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	dir := t.TempDir()
	const tasks = 300
	for _, r := range []Run{
		{Way: PlainSDK, Over: OverTLS, Tasks: tasks},
		{Way: PlainWorkers, Over: OverTCP, Tasks: tasks},
		{Way: TunedSDK, Over: OverTCP, Tasks: tasks},
		{Way: PackOne, Over: OverTLS, Tasks: tasks},
		{Way: Packed, Over: OverTCP, Tasks: tasks},
		{Way: Floor, Over: Nowhere, Tasks: 20_000},
		{Way: StandardFloor, Over: Nowhere, Tasks: 20_000},
		{Way: PackedBatches, Over: InProcess, Tasks: 400_000}, // or a profile of 100 looks a second might miss the simulator
	} {
		m, err := Measure(t.Context(), dir, r)
		if err != nil {
			t.Error(err)
			continue
		}
		t.Logf("%-26s %-10s %7d tasks: put %.3f s, take %.3f s of CPU, %d connections, %v", m.Way, m.Over, m.Tasks, m.Put.CPUSeconds, m.Take.CPUSeconds, m.Connections, m.Requests)
		if m.Way != r.Way || m.Over != r.Over || m.Tasks != int64(r.Tasks) || m.Put.CPUSeconds <= 0 || m.Take.CPUSeconds <= 0 || m.PeakBytes < 1<<20 {
			t.Errorf("%+v gave %+v", r, m)
		}
		switch r.Way {
		case PlainSDK, PlainWorkers, TunedSDK, PackOne:
			if m.Requests["PutMessage"] != tasks || m.Requests["DeleteMessage"] != tasks || m.Messages != tasks {
				t.Errorf("%s: %d messages for %d tasks, requests %v", r.Way, m.Messages, tasks, m.Requests)
			}
		case Packed, PackedBatches:
			if m.Requests["PutMessage"] != m.Messages || m.Messages < 1 || m.Messages > m.Tasks {
				t.Errorf("%s: %d messages, requests %v", r.Way, m.Messages, m.Requests)
			}
		}
		if r.Over == OverTCP || r.Over == OverTLS {
			if m.Connections < 1 {
				t.Errorf("%s: %d connections", r.Way, m.Connections)
			}
		}
		if r.Over == InProcess && m.Put.SimulatorSeconds+m.Take.SimulatorSeconds <= 0 {
			t.Errorf("the profile found nothing of the simulator: %+v", m)
		}
	}
}
