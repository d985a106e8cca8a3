package distributor_test

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/internal/testkit"
	"github.com/queuepump/queuepump/pump/internal/testworld"
	"github.com/queuepump/queuepump/pump/source"
)

// A line that is its own key stands in its message once, so that it may be as large as one with a
// key. What is too large is told the limit that holds for it, and the way out.
func TestALineThatIsItsOwnKeyIsSentOnce(t *testing.T) {
	line := base64.StdEncoding.EncodeToString(testworld.Incompressible(45_000))
	testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
		path := testkit.Write(t, "lines", line[:33_000]+"\n"+line+"\n")
		_, err := testworld.Made(w, distributor.New, "d", source.Lines(path), distributor.Options{}).Run(t.Context())
		proof.Must(t, err)
		sizes := 0
		for _, bodies := range w.Collect() {
			sizes += len(bodies[0])
		}
		proof.Same(t, sizes, 33_000+len(line), "bytes are in the queues")
	})
	huge := base64.StdEncoding.EncodeToString(testworld.Incompressible(50_000))
	for name, c := range map[string]struct {
		source *source.TextSource
		says   []string
	}{
		"its own key": {
			source.Lines(testkit.Write(t, "lines", huge)),
			[]string{"lines:1: the task is too large for a message (bytes: body 66668, which is its key): compressed"},
		},
		"a key and an id": {
			&source.TextSource{Key: "k", ID: "i", Paths: []string{testkit.Write(t, "jsonl", `{"k":"key","i":"id","b":"`+huge+`"}`)}},
			[]string{"(bytes: key 3, id 2, body 66695)", "beside the header; give --blob-above 40KiB (with delivery: once), or put the body into a blob and send"},
		},
		"a line": {
			source.Lines(testkit.Write(t, "lines", strings.Repeat("x", 2<<20))),
			[]string{"lines:1: longer than the longest line allowed, 1048576 bytes (--max-line); allow up to"},
		},
	} {
		testworld.In(t, testworld.Plain, 1, 1, nil, func(t *testing.T, w *testworld.World) {
			_, err := testworld.Made(w, distributor.New, "d", c.source, distributor.Options{}).Run(t.Context())
			for _, part := range c.says {
				proof.Says(t, err, part, name, "lacks")
			}
		})
	}
}
