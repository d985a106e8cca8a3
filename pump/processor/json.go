package processor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/queuepump/queuepump/pump"
)

// JSON makes a handler of a function that takes the body of a task as a T, which encoding/json
// decodes. A body that does not decode, null among them, is rejected at once: it goes into
// quarantine with a cause that names the field, and takes no attempts. Fields that T does not have
// are left out. What f returns means what it means in [pump.Handler]; [TaskOf] gives f the rest of
// the task.
func JSON[T any](f func(ctx context.Context, task T) error) pump.Handler {
	return pump.HandlerFunc(func(ctx context.Context, t *pump.Task) error {
		task, err := decode[T](t.Body)
		if err != nil {
			return pump.Reject(err)
		}
		return f(context.WithValue(ctx, taskKey{}, t), task)
	})
}

type taskKey struct{}

// TaskOf is the task that a function given to [JSON] works on, by its context: its key, id, run,
// attempt and body. It is nil in any other context.
func TaskOf(ctx context.Context) *pump.Task {
	t, _ := ctx.Value(taskKey{}).(*pump.Task)
	return t
}

func decode[T any](body []byte) (task T, err error) {
	err = json.Unmarshal(body, &task)
	if err == nil && bytes.Equal(bytes.TrimSpace(body), []byte("null")) {
		err = errors.New("it is null")
	}
	if err == nil {
		return task, nil
	}
	if syntax, is := errors.AsType[*json.SyntaxError](err); is {
		err = fmt.Errorf("%w, at byte %d", err, syntax.Offset)
	} else if wrong, is := errors.AsType[*json.UnmarshalTypeError](err); is && wrong.Field != "" {
		err = fmt.Errorf("field %q: a %s does not fit %v", wrong.Field, wrong.Value, wrong.Type)
	} else if field := wrongField[T](body); field != "" {
		err = fmt.Errorf("field %q: %w", field, err)
	}
	return task, fmt.Errorf("the body does not decode into %T: %w", task, err)
}

// wrongField is the first field of an object that does not decode alone. Types that decode
// themselves, as time.Time does, do not say which field they are.
func wrongField[T any](body []byte) string {
	var fields map[string]json.RawMessage
	_ = json.Unmarshal(body, &fields) // what is not an object has none
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		alone, _ := json.Marshal(map[string]json.RawMessage{name: fields[name]})
		if json.Unmarshal(alone, new(T)) != nil {
			return name
		}
	}
	return ""
}
