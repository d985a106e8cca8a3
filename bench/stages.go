package bench

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/perf/benchfmt"
)

const module = "github.com/queuepump/queuepump/"

// stagePackages are the parts along the data path.
var stagePackages = []string{
	"./codec", "./shardmap", "./pump/source", "./pump/distributor/internal/pack", "./pump/processor",
	"./pump/internal/quota", "./pump/internal/ledger", "./pump/storage/azure", "./internal/handlers",
}

// runStages runs the benchmarks of the parts, each for a time, and reads what they print.
func runStages(ctx context.Context, each time.Duration) ([]Stage, error) {
	args := append(
		[]string{"test", "-run", "^$", "-bench", ".", "-benchmem", "-benchtime", each.String()},
		stagePackages...)
	cmd := exec.CommandContext(ctx, "go", args...)
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%v: %w\n%s%s", cmd.Args, err, stderr.String(), failures(out.String()))
	}
	return parseStages(&out)
}

// parseStages reads the output of `go test -bench`.
func parseStages(out io.Reader) (stages []Stage, err error) {
	r := benchfmt.NewReader(out, "go test -bench")
	for r.Scan() {
		res, ok := r.Result().(*benchfmt.Result)
		if !ok {
			continue // lines of other kinds
		}
		s := Stage{
			Package: strings.TrimPrefix(res.GetConfig("pkg"), module), Values: map[string]float64{},
		}
		base, parts := res.Name.Parts()
		s.Name = string(base)
		for _, p := range parts {
			if p[0] != '-' { // the number of processors
				s.Name += string(p)
			}
		}
		for _, v := range res.Values {
			// The reader turns ns/op into sec/op and keeps what was printed beside it.
			if v.OrigUnit != "" {
				s.Values[v.OrigUnit] = v.OrigValue
			} else {
				s.Values[v.Unit] = v.Value
			}
		}
		stages = append(stages, s)
	}
	return stages, r.Err()
}

// failures are the lines of a failed `go test` that say why.
func failures(out string) string {
	var b strings.Builder
	for line := range strings.Lines(out) {
		if !strings.HasPrefix(line, "Benchmark") && !strings.HasPrefix(line, "ok ") {
			b.WriteString(line)
		}
	}
	return b.String()
}
