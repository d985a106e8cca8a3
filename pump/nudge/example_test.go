package nudge_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/nudge"
)

// process stands for a processor or a distributor.
type process struct{}

func (process) Nudged(n pump.Nudge) { fmt.Println("look at gate", n.Gate) }

// A program's own server takes hints for its processor p: Config.Admin is its address, and
// Config.Instance is "worker-1".
func ExampleHandler() {
	var p process
	mux := http.NewServeMux()
	mux.Handle(nudge.Path, nudge.Handler(p, "worker-1"))

	for _, query := range []string{"?instance=worker-1&gate=morning", "?instance=another"} {
		answer := httptest.NewRecorder() // another process asks this
		mux.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, nudge.Path+query, nil))
		fmt.Println(answer.Code)
	}
	// Output:
	// look at gate morning
	// 204
	// 421
}
