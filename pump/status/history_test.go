package status

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/queuepump/queuepump/internal/proof"
	"github.com/queuepump/queuepump/pump/internal/sampling"
)

func TestTheHistoryReachesAsFarBackAsItsRows(t *testing.T) {
	proof.Same(t, HistorySpan, sampling.Span, "it says …, and the rows")
}

// A field more in the rows is not forgotten here.
func TestTheHistoryHasAllThatItsRowsHave(t *testing.T) {
	var row sampling.HistoryPoint
	row.Accounts = make([]sampling.HistoryAccount, 1)
	fillFields(reflect.ValueOf(&row).Elem())
	fillFields(reflect.ValueOf(&row.Accounts[0]).Elem())
	have, err := json.Marshal(pointOf(&row))
	proof.Must(t, err)
	want, err := json.Marshal(row)
	proof.Must(t, err)
	proof.Same(t, cmp.Diff(string(want), string(have)), "")
}

func fillFields(of reflect.Value) {
	for i := range of.NumField() {
		switch f := of.Field(i); f.Kind() {
		case reflect.String:
			f.SetString("x")
		case reflect.Bool:
			f.SetBool(true)
		case reflect.Float64:
			f.SetFloat(float64(i) + 1.5)
		case reflect.Uint64:
			f.SetUint(uint64(i) + 1)
		case reflect.Struct:
			if f.Type() == reflect.TypeFor[sampling.Requests]() {
				fillFields(f)
			}
		}
	}
}
