package report_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/loadtest/report"
)

// A file may come from anybody: what is read can be shown and compared, whatever is in it.
func FuzzWhatIsReadCanBeShown(f *testing.F) {
	for _, scenario := range []string{"soak", report.Hostile} {
		var b bytes.Buffer
		must(f, report.Sample(scenario, 1).Write(&b))
		f.Add(b.Bytes())
	}
	f.Add(
		[]byte(
			`{"format":1,"scenario":"s","accounts":[{"limit":5}],"phases":[{"accounts":-1},{"accounts":9,"from":9,"to":-9}]}`,
		),
	)
	f.Add(
		[]byte(
			`{"format":1,"scenario":"s","curve":{"points":[{"x":-1e308,"value":1e308},{"x":1e308,"value":-1e308,"limit":1e-308}]}}`,
		),
	)
	f.Add(
		[]byte(
			`{"format":1,"scenario":"s","events":[{"at":-1e300,"text":"e"}],"series":{"interval":1e308,"sentPerSecond":[1e308,-1e308],"handledPerSecond":[1e-308,0],` +
				`"putPerSecond":[0,0],"takenPerSecond":[0,0],"throttledPerSecond":[0,0],"failedPerSecond":[0,0],"fromScheduleP50":[-1,1e308],"fromScheduleP99":[null,0],` +
				`"fromSendP50":[null,1],"fromSendP99":[1e-300,null],"memoryBytes":[-1,1e308]}}`,
		),
	)
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := report.Read(bytes.NewReader(text))
		if err != nil {
			return
		}
		c, err := report.Compare([]*report.Result{r}, []*report.Result{r})
		must(t, err)
		proof.Is(t, errors.Join(r.Text(io.Discard), r.HTML(io.Discard), r.Write(io.Discard), c.Text(io.Discard), c.HTML(io.Discard)), nil)
	})
}
