package jsonline

// Task finds the key and the id of a task that is a JSON value. It belongs to one goroutine.
type Task struct {
	Keyed         bool // a field has the key
	scanner       *Scanner
	key, id       *Field // nil: there is none
	keyBuf, idBuf []byte
}

// maxTaskDepth is how deeply a task may be nested: parsers of handlers end at about 1,000.
const maxTaskDepth = 512

// NewTask finds fields by their names; an empty one is not looked for.
func NewTask(key, id string) *Task {
	t := &Task{Keyed: key != ""}
	var fields []*Field
	for _, f := range []struct {
		name string
		to   **Field
	}{{key, &t.key}, {id, &t.id}} {
		if f.name != "" {
			*f.to = NewField(f.name)
			fields = append(fields, *f.to)
		}
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
