package processor

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/internal/taskline"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/internal/results"
	"github.com/queuepump/queuepump/pump/processor/internal/message"
)

// errTooManyResults puts a task back that is not started because too many results wait.
var errTooManyResults = &pump.TaskError{
	Outcome: pump.OutcomeUntried, After: time.Second,
	Err: errors.New("too many results wait to be kept"),
}

// kept are the results that a handler gives of some tasks of a message.
type kept struct {
	mu       sync.Mutex // guards what follows; a handler may go on after it returned
	d        *message.Delivery
	env      *codec.Envelope // d lets go of it when it is settled without the handler
	from, at int             // in the order of starting; at is where the next result is expected
	lines    [][]byte
	over     bool
}

// lineRest is about what a line has beside the result, the key and the id.
const lineRest = 160

func (k *kept) set(t *pump.Task, result []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for range k.lines {
		if k.over {
			return
		}
		at := k.at
		if k.at++; k.at == k.from+len(k.lines) {
			k.at = k.from
		}
		i := k.d.At(at)
		mine := &k.d.Tasks[i]
		if mine == t || len(k.lines) == 1 || k.env.Tasks[i].N == t.N { // t may be a middleware's copy
			line := make([]byte, 0, len(result)+len(mine.Key)+len(mine.ID)+lineRest)
			k.lines[at-k.from] = taskline.AppendResult(line, mine, taskline.AsResult(result))
			return
		}
	}
}

// end says that the handlers have returned: what comes later does not count.
func (k *kept) end() {
	if k != nil {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.over = true
	}
}

// line is the line of a task that is done, which has the result null if the handler gave none.
func (k *kept) line(at int) (line []byte) {
	if line = k.lines[at-k.from]; line == nil {
		line = taskline.AppendResult(nil, &k.d.Tasks[k.d.At(at)], nil)
	}
	return line
}

// keep has the line of a done task kept. A result that is too large is an error.
func (p *workers) keep(d *message.Delivery, at int, line []byte) error {
	if len(line) > results.LineMost {
		return pump.Reject(fmt.Errorf("its result has %d bytes, and %d are the most that are kept",
			len(line), results.LineMost))
	}
	d.Results[d.At(at)] = line
	d.Kept.Add(int64(len(line)))
	p.r.ResultBytes.Add(int64(len(line)))
	return nil
}
