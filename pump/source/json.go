package source

import "github.com/queuepump/queuepump/internal/jsonline"

// jsonLines is the format of JSON Lines: the body is the line as it stands.
type jsonLines struct {
	scanner *jsonline.Scanner
	key, id *jsonline.Field
	keyBuf  []byte
	idBuf   []byte
	ids     idStrings
}

func newJSONLines(key, id string) *jsonLines {
	f := &jsonLines{}
	var fields []*jsonline.Field
	if key != "" {
		f.key = jsonline.NewField(key)
		fields = append(fields, f.key)
	}
	if id != "" {
		f.id = jsonline.NewField(id)
		fields = append(fields, f.id)
	}
	f.scanner = jsonline.NewScanner(fields...)
	return f
}

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

func (f *jsonLines) record(line []byte, rec *Record) (err error) {
	if err := f.scanner.Scan(line); err != nil {
		return err
	}
	rec.Key, rec.ID, rec.Body = line, "", line
	if f.key != nil {
		if rec.Key, f.keyBuf, err = f.key.Text(f.keyBuf); err != nil {
			return err
		}
	}
	if f.id != nil {
		var id []byte
		if id, f.idBuf, err = f.id.Text(f.idBuf); err != nil {
			return err
		}
		rec.ID = f.ids.make(id)
	}
	return nil
}
