package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"testing"
)

func TestLinesAreDrawnAsADocumentOfTheirOwnWithTheirNames(t *testing.T) {
	svg, err := DrawLines("hours", "rows", Plotted{"of <runs>", []float64{0, 1, 2}, []float64{1, 3, 2}}, Plotted{"of ledgers", []float64{0, 2}, []float64{1, 1}})
	if err != nil {
		t.Fatal(err)
	}
	d := xml.NewDecoder(bytes.NewReader(svg))
	for {
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
