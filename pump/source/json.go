package source

import "github.com/queuepump/queuepump/internal/jsonline"

// jsonLines is the format of JSON Lines: the body is the line as it stands.
type jsonLines struct {
	task *jsonline.Task
	ids  idStrings
}

func newJSONLines(key, id string) *jsonLines { return &jsonLines{task: jsonline.NewTask(key, id)} }

func (f *jsonLines) start(*lineReader) error { return nil }

func (f *jsonLines) next(c *lineReader, rec *Record) error {
	line, err := nextLine(c)
	if err != nil {
		return err
	}
	if err := f.record(line, rec); err != nil {
		return &BadInput{Raw: keep(line), Err: err}
	}
	return nil
}

func (f *jsonLines) record(line []byte, rec *Record) error {
	key, id, _, err := f.task.Read(line)
	if err != nil {
		return err
	}
	if !f.task.Keyed {
		key = line
	}
	rec.Key, rec.ID, rec.Body = key, f.ids.make(id), line
	return nil
}
