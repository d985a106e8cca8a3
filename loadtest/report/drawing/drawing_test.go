package drawing

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"testing"

	"github.com/queuepump/queuepump/loadtest/report"
)

func TestADocumentNamesItsLines(t *testing.T) {
	values := func(all ...float64) (ys []*float64) {
		for _, v := range all {
			ys = append(ys, &v)
		}
		return ys
	}
	svg, err := Document(&report.Chart{X: "hours", Y: "rows", AtZero: true, Traces: []report.Trace{
		{Name: "of <runs>", X: []float64{0, 1, 2}, Y: values(1, 3, 2)},
		{Name: "of ledgers", X: []float64{0, 2}, Y: values(1, 1)},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"of ledgers", "hours", "rows", "xmlns", "of &lt;runs&gt;"} {
		if !bytes.Contains(svg, []byte(want)) {
			t.Errorf("it has no %q", want)
		}
	}
}
