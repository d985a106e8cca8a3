package jsonline

import (
	"bytes"
	"errors"
)

// Task finds the key and the id of a task that is a JSON value. It belongs to one goroutine.
type Task struct {
	Keyed         bool // a field has the key
	scanner       *Scanner
	key, id       *Field // nil: there is none
	keyBuf, idBuf []byte
}

// maxTaskDepth is how deeply a task may be nested: parsers of handlers end at about 1,000.
const maxTaskDepth = 512

// TooDeep reports whether text is JSON that is nested more deeply than a task may be. What stands
// behind that depth is not looked at.
func TooDeep(text []byte) bool {
	s := Scanner{deep: maxTaskDepth}
	return bytes.Count(text, []byte("["))+bytes.Count(text, []byte("{")) > maxTaskDepth &&
		errors.Is(s.Scan(text), errDeep)
}

// NewTask finds fields by their names; an empty one is not looked for.
func NewTask(key, id string) *Task {
	t := &Task{Keyed: key != ""}
	var fields []*Field
	if key != "" {
		t.key = NewField(key)
		fields = append(fields, t.key)
	}
	if id != "" {
		t.id = NewField(id)
		fields = append(fields, t.id)
	}
	t.scanner = NewScanner(fields...)
	t.scanner.deep = maxTaskDepth
	return t
}

// Read gives key and id, which are valid until the next call. An error may be that of a field.
func (t *Task) Read(text []byte) (key, id []byte, field string, err error) {
	if err := t.scanner.Scan(text); err != nil {
		return nil, nil, "", err
	}
	if t.key != nil {
		if key, t.keyBuf, err = t.key.Text(t.keyBuf); err != nil {
			return nil, nil, t.key.Name, err
		}
	}
	if t.id != nil {
		if id, t.idBuf, err = t.id.Text(t.idBuf); err != nil {
			return nil, nil, t.id.Name, err
		}
	}
	return key, id, "", nil
}
