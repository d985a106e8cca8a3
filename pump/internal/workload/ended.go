package workload

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/storage"
)

// EndedRun is the news, in the workload's row, that an operator has ended a run. The run's own row
// is the truth: processors that have read it before read it again.
type EndedRun struct {
	Run codec.RunID
	// Number is higher than that of any end before: a run that was ended can be ended again, so that
	// its tasks are dropped, and by then the row may have forgotten the first end.
	Number int
}

// KeptEnded is how many of them the row has at most. A reader that finds that many new ones may
// have missed others.
const KeptEnded = 32

// NoteEnded tells all processors, with their next look, that a run was ended.
func NoteEnded(ctx context.Context, t storage.Table, workload string, id codec.RunID) error {
	_, _, err := changeRow(ctx, t, workload, func(is Row) (Row, bool, error) {
		news := EndedRun{id, 1}
		for _, e := range is.ended {
			news.Number = max(news.Number, e.Number+1)
		}
		ended := slices.DeleteFunc(slices.Clone(is.ended), func(e EndedRun) bool { return e.Run == id })
		ended = append(ended, news)
		is.ended = ended[max(0, len(ended)-KeptEnded):]
		return is, true, nil
	})
	return err
}

func encodeEnded(ended []EndedRun) string {
	words := make([]string, len(ended))
	for i, e := range ended {
		words[i] = fmt.Sprintf("%v:%d", e.Run, e.Number)
	}
	return strings.Join(words, " ")
}

func decodeEnded(f *row.Fields) (ended []EndedRun) {
	for word := range strings.FieldsSeq(f.Text("Ended")) {
		id, number, _ := strings.Cut(word, ":")
		run, err := codec.ParseRunID(id)
		n, errNumber := strconv.Atoi(number)
		if err != nil || errNumber != nil || n < 1 || len(ended) == KeptEnded {
			f.Fail("Ended", "is not a list of runs")
			return nil
		}
		ended = append(ended, EndedRun{run, n})
	}
	return ended
}
