package handlers

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/queuepump/queuepump/internal/taskline"
	"github.com/queuepump/queuepump/pump"
)

// outcome is the line that a child prints for a task.
type outcome struct {
	Seq    *uint64         `json:"seq"`
	OK     bool            `json:"ok"`
	Retry  *string         `json:"retry"`
	Busy   *string         `json:"busy"`
	Reject bool            `json:"reject"`
	Error  string          `json:"error"`
	Result json.RawMessage `json:"result"`
}

// answer is what a child says of a task.
type answer struct {
	result json.RawMessage
	err    error
	said   bool // else err says why there is none
}

// maxAnswers bounds the lines that a child prints for one batch.
const maxAnswers = 8 << 20

// outcomes takes the lines that a child prints for the tasks that it was given together. In a batch
// the lines may come in any order, and a line counts for the task of its seq alone: one that is not
// an outcome fails that task, and one that comes again or late is left out. A line that has the seq
// of no task given so far ends the batch.
type outcomes struct {
	first   uint64 // the seq of the first task
	answers []answer
	batch   bool  // as --batch says; else the child has one task, and any other line is garbage
	lines   int   // so many came, ...
	said    int   // ... so many tasks have an answer, ...
	bytes   int   // ... and so long are all lines
	stray   bool  // a line too many came: the child is out of step
	garbage error // the child is unusable
}

// take takes a line, and reports whether more are to come.
func (o *outcomes) take(line []byte) (more bool) {
	i := uint64(0)
	o.lines++
	if o.bytes += len(line); o.bytes > maxAnswers {
		o.garbage = fmt.Errorf("the child printed more than %d MiB for a batch", maxAnswers>>20)
		return false
	}
	if o.batch {
		var is struct{ Seq *uint64 }
		_ = json.Unmarshal(line, &is) // parseOutcome says what is wrong
		if is.Seq == nil || *is.Seq >= o.first+uint64(len(o.answers)) {
			o.garbage = fmt.Errorf("the child printed %q, whose seq is none of its tasks'",
				shorten(string(line), 120))
			return false
		}
		i = *is.Seq - o.first
		if *is.Seq < o.first || o.answers[i].said {
			o.stray = true
			return true
		}
	}
	result, err, garbage := parseOutcome(line, o.first+i)
	if garbage != nil && !o.batch {
		o.garbage = garbage
		return false
	}
	o.answers[i] = answer{slices.Clone(result), cmp.Or(err, garbage), true}
	o.said++
	return o.said < len(o.answers)
}

// maxCause bounds what a child may say about a failure; it travels in the
// header of a quarantined envelope.
const maxCause = 500

// parseOutcome reads a child's line. The first error is what the child says about the task, the
// second says that the line is not an outcome.
//
// The sequence number is required because everything else would be a guess: if a child printed two
// lines for one task, the second would be taken for the next task's, which would be settled without
// having been done.
func parseOutcome(line []byte, seq uint64) (result json.RawMessage, task, garbage error) {
	var o outcome
	garbled := func(why string) (json.RawMessage, error, error) {
		return nil, nil, fmt.Errorf("the child printed %q, which is not an outcome: %s",
			shorten(string(line), 120), why)
	}
	if err := json.Unmarshal(line, &o); err != nil {
		return garbled(err.Error())
	}
	switch {
	case o.Seq == nil:
		return garbled(`it has no "seq"; give back that of the task`)
	case *o.Seq != seq:
		return garbled(fmt.Sprintf("its seq is %d, and the task's is %d; print one line a task, in order",
			*o.Seq, seq))
	}
	said := func(otherwise string) error {
		return errors.New(shorten(cmp.Or(o.Error, otherwise), maxCause))
	}
	wishes := 0
	for _, is := range []bool{o.OK, o.Retry != nil, o.Busy != nil, o.Reject} {
		if is {
			wishes++
		}
	}
	switch {
	case wishes > 1:
		return garbled("it has more than one of ok, retry, busy and reject")
	case o.OK:
		if bytes.Equal(o.Result, []byte("null")) {
			return nil, nil, nil
		}
		if !utf8.Valid(o.Result) { // encoding/json lets it pass
			return taskline.AsResult(o.Result), nil, nil
		}
		return o.Result, nil, nil
	case o.Retry != nil:
		d, err := time.ParseDuration(*o.Retry)
		if err != nil || d < 0 {
			return garbled(`"retry" is not a duration such as "30s"`)
		}
		return nil, pump.RetryAfter(d, said("the command asked for a retry")), nil
	case o.Busy != nil:
		d, err := time.ParseDuration(*o.Busy)
		if err != nil || d < 0 {
			return garbled(`"busy" is not a duration such as "2s"`)
		}
		return nil, pump.Busy(d, said("the command is busy")), nil
	case o.Reject:
		return nil, pump.Reject(said("the command rejected it")), nil
	case o.Error != "":
		return nil, said(""), nil
	}
	return garbled(`it has none of "ok":true, "retry", "busy", "reject":true and "error"`)
}
